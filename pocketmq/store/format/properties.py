"""The property string of a message: `name 0x01 value 0x02 name 0x01 value ...`.

Writers differ in whether the last 0x02 is there (4.9 drops it, 5.x keeps it); readers accept both. The order has no meaning.
The first 0x01 of an entry separates name and value. Entries with an empty name or an empty value are dropped when read, as
Java's MessageDecoder.string2messageProperties does.

No checksum covers the stored string, and a torn write leaves zeros in it. PocketMQ therefore never stores an *odd* string:
each entry has a name and a value, no name occurs twice, and no byte is zero. Recovery may treat all other strings as torn.
"""

import re
from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
ZERO: Final = "\0"
_NOT_IN_NAME: Final = re.compile("[\0\x01\x02]")
_NOT_IN_VALUE: Final = re.compile("[\0\x02]")

# The property names that the store itself uses.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
CRC32: Final = "__CRC32#"  # 5.x: over the whole record before it


def decode_properties(text: str | bytes | memoryview) -> dict[str, str]:
    """Return name -> value of a property string, given as text or as UTF-8 (invalid bytes become U+FFFD, as in Java)."""
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        name, _, value = entry.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: dict[str, str]) -> str:
    """Return the string of `properties`, without a last separator, as 4.9 stores it.

    Empty names and values, which readers drop, are left out; zeros and separators are replaced by U+FFFD.
    """
    text = joined(properties)
    # If there are as many separators as entries, no name or value contains one. (Counting is cheaper than parsing.)
    if (
        ZERO in text
        or text.count(NAME_VALUE_SEPARATOR) != len(properties)
        or text.count(PROPERTY_SEPARATOR) != max(len(properties) - 1, 0)
        or "" in properties
        or "" in properties.values()
    ):
        legal = {_NOT_IN_NAME.sub("\ufffd", name): _NOT_IN_VALUE.sub("\ufffd", value) for name, value in properties.items()}
        return joined({name: value for name, value in legal.items() if name and value})
    return text


def joined(properties: dict[str, str]) -> str:
    """Return the string of `properties`, none of which may be odd."""
    # Faster than a list of f-strings.
    return PROPERTY_SEPARATOR.join(map(NAME_VALUE_SEPARATOR.join, properties.items()))


def is_odd(text: str, properties: dict[str, str]) -> bool:
    """Return whether a string has entries that are not in `properties`, which were read from it."""
    return bool(text) and text.count("\x02") + (text[-1] != "\x02") != len(properties)


def entries_from(text: bytes | memoryview) -> str:
    """Return the *entries* of a property string: its bytes as Latin-1, with a separator added before and after them.

    Each entry is then between two separators. Latin-1 maps each byte to a character and back. Searching a `str` is faster
    than searching `bytes` in Python 3.11.
    """
    return f"\x02{str(text, 'latin-1')}\x02"


def mark_of(name: str) -> str:
    """Return the *mark* of a property: the text that precedes its value in entries."""
    return as_entry(f"{PROPERTY_SEPARATOR}{name}{NAME_VALUE_SEPARATOR}")


def as_entry(text: str) -> str:
    """Encode a text as in entries."""
    return str(text.encode("utf-8", "surrogatepass"), "latin-1")


def text_of(part: str) -> str:
    """Decode a part of entries; invalid bytes become U+FFFD, as in Java."""
    return part if part.isascii() else str(part.encode("latin-1"), "utf-8", "replace")


def value_of(entries: str, mark: str) -> str | None:
    """Return the undecoded value (see `text_of`) of the property with this mark, or None, as `decode_properties` finds it.

    Cheaper than decoding all properties.
    """
    return entries.rpartition(mark)[2].partition("\x02")[0] or value_before_empty(entries, mark)


def value_before_empty(entries: str, mark: str) -> str | None:
    """Return the last non-empty value of a property, or None; used if its last entry is empty or if it is absent."""
    end = len(entries)
    while (begin := entries.rfind(mark, 0, end)) >= 0:
        value_begin = begin + len(mark)
        value_end = entries.find(PROPERTY_SEPARATOR, value_begin)
        if value_end != value_begin:
            return entries[value_begin : value_end if value_end >= 0 else None] or None
        end = begin
    return None

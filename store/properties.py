"""The property string of a message: `name 0x01 value 0x02 name 0x01 value ...`.

Writers differ in whether the last 0x02 is there (4.9 drops it, 5.x keeps it); readers accept both. Order means nothing.
Entries with an empty name or an empty value are dropped when read, as Java's MessageDecoder.string2messageProperties does.
"""

from typing import Final

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

# The property names that the store itself looks at.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"


def decode_properties(text: str | bytes | memoryview) -> dict[str, str]:
    """Name -> value of a property string, as text or as its UTF-8 bytes (bad bytes become U+FFFD, as in Java)."""
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties: dict[str, str] = {}
    for entry in text.split(PROPERTY_SEPARATOR):
        name, separator, value = entry.partition(NAME_VALUE_SEPARATOR)
        # A second 0x01 makes Java's split yield three parts, and the entry is ignored.
        if name and value and NAME_VALUE_SEPARATOR not in value:
            properties[name] = value
    return properties


def encode_properties(properties: dict[str, str]) -> str:
    """The string of `properties`, without a last separator, as 4.9 stores it."""
    return PROPERTY_SEPARATOR.join(f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items())


def property_value(data: bytes, name: bytes) -> bytes | None:
    """Value of one property straight from the stored bytes, or None; cheaper than decoding them all.

    `name` is looked for at the start of an entry only. Of an entry given twice the last one counts, as in a decoded map.
    """
    mark = name + b"\x01"
    start = data.rfind(b"\x02" + mark)
    if start >= 0:
        start += 1
    elif data.startswith(mark):
        start = 0
    else:
        return None
    start += len(mark)
    end = data.find(b"\x02", start)
    return data[start:] if end < 0 else data[start:end]

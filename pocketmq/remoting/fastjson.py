"""The JSON dialect of Apache's servers and clients, which is that of the library fastjson.

Map keys may be unquoted numbers (`{0:"a"}`) or objects (`{{"brokerName":"b","queueId":0,"topic":"t"}:12}`). `loads` reads
both; an object key becomes its canonical text, as `object_key` writes it. `dumps` writes strict JSON with fields in
alphabetical order, as fastjson does. `object_map` writes a map with object keys, the only form that all Java clients read.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

LOOSE_SIZE_MAX: Final = 256 * 1024
"""Maximum size in bytes of a text that is not strict JSON. Real ones have some 100 bytes per queue or broker."""
ANSWER_SIZE_MAX: Final = 64 * 1024 * 1024
"""The same limit for an answer to a tool, which does nothing else meanwhile."""
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for invalid JSON, text that is not UTF-8, and too deep nesting."""
TOO_DEEP: Final = "objects or lists are nested too deep"

# A string; an unterminated string up to the end of the text; a numeric key; an object key without nested objects. Each match
# begins where the last one ended, and possessive quantifiers prevent backtracking: the time is linear.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ODD: Final = re.compile(
    rf'{_STRING}|".*+|([{{,]\s*+)(?:(-?\d++)(?=\s*+:)|(\{{[^{{}}"]*+(?:{_STRING}[^{{}}"]*+)*+\}})(?=\s*+:))', re.DOTALL
)


# Text up to an escaped surrogate without its other half, in one piece; or that surrogate.
_LONE: Final = re.compile(
    r"((?:[^\\]++|\\[^u]|\\u(?:[^dD]|[dD][^89a-fA-F])|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)++)|\\u[dD][89a-fA-F]..", re.DOTALL
)


def valid_unicode(text: bytes) -> bytes:
    """Return JSON whose bytes that are not UTF-8 are U+FFFD, and whose lone surrogates are `?`, as Apache's servers read it.

    Clients in C++ and PHP send texts in their own encoding (GBK), those in Node and Python escape halves of a character.
    """
    return _LONE.sub(lambda found: found[1] or "?", text.decode("utf-8", "replace")).encode()


def loads(text: bytes | str, loose_size_max: int = LOOSE_SIZE_MAX) -> Any:
    """Parse JSON; with unquoted keys, or not valid Unicode, of at most `loose_size_max` bytes. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if len(text) > loose_size_max:
            raise ValueError(
                f"{error}; JSON with unquoted keys may have at most {loose_size_max} bytes, not {len(text)}"
            ) from None
    valid = valid_unicode(text if isinstance(text, bytes) else text.encode("utf-8", "replace")).decode()
    try:
        return msgspec.json.decode(_ODD.sub(_strict, valid))
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _strict(found: re.Match[str]) -> str:
    """Return the match as strict JSON; an object key becomes a string with its canonical text."""
    before, number, object_text = found.groups()
    if number is not None:
        return f'{before}"{number}"'
    if object_text is None:
        return found[0]
    canonical = msgspec.json.encode(msgspec.json.decode(object_text), order="sorted").decode()
    return before + msgspec.json.encode(canonical).decode()


def dumps(value: Any) -> bytes:
    """Return compact strict JSON, fields in alphabetical order; struct declarations decide whether None is written."""
    return msgspec.json.encode(value, order="sorted")


def object_key(broker_name: str, queue_id: int, topic: str) -> bytes:
    """Return a MessageQueue as an object key of a map."""
    return b'{"brokerName":%b,"queueId":%d,"topic":%b}' % (
        msgspec.json.encode(broker_name),
        queue_id,
        msgspec.json.encode(topic),
    )


def joined_map(rows: Iterable[bytes]) -> msgspec.Raw:
    """Return a map as raw JSON; each of `rows` is a key and its value."""
    return msgspec.Raw(b"{" + b",".join(rows) + b"}")


def object_map(rows: Iterable[tuple[bytes, Any]]) -> msgspec.Raw:
    """Return a map of (object key text, value) as raw JSON, to be embedded in a value for `dumps`."""
    return joined_map(key + b":" + dumps(value) for key, value in rows)

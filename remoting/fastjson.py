"""The JSON dialect of the peers.

Apache's servers and clients write with fastjson: map keys that are numbers stand bare (`{0:"a"}`), and so do keys that are
objects (`{{"brokerName":"b","queueId":0,"topic":"t"}:12}`). `loads` reads both into Python (an object key becomes its
canonical text, as `object_key` writes it); `dumps` writes strict JSON, fields in alphabetical order as fastjson does;
`object_map` writes a map with object keys, the only form that all Java clients read.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

LOOSE_SIZE_MAX: Final = 256 * 1024
"""Bytes of a text that is no strict JSON. Real ones have 100 a queue of a topic, or a broker of a cluster."""
TOO_DEEP: Final = "objects or lists stand too deep within each other"

# A string, or one that is not ended, which goes up to the text's end; a bare key; an object key, which has no object within
# it. Each begins where the last one ended, and nothing is given back that was read: the work is linear.
_STRING: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ODD: Final = re.compile(
    rf'{_STRING}|".*+|([{{,]\s*+)(?:(-?\d++)(?=\s*+:)|(\{{[^{{}}"]*+(?:{_STRING}[^{{}}"]*+)*+\}})(?=\s*+:))', re.DOTALL
)


def loads(text: bytes | str) -> Any:
    """Parse JSON, with bare numeric keys and object keys allowed. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except msgspec.DecodeError as error:
        if len(text) > LOOSE_SIZE_MAX:
            raise ValueError(
                f"{error}; of JSON with bare keys at most {LOOSE_SIZE_MAX} bytes are read, not {len(text)}"
            ) from None
    if isinstance(text, bytes):
        text = text.decode()
    try:
        return msgspec.json.decode(_ODD.sub(_strict, text))
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _strict(found: re.Match[str]) -> str:
    """What was found as strict JSON has it: an object key as a string of its canonical text."""
    before, number, object_text = found.groups()
    if number is not None:
        return f'{before}"{number}"'
    if object_text is None:
        return found[0]
    canonical = msgspec.json.encode(msgspec.json.decode(object_text), order="sorted").decode()
    return before + msgspec.json.encode(canonical).decode()


def dumps(value: Any) -> bytes:
    """Strict JSON, compact, object fields in alphabetical order, None fields of structs left to their declaration."""
    return msgspec.json.encode(value, order="sorted")


def object_key(broker_name: str, queue_id: int, topic: str) -> bytes:
    """A MessageQueue as a bare map key."""
    return b'{"brokerName":%b,"queueId":%d,"topic":%b}' % (
        msgspec.json.encode(broker_name),
        queue_id,
        msgspec.json.encode(topic),
    )


def object_map(rows: Iterable[tuple[bytes, Any]]) -> msgspec.Raw:
    """A map of (object key text, value) as raw JSON, to be put into a larger value given to `dumps`."""
    return msgspec.Raw(b"{" + b",".join(key + b":" + dumps(value) for key, value in rows) + b"}")

"""The JSON dialect of the peers.

Apache's servers and clients write with fastjson: map keys that are numbers stand bare (`{0:"a"}`), and so do keys that are
objects (`{{"brokerName":"b","queueId":0,"topic":"t"}:12}`). `loads` reads both into Python (an object key becomes its
canonical text, as `object_key` writes it); `dumps` writes strict JSON, fields in alphabetical order as fastjson does;
`object_map` writes a map with object keys, the only form that all Java clients read.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])\s*(-?\d+)\s*(?=:)', re.DOTALL)


def loads(text: bytes | str) -> Any:
    """Parse JSON, with bare numeric keys and object keys allowed. Raises ValueError."""
    if isinstance(text, bytes):
        text = text.decode()
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        quoted = _STRING_OR_BARE_KEY.sub(lambda m: f'"{m.group(1)}"' if m.group(1) else m.group(0), text)
        return json.loads(_quote_object_keys(quoted))


def _quote_object_keys(text: str) -> str:
    """Turn `{{...}:v` into `{"{...}":v`. Object keys hold no objects of their own."""
    if "{{" not in text.replace(" ", ""):
        return text
    pattern = re.compile(r'([{,]\s*)(\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\})(\s*:)')
    return pattern.sub(lambda m: m.group(1) + json.dumps(_canonical(m.group(2))) + m.group(3), text)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


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

"""Mutations for structured inputs: JSON, frames, lines of text.

The fuzzer itself mutates plain bytes. These mutations usually keep an input parsable, so that it gets further: a frame is
wrapped again with the right lengths, JSON remains JSON.
"""

import json
import random
import struct
from collections.abc import Sequence
from typing import Any

HEAD = struct.Struct(">II")
BINARY_FIXED = struct.Struct(">hBhii")
NODES_MAX = 400


class Pairs(list[Any]):
    """JSON object as (key, value) pairs, which may contain a key twice."""


ODD_NUMBERS: Sequence[Any] = (
    0, 1, -1, 2, 15, 16, 17, 127, 128, 255, 256, 300, 2**15, 2**16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53,
    2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 0.0, -0.0, 1.5, 1e308, 1e-308,
)  # fmt: skip
ODD_TEXTS: Sequence[str] = (
    "", "0", "1", "-1", "true", "false", "null", "9" * 40, "2147483648", "NaN", "Infinity", "1e9", "\0", "\n", "a\nb",
    " ", "x" * 300,
    "é", "\u2028", "\ud800", "𝟓", "%RETRY%g", "%DLQ%g", "TBW102", "*", "||", "../../x", "{}", "[]", "{", '"', "\\", "\\\\\"",
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "%LMQ%x", "T", "g", "127.0.0.1:10911", "::1",
    "DELAY\x013\x02", "TIMER_DELAY_SEC\x015\x02", "TAGS\x01a\x02KEYS\x01k\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02",
    "\x01", "\x02",
)  # fmt: skip
ODD_NAMES: Sequence[str] = (
    "code", "flag", "opaque", "language", "version", "remark", "extFields", "serializeTypeCurrentRPC", "~type", "~body",
    "~raw",
    "~channel", "~", "", "topic", "queueId", "consumerGroup", "brokerName", "clientID", "mqSet", "table",
    "topicConfigTable", "dataVersion",
    "offsetTable", "properties", "b", "i",
)  # fmt: skip
ODD_PIECES: Sequence[bytes] = (
    b'{"', b'\\"', b'"', b"{", b"}", b"[", b"]", b",", b":", b"{{", b"}}", b"{0:", b"null", b"\\u0000", b"\\ud800",
    b"\xff", b"\xc3", b"\0",
    b"-", b"9" * 20, b" ", b"\\", b'\\"' * 20, b"[" * 60, b"{0:" * 20, b'{"a":' * 40, b"1,", b'"a":1,"a":2', b"\n",
)  # fmt: skip


def mutate_json(rng: random.Random, data: bytes) -> bytes:
    """Change some values, keys or the structure; sometimes also the text, so that only a tolerant reader accepts it."""
    try:
        tree = json.loads(data, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return mutate_text(rng, data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tree = _changed(rng, tree)
    text = write_json(tree, rng.choice((False, False, False, True)))
    return mutate_text(rng, text) if rng.random() < 0.25 else text


def mutate_text(rng: random.Random, data: bytes, pieces: Sequence[bytes] = ODD_PIECES) -> bytes:
    """Insert, remove or repeat parts."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 16, 64)))
    how = rng.randrange(5)
    if how == 0:
        return data[:at] + rng.choice(pieces) + data[at:]
    if how == 1:
        return data[:at] + rng.choice(pieces) + data[end:]
    if how == 2:
        return data[:at] + data[end:]
    if how == 3:
        return data[:at] + data[at:end] * rng.choice((2, 3, 10, 40)) + data[end:]
    return data[: max(at, 1)]


def write_json(value: Any, bare_keys: bool = False) -> bytes:
    """Return `value` as JSON; with `bare_keys`, numeric keys are unquoted, as written by Apache."""
    parts: list[str] = []
    _write(value, bare_keys, parts.append)
    return "".join(parts).encode("utf-8", "surrogatepass")


def _write(value: Any, bare_keys: bool, put: Any) -> None:
    if isinstance(value, Pairs):
        put("{")
        for number, (key, item) in enumerate(value):
            put("," if number else "")
            is_bare = bare_keys and key.lstrip("-").isdecimal()
            put(key if is_bare else json.dumps(key))
            put(":")
            _write(item, bare_keys, put)
        put("}")
    elif isinstance(value, list):
        put("[")
        for number, item in enumerate(value):
            put("," if number else "")
            _write(item, bare_keys, put)
        put("]")
    else:
        put(json.dumps(value))


def _changed(rng: random.Random, tree: Any) -> Any:
    """Return `tree` with one change at a random node."""
    places: list[tuple[Any, int]] = []
    waiting = [tree]
    while waiting and len(places) < NODES_MAX:
        node = waiting.pop()
        if isinstance(node, list):
            places += [(node, index) for index in range(len(node))]
            waiting += [item[1] if isinstance(node, Pairs) else item for item in node]
    if not places or rng.random() < 0.02:
        return rng.choice((_odd(rng), Pairs(), [], [tree], Pairs([(rng.choice(ODD_NAMES), tree)])))
    node, index = rng.choice(places)
    how = rng.randrange(8)
    if how == 0:
        del node[index]
    elif how == 1:
        node.insert(rng.randrange(len(node) + 1), node[index])
    elif how == 2 and isinstance(node, Pairs):
        node[index] = rng.choice(ODD_NAMES), node[index][1]
    elif how == 3:
        item = (rng.choice(ODD_NAMES), _odd(rng)) if isinstance(node, Pairs) else _odd(rng)
        node.insert(rng.randrange(len(node) + 1), item)
    elif how == 4 and isinstance(node, Pairs):
        node[index] = node[index][0], _as_other(rng, node[index][1])
    elif isinstance(node, Pairs):
        node[index] = node[index][0], _odd(rng)
    else:
        node[index] = _odd(rng)
    return tree


def _odd(rng: random.Random) -> Any:
    how = rng.randrange(10)
    if how < 4:
        return rng.choice(ODD_NUMBERS)
    if how < 8:
        return rng.choice(ODD_TEXTS)
    return rng.choice((None, True, False, [], Pairs(), [None], [1, "1"], Pairs([("a", 1)])))


def _as_other(rng: random.Random, value: Any) -> Any:
    """Return the value as another type."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return rng.choice((str(value), value + 1, -value, [value], True))
    if isinstance(value, str):
        if value.lstrip("-").isdecimal() and value.isascii() and len(value) < 30:
            return rng.choice((int(value), str(int(value) + rng.choice((-1, 1, 2**31))), value + ".0"))
        return rng.choice((value * 2, value[: len(value) // 2], value + "\0", value.upper(), [value]))
    return rng.choice(([value], Pairs([("a", value)]), None))


# --- frames -----------------------------------------------------------------------------------------------------------

Frame = tuple[int, bytes, bytes]


def split_frames(data: bytes) -> list[Frame]:
    """Return the whole frames at the beginning of `data`."""
    frames: list[Frame] = []
    at = 0
    while at + 8 <= len(data):
        length, mark = HEAD.unpack_from(data, at)
        header_end, end = at + 8 + (mark & 0xFFFFFF), at + 4 + length
        if end > len(data) or header_end > end:
            break
        frames.append((mark >> 24, data[at + 8 : header_end], data[header_end:end]))
        at = end
    return frames


def join_frames(frames: Sequence[Frame]) -> bytes:
    return b"".join(
        HEAD.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body for kind, header, body in frames
    )


def mutate_frames(rng: random.Random, data: bytes) -> bytes:
    """Change frames; their lengths usually remain right."""
    frames = split_frames(data)
    if not frames or rng.random() < 0.05:
        return mutate_text(rng, data)
    at = rng.randrange(len(frames))
    kind, header, body = frames[at]
    how = rng.randrange(12)
    if how < 5:
        header = mutate_header(rng, kind, header)
    elif how < 9:
        body = mutate_json(rng, body) if body[:1] in b"{[" else mutate_text(rng, body)
    elif how == 9:
        frames.insert(rng.randrange(len(frames) + 1), rng.choice(frames))
        at = -1
    elif how == 10 and len(frames) > 1:
        del frames[at]
        at = -1
    elif kind == 0:
        kind, header = 1, _as_binary(header)
    else:
        kind = rng.choice((0, 1, 2, 128, 255))
    if at >= 0:
        frames[at] = kind, header, body
    return join_frames(frames)


def mutate_header(rng: random.Random, kind: int, header: bytes) -> bytes:
    if kind != 1:
        return mutate_json(rng, header)
    entries = binary_entries(header)
    if entries is None or rng.random() < 0.2:
        return mutate_text(rng, header)
    if entries:
        at = rng.randrange(len(entries))
        name, value = entries[at]
        odd = str(_odd(rng)).encode("utf-8", "surrogatepass")
        entries[at] = rng.choice(((name, odd), (name, odd), (odd[:100], value), (name, value * 2)))
        if rng.random() < 0.2:
            entries.append(entries[at])
    packed = b"".join(struct.pack(">H", len(name)) + name + struct.pack(">I", len(value)) + value for name, value in entries)
    fixed = list(BINARY_FIXED.unpack_from(header))
    if rng.random() < 0.3:
        fixed[rng.randrange(len(fixed))] = rng.choice((0, 1, 2, 12, 100))
    return BINARY_FIXED.pack(*fixed) + struct.pack(">II", 0, len(packed)) + packed


def binary_entries(header: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return the entries of a binary header, None if it is not a valid one."""
    try:
        (remark_size,) = struct.unpack_from(">I", header, BINARY_FIXED.size)
        at = BINARY_FIXED.size + 8 + remark_size
        entries = []
        while at < len(header):
            (size,) = struct.unpack_from(">H", header, at)
            name = header[at + 2 : at + 2 + size]
            (value_size,) = struct.unpack_from(">I", header, at + 2 + size)
            at += 6 + size
            entries.append((name, header[at : at + value_size]))
            at += value_size
        return entries
    except struct.error:
        return None


def _as_binary(header: bytes) -> bytes:
    """Convert a JSON header to a binary one."""
    try:
        fields = json.loads(header)
        ext = {str(k).encode(): str(v).encode() for k, v in fields.get("extFields", {}).items()}
        fixed = BINARY_FIXED.pack(fields["code"], 0, fields["version"], fields["opaque"], fields["flag"])
    except (ValueError, KeyError, AttributeError, TypeError, struct.error, RecursionError):
        return header
    packed = b"".join(struct.pack(">H", len(k) & 0xFFFF) + k + struct.pack(">I", len(v)) + v for k, v in ext.items())
    return fixed + struct.pack(">II", 0, len(packed)) + packed


def grow_frames(data: bytes, size: int, rng: random.Random) -> bytes:
    """Repeat a part of a frame's header or body, with the right lengths."""
    frames = split_frames(data)
    if not frames:
        return data + data[-1:] * (size - len(data))
    at = rng.randrange(len(frames))
    kind, header, body = frames[at]
    size -= len(data) - len(header) - len(body)
    if body and rng.random() < 0.5:
        body = grow_value(body, size - len(header), rng)
    else:
        header = grow_value(header, size - len(body), rng)
    frames[at] = kind, header, body
    return join_frames(frames)


def grow_value(data: bytes, size: int, rng: random.Random) -> bytes:
    """Repeat a short part of `data` up to `size` bytes; in JSON, half of the time a text value."""
    if not data or size <= len(data):
        return data
    start = rng.randrange(len(data))
    colon = data.find(b':"', start)
    if colon >= 0 and rng.random() < 0.5:
        start = colon + 2
    end = min(len(data), start + rng.choice((1, 1, 2, 2, 3, 4, 8, 32, 200)))
    piece = data[start:end] or b"x"
    if rng.random() < 0.2:
        piece = rng.choice((b'\\"', b"[", b"{", b'{"', b"-", b"(", b"1,", b"x"))
    return data[:start] + piece * ((size - len(data)) // len(piece) + 1) + data[end:]


def grow_with_first_byte(data: bytes, size: int, rng: random.Random) -> bytes:
    """Grow an input whose first byte selects the reader."""
    return data[:1] + grow_value(data[1:], size - 1, rng)

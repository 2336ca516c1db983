"""Encoders of HTTP/2 frames and gRPC calls, valid and invalid, built from the wire format alone (RFC 9113, RFC 7541)."""

import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
INITIAL_WINDOW_SIZE = 4
CANCEL = 8
WINDOW_MAX = (1 << 31) - 1
_WINDOW_OF_A_CONNECTION = 65_535
_FRAME_SIZE_MAX = 16_384
_POST, _HTTP = b"\x83", b"\x86"
_SERVICE = "/apache.rocketmq.v2.MessagingService/"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame of any kind."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**values: int) -> bytes:
    """Return a SETTINGS frame; only `window`, the initial window of streams, is known."""
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", INITIAL_WINDOW_SIZE, value) for value in values.values()))


def begin(window: int = WINDOW_MAX) -> bytes:
    """Return what a client sends first. `window`: bytes that each answer may have before the client asks for more."""
    return PREFACE + settings(window=window) + window_update(0, WINDOW_MAX - _WINDOW_OF_A_CONNECTION)


def window_update(stream: int, count: int) -> bytes:
    """Return a frame that allows the server so many more bytes."""
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", count))


def reset(stream: int) -> bytes:
    """Return a frame that cancels a call."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))


def text(value: bytes) -> bytes:
    """Return an HPACK string without Huffman code."""
    return number(len(value), 7) + value


def number(value: int, bits: int, first: int = 0) -> bytes:
    """Return an HPACK integer whose first byte has `bits` bits for it beside `first`."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((first | value,))
    made, value = [first | limit], value - limit
    while value >= 128:
        made.append(value % 128 | 128)
        value //= 128
    return bytes((*made, value))


def field(name: str, value: str | bytes, is_kept: bool = False) -> bytes:
    """Return a header field; `is_kept`: the server keeps it in its table."""
    encoded = value if isinstance(value, bytes) else value.encode()
    return (b"\x40" if is_kept else b"\x00") + text(name.encode()) + text(encoded)


def head(method: str, metadata: Mapping[str, str]) -> bytes:
    """Return the header block of a call."""
    fields = {":path": _SERVICE + method, ":authority": "hostile", "te": "trailers", "content-type": "application/grpc"}
    return _POST + _HTTP + b"".join(field(*one) for one in (fields | dict(metadata)).items())


def call(stream: int, method: str, message: bytes | None = b"", *, is_finished: bool = True, **metadata: str) -> bytes:
    """Return a call with one message; None: the headers alone. Keywords are metadata, with - for _."""
    named = {"x-mq-client-id": "hostile"} | {name.replace("_", "-"): value for name, value in metadata.items()}
    started = frame(HEADERS, END_HEADERS, stream, head(method, named))
    if message is None:
        return started
    data = struct.pack(">BI", 0, len(message)) + message
    pieces = [data[start : start + _FRAME_SIZE_MAX] for start in range(0, len(data), _FRAME_SIZE_MAX)]
    frames = [frame(DATA, 0, stream, piece) for piece in pieces[:-1]]
    return b"".join((started, *frames, frame(DATA, END_STREAM if is_finished else 0, stream, pieces[-1])))

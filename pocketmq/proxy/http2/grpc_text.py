"""How gRPC writes calls into HTTP/2: headers of a call and of its answer, status codes, messages with their length."""

import zlib
from enum import IntEnum
from typing import Final

from pocketmq.proxy.http2.hpack import Field, encoded

MESSAGE_HEAD: Final = 5
"""Bytes before a message: whether it is compressed, and its length."""
_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_ENCODINGS: Final = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
ANSWER_HEADERS: Final = (
    encoded(b":status", b"200")
    + encoded(b"content-type", b"application/grpc")
    + encoded(b"grpc-accept-encoding", b"identity,deflate,gzip")
)


class GrpcStatus(IntEnum):
    """Codes with which the front ends calls."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class Aborted(Exception):
    """A call ends with a status other than OK."""

    def __init__(self, code: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def trailers(code: GrpcStatus, text: str = "") -> bytes:
    """Return the header block that ends an answer."""
    block = encoded(b"grpc-status", b"%d" % code)
    return block + encoded(b"grpc-message", _percent_encoded(text)) if text else block


def _percent_encoded(text: str) -> bytes:
    return b"".join(
        bytes((byte,)) if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode(errors="replace")
    )


def metadata_of(fields: list[Field]) -> dict[str, str]:
    """Return the headers of a call by name; of a name that comes twice the last one."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in fields}


def timeout_s(metadata: dict[str, str]) -> float | None:
    """Return the time in which the client wants the answer; None if it named none. Raises Aborted."""
    text = metadata.get("grpc-timeout")
    if text is None:
        return None
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not (number.isascii() and number.isdigit()) or len(number) > 8:
        raise Aborted(GrpcStatus.INTERNAL, f"grpc-timeout is no time: {text[:20]!r}")
    return int(number) * _UNITS_S[unit]


def check_encoding(metadata: dict[str, str]) -> None:
    """Raise Aborted for an encoding of messages that is not known."""
    encoding = metadata.get("grpc-encoding", "identity")
    if encoding != "identity" and encoding not in _ENCODINGS:
        raise Aborted(GrpcStatus.UNIMPLEMENTED, f"grpc-encoding {encoding[:20]!r} is not supported")


def decompressed(message: bytes, metadata: dict[str, str], size_max: int) -> bytes:
    """Return a compressed message as it was. Raises Aborted."""
    encoding = metadata.get("grpc-encoding", "identity")
    if encoding not in _ENCODINGS:
        raise Aborted(GrpcStatus.INTERNAL, "a compressed message without grpc-encoding")
    reader = zlib.decompressobj(_ENCODINGS[encoding])
    try:
        found = reader.decompress(message, size_max + 1)
    except zlib.error:
        raise Aborted(GrpcStatus.INTERNAL, f"a message that is not {encoding}") from None
    if len(found) > size_max:
        raise too_large(len(found), size_max)
    if not reader.eof:
        raise Aborted(GrpcStatus.INTERNAL, f"a message whose {encoding} does not end")
    return found


def too_large(size: int, size_max: int) -> Aborted:
    """Return the end of a call whose message is beyond the limit."""
    return Aborted(GrpcStatus.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {size_max})")

"""Frames of HTTP/2 (RFC 9113): their layout, and the bytes of a connection split into them."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, WITH_PRIORITY = 0x4, 0x8, 0x20
FRAME_SIZE_MAX: Final = 16_384
"""Size of a frame's content that every peer takes; no larger ones are allowed."""
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_DEFAULT: Final = 65_535
_HEAD: Final = 9
_STREAM: Final = (1 << 31) - 1


class Setting(IntEnum):
    """Names of the settings that are used."""

    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Broken(Exception):
    """A peer violates the protocol; the connection must end."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    content: bytes


class FrameBuffer:
    """Received bytes that are not served yet, beginning with the connection's preface."""

    def __init__(self) -> None:
        self._data, self._at = b"", 0
        self.has_begun = False
        """Whether the preface has been read."""

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._data = data if self._at == len(self._data) else self._data[self._at :] + data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    @property
    def has_frame(self) -> bool:
        """Whether a frame is complete; True also for bytes that are none."""
        if not self.has_begun:
            return len(self) >= len(PREFACE)
        return len(self) >= _HEAD and not FRAME_SIZE_MAX >= self._content_size() > len(self) - _HEAD

    def _content_size(self) -> int:
        return int.from_bytes(self._data[self._at : self._at + 3], "big")

    def next(self) -> Frame | None:
        """Return the next frame; None if it is not complete. Raises Broken."""
        if not self.has_begun and not self._begins():
            return None
        data, at = self._data, self._at
        if len(data) - at < _HEAD:
            return None
        size = self._content_size()
        if size > FRAME_SIZE_MAX:
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes, the limit is {FRAME_SIZE_MAX}")
        end = at + _HEAD + size
        if len(data) < end:
            return None
        self._at = end
        stream = int.from_bytes(data[at + 5 : at + _HEAD], "big") & _STREAM
        return Frame(data[at + 3], data[at + 4], stream, data[at + _HEAD : end])

    def _begins(self) -> bool:
        start = self._data[self._at : self._at + len(PREFACE)]
        if not PREFACE.startswith(start):
            raise Broken(ErrorCode.PROTOCOL_ERROR, f"the first bytes are not those of HTTP/2: {start!r}")
        if len(start) < len(PREFACE):
            return False
        self._at += len(PREFACE)
        self.has_begun = True
        return True

    def clear(self) -> None:
        """Forget all bytes."""
        self._data, self._at = b"", 0


def frame(kind: int, flags: int = 0, stream: int = 0, content: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return head(kind, flags, stream, len(content)) + content


def head(kind: int, flags: int, stream: int, size: int) -> bytes:
    """Return the bytes before the content of a frame."""
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, content=b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values))


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return a frame that ends a stream."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def go_away(last_stream: int, code: ErrorCode) -> bytes:
    """Return a frame after which a connection takes no more streams."""
    return frame(GOAWAY, content=last_stream.to_bytes(4, "big") + code.to_bytes(4, "big"))


def window_update(stream: int, size: int) -> bytes:
    """Return a frame that allows the peer so many more bytes."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def unpadded(one: Frame) -> bytes:
    """Return the content of a DATA or HEADERS frame without padding and priority. Raises Broken."""
    content, start, padding = one.content, 0, 0
    if one.flags & PADDED:
        if not content:
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the size of its padding")
        start, padding = 1, content[0]
    if one.kind == HEADERS and one.flags & WITH_PRIORITY:
        start += 5
    if start + padding > len(content):
        raise Broken(ErrorCode.PROTOCOL_ERROR, "a frame whose padding is larger than its content")
    return content[start : len(content) - padding] if start or padding else content

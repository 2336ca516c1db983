"""Splitting of a byte stream into frames, independent of sockets.

A frame is `length, mark, header, body` (`layout`). Both lengths are checked before memory is used, and only received bytes
are kept: a connection pins at most one frame of FRAME_SIZE_MAX bytes.
"""

import struct
from typing import Final

from pocketmq.remoting.foreign import Foreign, foreign_protocol
from pocketmq.remoting.layout import FRAME_SIZE_MAX

Frame = tuple[int, bytes, bytes]
"""(serialise type, header, body)"""

_HEAD = struct.Struct(">II")  # length; serialise type (top byte) and header length: held to layout.FRAME_HEAD by a test
_SMALL_READ: Final = 4096
"""Smaller reads are collected in one buffer: a bytes object for each would take many times its size."""


class FrameError(Exception):
    """Invalid frame or header. The connection must be closed without an answer, except to a `foreign` protocol."""

    def __init__(self, reason: str, foreign: Foreign | None = None) -> None:
        super().__init__(reason)
        self.foreign = foreign


class FrameBuffer:
    """Splits a byte stream into frames. `held` is the number of bytes kept of an unfinished frame.

    `_chunks` contains them; `_needed` is the size at which they are joined and parsed again (0 if nothing is held), so that
    a large frame received in many reads is joined once.
    """

    __slots__ = ("_chunks", "_frame_size_max", "_header_size_max", "_needed", "held")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._chunks: list[bytes | bytearray] = []
        self._needed = 0
        self.held = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames completed by `data`, in order. Raises FrameError for a length out of range."""
        if self._needed:
            self._keep(data)
            if self.held < self._needed:
                return []
            data = b"".join(self._chunks)
            self.clear()
        frames: list[Frame] = []
        unpack_head = _HEAD.unpack_from
        start, end = 0, len(data)
        needed = 8
        while end - start >= 8:
            length, mark = unpack_head(data, start)
            header_end = start + 8 + (mark & 0xFFFFFF)
            frame_end = start + 4 + length
            if length + 4 > self._frame_size_max:
                if (foreign := foreign_protocol(data, start)) is not None:
                    raise FrameError(foreign.reason, foreign)
                raise FrameError(f"frame of {length + 4} bytes, limit {self._frame_size_max}")
            if header_end - start - 8 > self._header_size_max:
                raise FrameError(f"header of {mark & 0xFFFFFF} bytes, limit (maxHeaderBytes) {self._header_size_max}")
            if header_end > frame_end:
                raise FrameError(f"header of {mark & 0xFFFFFF} bytes in a frame of {length + 4}")
            if frame_end > end:
                needed = frame_end - start
                break
            frames.append((mark >> 24, data[start + 8 : header_end], data[header_end:frame_end]))
            start = frame_end
        if start < end:
            self._chunks.append(data[start:] if start else data)
            self.held = end - start
            self._needed = needed
        return frames

    def clear(self) -> None:
        """Discard an unfinished frame."""
        self._chunks.clear()
        self._needed = self.held = 0

    def _keep(self, data: bytes) -> None:
        self.held += len(data)
        if len(data) >= _SMALL_READ:
            self._chunks.append(data)
            return
        last = self._chunks[-1]
        if isinstance(last, bytearray):
            last += data
        else:
            self._chunks.append(bytearray(data))


def frame_head(serialize_type: int, header_length: int, body_length: int) -> bytes:
    """Return the 8 bytes before a header."""
    return _HEAD.pack(4 + header_length + body_length, serialize_type << 24 | header_length)

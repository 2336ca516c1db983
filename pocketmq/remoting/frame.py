"""Splitting of a byte stream into frames, independent of sockets.

A frame is `length, mark, header, body` (`layout`). Both lengths are checked before memory is used, and only received bytes
are kept: a connection pins at most one frame of FRAME_SIZE_MAX bytes.

Received bytes are split a few frames at a time, when these can be served. Thousands of waiting frames would otherwise be as
many small objects, and an object allocated among them that outlives them pins a whole arena of Python's allocator.
"""

import struct
import sys
from typing import Final, NamedTuple

from pocketmq.remoting.layout import FRAME_SIZE_MAX

Frame = tuple[int, bytes, bytes]
"""(serialise type, header, body)"""

_HEAD = struct.Struct(">II")  # length; serialise type (top byte) and header length: a test compares it with FrameHead
_SMALL_READ: Final = 4096
"""Smaller reads are collected in one buffer: a bytes object for each would take many times its size."""


HEADER_TOO_LARGE: Final = 0x100
"""Added to the serialise type of a frame whose header is too large: `header` is its two ends, and `body` says so."""
_ENDS_SIZE: Final = 4096

_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TEXT: Final = (
    b"This port serves clients of RocketMQ's remoting protocol, not HTTP. Metrics and health are at the port that the key "
    b"metricsPort sets.\n"
)
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_TEXT), _TEXT)
)
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""Fatal alert handshake_failure."""


class Foreign(NamedTuple):
    """Another protocol, in whose first bytes the length of a frame would be hundreds of megabytes."""

    reason: str
    answer: bytes = b""
    """Answer that its clients understand."""


_HTTP_CLIENT: Final = Foreign("it speaks HTTP, but this port serves RocketMQ clients (HTTP: see metricsPort)", _HTTP_ANSWER)
_HTTP_SERVER: Final = Foreign("it speaks HTTP, so it is not a RocketMQ server")
_TLS_CLIENT: Final = Foreign(
    "it starts a TLS handshake, but this server has no certificate (tls.server.certPath)", _TLS_ALERT
)


class FrameError(Exception):
    """Invalid frame. The connection must be closed without an answer, except to a `foreign` protocol."""

    def __init__(self, reason: str, foreign: Foreign | None = None) -> None:
        super().__init__(reason)
        self.foreign = foreign


class FrameBuffer:
    """Splits a byte stream into frames. `held` is the number of bytes kept of an unfinished frame.

    `_chunks` contains them; `_needed` is the size at which they are joined and parsed again (0 if nothing is held), so that
    a large frame received in many reads is joined once. `split` continues with `unsplit` from `start` on.
    """

    __slots__ = (
        "_chunks", "_frame_size_max", "_frames_max", "_header_size_max", "_needed", "held", "start", "unsplit"
    )  # fmt: skip

    def __init__(
        self, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = FRAME_SIZE_MAX, frames_max: int = sys.maxsize
    ) -> None:
        """`frames_max`: number of frames that `feed` and `split` return at most."""
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._frames_max = frames_max
        self._chunks: list[bytes | bytearray] = []
        self._needed = 0
        self.unsplit, self.start = b"", 0
        """Bytes that were not split yet are those of `unsplit` from `start` on."""
        self.held = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the first frames completed by `data`, in order. If they are `frames_max`, `split` returns the next ones.

        Raises FrameError for a length out of range.
        """
        if not self._needed and not self.unsplit and 8 <= (size := len(data)) <= self._frame_size_max:
            length, mark = _HEAD.unpack_from(data)
            header_size = mark & 0xFFFFFF
            if length == size - 4 and header_size <= size - 8 and header_size <= self._header_size_max:
                return [(mark >> 24, data[8 : 8 + header_size], data[8 + header_size :])]  # usually a read is one frame
        self.put(data)
        return self.split()

    def put(self, data: bytes) -> None:
        """Take received bytes, which are split later."""
        if self._needed:
            self._keep(data)
            if self.held < self._needed:
                return
            data = b"".join(self._chunks)
            self.clear()
        self.unsplit, self.start = self.unsplit[self.start :] + data if self.unsplit else data, 0

    def skip(self, size: int) -> None:
        """Leave out the next bytes that were not split yet, which are whole frames."""
        self.start += size
        if self.start == len(self.unsplit):
            self.unsplit, self.start = b"", 0

    def joined(self, data: bytes) -> bytes | None:
        """Return the bytes held and `data` as one, no longer held, if these complete a frame; else None."""
        if self.held + len(data) < self._needed:
            return None
        data = b"".join((*self._chunks, data))
        self.clear()
        return data

    def split(self) -> list[Frame]:
        """Return the next frames of the bytes that `feed` has not split. Raises FrameError as `feed` does."""
        return self._split(self.unsplit, self.start) if self.unsplit else []

    def unsplit_frames(self) -> list[Frame]:
        """Return the frames that `split` has yet to return, without taking them; none if one of them is invalid."""
        if not self.unsplit:
            return []
        try:
            return FrameBuffer(self._frame_size_max, self._header_size_max).feed(self.unsplit[self.start :])
        except FrameError:
            return []

    def _split(self, data: bytes, start: int) -> list[Frame]:
        frames: list[Frame] = []
        unpack_head, header_size_max, length_max = _HEAD.unpack_from, self._header_size_max, self._frame_size_max - 4
        end, last_start, needed = len(data), len(data) - 8, 8
        while start <= last_start:
            length, mark = unpack_head(data, start)
            header_size, frame_end = mark & 0xFFFFFF, start + 4 + length
            header_end = start + 8 + header_size
            if header_end <= frame_end <= end and header_size <= header_size_max and length <= length_max:
                frames.append((mark >> 24, data[start + 8 : header_end], data[header_end:frame_end]))
            elif length > length_max:
                if (foreign := _foreign_protocol(data, start)) is not None:
                    raise FrameError(foreign.reason, foreign)
                raise FrameError(f"frame of {length + 4} bytes, limit {self._frame_size_max}")
            elif header_end > frame_end:
                raise FrameError(f"header of {header_size} bytes does not fit into a frame of {length + 4} bytes")
            elif frame_end > end:
                needed = frame_end - start
                break
            else:
                frames.append(self._too_large(mark >> 24, data, start + 8, header_end))
            start = frame_end
            if len(frames) == self._frames_max and start < end:
                # Bytes already split are discarded only when they exceed the rest, so that a byte is copied once on average.
                self.unsplit, self.start = (data[start:], 0) if start > end - start else (data, start)
                return frames
        self.unsplit = b""
        if start < end:
            self._chunks.append(data[start:] if start else data)
            self.held = end - start
            self._needed = needed
        return frames

    def _too_large(self, serialize_type: int, data: bytes, start: int, end: int) -> Frame:
        """Return what is kept of a frame whose header is too large to be decoded: its request is answered all the same."""
        ends = data[start : start + _ENDS_SIZE] + b"\n" + data[end - _ENDS_SIZE : end]
        problem = f"header of {end - start} bytes, limit (maxHeaderBytes) {self._header_size_max}"
        return serialize_type | HEADER_TOO_LARGE, ends, problem.encode()

    def clear(self) -> None:
        """Discard an unfinished frame, and the bytes that are not split yet."""
        self._chunks.clear()
        self.unsplit, self.start = b"", 0
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


def _foreign_protocol(data: bytes, start: int) -> Foreign | None:
    """Return the protocol of the bytes from `start` on, which do not begin a frame; None if it is unknown."""
    first = data[start : start + 4]
    if first in _METHODS:
        return _HTTP_CLIENT
    if first == b"HTTP":
        return _HTTP_SERVER
    return _TLS_CLIENT if first.startswith(b"\x16\x03") else None

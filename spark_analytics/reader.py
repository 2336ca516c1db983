"""Windows of a CommitLog file, and why the chain of records in it ends (`store.record_chain` follows it).

A chain ends in one of two ways: at the BLANK that fills a file, or at bytes that are no record: unwritten, torn, or left
behind by an earlier truncation. Which of the latter does not matter; nothing behind that point belongs to the log, even
when it looks like records, and this is why a reader in the middle of a file needs somebody who followed the chain to tell
it where to stop (`spark_analytics.splits`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Final

import numpy as np

from store.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT
from store.record_chain import MARK_SIZE, Bytes, chained, record_candidates
from store.record_window import RecordWindow

# 3 columns decode fastest in windows of 2-4 MiB, all of them in 8-16 MiB; below 4 MiB all columns take half as long again.
WINDOW_SIZE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a CommitLog: `physical_offset` is that of its first byte, `size` its size in bytes."""

    path: str
    physical_offset: int
    size: int


class Ending(Enum):
    """Why a walk ended."""

    STOP = "stop"  # every record that begins before the asked end was seen
    BLANK = "blank"  # the file is full
    BROKEN = "broken"  # the bytes at this position are no record


def read_at(stream: BinaryIO, position: int, size: int) -> Bytes:
    """Up to `size` bytes of a file from `position` on; fewer only at its end."""
    data = np.empty(size, np.uint8)
    stream.seek(position)
    return data[: stream.readinto(data)]  # type: ignore[attr-defined]


class Walk:
    """Iterates over the windows of a file from the record at position `begin` to the last that begins before `stop`.

    Positions count from the file's first byte. Afterwards `position` is the first byte behind the records seen and `ending`
    says why it went no further. Raises OSError when the file cannot be read.
    """

    def __init__(self, file: LogFile, begin: int, stop: int, window_size: int = WINDOW_SIZE) -> None:
        self.position = begin
        self.ending = Ending.STOP
        self._file = file
        self._stop = stop
        self._window_size = max(window_size, MARK_SIZE)

    def __iter__(self) -> Iterator[RecordWindow]:
        with open(self._file.path, "rb", buffering=0) as stream:
            size = self._window_size
            while self.position < self._stop:
                data = read_at(stream, self.position, min(size, self._file.size - self.position))
                physical_offset = self._file.physical_offset + self.position
                starts, sizes = chained(data, physical_offset)
                within = int(np.searchsorted(starts, self._stop - self.position))
                consumed = int(starts[within - 1] + sizes[within - 1]) if within else 0
                if within:
                    yield RecordWindow(data, physical_offset, starts[:within], sizes[:within])
                self.position += consumed
                if self.position >= self._stop:
                    return
                wanted = self._next_size(data[consumed:], at_end=len(data) < size)
                if wanted == 0:
                    return
                size = max(self._window_size, wanted)

    def _next_size(self, rest: Bytes, at_end: bool) -> int:
        """How many bytes the next window needs at least; 0, with `ending` set, when the chain ends here."""
        room = self._file.size - self.position
        if len(rest) < MARK_SIZE and not at_end and room > len(rest):
            return MARK_SIZE
        self.ending = Ending.BROKEN
        if len(rest) < BLANK_SIZE:
            return 0
        size, magic_code = BLANK_STRUCT.unpack(rest[:BLANK_SIZE].tobytes())
        if magic_code == BLANK_MAGIC_CODE and size == room:
            self.ending = Ending.BLANK
        elif (
            len(record_candidates(rest[:MARK_SIZE], self._file.physical_offset + self.position)) and len(rest) < size <= room
        ):
            self.ending = Ending.STOP
            return int(size)
        return 0


def next_candidate(file: LogFile, begin: int, stop: int) -> int | None:
    """Position of the first place in [begin, stop) that looks like a record, or None."""
    with open(file.path, "rb", buffering=0) as stream:
        for position in range(begin, stop, WINDOW_SIZE):
            # The overlap lets a record's mark be seen whole in one of two windows.
            size = min(WINDOW_SIZE + MARK_SIZE, file.size - position)
            data = read_at(stream, position, size)
            starts = record_candidates(data, file.physical_offset + position)
            if len(starts):
                return position + int(starts[0]) if position + starts[0] < stop else None
    return None

"""Windows of a CommitLog file, and where the records in them begin.

A record does not say where the next one begins except by its own size, so the log is a chain that must be followed from
its first link. Followed record by record in Python that costs more than decoding. So a window of some megabytes is searched
at once for places that look like a record (its magic, and a physicalOffset that equals the place), and the chain is then
checked in one comparison: each record must end where the next begins. Only where it does not (a body that holds a record's
image) is that window walked link by link.

A chain ends in one of two ways: at the BLANK that fills a file, or at bytes that are no record: unwritten, torn, or left
behind by an earlier truncation. Which of the latter does not matter; nothing behind that point belongs to the log, even
when it looks like records, and this is why a reader in the middle of a file needs somebody who followed the chain to tell
it where to stop (`spark_analytics.splits`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from store.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_SIZE_MIN,
)

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

# 3 columns decode fastest in windows of 2-4 MiB, all of them in 8-16 MiB; below 4 MiB all columns take half as long again.
WINDOW_SIZE: Final = 8 << 20

MAGIC: Final = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
MAGIC_V2: Final = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
assert MAGIC[:3] == MAGIC_V2[:3]
# As much of a record as tells that there is one.
MARK_SIZE: Final = PHYSICAL_OFFSET_POSITION + 8


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


@dataclass(frozen=True, slots=True)
class Window:
    """Some bytes of a file and the complete records in them.

    `starts` are positions in `data`, ascending; `sizes` belong to them. Records need not be neighbours: a filter may have
    thinned them out.
    """

    data: Bytes
    physical_offset: int
    starts: Positions
    sizes: Positions


def field_view(data: Bytes, dtype: Any) -> npt.NDArray[Any]:
    """`data` seen as one `dtype` at each byte position, without a copy: indexing it gathers fields."""
    dtype = np.dtype(dtype)
    return np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))


def record_candidates(data: Bytes, physical_offset: int) -> Positions:
    """Positions in `data`, whose first byte has `physical_offset`, that carry a record's magic and their own offset."""
    at = np.flatnonzero(data == MAGIC[0])
    at = at[(at >= 4) & (at <= len(data) - (MARK_SIZE - 4))]
    at = at[(data[at + 1] == MAGIC[1]) & (data[at + 2] == MAGIC[2])]
    version = data[at + 3]
    starts = at[(version == MAGIC[3]) | (version == MAGIC_V2[3])] - 4
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    found: Positions = starts[own == starts + physical_offset]
    return found


def chained(data: Bytes, physical_offset: int) -> tuple[Positions, Positions]:
    """(starts, sizes) of the complete records that follow each other from data[0] on."""
    starts = record_candidates(data, physical_offset)
    sizes = field_view(data, ">i4")[starts].astype(np.int64)
    ends = starts + sizes
    if not len(starts) or starts[0] != 0 or (sizes < RECORD_SIZE_MIN).any() or (ends[:-1] != starts[1:]).any():
        links = _followed(starts.tolist(), sizes.tolist())
        starts, sizes, ends = starts[links], sizes[links], ends[links]
    if len(ends) and ends[-1] > len(data):
        return starts[:-1], sizes[:-1]
    return starts, sizes


def _followed(starts: list[int], sizes: list[int]) -> list[int]:
    """The indexes of the candidates that chain from position 0: the slow twin of the comparison in `chained`."""
    index_of = {start: index for index, start in enumerate(starts)}
    links = []
    index = index_of.get(0)
    while index is not None and sizes[index] >= RECORD_SIZE_MIN:
        links.append(index)
        index = index_of.get(starts[index] + sizes[index])
    return links


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

    def __iter__(self) -> Iterator[Window]:
        with open(self._file.path, "rb", buffering=0) as stream:
            size = self._window_size
            while self.position < self._stop:
                data = read_at(stream, self.position, min(size, self._file.size - self.position))
                physical_offset = self._file.physical_offset + self.position
                starts, sizes = chained(data, physical_offset)
                within = int(np.searchsorted(starts, self._stop - self.position))
                consumed = int(starts[within - 1] + sizes[within - 1]) if within else 0
                if within:
                    yield Window(data, physical_offset, starts[:within], sizes[:within])
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

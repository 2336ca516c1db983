"""Reader that turns a split into windows of records, and reports the invalid bytes between them.

A split is either scanned, following the chain of records from its first one (`record_chain`), or it lists its records
(`split.Split.starts`). Listed records are read into memory at their own positions in an anonymous mapping as long as the
file's stretch; the bytes between them are not read, and their pages are never touched, so they cost no memory.

A chain ends either at the BLANK that fills a file or at invalid bytes: unwritten, torn, or left behind by an earlier
truncation. In either case nothing behind that point belongs to the log, even if it looks like records. Therefore a reader
that starts in the middle of a file gets the end of the chain from the planner (`split_planning`).
"""

import logging
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from pocketmq.spark_analytics.files.places import LogFile, gap_of, open_file, read_at, read_into
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.store_times import StoreTimes
from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
)
from pocketmq.store.format.record_chain import MARK_SIZE, Bytes, Positions, field_view, linked, record_candidates
from pocketmq.store.format.record_window import RecordWindow

log = logging.getLogger(__name__)

# Smaller windows cost more numpy calls, larger ones exceed the processor's cache.
WINDOW_SIZE: Final = 4 << 20
# Window size where the log is expected to end soon.
WINDOW_SIZE_FIRST: Final = 64 << 10
# Bytes read beyond the end of a split, for the rest of its last record.
OVERLAP: Final = 64 << 10
# Maximum stretch of a file covered by one window of listed records.
SPAN_MAX: Final = 256 << 20


class Ending(Enum):
    """Reason why a walk ended."""

    STOP = "stop"  # every record that begins before the requested end was seen
    BLANK = "blank"  # the file is full
    BROKEN = "broken"  # the bytes at this position are not a valid record


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """Bytes [begin, stop) of a file that are not valid records, although the log continues behind them.

    `lost` is as in `split.Split`: such bytes are missing from the file, and `stop` may be behind its last byte.
    """

    file: LogFile
    begin: int
    stop: int
    lost: str = ""

    @property
    def physical_offset(self) -> int:
        return self.file.physical_offset + self.begin


class Walk:
    """Iterator over the windows of a file, from the record at `begin` to the last one that begins before `stop`.

    Positions count from the file's first byte. After the iteration, `position` is the first byte behind the records seen,
    and `ending` is the reason for the end. A window is valid until the next one is requested, since they share memory. The
    first window has `first_size` bytes, each next one is twice as long, up to `window_size`. Windows end at multiples of
    `window_size`, so that several walks have the same windows; `times` tells which of them are passed over. Raises OSError
    when the file cannot be read.
    """

    def __init__(
        self,
        file: LogFile,
        begin: int,
        stop: int,
        window_size: int = WINDOW_SIZE,
        first_size: int = WINDOW_SIZE,
        *,
        times: StoreTimes | None = None,
    ) -> None:
        self.position = begin
        # Start of the last record before `position` that was seen; `position` itself if there is none.
        self.last = begin
        self.ending = Ending.STOP
        self._file = file
        self._stop = stop
        self._window_size = max(window_size, MARK_SIZE)
        self._next_window_size = min(self._window_size, first_size)
        self._times = times

    def __iter__(self) -> Iterator[RecordWindow]:
        with open_file(self._file.path) as stream:
            wanted = MARK_SIZE
            buffer = np.empty(0, np.uint8)
            while self._goes_on():
                # The last split of a file may be shorter than a window.
                stop = min(self._stop, (self.position // self._window_size + 1) * self._window_size)
                size = max(min(self._next_window_size, stop - self.position + OVERLAP), wanted)
                self._next_window_size = min(2 * self._next_window_size, self._window_size)
                size_there = min(size, self._file.size - self.position)
                if len(buffer) < size_there:
                    buffer = np.empty(size_there, np.uint8)
                data = buffer[: read_into(stream, self.position, memoryview(buffer)[:size_there])]  # type: ignore[arg-type]
                physical_offset = self._file.physical_offset + self.position
                starts, sizes = linked(data, physical_offset)
                within = int(np.searchsorted(starts, stop - self.position))
                consumed = int(starts[within - 1] + sizes[within - 1]) if within else 0
                if within:
                    self.last = self.position + int(starts[within - 1])
                    window = RecordWindow(data, physical_offset, starts[:within], sizes[:within])
                    if self._times is not None:
                        self._times.note(window, self.position)
                    yield window
                self.position += consumed
                if self.position >= stop:
                    wanted = MARK_SIZE
                    continue
                wanted = self._next_size(data[consumed:], at_end=len(data) < size)
                if wanted == 0:
                    return

    def _goes_on(self) -> bool:
        """Pass over the noted stretches without wanted records; return whether a record may follow before the stop."""
        if self._times is not None:
            passed = self._times.passed(self.position, self._stop)
            if passed != self.position:
                self.position = self.last = passed
        return self.position < self._stop

    def _next_size(self, rest: Bytes, at_end: bool) -> int:
        """Return the minimum size of the next window; 0 with `ending` set if the chain ends here."""
        room = self._file.size - self.position
        if len(rest) < MARK_SIZE and not at_end and room > len(rest):
            return MARK_SIZE
        self.ending = Ending.BROKEN
        if len(rest) < BLANK_SIZE:
            return 0
        if is_blank(rest, room):
            self.ending = Ending.BLANK
            return 0
        size, _ = BLANK_STRUCT.unpack(rest[:BLANK_SIZE].tobytes())
        if len(record_candidates(rest[:MARK_SIZE], self._file.physical_offset + self.position)) and len(rest) < size <= room:
            self.ending = Ending.STOP
            return int(size)
        return 0


def next_candidate(file: LogFile, begin: int, stop: int, window_size: int = WINDOW_SIZE) -> int | None:
    """Return the first position in [begin, stop) that looks like the start of a record, or None."""
    with open_file(file.path) as stream:
        for position in range(begin, stop, window_size):
            # Windows overlap so that a record's mark is entirely in one of them.
            size = min(window_size + MARK_SIZE, file.size - position)
            data = read_at(stream, position, size)
            starts = record_candidates(data, file.physical_offset + position)
            if len(starts):
                return position + int(starts[0]) if position + starts[0] < stop else None
    return None


def pieces(split: Split, times: StoreTimes | None = None) -> Iterator[RecordWindow | DamagedBytes]:
    """Yield the contents of a split in file order. Raises MissingFileError, OSError.

    `times`: leave out stretches of which it is noted that no record in them was stored in the wanted time.
    """
    if split.lost:
        yield DamagedBytes(split.file, split.begin, split.stop, split.lost)
    elif split.starts is None or split.sizes is None:
        # A large record may cover the whole split: then no record begins in it.
        is_exact = split.begin == 0 or split.is_exact
        begin = split.begin if is_exact else next_candidate(split.file, split.begin, split.stop, WINDOW_SIZE_FIRST)
        yield from _scanned(split.file, begin, split.stop, split.end, times)
    else:
        yield from _picked(split.file, split.starts, split.sizes)


def _scanned(
    file: LogFile, begin: int | None, stop: int, end: int, times: StoreTimes | None = None
) -> Iterator[RecordWindow | DamagedBytes]:
    while begin is not None:
        walk = Walk(file, begin, stop, times=times)
        yield from walk
        if walk.ending is Ending.BLANK:
            return
        if walk.ending is Ending.STOP and (walk.position >= end or _goes_on(file, walk.position)):
            return
        found = _swallowed(file, walk.last, walk.position)
        if found is None:
            # The next task begins at the first record it sees, so this task reports all damage up to there, even beyond
            # `stop`.
            found = next_candidate(file, walk.position + 1, end)
            yield DamagedBytes(file, walk.position, end if found is None else found)
        begin = found if found is not None and found < stop else None


def _swallowed(file: LogFile, last: int, end: int) -> int | None:
    """Return the position of the first record inside [last, end), if the record at `last` has a wrong length; else None."""
    if last == end:
        return None
    with open_file(file.path) as stream:
        data = read_at(stream, last, end - last)
    record = RecordWindow(data, file.physical_offset + last, np.zeros(1, np.int64), np.array([end - last]))
    return None if record.lengths_add_up[0] else next_candidate(file, last + 1, end)


def _goes_on(file: LogFile, position: int) -> bool:
    """Return whether a record or the BLANK begins at a position."""
    with open_file(file.path) as stream:
        mark = read_at(stream, position, MARK_SIZE)
    if position == file.size or (len(mark) >= BLANK_SIZE and is_blank(mark, file.size - position)):
        return True
    return len(record_candidates(mark, file.physical_offset + position)) > 0


def is_blank(mark: Bytes, room: int) -> bool:
    """Return whether `mark` is the BLANK; its size must be all the remaining room in the file."""
    return BLANK_STRUCT.unpack(mark[:BLANK_SIZE].tobytes()) == (room, BLANK_MAGIC_CODE)


def _picked(file: LogFile, starts: Positions, sizes: Positions) -> Iterator[RecordWindow | DamagedBytes]:
    """Yield only the records at `starts`. Where the file does not match `starts` and `sizes`, that stretch is scanned."""
    gap = gap_of(file.path)
    read = np.cumsum(sizes)
    first = 0
    while first < len(starts):
        begin = int(starts[first])
        # At least one record per window, and no more than the limits allow.
        by_size = int(np.searchsorted(read, read[first] - sizes[first] + WINDOW_SIZE, "right"))
        by_span = int(np.searchsorted(starts + sizes, begin + SPAN_MAX, "right"))
        last = max(min(by_size, by_span), first + 1)
        own, own_sizes = starts[first:last], sizes[first:last]
        first = last
        stop = int(own[-1] + own_sizes[-1])
        data = read_picked(file, own, own_sizes, gap)
        if _are_records(data, file.physical_offset + begin, own - begin, own_sizes):
            yield RecordWindow(data, file.physical_offset + begin, own - begin, own_sizes)
        else:
            log.warning("the ConsumeQueues do not match %s from %d to %d: scanning that part", file.path, begin, stop)
            yield from _scanned(file, next_candidate(file, begin, stop), stop, stop)


def read_picked(file: LogFile, starts: Positions, sizes: Positions, gap: int) -> Bytes:
    """Return the file's bytes from the first record to the end of the last, with zeros for gaps larger than `gap`."""
    begin, stop = int(starts[0]), int(starts[-1] + sizes[-1])
    # Not allocated by numpy, which would ask for huge pages and so touch all of it.
    memory = mmap.mmap(-1, stop - begin)
    view = memoryview(memory)
    ends = starts + sizes
    breaks = np.flatnonzero(starts[1:] - ends[:-1] > gap) + 1
    run_begins = starts[np.concatenate([[0], breaks])].tolist()
    run_ends = ends[np.concatenate([breaks - 1, [len(ends) - 1]])].tolist()
    with open_file(file.path) as stream:
        for run_begin, run_end in zip(run_begins, run_ends, strict=True):
            read_into(stream, run_begin, view[run_begin - begin : run_end - begin])
    return np.frombuffer(memory, np.uint8)


def _are_records(data: Bytes, physical_offset: int, starts: Positions, sizes: Positions) -> bool:
    magic = field_view(data, ">i4")[starts + 4]
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    good = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good &= (own == starts + physical_offset) & (field_view(data, ">i4")[starts] == sizes)
    return bool(good.all())

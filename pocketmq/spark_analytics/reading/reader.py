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
from typing import Final

import numpy as np

from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.store_times import StoreTimes
from pocketmq.store.format.layout import (
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
)
from pocketmq.store.format.record_chain import Bytes, Positions, field_view
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.offline.file_bytes import is_remote
from pocketmq.store.offline.log_walk import (
    WINDOW_SIZE,
    WINDOW_SIZE_FIRST,
    Ending,
    FileWalk,
    has_record,
    is_blank,
    next_candidate,
    read_mark,
)
from pocketmq.store.offline.places import LogFile

log = logging.getLogger(__name__)

# Listed records with at most this many bytes between them are read in one call, which is cheaper than a call each.
GAP_LOCAL: Final = 4 << 10
GAP_REMOTE: Final = 1 << 20
# Maximum stretch of a file covered by one window of listed records.
SPAN_MAX: Final = 256 << 20


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
        return self.file.start_offset + self.begin


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
        walk = FileWalk(file, begin, stop, known=times)
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
    data = file.read(last, end - last)
    record = RecordWindow(data, file.start_offset + last, np.zeros(1, np.int64), np.array([end - last]))
    return None if record.lengths_add_up[0] else next_candidate(file, last + 1, end)


def _goes_on(file: LogFile, position: int) -> bool:
    """Return whether a record or the BLANK begins at a position."""
    return position == file.size or is_blank(read_mark(file, position), file.size - position) or has_record(file, position)


def _picked(file: LogFile, starts: Positions, sizes: Positions) -> Iterator[RecordWindow | DamagedBytes]:
    """Yield only the records at `starts`. Where the file does not match `starts` and `sizes`, that stretch is scanned."""
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
        data = read_picked(file, own, own_sizes)
        if _are_records(data, file.start_offset + begin, own - begin, own_sizes):
            yield RecordWindow(data, file.start_offset + begin, own - begin, own_sizes)
        else:
            log.warning("the ConsumeQueues do not match %s from %d to %d: scanning that part", file.path, begin, stop)
            yield from _scanned(file, next_candidate(file, begin, stop), stop, stop)


def read_picked(file: LogFile, starts: Positions, sizes: Positions) -> Bytes:
    """Return the file's bytes from the first record to the end of the last, with zeros for large gaps."""
    gap = GAP_REMOTE if is_remote(file.path) else GAP_LOCAL
    begin, stop = int(starts[0]), int(starts[-1] + sizes[-1])
    # Not allocated by numpy, which would ask for huge pages and so touch all of it.
    memory = mmap.mmap(-1, stop - begin)
    data = np.frombuffer(memory, np.uint8)
    ends = starts + sizes
    breaks = np.flatnonzero(starts[1:] - ends[:-1] > gap) + 1
    run_begins = starts[np.concatenate([[0], breaks])].tolist()
    run_ends = ends[np.concatenate([breaks - 1, [len(ends) - 1]])].tolist()
    with file.open() as bytes_:
        for run_begin, run_end in zip(run_begins, run_ends, strict=True):
            bytes_.read(run_begin, run_end - run_begin, data[run_begin - begin : run_end - begin])
    return data


def _are_records(data: Bytes, physical_offset: int, starts: Positions, sizes: Positions) -> bool:
    magic = field_view(data, ">i4")[starts + 4]
    own = field_view(data, ">i8")[starts + PHYSICAL_OFFSET_POSITION]
    good = (magic == MESSAGE_MAGIC_CODE) | (magic == MESSAGE_MAGIC_CODE_V2)
    good &= (own == starts + physical_offset) & (field_view(data, ">i4")[starts] == sizes)
    return bool(good.all())

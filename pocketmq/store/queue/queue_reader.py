"""QueueReader: resolves the queue units that a pull asks for to views of records in the commit log.

A pull reads its units in runs: a run is unpacked at once, its filter gives a verdict on each unit, the sizes of the wanted
records are summed, and neighbouring records become one view. A record filter ends a pull early when its `FilterBudget` is
used up.

Records written by an earlier process are checked before they are returned (`valid_records`): a damaged record is skipped,
and a log line reports it.

A *hole* is a unit whose record was lost: its tags code marks it, and it points at the filler record that was written over
the damage. Pulls skip holes.
"""

import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Final

from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    EXT_ADDRESS_MAX,
    HOLE_TAGS_CODE,
    field_position,
    unit_run_struct,
)
from pocketmq.store.format.message import GetResult, GetStatus
from pocketmq.store.format.record import BadRecordError, TagsCode, decode_dispatch_request
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import BrokenQueueError, ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.filter_cache import RUN_MAX, FilterCache, Run
from pocketmq.store.queue.record_filter import FilterBudget, RecordFilter
from pocketmq.store.queue.valid_records import are_valid, is_valid

log = logging.getLogger("store")

# Non-adjacent records are copied into one buffer if there are at least this many and their average size is at most this.
_COPY_COUNT_MIN: Final = 6
_COPY_SIZE_MAX: Final = 8192
# Minimum number of units that one pull examines (Java: 16,000 bytes of queue).
_UNITS_SCANNED: Final = 16_000 // CONSUME_QUEUE_UNIT_SIZE
_FOUND: Final = GetStatus.FOUND  # a global is faster than enum member access in Python 3.11
# First byte of a consumequeue_ext address. Tag hashes and delivery times never start with it.
_ADDRESS_MARK: Final = 0x80
_TAGS_CODE_POSITION: Final = field_position(CONSUME_QUEUE_UNIT, "tags_code")

Matches = Callable[[int], bool]
"""Predicate on the tags code of a unit."""


class QueueReader:
    """Read-only access to the records of the queues."""

    def __init__(
        self, config: MessageStoreConfig, queues: ConsumeQueueStore, commit_log: CommitLog, tags_code: TagsCode
    ) -> None:
        self.config = config
        self.queues = queues
        self.commit_log = commit_log
        self._tags_code = tags_code
        self._verdicts = FilterCache(commit_log, queues.ext)
        self._invalid = RefusalLog(log, "pulls skip damaged records")
        self.written_from = 0
        """Start of the part of the log that this process wrote. Records before it are checked when they are read."""
        self.in_memory_bytes = _memory_size() * config.access_message_in_memory_max_ratio // 100
        """Records within this distance of the log's end count as in memory (accessMessageInMemoryMaxRatio)."""

    def is_in_memory(self, physical_offset: int) -> bool:
        """Return whether a record is close enough to the log's end to be in memory (accessMessageInMemoryMaxRatio)."""
        return self.commit_log.max_offset - physical_offset <= self.in_memory_bytes

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        matches: Matches | RecordFilter | None = None,
        budget: FilterBudget | None = None,
    ) -> GetResult:
        """Return up to `count_max` records of a queue, starting at `queue_offset`, that `matches` accepts.

        A record filter has one budget per call unless it is given a `budget`, which several calls can share.
        Raises BrokenQueueError if a unit points outside the log: the disk lost data that recovery had no reason to read.
        Apache skips such a unit, which loses a message that is still in the log.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        try:
            return self._get(queue, queue_offset, count_max, matches, budget)
        except (LookupError, struct.error):
            problem = self._problem_of(queue, queue_offset)
            if problem is None:
                raise
            raise BrokenQueueError(problem) from None

    def _get(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        count_max: int,
        matches: Matches | RecordFilter | None,
        budget: FilterBudget | None,
        is_checked: bool = False,
    ) -> GetResult:
        """Return the wanted records from `queue_offset` on.

        Records of an earlier process are checked together at the end. If one is damaged, the call is repeated with
        `is_checked`, and each one is checked before it is taken.
        """
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if not min_offset <= queue_offset < max_offset:
            return _out_of_range(queue_offset, min_offset, max_offset)
        config, log_files = self.config, self.commit_log.mapped_files
        count_max = min(max(count_max, 1), config.max_transfer_count_on_message_in_memory)
        units = queue.units(queue_offset, count_max if matches is None else max(_UNITS_SCANNED, count_max))
        if not units:
            # A file is missing in the middle of the queue: reading continues with the next file.
            per_file = config.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT_SIZE
            next_offset = queue_offset - queue_offset % per_file + per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
        in_memory_from = self.commit_log.tail.end_offset - self.in_memory_bytes
        wanted: Sequence[int]
        sizes: Sequence[int]
        if matches is None:
            values = unit_run_struct(len(units) // CONSUME_QUEUE_UNIT_SIZE).unpack(units)
            wanted, sizes, codes, block = values[::3], values[1::3], values[2::3], None
            next_offset, total = queue_offset + len(wanted), sum(sizes)
            if (
                wanted[0] < in_memory_from
                or wanted[0] < log_files.min_offset
                or total > config.max_transfer_bytes_on_message_in_memory
                or HOLE_TAGS_CODE in codes
                or is_checked
            ):  # else all units are wanted, and within the limits
                wanted, sizes, total, next_offset, block = self._taken(
                    ((wanted, sizes, codes, None, None),), queue_offset, count_max, in_memory_from, budget, is_checked
                )
        else:
            if isinstance(matches, RecordFilter):
                budget = budget or FilterBudget()
                # A filter finds no properties in a damaged record and rejects it; the damage must be logged.
                is_checked = True
            wanted, sizes, total, next_offset, block = self._taken(
                self._runs(queue, queue_offset, units, count_max, matches),
                queue_offset, count_max, in_memory_from, budget, is_checked,
            )  # fmt: skip
        if not wanted:
            first = CONSUME_QUEUE_UNIT_STRUCT.unpack_from(units)[0]
            status = GetStatus.NO_MATCHED_MESSAGE if first >= log_files.min_offset else GetStatus.MESSAGE_WAS_REMOVING
            return GetResult(status, next_offset, min_offset, max_offset)
        views = [block] if block is not None else _gathered(log_files, wanted, sizes, total)
        if wanted[0] < self.written_from and not is_checked and not are_valid(views, sizes):
            return self._get(queue, queue_offset, count_max, matches, budget, True)
        return GetResult(_FOUND, next_offset, min_offset, max_offset, views, len(wanted), total, wanted[-1] < in_memory_from)

    def selected(
        self, queue: ConsumeQueue, queue_offset: int, count_max: int, matches: Matches | RecordFilter
    ) -> tuple[Sequence[int], Sequence[int], int] | None:
        """Return physical offsets and sizes of the records that `get_message` would return, and the next queue offset.

        Records of this process are expected. None if no record of the first run is wanted: it may be long until one is.
        """
        units = queue.units(queue_offset, max(_UNITS_SCANNED, count_max))
        in_memory_from = self.commit_log.tail.end_offset - self.in_memory_bytes
        budget = FilterBudget() if isinstance(matches, RecordFilter) else None
        try:
            runs = self._runs(queue, queue_offset, units, count_max, matches)
            first = next(iter(runs), None)
            if first is None or not (first[3] and any(first[3])):
                return None
            wanted, sizes, _, next_offset, _ = self._taken(
                chain((first,), runs), queue_offset, count_max, in_memory_from, budget, False
            )
        except (LookupError, struct.error):
            return None  # `get_message` says what is wrong
        return wanted, sizes, next_offset

    def _runs(
        self, queue: ConsumeQueue, queue_offset: int, units: memoryview, count_max: int, matches: Matches | RecordFilter
    ) -> Iterator[Run]:
        """Return `units` in runs, each of which is judged by the filter when it is requested."""
        if isinstance(matches, RecordFilter):
            return self._verdicts.judged(queue, queue_offset, units, count_max, matches)
        return self._by_tags_code(queue, units, count_max, matches)

    def _taken(
        self,
        runs: Iterable[Run],
        queue_offset: int,
        count_max: int,
        in_memory_from: int,
        budget: FilterBudget | None,
        is_checked: bool,
    ) -> tuple[Sequence[int], Sequence[int], int, int, memoryview | None]:
        """Take the wanted records of `runs`, as many as the limits allow but at least one unless `budget` ends.

        Return their physical offsets, their sizes and the sum of these, the queue offset behind the last unit examined, and
        the records as one block if they are all those of one run.
        """
        config, odd_below = self.config, self.commit_log.mapped_files.min_offset
        bytes_max = config.max_transfer_bytes_on_message_in_memory
        if is_checked and odd_below < self.written_from:
            odd_below = self.written_from
        wanted: Sequence[int] = ()
        wanted_sizes: Sequence[int] = ()
        next_offset, total, block = queue_offset, 0, None
        for offsets, sizes, codes, verdicts, block in runs:  # noqa: B007 (used below)
            first, next_offset = next_offset, next_offset + len(offsets)
            if offsets[0] < odd_below or HOLE_TAGS_CODE in codes:
                verdicts = self._readable(offsets, sizes, codes, verdicts, is_checked)
            if verdicts is not None and False in verdicts:
                wanted, wanted_sizes = [*wanted, *compress(offsets, verdicts)], [*wanted_sizes, *compress(sizes, verdicts)]
            elif wanted:
                wanted, wanted_sizes = [*wanted, *offsets], [*wanted_sizes, *sizes]
            else:
                wanted, wanted_sizes = offsets, sizes
            if offsets[0] < in_memory_from and wanted and wanted[0] < in_memory_from:
                bytes_max = config.max_transfer_bytes_on_message_in_disk
                count_max = min(count_max, config.max_transfer_count_on_message_in_disk)
            count, total = len(wanted), sum(wanted_sizes)
            if count > count_max or total > bytes_max:
                while count > count_max or (total > bytes_max and count > 1):
                    count -= 1
                    total -= wanted_sizes[count]
                    next_offset = first + offsets.index(wanted[count])
                wanted, wanted_sizes = wanted[:count], wanted_sizes[:count]
                break
            if count == count_max or (budget is not None and budget.is_used_up):
                break
        is_one_run = block is not None and first == queue_offset and len(block) == total
        return wanted, wanted_sizes, total, next_offset, block if is_one_run else None

    def _by_tags_code(self, queue: ConsumeQueue, units: memoryview, count_max: int, matches: Matches) -> Iterator[Run]:
        """Yield `units` in runs with the verdicts of a tag filter."""
        start, end = 0, count_max * CONSUME_QUEUE_UNIT_SIZE
        has_addresses = self._has_addresses(queue.topic, queue.queue_id, units)
        while start < len(units):
            values = unit_run_struct(len(run := units[start:end]) // CONSUME_QUEUE_UNIT_SIZE).unpack(run)
            offsets, sizes, codes = values[::3], values[1::3], values[2::3]
            start, end = end, end + max(count_max, RUN_MAX) * CONSUME_QUEUE_UNIT_SIZE
            resolved: Iterable[int] = codes
            if has_addresses:
                resolved = (self.tags_code(queue.topic, queue.queue_id, *row) for row in zip(codes, offsets, strict=True))
            yield offsets, sizes, codes, list(map(matches, resolved)), None

    def _readable(
        self,
        offsets: Sequence[int],
        sizes: Sequence[int],
        codes: Sequence[int],
        verdicts: Sequence[int] | None,
        is_checked: bool,
    ) -> list[bool]:
        """Return the verdicts on a run without holes, records that were removed from the log and, with `is_checked`, damaged
        ones of an earlier process."""
        log_min, checked_below = self.commit_log.min_offset, self.written_from if is_checked else 0
        return [
            code != HOLE_TAGS_CODE
            and offset >= log_min
            and (offset >= checked_below or self._is_valid(offset, size))
            and bool(is_wanted)
            for offset, size, code, is_wanted in zip(
                offsets, sizes, codes, verdicts or repeat(True, len(offsets)), strict=True
            )
        ]

    def _is_valid(self, physical_offset: int, size: int) -> bool:
        """Return whether a unit points at an intact record; log it if not. Raises LookupError outside the log's files."""
        file = _file_at(self.commit_log.mapped_files, physical_offset)
        if is_valid(file.view, physical_offset - file.start_offset, size):
            return True
        what = f"no record of {size} bytes is at physical offset {physical_offset} of the log, but a queue points at one"
        self._invalid.refused("damage", what)
        return False

    def _problem_of(self, queue: ConsumeQueue, queue_offset: int) -> str | None:
        """Return an error text for the first unit in a pull's range that points at no valid record, or None."""
        units = queue.units(queue_offset, _UNITS_SCANNED)
        for number, (physical_offset, size, code) in enumerate(CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units), queue_offset):
            if code == HOLE_TAGS_CODE or physical_offset < self.commit_log.min_offset:
                continue
            record = self.commit_log.record_at(physical_offset)
            if record is None or len(record) != size:
                where = f"queue {queue.topic}/{queue.queue_id} is damaged at queue offset {number}"
                what = f"no record of {size} bytes is at physical offset {physical_offset}"
                return f"{where}: {what}; stop the broker and run `pocketmq store repair` to rebuild the queue from the log"
        return None

    # --- record filters ---------------------------------------------------------------------------------------------

    def any_matches(self, topic: str, queue_id: int, start: int, end: int, record_filter: RecordFilter) -> bool:
        """Return whether `record_filter` accepts any record of the queue offsets `start` to `end` (exclusive).

        Also return True when the budget is used up before that is known.
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return False
        budget = FilterBudget()
        # `units` ends at the end of a file.
        while units := queue.units(start, end - start):
            for _, _, _, verdicts, _ in self._verdicts.judged(queue, start, units, RUN_MAX, record_filter):
                if verdicts is None or True in verdicts or budget.is_used_up:
                    return True
            start += len(units) // CONSUME_QUEUE_UNIT_SIZE
        return False

    # --- consumequeue_ext -------------------------------------------------------------------------------------------

    def _has_addresses(self, topic: str, queue_id: int, units: memoryview) -> bool:
        """Return whether a run may have tags codes in consumequeue_ext.

        If those files were lost, the first and the last unit decide.
        """
        first, last = _TAGS_CODE_POSITION, len(units) - CONSUME_QUEUE_UNIT_SIZE + _TAGS_CODE_POSITION
        return (topic, queue_id) in self.queues.ext.rows or _ADDRESS_MARK in (units[first], units[last])

    def tags_code(self, topic: str, queue_id: int, code: int, physical_offset: int) -> int:
        """Return the tags code for `code` of a queue unit, which may be a consumequeue_ext address.

        If the address cannot be read, the tags code is computed from the record; 0 if that fails too.
        """
        if code > EXT_ADDRESS_MAX:
            return code
        unit = self.queues.ext.get(topic, queue_id, code)
        if unit is not None:
            return unit.tags_code
        record = self.commit_log.record_at(physical_offset)
        try:
            return 0 if record is None else decode_dispatch_request(record, 0, self._tags_code).tags_code
        except BadRecordError:
            return 0


def _gathered(log_files: MappedFileQueue, offsets: Sequence[int], sizes: Sequence[int], size: int) -> list[memoryview]:
    """Return records as views of the log, or as one copy if sending many small views would cost more than copying."""
    first, last, count = offsets[0], offsets[-1], len(offsets)
    file = _file_at(log_files, first)
    start, view = file.start_offset, file.view
    if last + sizes[-1] - first == size:
        # Records never overlap, so these are adjacent; and in one file, as each file ends with an 8-byte end mark.
        return [view[first - start : first - start + size]]
    if count < _COPY_COUNT_MIN or size > count * _COPY_SIZE_MAX:
        return _views(log_files, offsets, sizes)
    if last >= start + file.size:
        return [memoryview(b"".join(_views(log_files, offsets, sizes)))]
    return [memoryview(b"".join([view[(p := o - start) : p + n] for o, n in zip(offsets, sizes, strict=True)]))]


def _views(log_files: MappedFileQueue, offsets: Sequence[int], sizes: Sequence[int]) -> list[memoryview]:
    """Return views of records with adjacent records merged. `offsets` is ascending."""
    views: list[memoryview] = []
    start, end = offsets[0], offsets[0] + sizes[0]
    file_start = file_end = -1
    view = memoryview(b"")
    for physical_offset, size in zip((*offsets[1:], -1), (*sizes[1:], 0), strict=True):
        if physical_offset == end:
            end += size
            continue
        if start >= file_end:
            file = _file_at(log_files, start)
            view, file_start, file_end = file.view, file.start_offset, file.start_offset + file.size
        views.append(view[start - file_start : end - file_start])
        start, end = physical_offset, physical_offset + size
    return views


def _file_at(log_files: MappedFileQueue, physical_offset: int) -> MappedFile:
    file = log_files.file_at(physical_offset)
    if file is None:
        raise LookupError(f"no file of the log holds physical offset {physical_offset}")
    return file


def _out_of_range(queue_offset: int, min_offset: int, max_offset: int) -> GetResult:
    if max_offset == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
    if queue_offset < min_offset:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
    if queue_offset == max_offset:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, min_offset, max_offset)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)


def _memory_size() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

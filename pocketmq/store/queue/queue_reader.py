"""QueueReader: resolves the queue units that a pull asks for to views of records in the commit log.

There are three code paths to the same records. A pull without a filter from the newest part of the log, the usual case,
takes the fast path: all units are unpacked at once, their sizes are summed, and neighbouring records become one view. A pull
with a `RecordFilter` is evaluated by runs of units. Filters by tag, old records, holes and results over the size limits go
unit by unit, where the verdict of a record filter takes the place of the tags code. A record filter ends a pull early when
its `FilterBudget` is used up.

Records written by an earlier process are checked before they are returned (`valid_records`): a damaged record is skipped,
and a log line reports it.

A *hole* is a unit whose record was lost: its tags code marks it, and it points at the filler record that was written over
the damage. Pulls skip holes.
"""

import logging
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
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
from pocketmq.store.queue.filter_cache import RUN_MAX, FilterCache, runs_of
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

Unit = tuple[int, int, int]
"""(physical offset, size, tags code)"""
Units = Iterator[Unit]
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
    ) -> GetResult:
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if not min_offset <= queue_offset < max_offset:
            return _out_of_range(queue_offset, min_offset, max_offset)
        count_max = max(count_max, 1)
        if matches is None:
            units = queue.units(queue_offset, min(count_max, self.config.max_transfer_count_on_message_in_memory))
            result = self._get_all(units, queue_offset, min_offset, max_offset) if units else None
            if result is not None:
                return result
        count_max = min(count_max, self.config.max_transfer_count_on_message_in_memory)
        units = queue.units(queue_offset, max(_UNITS_SCANNED, count_max))
        if not units:
            # A file is missing in the middle of the queue: reading continues with the next file.
            per_file = self.config.mapped_file_size_consume_queue // CONSUME_QUEUE_UNIT_SIZE
            next_offset = queue_offset - queue_offset % per_file + per_file
            return GetResult(GetStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
        if isinstance(matches, RecordFilter):
            budget = budget or FilterBudget()
            result = self._get_wanted(queue, units, queue_offset, min_offset, max_offset, count_max, matches, budget)
            if result is not None:
                return result
        rows: Units = CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units)
        if isinstance(matches, RecordFilter):
            rows, matches = self._verdicts.of_units(queue, queue_offset, units, count_max, matches), bool
        elif matches is not None and self._has_addresses(queue.topic, queue.queue_id, units):
            rows = self._resolved(queue.topic, queue.queue_id, rows)
        return self._get_matching(rows, queue_offset, min_offset, max_offset, count_max, matches, budget)

    def _get_all(self, units: memoryview, queue_offset: int, min_offset: int, max_offset: int) -> GetResult | None:
        """Return the records of all `units`, or None if they exceed the limits and must go through `_get_matching`.

        Fast path of `_get_matching` for the usual case.
        """
        log_files = self.commit_log.mapped_files
        count = len(units) // CONSUME_QUEUE_UNIT_SIZE
        values = unit_run_struct(count).unpack(units)
        offsets, sizes = values[::3], values[1::3]
        size, start = sum(sizes), offsets[0]
        if (
            HOLE_TAGS_CODE in values[2::3]
            or size > self.config.max_transfer_bytes_on_message_in_memory
            or start < log_files.min_offset
            or start < self.commit_log.max_offset - self.in_memory_bytes
        ):
            return None
        views = _gathered(log_files, offsets, sizes, size)
        if start < self.written_from and not are_valid(views, sizes):
            return None
        return GetResult(_FOUND, queue_offset + count, min_offset, max_offset, views, count, size)

    def _get_wanted(
        self,
        queue: ConsumeQueue,
        units: memoryview,
        queue_offset: int,
        min_offset: int,
        max_offset: int,
        count_max: int,
        record_filter: RecordFilter,
        budget: FilterBudget,
    ) -> GetResult | None:
        """Return the records of `units` that a record filter accepts.

        Returns None if `_get_matching` must do it: for old records, or if the first run cannot be evaluated as a whole. If
        the records were copied in order to evaluate the filter and all are accepted, that copy is the result.
        """
        config, log_files = self.config, self.commit_log.mapped_files
        in_memory_from = self.commit_log.max_offset - self.in_memory_bytes
        bytes_max = config.max_transfer_bytes_on_message_in_memory
        count_max = min(count_max, config.max_transfer_count_on_message_in_memory)
        wanted: list[int] = []
        wanted_sizes: list[int] = []
        block: memoryview | None = None
        next_offset, total = queue_offset, 0
        for first, run in runs_of(units, queue_offset, count_max):
            values = unit_run_struct(len(run) // CONSUME_QUEUE_UNIT_SIZE).unpack(run)
            offsets, sizes = values[::3], values[1::3]
            if offsets[0] < in_memory_from:
                return None
            if offsets[0] < self.written_from:
                # The filter finds no properties in a damaged record and rejects it; the damage must still be logged.
                for physical_offset, size, code in zip(offsets, sizes, values[2::3], strict=True):
                    if physical_offset >= log_files.min_offset and code != HOLE_TAGS_CODE:
                        self._is_valid(physical_offset, size)
            verdicts, block = self._verdicts.of_plain(queue, first, offsets, sizes, values[2::3], record_filter)
            if verdicts is None:
                if first == queue_offset:
                    return None
                break  # the next pull starts there
            if False not in verdicts:
                wanted += offsets
                wanted_sizes += sizes
            else:
                wanted += compress(offsets, verdicts)
                wanted_sizes += compress(sizes, verdicts)
            next_offset = first + len(offsets)
            total = sum(wanted_sizes)
            if len(wanted) >= count_max or total > bytes_max or budget.is_used_up:
                while len(wanted) > count_max or (total > bytes_max and len(wanted) > 1):
                    total -= wanted_sizes.pop()
                    next_offset = first + offsets.index(wanted.pop())
                break
        if not wanted:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, next_offset, min_offset, max_offset)
        if block is not None and first == queue_offset and len(block) == total:  # one run, accepted completely
            views = [block]
        else:
            views = _gathered(log_files, wanted, wanted_sizes, total)
        if wanted[0] < self.written_from and not are_valid(views, wanted_sizes):
            return None
        return GetResult(_FOUND, next_offset, min_offset, max_offset, views, len(wanted), total)

    def _get_matching(
        self,
        units: Units,
        queue_offset: int,
        min_offset: int,
        max_offset: int,
        count_max: int,
        matches: Matches | None,
        budget: FilterBudget | None,
    ) -> GetResult:
        """Return the matching records of `units`, as many as the limits allow but at least one unless `budget` ends."""
        config, log_files = self.config, self.commit_log.mapped_files
        in_memory_from = self.commit_log.max_offset - self.in_memory_bytes
        bytes_max = config.max_transfer_bytes_on_message_in_memory
        count_max = min(count_max, config.max_transfer_count_on_message_in_memory)
        min_physical_offset = log_files.min_offset
        offsets: list[int] = []
        sizes: list[int] = []
        scanned = total = 0
        removed = False
        for physical_offset, size, code in units:
            if matches is None or matches(code):
                if code == HOLE_TAGS_CODE:
                    scanned += 1
                    continue
                if physical_offset < min_physical_offset:
                    removed = True
                    scanned += 1
                    continue
                if physical_offset < self.written_from and not self._is_valid(physical_offset, size):
                    scanned += 1
                    continue
                if physical_offset < in_memory_from:
                    bytes_max = config.max_transfer_bytes_on_message_in_disk
                    count_max = min(count_max, config.max_transfer_count_on_message_in_disk)
                if offsets and (total + size > bytes_max or len(offsets) >= count_max):
                    break
                offsets.append(physical_offset)
                sizes.append(size)
                total += size
                if len(offsets) >= count_max:  # stop before the filter is evaluated for another unit
                    scanned += 1
                    break
            scanned += 1
            if budget is not None and budget.is_used_up:
                break
        if not offsets:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, queue_offset + scanned, min_offset, max_offset)
        views = _gathered(log_files, offsets, sizes, total)
        next_offset, from_disk = queue_offset + scanned, offsets[-1] < in_memory_from
        return GetResult(_FOUND, next_offset, min_offset, max_offset, views, len(offsets), total, from_disk)

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
            for _, _, verdict in self._verdicts.of_units(queue, start, units, RUN_MAX, record_filter):
                if verdict or budget.is_used_up:
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

    def _resolved(self, topic: str, queue_id: int, units: Units) -> Units:
        """Yield `units` with consumequeue_ext addresses replaced by the tags codes."""
        for physical_offset, size, code in units:
            if code <= EXT_ADDRESS_MAX:
                code = self.tags_code(topic, queue_id, code, physical_offset)
            yield physical_offset, size, code

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
    return [memoryview(b"".join([view[o - start : o - start + n] for o, n in zip(offsets, sizes, strict=True)]))]


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

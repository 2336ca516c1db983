"""FilterCache: cached verdicts of record filters on the records of queues.

The verdicts of an expression are shared by all that use it: a held pull is woken for a record and then reads it,
broadcasting consumers all have the same expression, and several groups may have the same one.

A *page* keeps the verdicts of one expression on 512 records of a queue, one byte each. The most recently used pages are
kept.

If many groups with different expressions follow a topic, each record is judged once per expression. The input of the
judgement, the property entries of the records, is therefore cached in pages, too: reading it from the log is the larger part
of the work.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE, EXT_ADDRESS_MAX, HOLE_TAGS_CODE, unit_run_struct
from pocketmq.store.format.record import entries_of, entries_of_each
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore
from pocketmq.store.queue.record_filter import Judge, RecordFilter

RUN_MAX: Final = 32
"""Maximum number of records judged at once."""
PAGE_SIZE: Final = 512
PAGES_MAX: Final = 2048
"""1.6 MB of memory including the keys."""
ENTRIES_PAGES_MAX: Final = 128
"""14 MB of memory if a record has 150 bytes of properties; at most 20 MB because of ENTRIES_SIZE_MAX."""
ENTRIES_SIZE_MAX: Final = 8192
"""Entries of a run are not cached if they have more characters in total."""
RUN_SIZE_MAX: Final = 32 * 1024
"""Records are judged one by one, each against the request's budget, if the entries of their run have more characters."""

Run = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int] | None, memoryview | None]
"""Consecutive units: physical offsets, sizes, tags codes, verdicts (None: all are wanted), and the records as one block if
they were copied or are adjacent."""

_UNKNOWN: Final = 2  # known verdicts are 0 or 1
_BLANK_PAGE: Final = bytes((_UNKNOWN,)) * PAGE_SIZE
# Non-adjacent records are copied before they are judged if their average size is at most this. If all are accepted, the copy
# is returned to the client; otherwise it has cost little more than reading only the properties.
_COPY_SIZE_MAX: Final = 2048


class FilterCache:
    """Cache of filter verdicts and property entries.

    Entries never become invalid, because a queue offset never gets another record. A topic that is deleted and created again
    gets new ConsumeQueue objects, which are part of the keys.
    """

    def __init__(self, commit_log: CommitLog, ext: ConsumeQueueExtStore) -> None:
        self._log_files = commit_log.mapped_files
        self._ext = ext
        self._page = lru_cache(PAGES_MAX)(_new_page)
        self._entries_page = lru_cache(ENTRIES_PAGES_MAX)(_new_entries_page)

    def judged(
        self, queue: ConsumeQueue, queue_offset: int, units: memoryview, run_max: int, record_filter: RecordFilter
    ) -> Iterator[Run]:
        """Yield `units` in runs with their verdicts: of at most `run_max` units, within a page.

        Units that must be judged one by one are runs of their own. A run is judged when it is requested.
        """
        position, run_max = 0, min(run_max, RUN_MAX)
        while position < len(units):
            count = min(run_max, PAGE_SIZE - queue_offset % PAGE_SIZE)
            run = units[position : position + count * CONSUME_QUEUE_UNIT_SIZE]
            values = unit_run_struct(len(run) // CONSUME_QUEUE_UNIT_SIZE).unpack(run)
            offsets, sizes, codes = values[::3], values[1::3], values[2::3]
            verdicts, block = self.of_plain(queue, queue_offset, offsets, sizes, codes, record_filter)
            position, queue_offset = position + len(run), queue_offset + count
            if verdicts is not None:
                yield offsets, sizes, codes, verdicts, block
                continue
            for physical_offset, size, code in zip(offsets, sizes, codes, strict=True):
                yield (
                    (physical_offset,),
                    (size,),
                    (code,),
                    (self._of_one(queue, physical_offset, code, record_filter),),
                    None,
                )

    def of_plain(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        codes: Sequence[int],
        record_filter: RecordFilter,
    ) -> tuple[Sequence[int] | None, memoryview | None]:
        """Return the verdicts on a run within a page, and its records as one block if they were copied or are adjacent.

        Returns no verdicts if the run has holes, consumequeue_ext addresses or long properties, or spans two files; such
        units must be judged one by one.
        """
        number, start = divmod(queue_offset, PAGE_SIZE)
        end = start + len(offsets)
        if record_filter.is_constant:
            page = self._page(record_filter.judge, queue, number)
            verdicts = page[start:end]
            if _UNKNOWN not in verdicts:
                return verdicts, None
        file = self._log_files.file_at(offsets[0])
        if file is None or offsets[-1] >= file.start_offset + file.size:
            return None, None
        if HOLE_TAGS_CODE in codes or min(codes) <= EXT_ADDRESS_MAX:
            return None, None
        block, kept = None, self._entries_page(queue, number)
        run = kept[start:end]
        if not all(run):
            run, block = _entries(file, offsets, sizes)
            size = sum(map(len, run))
            if size > RUN_SIZE_MAX:
                return None, None
            if size <= ENTRIES_SIZE_MAX:
                kept[start:end] = run
        judged = record_filter.judge(run)
        if record_filter.is_constant:
            page[start:end] = bytes(judged)
        return judged, block

    def _of_one(self, queue: ConsumeQueue, physical_offset: int, code: int, record_filter: RecordFilter) -> bool:
        """Judge one unit. A record that is no longer in the log is accepted; the pull handles it as without a filter."""
        if code == HOLE_TAGS_CODE:
            return False
        if code <= EXT_ADDRESS_MAX:
            unit = self._ext.get(queue.topic, queue.queue_id, code)
            if unit is not None and not record_filter.may_match(unit):
                return False
        file = self._log_files.file_at(physical_offset)
        return file is None or record_filter.judge([entries_of(file.view, physical_offset - file.start_offset)])[0]


def _new_page(judge: Judge, queue: ConsumeQueue, number: int) -> bytearray:
    """Return an empty page of verdicts. The arguments are the cache key."""
    return bytearray(_BLANK_PAGE)


def _new_entries_page(queue: ConsumeQueue, number: int) -> list[str]:
    """Return an empty page of property entries; known entries are never empty strings. The arguments are the cache key."""
    return [""] * PAGE_SIZE


def _entries(file: MappedFile, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[list[str], memoryview | None]:
    """Return the property entries of records in one file, and the records as one block unless large and not adjacent."""
    view, start, total = file.view, file.start_offset, sum(sizes)
    block = None
    if offsets[-1] + sizes[-1] - offsets[0] == total:
        block = view[offsets[0] - start : offsets[0] - start + total]
    if total > len(sizes) * _COPY_SIZE_MAX:
        return [entries_of(view, offset - start) for offset in offsets], block
    if block is None:
        copied = b"".join([view[o - start : o - start + n] for o, n in zip(offsets, sizes, strict=True)])
        return entries_of_each(copied, sizes), memoryview(copied)
    return entries_of_each(block, sizes), block

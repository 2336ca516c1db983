"""FilterCache: what record filters say of the records that a queue's units point at.

What the filter of an expression said is kept, whoever asks next: a held pull is woken for a record and then reads it,
consumers that broadcast all have the same expression, and so may groups. 32 verdicts that are known take 1 us; to come by
them takes 18.

A *page* keeps those of one expression on 512 records of a queue, a byte each; those that were asked for last are kept.

Of groups that follow a topic, each with an expression of its own, every one has each record judged. What they look at, the
records' entries, is therefore kept by pages, too: to take those of 32 from the log is 12 of the 18 us.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE, HOLE_TAGS_CODE, unit_run_struct
from pocketmq.store.format.record import entries_of, entries_of_each
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_ext import EXT_ADDRESS_MAX, ConsumeQueueExtStore
from pocketmq.store.queue.record_filter import Judge, RecordFilter

RUN_MAX: Final = 32
"""So many records are judged at once, at most."""
PAGE_SIZE: Final = 512
PAGES_MAX: Final = 2048
"""1.6 MB in all, with their keys."""
ENTRIES_PAGES_MAX: Final = 128
"""14 MB where properties have 150 bytes. A run with more than ENTRIES_SIZE_MAX of them is not kept: 20 MB in all at most."""
ENTRIES_SIZE_MAX: Final = 8192

_UNKNOWN: Final = 2  # else 0 or 1, as the verdict is
_BLANK_PAGE: Final = bytes((_UNKNOWN,)) * PAGE_SIZE
# Records apart from each other are copied before they are judged if they are no larger than this on average. Those that are
# wanted then need no further copy; the others have cost what fetching their properties alone would have, or little more.
_COPY_SIZE_MAX: Final = 2048


class FilterCache:
    """What a queue offset holds never changes while its ConsumeQueue is served; a topic that is made anew has others."""

    def __init__(self, commit_log: CommitLog, ext: ConsumeQueueExtStore) -> None:
        self._log_files = commit_log.mapped_files
        self._ext = ext
        self._page = lru_cache(PAGES_MAX)(_new_page)
        self._entries_page = lru_cache(ENTRIES_PAGES_MAX)(_new_entries_page)

    def of_units(
        self, queue: ConsumeQueue, queue_offset: int, units: memoryview, run_max: int, record_filter: RecordFilter
    ) -> Iterator[tuple[int, int, int]]:
        """`units` with a verdict for their tags code, a run judged when the first of it is asked for."""
        runs = runs_of(units, queue_offset, run_max)
        return chain.from_iterable(self._of_run(queue, first, run, record_filter) for first, run in runs)

    def _of_run(
        self, queue: ConsumeQueue, queue_offset: int, run: memoryview, record_filter: RecordFilter
    ) -> Iterable[tuple[int, int, int]]:
        values = unit_run_struct(len(run) // CONSUME_QUEUE_UNIT_SIZE).unpack(run)
        offsets, sizes, codes = values[::3], values[1::3], values[2::3]
        verdicts: Sequence[int] | None = self.of_plain(queue, queue_offset, offsets, sizes, codes, record_filter)[0]
        if verdicts is None:
            verdicts = [self._of_one(queue, *unit, record_filter) for unit in zip(offsets, codes, strict=True)]
        return zip(offsets, sizes, verdicts, strict=True)

    def of_plain(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        codes: Sequence[int],
        record_filter: RecordFilter,
    ) -> tuple[Sequence[int] | None, memoryview | None]:
        """FilterCache on a run of `runs_of`, and all its records as one block if they were copied or lie side by side.

        No verdicts where units are holes, have an address or lie in two files: these take 0.5 us more each.
        """
        file = self._log_files.file_at(offsets[0])
        if (
            file is None
            or offsets[-1] >= file.start_offset + file.size
            or HOLE_TAGS_CODE in codes
            or min(codes) <= EXT_ADDRESS_MAX
        ):
            return None, None
        number, start = divmod(queue_offset, PAGE_SIZE)
        end = start + len(offsets)
        if record_filter.is_constant:
            page = self._page(record_filter.judge, queue, number)
            verdicts = page[start:end]
            if _UNKNOWN not in verdicts:
                return verdicts, None
        block, kept = None, self._entries_page(queue, number)
        run = kept[start:end]
        if not all(run):
            run, block = _entries(file, offsets, sizes)
            if sum(map(len, run)) <= ENTRIES_SIZE_MAX:
                kept[start:end] = run
        judged = record_filter.judge(run)
        if record_filter.is_constant:
            page[start:end] = bytes(judged)
        return judged, block

    def _of_one(self, queue: ConsumeQueue, physical_offset: int, code: int, record_filter: RecordFilter) -> bool:
        """What is no longer there counts as wanted, as without a filter."""
        if code == HOLE_TAGS_CODE:
            return False
        if code <= EXT_ADDRESS_MAX:
            unit = self._ext.get(queue.topic, queue.queue_id, code)
            if unit is not None and not record_filter.may_match(unit):
                return False
        file = self._log_files.file_at(physical_offset)
        return file is None or record_filter.judge([entries_of(file.view, physical_offset - file.start_offset)])[0]


def _new_page(judge: Judge, queue: ConsumeQueue, number: int) -> bytearray:
    """The page `number` of what a function says of a queue: all of it unknown."""
    return bytearray(_BLANK_PAGE)


def _new_entries_page(queue: ConsumeQueue, number: int) -> list[str]:
    """The page `number` of a queue's entries: none is known, for known ones are never empty."""
    return [""] * PAGE_SIZE


def runs_of(units: memoryview, queue_offset: int, run_max: int) -> Iterator[tuple[int, memoryview]]:
    """`units` in runs of at most `run_max` that do not go over a page's end, each with its first queue offset."""
    position = 0
    while position < len(units):
        count = min(run_max, RUN_MAX, PAGE_SIZE - queue_offset % PAGE_SIZE)
        run = units[position : position + count * CONSUME_QUEUE_UNIT_SIZE]
        yield queue_offset, run
        queue_offset += count
        position += len(run)


def _entries(file: MappedFile, offsets: Sequence[int], sizes: Sequence[int]) -> tuple[list[str], memoryview | None]:
    """The entries of records in one file, and all of them as one block, unless they are large and lie apart."""
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

"""Selection of records by topic and queue through the ConsumeQueues, instead of a scan of the log.

Queues are used only as far as they prove what a part of the log holds (`coverage`): the listed records of the wanted topics
are read one by one, bytes that are not accounted for are scanned, and so is the log behind the newest unit of all queues.
Therefore a topic has the same rows as in a scan of the whole log, whatever the state of the queues.
"""

import logging
import posixpath
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from pocketmq.spark_analytics.reading.coverage import Found, QueueUnits, covered, opened, undamaged
from pocketmq.spark_analytics.reading.log_tail import may_begin
from pocketmq.spark_analytics.reading.pruning import Pruning
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.split_planning import lost_splits, plan, records_end
from pocketmq.store.format.layout import BLANK_UNIT_SIZE, CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.record_chain import Positions, record_candidates
from pocketmq.store.offline.file_bytes import is_remote
from pocketmq.store.offline.log_walk import is_blank, read_mark
from pocketmq.store.offline.places import LogFile
from pocketmq.store.offline.queue_files import queue_files
from pocketmq.store.offline.store_folder import StoreFolder

log = logging.getLogger(__name__)

# Queues are read by the driver alone. So the units of all queues must be this many times smaller than the log, and those of
# the wanted topics, whose positions are sent to the tasks, still smaller.
UNITS_SHARE_MAX: Final = 8
WANTED_SHARE_MAX: Final = 100
UNITS_SIZE_MIN: Final = 1 << 20
# A stretch in which the wanted records take more than this share is scanned.
DENSITY_MAX: Final = 0.5
# A shorter range of the log is scanned: looking up the newest units of all queues costs more.
RANGE_SIZE_MIN: Final = 8 << 20


class LastUnit(NamedTuple):
    """The record that the newest unit of a queue points to."""

    physical_offset: int
    size: int


def plan_log(files: list[LogFile], pruning: Pruning, split_size: int) -> list[Split]:
    """Return the splits of one log: listed records of the wanted topics where queues are usable, scans elsewhere."""
    root = posixpath.dirname(files[0].folder)
    # To find the end of a log, many small remote reads are not worth it.
    known = 0 if pruning.topics is None and is_remote(root) else _proven(root, files)
    queues = _usable(root, pruning, files[0].start_offset, known)
    if queues is None:
        return plan(files, pruning, split_size, known=known)
    splits = []
    for index in range(len(files)):
        found, lost_from = _in_file(files, index, queues, pruning, split_size, files[0].start_offset, known)
        splits += found
        if lost_from is not None and pruning.wants_file(files[index], files[index + 1]):
            splits += lost_splits(files, index, lost_from, pruning)
    return splits + plan(files, pruning, split_size, known, known)


def plan_range(files: list[LogFile], pruning: Pruning, split_size: int, begin: int, end: int) -> tuple[list[Split], int]:
    """Return splits of listed records between two physical offsets, and the offset from which the log has to be scanned.

    As `plan_log`, for reads that know where the log ends and report lost files themselves. `end` is not behind the end.
    """
    if pruning.topics is None or end - begin < RANGE_SIZE_MIN:
        return [], begin
    root = posixpath.dirname(files[0].folder)
    known = min(_proven(root, files), end)
    queues = _usable(root, pruning, begin, known)
    if queues is None:
        return [], begin
    splits = []
    for index in range(len(files)):
        splits += _in_file(files, index, queues, pruning, split_size, begin, known)[0]
    return splits, known


def _usable(root: str, pruning: Pruning, begin: int, known: int) -> list[QueueUnits] | None:
    """Return the units of all queues, or None if they are of no use between two physical offsets."""
    if pruning.topics is None or known <= begin:
        return None
    store = StoreFolder(root)
    queues = opened(store, store.queue_keys(), begin)
    size = sum(queue.size for queue in queues)
    wanted_size = sum(queue.size for queue in queues if _wants(pruning, queue))
    if max(size * UNITS_SHARE_MAX, wanted_size * WANTED_SHARE_MAX) > max(known - begin, UNITS_SIZE_MIN * UNITS_SHARE_MAX):
        log.info("scanning %s: the units of its queues, or those of the wanted topics, are too many", root)
        return None
    return queues


def _wants(pruning: Pruning, queue: QueueUnits) -> bool:
    is_own_id = pruning.queue_ids is None or queue.queue_id in pruning.queue_ids
    return is_own_id and (pruning.topics is None or queue.topic in pruning.topics)


def _in_file(
    files: list[LogFile], index: int, queues: list[QueueUnits], pruning: Pruning, split_size: int, begin: int, known: int
) -> tuple[list[Split], int | None]:
    """Return the splits of a file between two physical offsets, and the position of the first listed record it lacks."""
    file = files[index]
    successor = files[index + 1] if index + 1 < len(files) else None
    begin = max(begin, file.start_offset)
    # Including the records that the file has lost.
    stop = min(known, file.end_offset if successor is None else successor.start_offset)
    if begin >= stop or not pruning.wants_file(file, successor):
        return [], None
    found = covered(file, queues, lambda queue: _wants(pruning, queue), begin, stop)
    starts, sizes = found.starts - file.start_offset, found.sizes
    there = int(np.searchsorted(starts + sizes, file.size, "right"))
    lost_from = int(starts[there]) if there < len(starts) else None
    starts, sizes = starts[:there], sizes[:there]
    splits: list[Split] = []
    first = 0
    for low, high in _unknown(files, index, found, split_size):
        before, behind = np.searchsorted(starts, [low, high]).tolist()
        splits += _cut(file, starts[first:before], sizes[first:before], pruning, split_size)
        splits += scans(file, low, high, pruning, split_size)
        first = behind
    return splits + _cut(file, starts[first:], sizes[first:], pruning, split_size), lost_from


def _unknown(files: list[LogFile], index: int, found: Found, split_size: int) -> list[tuple[int, int]]:
    """Return the ranges of a file that have to be scanned; those with less than `split_size` between them are joined."""
    file = files[index]
    ranges: list[tuple[int, int]] = []
    size = 0
    for begin, stop in found.unknown:
        low, high = begin - file.start_offset, min(stop - file.start_offset, file.size)
        if index + 1 < len(files) and stop == files[index + 1].start_offset:
            if low >= high or is_blank(read_mark(file, low), stop - begin):
                continue
            high = records_end(files, index, low)[0]
        size += max(high - low, 0)
        if low < high and ranges and low - ranges[-1][1] < split_size:
            ranges[-1] = (ranges[-1][0], high)
        elif low < high:
            ranges.append((low, high))
    if size:
        log.warning("the ConsumeQueues do not account for %s bytes of %s: scanning these", f"{size:,}", file.path)
    return ranges


def scans(
    file: LogFile, low: int, high: int, pruning: Pruning, split_size: int, begins: Callable[[LogFile, int], bool] = may_begin
) -> list[Split]:
    """Return the splits that scan a range of a file. The first one is exact if `begins` says so."""
    begin, stop = pruning.narrow(file, low, high)
    cuts = [*range(begin, stop, split_size), stop]
    is_exact = begin == low < stop and begins(file, low)
    return [Split(file, cut, end, high, is_exact=is_exact and cut == low) for cut, end in pairwise(cuts)]


def _proven(root: str, files: list[LogFile]) -> int:
    """Return the physical offset of the newest record that a queue proves to belong to the log (`log_end`); 0 if none does.

    Queues that are damaged, or whose last unit points to no record, prove nothing.
    """
    store = StoreFolder(root)
    units = undamaged(
        store, store.queue_keys(), lambda key: _last_unit(store, *key), "is not used to find the end of the log"
    )
    for unit in sorted(filter(None, units), reverse=True):
        if _has_record(files, unit):
            return unit.physical_offset
    return 0


def _has_record(files: list[LogFile], unit: LastUnit) -> bool:
    """Return whether the record of a unit is in the log."""
    holder = next((file for file in files if file.start_offset <= unit.physical_offset < file.end_offset), None)
    if holder is None:
        return False
    mark = read_mark(holder, unit.physical_offset - holder.start_offset)
    is_record = len(record_candidates(mark, unit.physical_offset)) > 0
    return is_record and int.from_bytes(mark[:4].tobytes(), "big") == unit.size


def _cut(file: LogFile, starts: Positions, sizes: Positions, pruning: Pruning, split_size: int) -> list[Split]:
    """Return the splits for the records of a file that a topic's queues list."""
    if not len(starts):
        return []
    low, high = pruning.narrow(file, int(starts[0]), int(starts[-1]) + 1)
    begin, end = np.searchsorted(starts, [low, high])
    starts, sizes = starts[begin:end], sizes[begin:end]
    splits: list[Split] = []
    first = last = wanted = 0  # rows first to last are to be read one by one, and have `wanted` bytes in all

    def put_together() -> None:
        if first < last:
            stop = int(starts[last - 1] + sizes[last - 1])
            splits.append(Split(file, int(starts[first]), stop, stop, starts[first:last], sizes[first:last]))

    while last < len(starts):
        # Consider stretches as long as a scanned split; those with few wanted records are combined.
        behind = int(np.searchsorted(starts, starts[last] + split_size))
        span, size = int(starts[behind - 1] + sizes[behind - 1] - starts[last]), int(sizes[last:behind].sum())
        is_dense = size > DENSITY_MAX * span and behind - last > 1
        if is_dense or wanted + size > split_size:
            put_together()
            first, wanted = last, 0
        if is_dense:
            stop = int(starts[behind - 1]) + 1
            splits.append(Split(file, int(starts[last]), stop, stop))
            first = behind
        else:
            wanted += size
        last = behind
    put_together()
    return splits


def _last_unit(store: StoreFolder, topic: str, queue_id: int) -> LastUnit | None:
    """Return a queue's newest unit, None if it has none that points to a record. Raises DamagedFileError."""
    files = queue_files(store, topic, queue_id)
    count = files[-1].count() if files else 0
    if not count:
        return None
    unit = files[-1].file.read((count - 1) * CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_SIZE)
    physical_offset, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack(unit.tobytes())
    return None if size == BLANK_UNIT_SIZE else LastUnit(physical_offset, size)

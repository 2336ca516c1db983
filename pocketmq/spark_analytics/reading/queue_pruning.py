"""Selection of records by topic and queue through the ConsumeQueues, instead of a scan of the log.

A broker dispatches the records to their queues in the order of the log. So each queue is complete up to the newest unit of
all queues, and the records of a topic up to there are known from its queues; the rest of the log is scanned. While a broker
runs, or after it has crashed, the queues are trusted only up to the checkpoint, since a power cut may have taken recent
units from some queues and not from others. (The checkpoint matters only for missing units: a unit whose record exists always
proves that the log extends to it.)

Missing or inconsistent queues do not fail a query: the log is scanned instead, and a log line says why.
"""

import logging
import posixpath
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

from pocketmq.spark_analytics.files.places import LogFile, begins_with_record, is_remote, open_file, read_at
from pocketmq.spark_analytics.files.queue_files import BLANK_UNIT_SIZE, QueueFile, Units, queue_files, queue_ids, queue_keys
from pocketmq.spark_analytics.files.store_folder import DamagedFileError, StoreFolder
from pocketmq.spark_analytics.reading.pruning import Pruning, position_at, store_time_us
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.split_planning import lost_split, plan
from pocketmq.store.format.layout import (
    CHECKPOINT_SIZE,
    CHECKPOINT_STRUCT,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    HOLE_TAGS_CODE,
    RECORD_SIZE_MIN,
)
from pocketmq.store.format.record_chain import MARK_SIZE, Positions, record_candidates

log = logging.getLogger(__name__)

# A checkpoint's timestamps are not taken exactly at the syncs (StoreCheckpoint.getMinTimestamp).
_CHECKPOINT_MARGIN_MS: Final = 3000
# Queues are read by the driver alone, so they are used only if their units are this many times smaller than the log.
UNITS_SHARE_MAX: Final = 100
# Finding the end of a queue takes some 30 small reads, each a request if the files are remote; this many run at once.
REQUESTS_MAX: Final = 32
# A stretch in which the wanted records take more than this share is scanned.
DENSITY_MAX: Final = 0.5
# A shorter range of the log is scanned: looking up the newest units of all queues costs more.
RANGE_SIZE_MIN: Final = 8 << 20


class BrokenQueueError(ValueError):
    """Queues that cannot be relied upon; the message says why."""


class LastUnit(NamedTuple):
    """The record that the newest unit of a queue points to."""

    physical_offset: int
    size: int


def plan_log(files: list[LogFile], pruning: Pruning, split_size: int) -> list[Split]:
    """Return the splits of one log: listed records of the wanted topics where queues are usable, scans elsewhere."""
    root = posixpath.dirname(files[0].folder)
    if pruning.topics is None:
        return plan(files, pruning, split_size, known=_proven(root, files))
    try:
        known = _newest_known(root, files)
        starts, sizes = _records(root, files, pruning, files[0].physical_offset, known, is_whole=True)
    except (BrokenQueueError, DamagedFileError, OSError) as error:
        log.warning("%s: scanning the whole log in %s", error, files[0].folder)
        return plan(files, pruning, split_size, known=_proven(root, files))
    splits: list[Split] = []
    for index, file in enumerate(files):
        own, there, found = _in_file(files, index, starts, sizes, pruning, split_size)
        splits += found
        if there < len(own) and pruning.wants_file(file, files[index + 1]):
            lost = lost_split(files, index, int(own[there]), pruning)
            splits += [] if lost is None else [lost]
    return splits + plan(files, pruning, split_size, known, _proven(root, files))


def plan_range(files: list[LogFile], pruning: Pruning, split_size: int, begin: int, end: int) -> tuple[list[Split], int]:
    """Return splits of listed records between two physical offsets, and the offset from which the log has to be scanned.

    As `plan_log`, for reads that know where the log ends and report lost files themselves. `end` is not behind the end.
    """
    if pruning.topics is None or end - begin < RANGE_SIZE_MIN:
        return [], begin
    root = posixpath.dirname(files[0].folder)
    splits: list[Split] = []
    try:
        known = min(_newest_known(root, files), end)
        if known <= begin:
            return [], begin
        starts, sizes = _records(root, files, pruning, begin, known, is_whole=False)
        for index in range(len(files)):
            splits += _in_file(files, index, starts, sizes, pruning, split_size)[2]
    except (BrokenQueueError, DamagedFileError, OSError) as error:
        log.warning("%s: scanning %s from %d to %d", error, files[0].folder, begin, end)
        return [], begin
    return splits, known


def _in_file(
    files: list[LogFile], index: int, starts: Positions, sizes: Positions, pruning: Pruning, split_size: int
) -> tuple[Positions, int, list[Split]]:
    """Return the positions of the listed records of a file, how many of them it still has, and their splits."""
    file = files[index]
    begin, end = np.searchsorted(starts, [file.physical_offset, _stop(files, index)])
    own, own_sizes = starts[begin:end] - file.physical_offset, sizes[begin:end]
    there = int(np.searchsorted(own + own_sizes, file.size, "right"))
    if not there or not pruning.wants_file(file, None):
        return own, there, []
    return own, there, _cut(file, own[:there], own_sizes[:there], pruning, split_size)


def _stop(files: list[LogFile], index: int) -> int:
    """Return the physical offset behind all records of a file, including those that it has lost."""
    return files[index + 1].physical_offset if index + 1 < len(files) else files[index].end


def _proven(root: str, files: list[LogFile]) -> int:
    """Return the physical offset of the newest record that a queue proves to belong to the log (`log_end`); 0 if none does.

    Queues that are damaged, or whose last unit points to no record, prove nothing.
    """
    if is_remote(root):
        return 0  # not worth many small remote reads
    store = StoreFolder(root)
    units = []
    for key in queue_keys(store):
        try:
            units.append(_last_unit(store, *key, may_lack=True))
        except (DamagedFileError, OSError) as error:
            log.info("%s: this queue is not used to find the end of the log", error)
    for unit in sorted(filter(None, units), reverse=True):
        if _has_record(files, unit):
            return unit.physical_offset
    return 0


def _has_record(files: list[LogFile], unit: LastUnit) -> bool:
    """Return whether the record of a unit is in the log."""
    holder = next((file for file in files if file.physical_offset <= unit.physical_offset < file.end), None)
    if holder is None:
        return False
    with open_file(holder.path) as stream:
        mark = read_at(stream, unit.physical_offset - holder.physical_offset, MARK_SIZE)
    is_record = len(record_candidates(mark, unit.physical_offset)) > 0
    return is_record and int.from_bytes(mark[:4].tobytes(), "big") == unit.size


def _cut(file: LogFile, starts: Positions, sizes: Positions, pruning: Pruning, split_size: int) -> list[Split]:
    """Return the splits for the records of a file that a topic's queues list."""
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


def _newest_known(root: str, files: list[LogFile]) -> int:
    """Return the physical offset of a record up to which every queue has all of its units. Raises BrokenQueueError."""
    store = StoreFolder(root)
    if not store.files.is_folder(store.path("consumequeue")):
        raise BrokenQueueError(f"{root} has no consumequeue")
    unit = max(filter(None, _last_units(store)), default=LastUnit(-1, 0))
    newest = unit.physical_offset
    holder = next((file for file in files if file.physical_offset <= newest < file.end), None)
    if holder is None:
        raise BrokenQueueError(f"the newest unit of the queues points to {newest}, outside the log")
    if not _has_record(files, unit):
        raise BrokenQueueError(f"the newest unit of the queues points to {newest}, where no record of its size begins")
    if store.files.is_file(store.path("abort")):
        return min(newest, _synced(root, files, holder, newest))
    return newest


def _synced(root: str, files: list[LogFile], holder: LogFile, newest: int) -> int:
    """Return the physical offset of a record before which the checkpoint guarantees synced queues. Raises OSError."""
    with open_file(posixpath.join(root, "checkpoint")) as stream:
        data = read_at(stream, 0, CHECKPOINT_SIZE).tobytes()
    if len(data) < CHECKPOINT_SIZE:
        raise BrokenQueueError(f"the checkpoint of {root} is truncated")
    log_ms, queues_ms = CHECKPOINT_STRUCT.unpack(data)[:2]
    time_us = (min(log_ms, queues_ms) - _CHECKPOINT_MARGIN_MS) * 1000
    for file in reversed(files[: files.index(holder) + 1]):
        if begins_with_record(file) and store_time_us(file, 0) <= time_us:
            end = newest - file.physical_offset if file is holder else file.size
            return file.physical_offset + position_at(file, 0, end, time_us)[0]
    return files[0].physical_offset


# --- units ----------------------------------------------------------------------------------------------------------


def _records(
    root: str, files: list[LogFile], pruning: Pruning, begin: int, known: int, *, is_whole: bool
) -> tuple[Positions, Positions]:
    """Return (physical offsets, sizes) of the wanted records between two physical offsets, ascending.

    `is_whole`: read all units, also those that point outside of this range; otherwise damage in those is not noticed.

    Raises BrokenQueueError, DamagedFileError, OSError.
    """
    store = StoreFolder(root)
    queues: list[list[QueueFile]] = []
    for topic in sorted(pruning.topics or ()):
        if "/" in topic or not topic or not store.files.is_folder(store.path("consumequeue", topic)):
            raise BrokenQueueError(f"topic {topic} has no queues in {root}")
        there = queue_ids(store, topic)
        if pruning.queue_ids is not None and not pruning.queue_ids <= set(there):
            raise BrokenQueueError(f"topic {topic} lacks some of the queues {sorted(pruning.queue_ids)} in {root}")
        queues += [
            queue_files(store, topic, number) for number in sorted(there if pruning.queue_ids is None else pruning.queue_ids)
        ]
    counted = [(file, 0, file.count(may_lack=False)) for queue in queues for file in queue]
    if not is_whole:
        counted = [(file, file.first_from(begin, stop), file.first_from(known, stop)) for file, _, stop in counted]
    units_size = sum(stop - first for _, first, stop in counted) * CONSUME_QUEUE_UNIT_SIZE
    if units_size > max((known - begin) // UNITS_SHARE_MAX, 1 << 20):
        raise BrokenQueueError(f"the queues of {', '.join(sorted(pruning.topics or ()))} cover most of the log")
    found = [_units(file, first, stop) for file, first, stop in counted]
    if files[0].physical_offset == 0 and any(queue and queue[0].file.start for queue in queues):
        raise BrokenQueueError(f"a queue of {', '.join(sorted(pruning.topics or ()))} has lost its first file")
    units = np.concatenate(found) if found else np.empty(0, CONSUME_QUEUE_UNIT_DTYPE)
    starts, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    within = (starts >= begin) & (starts < known)
    starts, chosen = np.unique(starts[within], return_index=True)
    sizes = sizes[within][chosen]
    ends = starts + sizes
    bounds = np.array([_stop(files, index) for index in range(len(files))])
    if (sizes < RECORD_SIZE_MIN).any() or (ends[:-1] > starts[1:]).any():
        raise BrokenQueueError("units of the queues overlap")
    if len(starts) and (ends > bounds[np.minimum(np.searchsorted(bounds, starts, "right"), len(bounds) - 1)]).any():
        raise BrokenQueueError("a unit of the queues extends beyond the end of its file")
    return starts, sizes


def _units(file: QueueFile, first: int, stop: int) -> Units:
    """Return those of the units `first` to `stop` of a file that point to records. Raises DamagedFileError."""
    found = [units for _, units in file.units(file.file.start // CONSUME_QUEUE_UNIT_SIZE + first, stop)]
    units = np.concatenate(found) if found else np.empty(0, CONSUME_QUEUE_UNIT_DTYPE)
    if len(units) < stop - first:
        raise DamagedFileError(f"{file.file.path} has lost units")
    chosen: Units = units[(units["size"] != BLANK_UNIT_SIZE) & (units["tags_code"] != HOLE_TAGS_CODE)]
    return chosen


def _last_units(store: StoreFolder) -> list[LastUnit | None]:
    """Return the newest units of all queues. Raises DamagedFileError."""
    if not is_remote(store.root):
        return [_last_unit(store, *key) for key in queue_keys(store)]
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        topics = store.names("consumequeue")
        keys = [
            (topic, queue_id)
            for topic, ids in zip(topics, pool.map(lambda topic: queue_ids(store, topic), topics), strict=True)
            for queue_id in ids
        ]
        return list(pool.map(lambda key: _last_unit(store, *key), keys))


def _last_unit(store: StoreFolder, topic: str, queue_id: int, may_lack: bool = False) -> LastUnit | None:
    """Return a queue's newest unit, None if it has none that points to a record. Raises DamagedFileError."""
    files = queue_files(store, topic, queue_id)
    count = files[-1].count(may_lack=may_lack) if files else 0
    if not count:
        return None
    data = files[-1].file.read((count - 1) * CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_SIZE)
    unit = data.view(CONSUME_QUEUE_UNIT_DTYPE)[0]
    return None if unit["size"] == BLANK_UNIT_SIZE else LastUnit(int(unit["physical_offset"]), int(unit["size"]))

"""Coverage of the log by ConsumeQueues: the records of a stretch that units prove, and the bytes that remain unknown.

A unit gives the position and size of one record, its folder the topic. Where the units of all queues lie end to end, each
byte belongs to a known record, so no other record of a wanted topic can be there. Bytes that no unit claims, or that several
claim, prove nothing and have to be scanned: records of topics that were deleted, or deleted and created again, of queues
whose files are missing or damaged, and records that were not dispatched.

The units of a queue count only if the first and the last of them in the stretch point to records that name this topic,
queue and queue offset. Light queues (%LMQ%) list records of other topics, and are left out.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from pocketmq.store.format.layout import (
    BLANK_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    HOLE_TAGS_CODE,
    RECORD_SIZE_MIN,
)
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record import BadRecordError, decode_record
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.offline.file_bytes import FileBytes, is_remote
from pocketmq.store.offline.places import LogFile
from pocketmq.store.offline.queue_files import UNITS_READ, UNITS_READ_FIRST, QueueFiles
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

log = logging.getLogger(__name__)

# Finding the end of a queue takes some 30 small reads, each a request if the files are remote; this many run at once.
REQUESTS_MAX: Final = 32
LIGHT_PREFIX: Final = "%LMQ%"
Item = TypeVar("Item")
Result = TypeVar("Result")


class Found(NamedTuple):
    """The wanted records of a stretch (positions ascending, and sizes), and its unknown bytes as ranges; all physical."""

    starts: Positions
    sizes: Positions
    unknown: list[tuple[int, int]]


class QueueUnits:
    """The units of one queue, taken stretch by stretch in the order of the log."""

    def __init__(self, queue: QueueFiles, begin: int) -> None:
        """`begin`: the first unit taken is the first that points there or behind. Raises DamagedFileError, OSError."""
        self.topic, self.queue_id = queue.key
        self._queue = queue
        self._next = queue.first_at(begin)

    @property
    def size(self) -> int:
        """The bytes of the units that were not taken yet."""
        return (self._queue.end - self._next) * CONSUME_QUEUE_UNIT_SIZE

    def take(self, stop: int) -> tuple[int, Any]:
        """Return (queue offset of the first, units) of the next units before the first that points to `stop` or behind."""
        taken = [np.empty(0, CONSUME_QUEUE_UNIT_DTYPE)]
        first, wanted = self._next, UNITS_READ_FIRST
        while self._next < self._queue.end:
            asked = min(wanted, self._queue.end - self._next)
            units = self._queue.units(self._next, asked)
            behind = np.flatnonzero(units["physical_offset"] >= stop)
            own = int(behind[0]) if len(behind) else len(units)
            taken.append(units[:own])
            self._next += own
            if own < asked:
                break
            wanted = UNITS_READ
        return first, np.concatenate(taken)


def opened(store: StoreFolder, keys: Iterable[QueueKey], begin: int) -> list[QueueUnits]:
    """Return the units of some queues from a physical offset on. A damaged queue proves nothing, and is left out."""

    listed = (key for key in keys if not key[0].startswith(LIGHT_PREFIX))
    return undamaged(store, listed, lambda key: QueueUnits(QueueFiles.complete(store, key), begin), "proves nothing")


def undamaged(store: StoreFolder, keys: Iterable[QueueKey], task: Callable[[QueueKey], Result], what: str) -> list[Result]:
    """Return the results of a task for some queues, without those of damaged queues; `what` tells what that means."""

    def attempt(key: QueueKey) -> list[Result]:
        try:
            return [task(key)]
        except (DamagedFileError, OSError) as error:
            log.info("%s: this queue %s", error, what)
            return []

    return [found for results in all_of(store.root, attempt, keys) for found in results]


def all_of(root: str, task: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Return the results of a task for many items; remote files are read by several tasks at once."""
    if not is_remote(root):
        yield from map(task, items)
        return
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        yield from pool.map(task, items)


def covered(
    file: LogFile, queues: list[QueueUnits], is_wanted: Callable[[QueueUnits], bool], begin: int, stop: int
) -> Found:
    """Return what the next units of the queues say about the bytes from `begin` to `stop`, which are in one file."""
    starts, ends, wanted = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def taken(queue: QueueUnits) -> tuple[QueueUnits, int, Any]:
        return queue, *queue.take(stop)

    with file.open() as data:
        for queue, first, units in all_of(file.path, taken, queues):
            own, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            good = (own >= begin) & (own + sizes <= max(stop, file.end_offset)) & (sizes >= RECORD_SIZE_MIN)
            good &= (units["tags_code"] != HOLE_TAGS_CODE) & (sizes != BLANK_UNIT_SIZE)
            if not good.any():
                continue
            there = np.flatnonzero(good & (own + sizes <= file.end_offset))
            ends_there = there[[0, -1]].tolist() if len(there) else []
            if not all(_names(data, file, queue, first + at, int(own[at]), int(sizes[at])) for at in ends_there):
                log.info("queue %s %d does not match the log from %d on", queue.topic, queue.queue_id, own[ends_there[0]])
                continue
            starts.append(own[good])
            ends.append(own[good] + sizes[good])
            if is_wanted(queue):
                wanted.append(own[good])
    return _joined(np.sort(np.concatenate(starts)), np.sort(np.concatenate(ends)), np.concatenate(wanted), begin, stop)


def _joined(starts: Positions, ends: Positions, wanted: Positions, begin: int, stop: int) -> Found:
    """Return the wanted ones of the records that no other overlaps, and the bytes outside of all these.

    `starts` and `ends` are sorted each for itself. Number i of both belongs to the same record if that overlaps no other.
    """
    is_clear = starts[1:] >= ends[:-1]
    alone = np.append(True, is_clear) & np.append(is_clear, True) if len(starts) else np.empty(0, np.bool_)
    starts, ends = starts[alone], ends[alone]
    lows, highs = np.append(begin, ends), np.append(starts, stop)
    unknown = np.flatnonzero(lows < highs)
    chosen = np.isin(starts, wanted)
    return Found(
        starts[chosen], (ends - starts)[chosen], list(zip(lows[unknown].tolist(), highs[unknown].tolist(), strict=True))
    )


def _names(data: FileBytes, file: LogFile, queue: QueueUnits, queue_offset: int, start: int, size: int) -> bool:
    """Return whether the record at a physical offset has this size, topic, queue and queue offset."""
    try:
        record = decode_record(memoryview(data.read(start - file.start_offset, size).tobytes()))
    except BadRecordError:
        return False
    own = (record.total_size, record.physical_offset, record.queue_id, record.queue_offset)
    topic = str(record.topic, "utf-8", "replace")
    return topic == queue.topic and own == (size, start, queue.queue_id, queue_offset)

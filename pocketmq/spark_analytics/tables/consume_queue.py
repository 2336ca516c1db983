"""Table `consumequeue`: one row per unit of each ConsumeQueue.

    topic, queueId, queueOffset
    physicalOffset, size    position and size of the record in the log
    tagsCode                hash of the tags; taken from consumequeue_ext if the queue keeps it there
    storeTimestamp          null, except for queues with consumequeue_ext
    deliverTime             due time of a message in SCHEDULE_TOPIC_XXXX, stored as its tags code; else null
    store                   the store's folder

Contains the units whose records are still in the log, up to the queue's end. BatchConsumeQueues (5.x) are not included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pocketmq.spark_analytics.tables.table import NO_TIME, Rows, Table
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.offline.queue_files import QueueFile, Units, is_live, queue_files, tags_codes
from pocketmq.store.offline.store_folder import StoreFolder

DDL: Final = (
    "topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, tagsCode bigint, "
    "storeTimestamp timestamp, deliverTime timestamp, store string"
)
# Bytes of files per task, without holes: most queues of a store are short, and their files mostly holes.
PART_SIZE: Final = 64 << 20
# Opening a file takes about as long as reading this much, so a task also has a maximum number of files.
_FILE_COST: Final = 64 << 10
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """Queue files read by one task."""

    store: StoreFolder
    log_begin: int
    files: tuple[QueueFile, ...]


def parts(store: StoreFolder) -> list[Part]:
    """Return the queue files in order, grouped into tasks of reasonable size."""
    log_begin = store.log_begin()
    groups: list[list[QueueFile]] = [[]]
    size = 0
    for topic, queue_id in store.queue_keys():
        for file in queue_files(store, topic, queue_id):
            cost = store.files.used(file.file.path) + _FILE_COST
            if size + cost > PART_SIZE and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += cost
    return [Part(store, log_begin, tuple(group)) for group in groups if group]


def rows(part: Part) -> Iterator[Rows]:
    """Yield the units of a part's files."""
    gathered: list[tuple[QueueFile, int, Units]] = []
    count = 0
    for file in part.files:
        for first, units in file.units():
            gathered.append((file, first, units))
            count += len(units)
            if count >= _ROWS:
                yield _rows(part, gathered)
                gathered, count = [], 0
    if gathered:
        yield _rows(part, gathered)


def _rows(part: Part, gathered: list[tuple[QueueFile, int, Units]]) -> Rows:
    topics = list(dict.fromkeys(file.topic for file, _, _ in gathered))
    columns: list[list[np.ndarray]] = []
    for file, first, units in gathered:
        live = np.flatnonzero(is_live(units, part.log_begin))
        units = units[live]
        codes, store_times = tags_codes(part.store, file.topic, file.queue_id, units)
        due = np.full(len(units), NO_TIME)
        if file.topic == SCHEDULE_TOPIC:
            due = np.where(codes == HOLE_TAGS_CODE, NO_TIME, codes)
        number, queue_id = np.full(len(units), topics.index(file.topic)), np.full(len(units), file.queue_id)
        offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        columns.append([number, queue_id, first + live, offsets, sizes, codes, store_times, due])
    number, queue_id, queue_offset, offsets, sizes, codes, store_times, due = map(np.concatenate, zip(*columns, strict=True))
    return Rows(
        len(number),
        {
            "topic": pa.array(topics, pa.string()).take(pa.array(number)),
            "queueId": queue_id,
            "queueOffset": queue_offset,
            "physicalOffset": offsets,
            "size": sizes,
            "tagsCode": codes,
            "storeTimestamp": store_times,
            "deliverTime": due,
            "store": part.store.root,
        },
    )


TABLE: Final = Table(DDL, parts, rows)

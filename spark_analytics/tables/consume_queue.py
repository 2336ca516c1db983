"""The table `consumequeue`: a row for each unit of each ConsumeQueue.

    topic, queueId, queueOffset
    physicalOffset, size    where in the log the record is
    tagsCode                hash of the tags; of the message's own, where the queue keeps it in consumequeue_ext
    storeTimestamp          null, but for queues with consumequeue_ext
    deliverTime             when a message of SCHEDULE_TOPIC_XXXX is due, which is what its tags code says; else null
    store                   the store's folder

Units of records that are still in the log, up to the queue's end. BatchConsumeQueues (5.x) are not in it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from pocketmq.spark_analytics.queue_files import QueueFile, Units, is_live, queue_files, queue_keys, tags_codes
from pocketmq.spark_analytics.store_folder import StoreFolder
from pocketmq.spark_analytics.tables.table import NO_TIME, Rows, Table, TableReader
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC

DDL: Final = (
    "topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, tagsCode bigint, "
    "storeTimestamp timestamp, deliverTime timestamp, store string"
)
# Files of one task, by what they hold: most queues of a store are short, and their files made of holes.
PART_SIZE: Final = 64 << 20
# To open one takes about as long as to read this much, a task 300 times as long: 10,000 short queues are 10 tasks.
_FILE_COST: Final = 64 << 10
_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Part:
    """Some files of queues."""

    store: StoreFolder
    log_begin: int
    files: tuple[QueueFile, ...]


def parts(store: StoreFolder) -> list[Part]:
    """Queues in their order, so many files to a task that there is something to do."""
    log_begin = store.log_begin()
    groups: list[list[QueueFile]] = [[]]
    size = 0
    for topic, queue_id in queue_keys(store):
        for file in queue_files(store, topic, queue_id):
            cost = store.files.used(file.file.path) + _FILE_COST
            if size + cost > PART_SIZE and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += cost
    return [Part(store, log_begin, tuple(group)) for group in groups if group]


def rows(part: Part) -> Iterator[Rows]:
    """The units of a part's files."""
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


def reader(schema: StructType, options: Mapping[str, str]) -> TableReader:
    """The table as Spark reads it."""
    return TableReader(Table(DDL, parts, rows), schema, options)

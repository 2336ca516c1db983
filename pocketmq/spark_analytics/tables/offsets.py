"""Table `offsets`, from config/consumerOffset.json: the progress of each consumer group in each queue.

    group, topic, queueId
    consumerOffset          queue offset of the next message for the group
    minOffset, maxOffset    queue offset of the queue's first message, and behind its last; null if the queue has no files
    lag                     maxOffset - consumerOffset, or null
    store                   the store's folder

Brokers write that file every 5 s, but queues immediately, so on a running broker the lag includes up to 5 s of already
consumed messages. Light message queues (lmqConsumerOffset.json) are included.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.spark_analytics.tables.document import Row, document_table, typed
from pocketmq.store.offline.queue_files import queue_range
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

DDL: Final = (
    "group string, topic string, queueId int, consumerOffset bigint, minOffset bigint, maxOffset bigint, lag bigint, "
    "store string"
)
FILE: Final = "consumerOffset.json"
LMQ_FILE: Final = "lmqConsumerOffset.json"


def consumer_offsets(store: StoreFolder) -> Iterator[tuple[str, str, int, int]]:
    """Yield (group, topic, queue id, consumer offset). Raises DamagedFileError."""
    for file in (FILE, LMQ_FILE):
        path = store.path("config", file)
        for key, queues in store.table(file, "offsetTable").items():
            topic, group = _topic_and_group(path, key)
            for queue_id, offset in (typed(path, queues, dict, key) or {}).items():
                if not queue_id.isdecimal() or type(offset) is not int:
                    raise DamagedFileError(f"{path}: {key}.{queue_id} is {offset!r}")
                yield group, topic, int(queue_id), offset
    for key, offset in store.table(LMQ_FILE, "lmqOffsetTable").items():
        topic, group = _topic_and_group(store.path("config", LMQ_FILE), key)
        yield group, topic, 0, typed(store.path("config", LMQ_FILE), offset, int, key) or 0


def _topic_and_group(path: str, key: str) -> tuple[str, str]:
    topic, at, group = key.partition("@")
    if not at:
        raise DamagedFileError(f"{path}: key {key!r} is not topic@group")
    return topic, group


def rows(store: StoreFolder) -> Iterator[Row]:
    """Yield one row per group and queue."""
    log_begin = store.log_begin()
    ranges: dict[tuple[str, int], tuple[int, int] | None] = {}
    for group, topic, queue_id, offset in consumer_offsets(store):
        key = topic, queue_id
        if key not in ranges:
            ranges[key] = queue_range(store, topic, queue_id, log_begin)
        low, high = ranges[key] or (None, None)
        yield {
            "group": group,
            "topic": topic,
            "queueId": queue_id,
            "consumerOffset": offset,
            "minOffset": low,
            "maxOffset": high,
            "lag": None if high is None else high - offset,
        }


TABLE: Final = document_table(DDL, rows)

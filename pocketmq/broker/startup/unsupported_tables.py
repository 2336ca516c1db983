"""Store content of 5.x brokers that this broker can neither serve nor read: it is logged and left unchanged."""

import logging

from pocketmq.broker.tables.attributes import BATCH_QUEUE, QUEUE_TYPE
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.store.disk.disk import Disk
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")


def refuse_batch_topics(store: MessageStore, topics: TopicConfigManager) -> None:
    """Refuse sends to topics with batch queues: 5.x could not serve messages without an entry in such a queue."""
    named = {name for name, config in topics.table.items() if (config.attributes or {}).get(QUEUE_TYPE) == BATCH_QUEUE}
    for topic in sorted(named | store.queues.batch_topics):
        reason = f"topic {topic} has {QUEUE_TYPE}={BATCH_QUEUE}: such topics of 5.x are kept, but not served"
        store.commit_log.refused_topics[topic] = reason
        log.warning("%s", reason)


def warn_of_rocksdb(disk: Disk, root: str) -> None:
    """Log an error for data that is in RocksDB instead of the files that this broker reads."""
    config = f"{root}/config"
    for name in disk.listdir(config):
        if disk.exists(f"{config}/{name}/CURRENT"):
            log.error(
                "%s/%s is a RocksDB database with tables of a 5.x broker, which are not read: convert them to JSON "
                "(mqadmin rocksDBConfigToJson) before this broker uses the store",
                config,
                name,
            )
    folder = f"{root}/rocksdbstore"
    if any(name.endswith(".sst") for name in disk.listdir(folder)):
        log.error("%s has data of a 5.x broker in RocksDB, which is not read; queues are rebuilt from the log", folder)

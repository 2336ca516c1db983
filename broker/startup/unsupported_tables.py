"""What a 5.x broker keeps that this one can neither serve nor read: it is left as it is, and said."""

import logging

from pocketmq.broker.tables.topic_attributes import BATCH_QUEUE, QUEUE_TYPE
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.store.disk.disk import Disk
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")


def refuse_batch_topics(store: MessageStore, topics: TopicConfigManager) -> None:
    """Refuse what is sent to topics with batch queues: without its place in such a queue 5.x could not serve it."""
    named = {name for name, config in topics.table.items() if (config.attributes or {}).get(QUEUE_TYPE) == BATCH_QUEUE}
    for topic in sorted(named | store.queues.batch_topics):
        reason = f"topic {topic} has {QUEUE_TYPE}={BATCH_QUEUE}: such topics of 5.x are kept, but not served"
        store.commit_log.refused_topics[topic] = reason
        log.warning("%s", reason)


def warn_of_rocksdb(disk: Disk, root: str) -> None:
    """Log what is in RocksDB instead of the files that this broker reads."""
    config = f"{root}/config"
    for name in disk.listdir(config):
        if disk.exists(f"{config}/{name}/CURRENT"):
            log.error(
                "%s/%s is a RocksDB database with tables of a 5.x broker, which are not read: have them written as JSON "
                "(mqadmin rocksDBConfigToJson) before this broker takes the store over",
                config,
                name,
            )
    folder = f"{root}/rocksdbstore"
    if any(name.endswith(".sst") for name in disk.listdir(folder)):
        log.error("%s has data of a 5.x broker in RocksDB, which is not read; queues are made from the log", folder)

"""Recovery of missing or incomplete tables of `config/` from the store.

This is needed when the folder was deleted or not copied with the store, when a crash left neither a file nor its `.bak`, and
when a slave's store is started as a master's: its log may be ahead of its copies of the master's tables.
Topics are recovered from their queues, consumer groups from their `%RETRY%` or `%DLQ%` topics. Consumer offsets cannot be
recovered.

The progress of a delay level is found in the log: a delivered copy has the level, the topic and the UNIQ_KEY of the delayed
message, and is found by the index. Levels are delivered in order, so the newest message with a copy gives the progress,
unless it was delivered early on request. Without index or UNIQ_KEY the level restarts at its first message: some messages
are delivered twice, none is lost.
"""

import logging
from typing import Final

from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.names import DLQ_PREFIX, RETRY_PREFIX
from pocketmq.broker.pop.pop_order import ConsumerOrderInfoManager
from pocketmq.broker.tables.attributes import BATCH_QUEUE, QUEUE_TYPE
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.properties import DELAY, REAL_TOPIC, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger("broker")

COPY_NOTE: Final = "config/copied"
_NEIGHBOURS: Final = 4
"""Number of adjacent messages checked at a position, as some have no UNIQ_KEY."""
_FOREVER_MS: Final = 1 << 62


def recover_tables(
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    schedule: LevelSource,
    orders: ConsumerOrderInfoManager,
) -> None:
    """Complete and write the tables whose files are missing or may lack the last write, and log each recovered item.

    Must be called after `load`.
    """
    was_copy = _was_copy(store)
    _forget_deleted_topics(store, offsets, orders)
    if not store.queues.queues:
        return
    if was_copy:
        # Name servers prefer the higher version, so this broker takes over from a master that hangs or is cut off.
        topics.data_version.state_version = (topics.data_version.state_version or 0) + 1
        topics.persist()
        orders.forget()  # of a time when this store was a master's
    made: dict[ConfigManager, list[str]] = {topics: [], groups: [], schedule: [], offsets: []}
    if topics.file.is_incomplete or was_copy:
        made[topics] = _make_topics(store, topics, offsets)
    if groups.file.is_incomplete or was_copy:
        made[groups] = _make_groups(topics, groups, offsets)
    if schedule.file.is_missing:
        made[schedule] = _make_delay_offsets(store, schedule)
    elif was_copy:
        _advance_delay_offsets(store, schedule)
    if (
        offsets.file.is_missing
        and not offsets.table
        and (topics.file.is_missing or set(groups.table) - set(BUILT_IN_GROUPS))
    ):
        made[offsets] = ["consumer offsets are lost: each group starts according to its consumeFromWhere"]
    for manager, lines in made.items():
        if lines:
            log.warning("%s is %s", manager.file.path, "missing" if manager.file.is_missing else "incomplete")
        for line in lines:
            log.warning("%s", line)
    if was_copy:
        store.disk.delete(store.config.store_path(COPY_NOTE))


def _forget_deleted_topics(store: MessageStore, offsets: ConsumerOffsetManager, orders: ConsumerOrderInfoManager) -> None:
    """Forget the offsets in deleted topics whose deletion is newer than the file of the offsets."""
    for topic, dropped_to in store.dropped_topics.items():
        if offsets.covered_to is not None and offsets.covered_to <= dropped_to:
            offsets.delete_topic(topic)
            orders.forget(topic)


def _was_copy(store: MessageStore) -> bool:
    """Whether a slave's store becomes a master's. A slave leaves a file, which the next start as a master removes."""
    path = store.config.store_path(COPY_NOTE)
    if store.config.is_slave and not store.disk.exists(path):
        note = b"The tables in this folder are copies of a master's, and may lack its newest changes.\n"
        store.disk.replace_file(path, note)
    return not store.config.is_slave and store.disk.exists(path)


def _make_topics(store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager) -> list[str]:
    """Create the topics of queues that have none. System topics are not created here; the broker makes its own."""
    batch = store.queues.batch_queues
    queue_nums: dict[str, int] = {}
    for topic, queue_id in [*store.queues.queues, *batch]:
        if topic not in topics.table and not topics.is_system_topic(topic) and not topic.startswith(LMQ_PREFIX):
            queue_nums[topic] = max(queue_nums.get(topic, 0), queue_id + 1)
    for key, queues in offsets.table.items():
        topic = key.partition("@")[0]
        if topic in queue_nums and queues:
            queue_nums[topic] = max(queue_nums[topic], max(queues) + 1)
    batch_topics = {topic for topic, _ in batch}
    for topic, count in queue_nums.items():
        attributes = {QUEUE_TYPE: BATCH_QUEUE} if topic in batch_topics else None
        topics.table.put(topic, TopicConfig(topic, count, count, attributes=attributes))
    if queue_nums:
        topics.next_version()
        topics.persist()
    return [f"topic {topic} is recovered from its queues: {count} queues, perm 6" for topic, count in queue_nums.items()]


def _make_groups(topics: TopicConfigManager, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager) -> list[str]:
    found: dict[str, TopicConfig | None] = {key.partition("@")[2]: None for key in offsets.table}
    for topic, topic_config in topics.table.items():
        if topic.startswith(DLQ_PREFIX):
            found.setdefault(topic.removeprefix(DLQ_PREFIX))
        elif topic.startswith(RETRY_PREFIX):
            found[topic.removeprefix(RETRY_PREFIX)] = topic_config
    made = []
    for group, retry_topic in found.items():
        if group and group not in groups.table and not group.startswith(LMQ_PREFIX):
            made_group = SubscriptionGroupConfig(group)
            if retry_topic is not None:
                made_group.retry_queue_nums = retry_topic.write_queue_nums
            groups.table.put(group, made_group)
            made.append(f"consumer group {group} is recovered with default settings")
    if made:
        groups.next_version()
        groups.persist()
    return made


# --- delay levels -----------------------------------------------------------------------------------------------------


def _make_delay_offsets(store: MessageStore, schedule: LevelSource) -> list[str]:
    lines = []
    for queue in store.queues:
        if queue.topic != SCHEDULE_TOPIC or queue.min_offset == queue.max_offset:
            continue
        level = queue.queue_id + 1
        marked = schedule.marked_to(level)
        newest = None if marked else _newest_delivered(store, queue)
        next_offset = marked or (queue.min_offset if newest is None else newest + 1)
        schedule.begin_at(level, next_offset)
        if marked:
            reason = "all earlier messages were delivered, according to its mark file"
        elif newest is None:
            reason = "its progress is unknown, so delivered messages are delivered again"
        else:
            reason = "the message before it was delivered; some later ones may be delivered again"
        lines.append(f"delay level {level} continues at queue offset {next_offset} of {queue.max_offset}: {reason}")
    if lines:
        schedule.persist()
    return lines


def _advance_delay_offsets(store: MessageStore, schedule: LevelSource) -> None:
    """Move copied progress, which is a few seconds old, to the first message without a copy in the log."""
    for queue in store.queues:
        if queue.topic != SCHEDULE_TOPIC:
            continue
        level = queue.queue_id + 1
        begin = next_offset = max(schedule.next_offset(level), queue.min_offset)
        while next_offset < queue.max_offset and _is_delivered(store, queue, next_offset):
            next_offset += 1
        if next_offset > begin:
            log.info("delay level %d: %d deliveries after the last copy of its progress", level, next_offset - begin)
            schedule.begin_at(level, next_offset)


def _newest_delivered(store: MessageStore, queue: ConsumeQueue) -> int | None:
    """Return the queue offset of the newest message known to be delivered, or None."""

    def near(queue_offset: int) -> int | None:
        first = max(queue_offset - _NEIGHBOURS + 1, queue.min_offset)
        return next((at for at in range(queue_offset, first - 1, -1) if _is_delivered(store, queue, at)), None)

    # Search backwards from the end in growing steps (in most levels few messages wait), then bisect the last step.
    place, step, without = queue.max_offset - 1, 1, queue.max_offset
    newest = near(place)
    while newest is None and place > queue.min_offset:
        without, place, step = place, max(place - step, queue.min_offset), step * 2
        newest = near(place)
    while newest is not None and without - newest > 1:
        place = (newest + without) // 2
        found = near(place)
        if found is not None and found > newest:
            newest = found
        else:
            without = place
    return newest


def _is_delivered(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether the log has the delivered copy of a delayed message.

    Two delayed messages with one UNIQ_KEY (a producer's retry) cannot be told apart and count as not delivered. So does a
    copy stored before its due time: it was delivered early on request, while messages before it still wait.
    """
    unit = queue.unit_at(queue_offset)
    view = None if unit is None else store.message_at(unit[0])
    if unit is None or view is None:
        return False
    waiting = decode_record(view)
    properties = decode_properties(waiting.properties)
    key, topic = properties.get(UNIQ_KEY), properties.get(REAL_TOPIC)
    if not key or not topic:
        return False
    due_ms = store.reader.tags_code(SCHEDULE_TOPIC, queue.queue_id, unit[2], unit[0])
    twins = _alike(store, SCHEDULE_TOPIC, key, waiting, properties)
    return len(twins) <= 1 and any(
        copy.physical_offset > waiting.physical_offset and copy.store_timestamp_ms >= due_ms
        for copy in _alike(store, topic, key, waiting, properties)
    )


def _alike(store: MessageStore, topic: str, key: str, waiting: Record, properties: dict[str, str]) -> list[Record]:
    """Return the records of `topic` with the same key, level, real topic and number of retries as `waiting`."""
    found = []
    for view in store.query_message(topic, key, store.config.max_msgs_num_batch, 0, _FOREVER_MS).views:
        try:
            record = decode_record(view)
        except BadRecordError:
            continue
        others = decode_properties(record.properties)
        if (
            record.topic == topic.encode()
            and record.reconsume_times == waiting.reconsume_times
            and all(others.get(name) == properties.get(name) for name in (UNIQ_KEY, DELAY, REAL_TOPIC))
        ):
            found.append(record)
    return found


# --- content of 5.x brokers that is neither served nor read: it is logged and left unchanged ------------------------


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

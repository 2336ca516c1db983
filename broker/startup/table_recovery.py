"""Tables of `config/` that are gone or not complete, made again as far as the store can tell.

Somebody deleted the folder, copied a store without it, or a crash left neither a file nor its `.bak`. The queues are there,
so there are topics; a `%RETRY%` or `%DLQ%` topic means a consumer group. How far groups had read nobody knows.

How far a delay level was delivered is in the log: a delivered copy shows the level, the topic and the UNIQ_KEY of the
message that waited, and the index finds it. Levels are delivered in order, so the newest message with a copy tells, unless
somebody had that delivered before its time. Where that cannot be found (no index, no UNIQ_KEY) the level begins at its
first message: some come twice, none is dropped.
"""

import logging
from typing import Final

from pocketmq.broker.delay.schedule import ScheduleMessageService
from pocketmq.broker.names import DLQ_PREFIX, RETRY_PREFIX
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupManager
from pocketmq.broker.tables.topic_attributes import BATCH_QUEUE, QUEUE_TYPE
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.properties import DELAY, REAL_TOPIC, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger("broker")

_NEIGHBOURS: Final = 4
"""Messages looked at in one place, as some have no UNIQ_KEY."""
_FOREVER_MS: Final = 1 << 62


def make_again(
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
    schedule: ScheduleMessageService,
) -> None:
    """Fill the tables whose files are missing or may lack what was written last, write them, and log each thing made.

    To be called after `load`.
    """
    if not store.queues.queues:
        return
    made: dict[ConfigManager, list[str]] = {topics: [], groups: [], schedule: [], offsets: []}
    if topics.file.is_incomplete:
        made[topics] = _make_topics(store, topics, offsets)
    if groups.file.is_incomplete:
        made[groups] = _make_groups(topics, groups, offsets)
    if schedule.file.is_missing:
        made[schedule] = _make_delay_offsets(store, schedule)
    if (
        offsets.file.is_missing
        and not offsets.table
        and (topics.file.is_missing or set(groups.table) - set(BUILT_IN_GROUPS))
    ):
        made[offsets] = ["how far consumer groups had read is not known: each begins where its consumeFromWhere says"]
    for manager, lines in made.items():
        if lines:
            log.warning("%s is %s", manager.file.path, "missing" if manager.file.is_missing else "not complete")
        for line in lines:
            log.warning("%s", line)


def _make_topics(store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager) -> list[str]:
    """One topic for all queues of a name. System topics are not made: the broker that uses one knows how."""
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
    return [f"topic {topic} is made again from its queues: {count} queues, perm 6" for topic, count in queue_nums.items()]


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
            made.append(f"consumer group {group} is made again with the defaults")
    if made:
        groups.next_version()
        groups.persist()
    return made


# --- delay levels -----------------------------------------------------------------------------------------------------


def _make_delay_offsets(store: MessageStore, schedule: ScheduleMessageService) -> list[str]:
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
            reason = "the mark beside it says that what is before was delivered"
        elif newest is None:
            reason = "nothing tells how far it was delivered, so what was comes again"
        else:
            reason = "a copy of the message before was delivered; some behind it may come again"
        lines.append(f"delay level {level} goes on at queue offset {next_offset} of {queue.max_offset}: {reason}")
    if lines:
        schedule.persist()
    return lines


def _newest_delivered(store: MessageStore, queue: ConsumeQueue) -> int | None:
    """The queue offset of a message that was delivered, the newest such as far as can be told; None without any."""

    def near(queue_offset: int) -> int | None:
        first = max(queue_offset - _NEIGHBOURS + 1, queue.min_offset)
        return next((at for at in range(queue_offset, first - 1, -1) if _is_delivered(store, queue, at)), None)

    # From the end backwards in growing steps, as few wait in most levels; then between the last two places.
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
    """Whether the log has the copy of a message that waited.

    A producer that sent twice under one UNIQ_KEY leaves two that wait and cannot be told apart: those tell nothing. Nor does
    a copy from before its time: somebody wanted it at once, and what waited in front of it still does.
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
    """Records of `topic` with the same key, level, real topic and number of retries."""
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

"""Recovery of the consumer offsets of popping groups from the check points in the log.

Consumer offsets are written at intervals. After a kill, or when a slave's store becomes a master's, those of popping groups
are some seconds old: messages that were popped since then, also acknowledged ones, would be handed out again. Each pop puts
a check point into the log, either into the timer topic or, if it is nearly due, into the revive topic. Those put after the
offsets were written give the present ones; what is not acknowledged is then revived from the same check points.
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pocketmq.broker.delay.records import DEQUEUE_MS, records_from
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.pop.pop_record import CHECK_POINT_TAG, CheckPoint, read_revive_record
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.store.format.properties import REAL_TOPIC, TAGS, decode_properties
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.time_search import Boundary

log = logging.getLogger("broker")

WINDOW_MS: Final = 120_000
"""Age, before the last record, of the oldest check points looked at: offsets are written every few seconds."""


def recover_positions(
    store: MessageStore, offsets: ConsumerOffsetManager, groups: SubscriptionGroupManager, revive_topic: str
) -> None:
    """Move the offsets of groups forward to the end of what they popped. Must be called before anything is popped."""
    begin = 0 if offsets.file.is_missing else offsets.covered_to
    if begin is None or begin >= store.max_physical_offset:
        return
    moved = set()
    for queue in store.queues:
        if queue.topic not in (TIMER_TOPIC, revive_topic):
            continue
        for physical_offset, check_point in _check_points(store, queue, begin, revive_topic):
            topic, group, queue_id = check_point.t, check_point.c, check_point.q
            last = max(check_point.queue_offsets(), default=-1)
            unit = store.unit_at(topic, queue_id, last)
            # A record behind the check point belongs to a topic that was created again.
            if unit is None or unit[0] > physical_offset or groups.get(group) is None:
                continue
            if last >= offsets.query(group, topic, queue_id):
                with suppress(RemotingError):  # beyond maxConsumerOffsets
                    offsets.commit_when_synced(group, topic, queue_id, last + 1)
                moved.add((group, topic, queue_id))
    if moved:
        log.info("%d consumer offsets are taken from the check points of pops in the log", len(moved))


def _check_points(
    store: MessageStore, queue: ConsumeQueue, begin: int, revive_topic: str
) -> Iterator[tuple[int, CheckPoint]]:
    """Yield physical offset and content of the check points that pops put into a queue from `begin` on."""
    queue_offsets = range(queue.min_offset, queue.max_offset)
    first = bisect_left(queue_offsets, begin, key=lambda at: (queue.unit_at(at) or (0,))[0])
    oldest_ms = store.commit_log.last_store_timestamp_ms - WINDOW_MS
    queue_offset = max(
        queue_offsets.start + first, store.offset_by_time(queue.topic, queue.queue_id, oldest_ms, Boundary.LOWER)
    )
    for _, physical_offset, view in records_from(store, queue, queue_offset):
        if view is None:
            continue
        try:
            record = decode_record(view)
            properties = decode_properties(record.properties)
            is_ours = properties.get(REAL_TOPIC, queue.topic) == revive_topic and DEQUEUE_MS not in properties
            if is_ours and properties.get(TAGS) == CHECK_POINT_TAG:
                found = read_revive_record(CHECK_POINT_TAG, record.body)
                assert isinstance(found, CheckPoint)
                yield physical_offset, found
        except ValueError as error:
            log.warning("the record at physical offset %d is not a check point: %s", physical_offset, error)

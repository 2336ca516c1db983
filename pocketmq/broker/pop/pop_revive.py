"""PopReviveService: stores popped messages that were not acknowledged in time again, in the group's retry topic.

The timer delivers check points and acks to the queues of the revive topic, each check point before its acks (`pop_record`).
A queue is read once, in order. When the invisible time of a check point is over, all its acks are read: they were due by
then, and the timer service reports that it has delivered everything due. Messages without an ack are then copied to the
retry topic. (Apache's broker waits two more seconds to be sure.)

Progress in a revive queue is a consumer offset of CID_RMQ_SYS_REVIVE_GROUP, as in Apache the offset of the last finished
record: the one before the oldest open check point. A process that ends between a copy and that offset copies again.
"""

import heapq
import logging
from typing import Final

import msgspec

from pocketmq.broker.context import Context
from pocketmq.broker.delay.wheel_source import WheelSource
from pocketmq.broker.due_work import DueWork
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX
from pocketmq.broker.pop.pop_record import FIRST_POP_TIME, REVIVE_GROUP, Ack, CheckPoint, read_revive_record, revive_message
from pocketmq.broker.put.put import STALE_IN_COPIES, MessagePutter
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.pop_handle import normal_topic_of, retry_topic_of
from pocketmq.runtime.turn import Phase
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, HOLE_TAGS_CODE
from pocketmq.store.format.message import Message, PutResult
from pocketmq.store.format.properties import TAGS, decode_properties, encode_properties
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

BUDGET_S: Final = 0.001
"""Time that one turn of the loop spends on reading or reviving."""
UNITS_READ: Final = 64
_FOREVER_MS: Final = 1 << 62
AGAIN_S: Final = 0.002
"""Interval of checks whether all due timers are delivered."""
BACK_OFF_MS: Final = 10_000
"""Delay before another attempt to revive a check point, after a lack of space or because its topic refuses messages."""


def revived_copy(
    store: MessageStore, check_point: CheckPoint, queue_offset: int, store_host: bytes, *, with_v2: bool
) -> Message:
    """Return the copy of a popped message for the retry topic of its group. Raises ValueError if the record is gone."""
    unit = store.unit_at(check_point.t, check_point.q, queue_offset)
    view = None if unit is None or unit[2] == HOLE_TAGS_CODE else store.message_at(unit[0])
    if unit is None or view is None:
        raise ValueError("the record does not exist")
    if check_point.last is not None and unit[0] > check_point.last:
        raise ValueError("its topic was deleted and created again")
    record = decode_record(view)
    properties = decode_properties(record.properties)
    for name in STALE_IN_COPIES:
        properties.pop(name, None)
    properties.setdefault(FIRST_POP_TIME, str(check_point.pt))
    topic = retry_topic_of(check_point.t, check_point.c, with_v2=with_v2)
    message = record.copy_to(topic, 0, store_host, properties)
    message.born_host = store_host
    message.consumed_again()
    return message


class _ReviveQueue:
    """One queue of the revive topic."""

    def __init__(self, queue_id: int, queue_offset: int) -> None:
        self.queue_id = queue_id
        self.queue_offset = queue_offset  # of the next record to be read
        self.open: dict[int, CheckPoint] = {}  # by the queue offset of the check point's record, ascending
        self.by_key: dict[tuple[str, str, int, int, int], int] = {}

    @property
    def done_to(self) -> int:
        """The last finished record; -1 without one."""
        return next(iter(self.open), self.queue_offset) - 1


class PopReviveService:
    """Reader of the revive queues. Runs on the event loop only."""

    def __init__(
        self, context: Context, putter: MessagePutter, offsets: ConsumerOffsetManager, topics: TopicConfigManager,
        groups: SubscriptionGroupManager, timer_messages: WheelSource,
    ) -> None:  # fmt: skip
        self._context = context
        self._config = config = context.config
        self._store = context.store
        self._putter = putter
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._timer_messages = timer_messages
        self._reading = context.turn.add(Phase.WAKE, self._dispatched, is_always_due=False)
        self.topic = REVIVE_TOPIC_PREFIX + config.broker_cluster_name
        self.queues: dict[int, _ReviveQueue] = {}
        """By id: the queues that are read, so that check points and acks may be put into them."""
        # Heap: revive time, queue id, queue offset of the check point. Times are on the steady clock.
        self._due: list[tuple[int, int, int]] = []
        self.work = DueWork(context, self._go_on, BUDGET_S, "popped messages cannot be stored again")
        # All acks due by `_put_to_ms` are put; all due by `_read_to_ms` are put and read.
        self._put_to_ms = self._read_to_ms = -_FOREVER_MS

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Continue where the last process stopped, and start reviving."""
        queue_ids = {queue_id for topic, queue_id in self._store.queues.queues if topic == self.topic}
        for queue_id in sorted(queue_ids | set(range(self._config.revive_queue_num))):
            queue_offset = self._offsets.query(REVIVE_GROUP, self.topic, queue_id) + 1
            low = max(self._store.min_offset(self.topic, queue_id), 0)
            high = max(self._store.max_offset(self.topic, queue_id), low)
            self.queues[queue_id] = _ReviveQueue(queue_id, min(max(queue_offset, low), high))
        self.work.start()

    # --- scheduling -------------------------------------------------------------------------------------------------

    def _go_on(self, end_s: float, now_ms: int) -> None:
        """Read, revive what is due, and determine the next turn."""
        wait_s = self._revive_due(end_s, now_ms)
        if wait_s is not None:
            self.work.after(wait_s)
        elif self._due:
            self.work.at_ms(self._due[0][0] + self._context.steps.difference)

    def _revive_due(self, end_s: float, now_ms: int) -> float | None:
        """Read, then revive what is due; return the seconds until the next turn, or None to wait for the next due time."""
        for queue in self.queues.values():
            while self._read(queue):
                if self._context.clock.monotonic() >= end_s:
                    return 0.0
        difference = self._context.steps.difference
        while self._due and self._due[0][0] <= now_ms - difference:
            if self._due[0][0] > self._read_to_ms:
                delivered_to_ms = self._timer_messages.delivered_to_ms - difference
                if delivered_to_ms >= self._due[0][0]:
                    # Acks put by now are read after the dispatch at the end of this turn.
                    self._put_to_ms = min(delivered_to_ms, now_ms - difference)
                    self._reading.is_due = True
                    self._context.turn.arm()
                return AGAIN_S
            if self._context.clock.monotonic() >= end_s:
                return 0.0
            _, queue_id, queue_offset = self._due[0]
            queue = self.queues[queue_id]
            check_point = queue.open.get(queue_offset)
            if check_point is not None:
                self._revive(check_point, queue_id, now_ms)
                self._context.turn.arm()
                self._close(queue, queue_offset)
            heapq.heappop(self._due)
        return None

    def _dispatched(self) -> None:
        """Read the records that the dispatch added to the queues. Runs in the turn's WAKE phase."""
        self._read_to_ms = max(self._put_to_ms, self._read_to_ms)
        for queue in self.queues.values():
            while self._read(queue):
                pass
        self.work.look()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, queue: _ReviveQueue) -> bool:
        """Read some records of a queue; return whether there may be more."""
        consume_queue = self._store.queue(self.topic, queue.queue_id)
        if consume_queue is None or queue.queue_offset >= consume_queue.max_offset:
            return False
        queue.queue_offset = max(queue.queue_offset, consume_queue.min_offset)
        units = consume_queue.units(queue.queue_offset, UNITS_READ)
        for physical_offset, _, tags_code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            queue_offset = queue.queue_offset
            queue.queue_offset += 1
            view = None if tags_code == HOLE_TAGS_CODE else self._store.message_at(physical_offset)
            try:
                if view is None:
                    raise ValueError("the record does not exist")
                record = decode_record(view)
                entry = read_revive_record(decode_properties(record.properties).get(TAGS), record.body)
            except ValueError as error:
                log.error("record %d of %s/%d is lost: %s", queue_offset, self.topic, queue.queue_id, error)
                continue
            if isinstance(entry, CheckPoint):
                self._open(queue, queue_offset, entry)
            elif (opened := queue.by_key.get(entry.key)) is not None:
                check_point = queue.open[opened]
                offsets = check_point.queue_offsets()
                for acknowledged in entry.queue_offsets():
                    if acknowledged in offsets:
                        check_point.bm |= 1 << offsets.index(acknowledged)
                if all(check_point.bm >> index & 1 for index in range(len(offsets))):
                    self._close(queue, opened)
        self._commit(queue)
        return bool(units)

    def _open(self, queue: _ReviveQueue, queue_offset: int, check_point: CheckPoint) -> None:
        # A check point delivered twice, after a crash of the timer, must not discard its acks.
        if check_point.key not in queue.by_key:
            queue.open[queue_offset] = check_point
            queue.by_key[check_point.key] = queue_offset
            steps = self._context.steps
            revive_ms = check_point.revive_ms + steps.shift_since_ms(check_point.pt) - steps.difference
            heapq.heappush(self._due, (revive_ms, queue.queue_id, queue_offset))

    def _close(self, queue: _ReviveQueue, queue_offset: int) -> None:
        check_point = queue.open.pop(queue_offset)
        del queue.by_key[check_point.key]
        self._commit(queue)

    def _commit(self, queue: _ReviveQueue) -> None:
        if queue.done_to >= 0:
            self._offsets.commit_when_synced(REVIVE_GROUP, self.topic, queue.queue_id, queue.done_to)

    # --- reviving ---------------------------------------------------------------------------------------------------

    def _revive(self, check_point: CheckPoint, queue_id: int, now_ms: int) -> None:
        """Store the unacknowledged messages again, or else new check points. Raises OSError or RemotingError if both fail.

        Finished messages are marked, so that a repeated call continues after them.
        """
        group = check_point.c
        if self._topics.get(normal_topic_of(check_point.t, group)) is None or self._groups.get(group) is None:
            log.info("messages popped by group %s from %s are dropped: topic or group is deleted", group, check_point.t)
            return
        for index, queue_offset in enumerate(check_point.queue_offsets()):
            if check_point.bm >> index & 1:
                continue
            try:
                self._copy(check_point, queue_offset)
            except ValueError as error:
                log.warning("message %d of %s/%d is lost: %s", queue_offset, check_point.t, check_point.q, error)
            except (OSError, RemotingError) as error:
                self._put_again(check_point, queue_offset, queue_id, now_ms)
                log.error("message %d of %s/%d is tried again: %s", queue_offset, check_point.t, check_point.q, error)
            check_point.bm |= 1 << index

    def _copy(self, check_point: CheckPoint, queue_offset: int) -> None:
        """Copy to the retry topic. Raises ValueError if the record is gone, OSError or RemotingError if not stored."""
        message = revived_copy(
            self._store, check_point, queue_offset, self._context.store_host, with_v2=self._config.enable_retry_topic_v2
        )
        retry = self._topics.create_on_send_back(message.topic, 1)
        if self._config.use_separate_retry_queue:
            normal = self._topics.get(normal_topic_of(check_point.t, check_point.c))
            queue_nums = 1 if normal is None else normal.write_queue_nums
            if retry.write_queue_nums < queue_nums:
                retry = msgspec.structs.replace(retry, read_queue_nums=queue_nums, write_queue_nums=queue_nums)
                self._topics.update(retry)
            message.queue_id = self._topics.readable_queue(message.topic, check_point.q)
        self._putter.put_at_once(message)

    def _put_again(self, check_point: CheckPoint, queue_offset: int, queue_id: int, now_ms: int) -> None:
        tries = int(check_point.rp or 0) + 1
        shift_ms = self._context.steps.shift_since_ms(check_point.pt)
        again = CheckPoint(
            queue_offset, check_point.pt, now_ms - shift_ms - check_point.pt + BACK_OFF_MS * min(tries, 60), check_point.q,
            check_point.t, check_point.c, check_point.bn, 1, d=[0], rp=str(tries), last=check_point.last,
        )  # fmt: skip
        self.put(again, queue_id, again.revive_ms, now_ms)

    # --- storing ----------------------------------------------------------------------------------------------------

    def put(self, entry: CheckPoint | Ack, queue_id: int, visible_ms: int, now_ms: int) -> PutResult:
        """Put a check point or an ack. Raises RemotingError.

        `visible_ms` is when the messages become visible again, by the calendar at their pop.
        """
        due_ms = visible_ms + self._context.steps.shift_since_ms(entry.pt)
        # No delay is used while store times stand still, after the calendar was set back.
        is_delay = self._store.commit_log.last_store_timestamp_ms <= now_ms
        message = revive_message(entry, self.topic, queue_id, due_ms, self._context.store_host, now_ms, is_delay=is_delay)
        if not self._putter.delay(message):
            message.properties_bytes = encode_properties(message.properties).encode()
        return self._putter.put_at_once(message)

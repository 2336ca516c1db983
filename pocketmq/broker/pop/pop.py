"""PopMessageService: pop consumption, where the broker hands out each message to one consumer for a limited time.

    pop      read a queue from the group's consumer offset, record the messages in a check point, advance the offset
    ack      record consumed messages; `pop_revive` stores the others again when the invisible time is over
    change   put a new check point for one message with a time from now, then the ack of the old one

Apache's counterpart is PopMessageProcessor. The consumer offset of a popping group is where it reads next, not what it has
consumed. A group's pops of a topic read the topic's queues and the group's retry topic, which comes first in one of five
pops and last in the others.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.filter.subscription import Wanted
from pocketmq.broker.names import POP_CK, RETRY_PREFIX
from pocketmq.broker.polling.held_requests import HoldLimits
from pocketmq.broker.polling.pop_polling import NotificationLongPollingService, PopLongPollingService
from pocketmq.broker.pop.pop_order import ConsumerOrderInfoManager
from pocketmq.broker.pop.pop_record import MESSAGES_MAX, ORDER_REVIVE_QUEUE, Ack, CheckPoint
from pocketmq.broker.pop.pop_revive import PopReviveService
from pocketmq.broker.stats.stats import BrokerStats
from pocketmq.broker.tables.attributes import MESSAGE_TYPE, PRIORITY, priority_factor
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.remoting.handles.pop_handle import Handle, retry_flag, retry_topic_of
from pocketmq.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from pocketmq.runtime.turn import Phase
from pocketmq.store.format.layout import PHYSICAL_OFFSET_POSITION, QUEUE_OFFSET_POSITION, RECORD_SIZE_MIN
from pocketmq.store.format.message import Arrival, GetResult, GetStatus
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import BadRecordError, decode_record, encode_record, record_size, topic_part
from pocketmq.store.queue.record_filter import FilterBudget, RecordFilter

_TURNS_MAX: Final = 10_000
"""Limit of groups whose turn among the queues is remembered; a forgotten group starts at the first queue."""
_READS_MAX: Final = 2
"""Limit of further reads per pop, 800 units each, while the filter accepts nothing: other requests wait for them."""
_CHANGES_MAX: Final = 1000
"""Limit in ms by which repeated changes within one ms move a handle's pop time ahead of the calendar. A larger difference
means that the calendar was set back."""
_WRONG_PLACES: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)


class Popped:
    """Result of one pop."""

    def __init__(self, header: PopMessageRequestHeader, pop_time_ms: int, revive_queue: int) -> None:
        self.header = header
        self.pop_time_ms = pop_time_ms
        self.revive_queue = revive_queue
        self.views: list[memoryview | bytes] = []
        self.count = 0
        self.rest = 0
        self.is_behind = False
        """Whether the filter rejected everything read and there is more to read."""
        self.start_offsets: list[str] = []
        self.message_offsets: list[str] = []
        self.order_counts: list[str] = []

    def add(self, topic: str, queue_id: int, start_offset: int, offsets: list[int], views: list[memoryview | bytes]) -> None:
        """Add messages of one queue."""
        flag = retry_flag(topic)
        self.views += views
        self.count += len(offsets)
        self.start_offsets.append(f"{flag} {queue_id} {start_offset}")
        self.message_offsets.append(f"{flag} {queue_id} {','.join(map(str, offsets))}")

    def answer(self) -> PopMessageResponseHeader:
        """Return the header of the response."""
        return PopMessageResponseHeader(
            self.pop_time_ms,
            self.header.invisible_time,
            self.revive_queue,
            self.rest,
            ";".join(self.start_offsets),
            ";".join(self.message_offsets),
            ";".join(self.order_counts) if self.header.order else None,
        )


class PopMessageService:
    """Serves pops and acks. Runs on the event loop only."""

    def __init__(
        self, context: Context, offsets: ConsumerOffsetManager, topics: TopicConfigManager, groups: SubscriptionGroupManager,
        stats: BrokerStats, orders: ConsumerOrderInfoManager, revive: PopReviveService,
    ) -> None:  # fmt: skip
        self._context = context
        self._config = config = context.config
        self._store = context.store
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self.orders = orders
        self.revive = revive
        self.polling = PopLongPollingService(context.timers, context.slices, HoldLimits(*config.hold_limits))
        self.notifications = NotificationLongPollingService(context.timers, context.slices, HoldLimits(*config.hold_limits))
        self._waking = context.turn.add(Phase.WAKE, self._wake, is_always_due=False)
        self._clock = context.clock
        orders.freed.subscribe(self.look_at)
        self._counter = 0
        self._turns: dict[tuple[str, str], int] = {}

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start reviving."""
        self.revive.start()
        self._context.steps.subscribe(self.orders.calendar_set)

    def stop(self) -> None:
        """Answer waiting requests and stop reviving."""
        self.polling.stop()
        self.notifications.stop()
        self.revive.work.stop()

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Pass on that queues grew. To be called after each dispatch."""
        for arrival in arrivals:
            if arrival.topic == self.revive.topic:
                self.revive.work.look()
                break
        if self.polling.count or self.notifications.count:
            self.polling.arrived(arrivals)
            self.notifications.arrived(arrivals)
            self._waking.is_due = True

    def _wake(self) -> None:
        """Serve waiting requests."""
        self.polling.wake()
        self.notifications.wake()  # after the pops: messages that they took are not announced

    def wake_all(self, topic: str) -> None:
        """Serve all requests waiting at a topic, in any order, because it was deleted or its queues changed."""
        self.polling.wake_all(topic)
        self.notifications.wake_all(topic)

    def look_at(self, topic: str, queue_id: int) -> None:
        """Have the requests waiting at a queue checked at the end of the turn: it may have messages again."""
        if self.notifications.count:
            self.notifications.look_at(topic, queue_id)
            self._waking.is_due = True
            self._context.turn.arm()
        self.try_waiting(topic, queue_id)

    def try_waiting(self, topic: str, queue_id: int) -> None:
        """Have the pops waiting at a queue tried at the end of the turn: it has more messages than one pop took."""
        if self.polling.count:
            self.polling.look_at(topic, queue_id)
            self._waking.is_due = True
            self._context.turn.arm()

    # --- reading ----------------------------------------------------------------------------------------------------

    def retry_topics(self, topic: str, group: str) -> tuple[str, ...]:
        """Return the retry topics of a group that pops from `topic`, the one written to first; a retry topic has none."""
        if topic.startswith(RETRY_PREFIX):
            return ()
        with_v2 = self._config.enable_retry_topic_v2
        names = [retry_topic_of(topic, group, with_v2=with_v2)]
        if with_v2 and self._config.retrieve_message_from_pop_retry_topic_v1:
            names.append(retry_topic_of(topic, group, with_v2=False))
        return tuple(names)

    def queues(self, header: PopMessageRequestHeader, turn: int) -> list[tuple[str, int]]:
        """Return the queues that pop number `turn` of a group reads, in this order."""
        topic, config, by_priority = header.topic, self._config, self._is_by_priority(header, turn)
        if header.queue_id >= 0:
            queues = [(topic, header.queue_id)]
        else:
            queues = [(topic, queue_id) for queue_id in self._order(topic, turn, by_priority)]
        retries = [] if header.order else self._retries(topic, header.consumer_group, turn, by_priority)
        if not retries:
            return queues
        probability = config.pop_from_retry_probability_for_priority if by_priority else config.pop_from_retry_probability
        return retries + queues if turn * probability % 100 < probability else queues + retries

    def _retries(self, topic: str, group: str, turn: int, by_priority: bool) -> list[tuple[str, int]]:
        """Return the queues with messages to retry of one retry topic: the offset lists of the response cannot tell two of
        them apart."""
        found = []
        for name in self.retry_topics(topic, group):
            if self._topics.get(name) is not None:
                order = self._order(name, turn, by_priority)
                found.append([(name, queue_id) for queue_id in order if not self._is_at_end(name, group, queue_id)])
        found = [queues for queues in found if queues]
        return found[turn % len(found)] if found else []

    def _is_by_priority(self, header: PopMessageRequestHeader, turn: int) -> bool:
        """Whether pop number `turn` of a group takes the highest priority first."""
        topic_config = self._topics.get(header.topic)
        if header.order or topic_config is None or (topic_config.attributes or {}).get(MESSAGE_TYPE) != PRIORITY:
            return False
        group_config = self._groups.get(header.consumer_group)
        factor = priority_factor(None if group_config is None else group_config.attributes)
        return turn * factor % 100 < factor

    def _order(self, topic: str, turn: int, by_priority: bool) -> Sequence[int]:
        """Return the queue ids of a topic in the order in which pop number `turn` reads them."""
        topic_config = self._topics.get(topic)
        count = 0 if topic_config is None else topic_config.read_queue_nums
        if by_priority:
            return range(count)[::-1] if self._config.priority_order_asc else range(count)
        first = turn % max(count, 1)
        return *range(first, count), *range(first)

    def _is_at_end(self, retry_topic: str, group: str, queue_id: int) -> bool:
        """Whether the group has read exactly to the end. An offset beyond the end means that the topic was created anew; a
        pop then corrects the offset."""
        max_offset = self._store.max_offset(retry_topic, queue_id)
        return max_offset == self.position(retry_topic, group, queue_id, 0, is_kept=False)

    def position(self, topic: str, group: str, queue_id: int, init_mode: int, *, is_kept: bool = True) -> int:
        """Return the queue offset from which a group pops next. With `is_kept`, an initial offset is committed."""
        queue_offset = self._offsets.query(group, topic, queue_id)
        if queue_offset >= 0:
            return queue_offset
        store = self._store
        min_offset = max(store.min_offset(topic, queue_id), 0)
        if init_mode == 0 or topic.startswith(RETRY_PREFIX):
            queue_offset = min_offset
        else:
            unit = None if min_offset else store.unit_at(topic, queue_id, 0)
            is_young = (
                unit is not None and self._config.init_pop_offset_by_check_msg_in_mem and store.reader.is_in_memory(unit[0])
            )
            queue_offset = 0 if is_young else max(store.max_offset(topic, queue_id) - 1, 0)
        if is_kept:
            self._offsets.commit(group, topic, queue_id, queue_offset)
        return queue_offset

    def pop(self, header: PopMessageRequestHeader, matches: Wanted) -> Popped:
        """Take messages. Raises RemotingError if a check point cannot be stored."""
        self._context.look_at_clocks()
        self._counter += 1
        revive_queue = ORDER_REVIVE_QUEUE if header.order else self._counter % self._config.revive_queue_num
        popped = Popped(header, self._clock.message_time_ms(), revive_queue)
        self._context.steps.note_calendar(popped.pop_time_ms)
        key = header.topic, header.consumer_group
        # One counter per group: with a common one, groups popping alternately could always get the same queue, or no
        # retries.
        budget = FilterBudget() if isinstance(matches, RecordFilter) else None
        turn = self._turns[key] = self._turns.get(key, 0) + 1
        if len(self._turns) > _TURNS_MAX:
            del self._turns[next(iter(self._turns))]
        for topic, queue_id in self.queues(header, turn):
            self._pop_from(popped, topic, queue_id, matches if topic == header.topic else None, budget)
        return popped

    def _pop_from(
        self, popped: Popped, topic: str, queue_id: int, matches: Wanted, budget: FilterBudget | None
    ) -> None:  # fmt: skip
        header, group = popped.header, popped.header.consumer_group
        if self._offsets.resets and self._offsets.take_reset(group, topic, queue_id) is not None:
            self.orders.clear(topic, group, queue_id)
        queue_offset = self.position(topic, group, queue_id, header.init_mode)
        if header.order and self.orders.is_blocked(topic, group, queue_id, header.attempt_id, popped.pop_time_ms):
            return
        room = header.max_msg_nums - popped.count
        if room <= 0 or (budget is not None and budget.is_used_up):
            rest = max(self._store.max_offset(topic, queue_id) - queue_offset, 0)
            popped.rest += rest
            popped.is_behind |= rest > 0
            return
        if queue_offset == self._store.max_offset(topic, queue_id):
            return  # as with most queues of a topic that has thousands
        began_s = monotonic()
        result = self._read(topic, queue_id, queue_offset, room, matches, budget)
        took_s = monotonic() - began_s
        popped.rest += max(result.max_offset - result.next_begin_offset, 0)
        if result.status is not GetStatus.FOUND:
            if result.next_begin_offset > queue_offset or result.status in _WRONG_PLACES:
                self._offsets.commit(group, topic, queue_id, result.next_begin_offset)
            popped.is_behind |= queue_offset < result.next_begin_offset < result.max_offset
            return
        records = _records(result)
        offsets = _queue_offsets(records, topic, queue_offset)
        if header.order:
            counts = self.orders.popped(
                topic, group, queue_id, header.attempt_id, popped.pop_time_ms, header.invisible_time, offsets
            )
            flag = retry_flag(topic)
            popped.order_counts += [f"{flag} qo{queue_id}%{at} {count}" for at, count in counts.items()]
            popped.order_counts.append(f"{flag} {queue_id} {min(counts.values())}")
            self._offsets.commit(group, topic, queue_id, offsets[0])
        else:
            check_point = CheckPoint(
                queue_offset, popped.pop_time_ms, header.invisible_time, queue_id, topic, group,
                self._config.broker_name, len(offsets), d=[at - queue_offset for at in offsets],
                last=_number(*records[-1], PHYSICAL_OFFSET_POSITION),
            )  # fmt: skip
            self._note(check_point, popped.revive_queue, popped.pop_time_ms)
            self._offsets.commit_when_synced(group, topic, queue_id, result.next_begin_offset)
        views: list[memoryview | bytes] = list(result.views)
        if topic != header.topic and not self._config.pop_response_return_actual_retry_topic:
            views = self._as_original(popped, topic, queue_id, queue_offset, records)
        popped.add(topic, queue_id, queue_offset, offsets, views)
        self._stats.get((group, topic, queue_id), result.count, result.size, took_s, from_disk=result.from_disk)

    def _read(
        self, topic: str, queue_id: int, queue_offset: int, room: int, matches: Wanted, budget: FilterBudget | None = None
    ) -> GetResult:
        read, count_max = self._store.reader.get_message, min(room, MESSAGES_MAX)
        result = read(topic, queue_id, queue_offset, count_max, matches, budget)
        for _ in range(_READS_MAX):
            if result.status is GetStatus.FOUND or not result.next_begin_offset < result.max_offset:
                break
            if budget is not None and budget.is_used_up:
                break
            result = read(topic, queue_id, result.next_begin_offset, count_max, matches, budget)
        return result

    def _as_original(
        self, popped: Popped, topic: str, queue_id: int, start_offset: int, records: "list[_Place]"
    ) -> list[memoryview | bytes]:
        """Return records of a retry topic under the subscribed topic's name; the handle has their real place."""
        views: list[memoryview | bytes] = []
        header, broker_name = popped.header, self._config.broker_name
        magic_code, topic_bytes = topic_part(header.topic.encode())
        for view, position in records:
            record = decode_record(view, position)
            properties = decode_properties(record.properties)
            handle = Handle(
                start_offset, popped.pop_time_ms, header.invisible_time, popped.revive_queue, retry_flag(topic), broker_name,
                queue_id, record.queue_offset,
            )  # fmt: skip
            properties[POP_CK] = str(handle)
            message = record.copy_to(header.topic, queue_id, record.store_host, properties)
            size = record_size(message, len(topic_bytes))
            place = record.queue_offset, record.physical_offset, record.store_timestamp_ms
            views.append(encode_record(message, magic_code, topic_bytes, size, *place))
        return views

    def peek(self, header: PopMessageRequestHeader) -> Popped:
        """Read the messages that a pop would get, without taking them."""
        popped = Popped(header, self._clock.message_time_ms(), 0)
        self._counter += 1
        for topic, queue_id in self.queues(header, self._counter):
            queue_offset = self.position(topic, header.consumer_group, queue_id, header.init_mode, is_kept=False)
            popped.rest += max(self._store.max_offset(topic, queue_id) - queue_offset, 0)
            room = header.max_msg_nums - popped.count
            if room > 0:
                result = self._read(topic, queue_id, queue_offset, room, None)
                popped.views += result.views
                popped.count += result.count
        return popped

    def has_message(self, header: PopMessageRequestHeader) -> bool:
        """Whether a pop would find a message, regardless of its filter."""
        group, now_ms = header.consumer_group, self._clock.message_time_ms()
        return any(
            self._store.max_offset(topic, queue_id) > self.position(topic, group, queue_id, 0, is_kept=False)
            and not (header.order and self.orders.is_blocked(topic, group, queue_id, header.attempt_id, now_ms))
            for topic, queue_id in self.queues(header, 0)
        )

    # --- storing ----------------------------------------------------------------------------------------------------

    def _note(self, check_point: CheckPoint, revive_queue: int, now_ms: int) -> None:
        self._topics.create_on_send_back(self.revive.topic, self._config.revive_queue_num)
        self.revive.put(check_point, revive_queue, check_point.revive_ms, now_ms)

    def is_ours(self, handle: Handle) -> bool:
        """Whether the revive queue of a handle exists: an ack must not create one."""
        return handle.revive_queue == ORDER_REVIVE_QUEUE or handle.revive_queue in self.revive.queues

    def acknowledge(
        self, group: str, topic: str, queue_id: int, handle: Handle, queue_offsets: list[int]
    ) -> int:  # fmt: skip
        """Store the ack for messages of one check point; return its end offset in the log, 0 if there is none (ordered pop).

        Raises RemotingError if it cannot be stored.
        """
        if handle.revive_queue == ORDER_REVIVE_QUEUE:
            for queue_offset in queue_offsets:
                self._acknowledge_in_order(group, topic, queue_id, handle, queue_offset)
            return 0
        is_batch = len(queue_offsets) > 1
        ack = Ack(
            -1 if is_batch else queue_offsets[0], handle.start_offset, group, topic, queue_id, handle.pop_time_ms,
            handle.broker_name, queue_offsets if is_batch else None,
        )  # fmt: skip
        self._context.look_at_clocks()
        visible_ms = handle.pop_time_ms + handle.invisible_time_ms
        return self.revive.put(ack, handle.revive_queue, visible_ms, self._clock.message_time_ms()).end_offset

    def _acknowledge_in_order(self, group: str, topic: str, queue_id: int, handle: Handle, queue_offset: int) -> None:
        if queue_offset < self._offsets.query(group, topic, queue_id):
            return
        next_offset = self.orders.acknowledged(topic, group, queue_id, queue_offset, handle.pop_time_ms)
        if next_offset is not None:
            self._offsets.commit(group, topic, queue_id, next_offset)
            if not self.orders.is_blocked(topic, group, queue_id, None, self._clock.message_time_ms()):
                self.look_at(topic, queue_id)

    def change_invisible_time(
        self, group: str, topic: str, queue_id: int, handle: Handle, queue_offset: int, invisible_time_ms: int
    ) -> tuple[int, int]:
        """Hide one message for `invisible_time_ms` from now; return the pop time and invisible time of its new handle.

        Raises RemotingError if that cannot be stored.
        """
        self._context.look_at_clocks()
        now_ms = self._clock.message_time_ms()
        if handle.revive_queue == ORDER_REVIVE_QUEUE:
            # In terms of the calendar at the time of the pop.
            visible_ms = now_ms + invisible_time_ms - self._context.steps.shift_since_ms(handle.pop_time_ms)
            self.orders.hide(topic, group, queue_id, queue_offset, handle.pop_time_ms, visible_ms)
            return handle.pop_time_ms, visible_ms - handle.pop_time_ms
        # The pop time must differ from the old one. With equal times both check points would have the same key, the ack of
        # the old one would count for the new one, and the message would be lost unconsumed.
        is_set_back = handle.pop_time_ms - now_ms > _CHANGES_MAX
        pop_time_ms = now_ms if is_set_back else max(now_ms, handle.pop_time_ms + 1)
        invisible_time_ms -= pop_time_ms - now_ms
        self._context.steps.note_calendar(pop_time_ms)
        unit = self._store.unit_at(topic, queue_id, queue_offset)
        check_point = CheckPoint(
            queue_offset, pop_time_ms, invisible_time_ms, queue_id, topic, group, handle.broker_name, 1, d=[0],
            last=None if unit is None else unit[0],
        )  # fmt: skip
        self._note(check_point, handle.revive_queue, now_ms)
        self.acknowledge(group, topic, queue_id, handle, [queue_offset])
        return pop_time_ms, invisible_time_ms


_Place = tuple[memoryview, int]
"""View and position of a record."""


def _records(result: GetResult) -> list[_Place]:
    """Return the places of the records found. Raises BadRecordError if a record of the log is damaged."""
    places = []
    for view in result.views:
        position = 0
        while position < len(view):
            size = int.from_bytes(view[position : position + 4], "big")
            if size < RECORD_SIZE_MIN:
                raise BadRecordError(f"the queue points to a record of {size} bytes; run `pocketmq store verify`")
            places.append((view, position))
            position += size
    return places


def _queue_offsets(records: list[_Place], topic: str, queue_offset: int) -> list[int]:
    if topic.startswith(LMQ_PREFIX):  # the records contain the offset in another queue
        return list(range(queue_offset, queue_offset + len(records)))
    at = QUEUE_OFFSET_POSITION
    return [int.from_bytes(view[start + at : start + at + 8], "big") for view, start in records]


def _number(view: memoryview, position: int, at: int) -> int:
    return int.from_bytes(view[position + at : position + at + 8], "big")

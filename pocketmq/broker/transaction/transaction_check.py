"""Checks of open transactions: producers are asked about transactions that they did not end.

Only the head of the half queue is examined, the oldest open half message. When its time comes, it is stored again at the end
of the queue, then a producer of its group is asked about the copy. So the next message becomes the head, and each open half
message is the head once per `transactionCheckInterval`. One timer is set for the head's time, and a turn of the loop handles
a few heads. The time is

    new message             transactionTimeOut after it was stored (Apache counts from the producer's clock)
    with an immunity time   when that is over; until then it is stored again each interval without a check
    checked copy            one interval after it was stored

After transactionCheckMax checks, or when older than `fileReservedTime`, a message goes to TRANS_CHECK_MAX_TIME_TOPIC
instead. A copy delays a new message behind it by one interval at most, as in Apache, which examines the queue once per
interval.

The copy is stored before the producer is asked. After a process ends between the two, the copy is checked an interval later.
"""

import logging
from typing import Final

from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.context import Context
from pocketmq.broker.due_work import DueWork
from pocketmq.broker.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from pocketmq.broker.put.message_id import encode_message_id
from pocketmq.broker.put.put import MessagePutter
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.broker.transaction.transaction_half import HalfMessage
from pocketmq.broker.transaction.transaction_op import HalfPlace, TransactionProgress
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.store.format.layout import HOLE_TAGS_CODE

log = logging.getLogger("broker")

BATCH_MAX: Final = 32
BUDGET_S: Final = 0.001
"""Limits of heads handled in one turn of the loop and of the time for it; a body may have 4 MiB."""
STEPS_MAX: Final = 10
"""Limit of steps of one search for the head over finished or lost messages."""
UNDER_WAY_S: Final = 0.02
"""Interval at which a head is examined again whose copy is still being sent to another broker."""
DISPATCH_AFTER_S: Final = 0.002
_HOUR_MS: Final = 3_600_000


class TransactionCheck:
    """Head of the half queue and its timer."""

    def __init__(
        self, context: Context, putter: MessagePutter, progress: TransactionProgress, topics: TopicConfigManager,
        clients: ClientRegistry,
    ) -> None:  # fmt: skip
        self._context = context
        self._putter = putter
        self._progress = progress
        self._topics = topics
        self._clients = clients
        self.work = DueWork(context, self._check_due, BUDGET_S, "open half messages cannot be checked")
        context.steps.subscribe(self._calendar_set)
        self._is_far = False  # whether the head is due later than a new half message could be
        self._queue_end = 0  # queue offset after the newest half message
        self._asked = 0
        self._seen = (-1, 0)  # a waiting head and the time when it was first examined

    # --- scheduling -------------------------------------------------------------------------------------------------

    def half_stored(self, queue_offset: int) -> None:
        """Note that a half message was put, which is dispatched at the end of the turn."""
        self._queue_end = max(self._queue_end, queue_offset + 1)
        if not self.work.is_waiting:
            self.work.look()

    def half_done(self) -> None:
        """Note that a half message was ended: the next head may be due sooner."""
        if self._is_far:
            self.look()

    def look(self) -> None:
        """Examine the head now: the calendar or the configuration may have changed."""
        if self.work.is_waiting:
            self._is_far = False
            self.work.look()

    def _calendar_set(self) -> None:
        self._seen = (-1, 0)

    def _check_due(self, end_s: float, now_ms: int) -> None:
        """Handle heads that are due, for a limited time."""
        count = 0
        try:
            while count < BATCH_MAX and self._context.clock.monotonic() < end_s:
                head = self._head()
                if head is None:
                    self._go_on_after(DISPATCH_AFTER_S)
                    return
                due_ms = self._due_ms(head, now_ms)
                if due_ms > now_ms:
                    self._is_far = due_ms - now_ms > self._context.config.transaction_time_out
                    self.work.at_ms(due_ms)
                    return
                count += 1
                if not self._serve(head, now_ms):
                    self._go_on_after(UNDER_WAY_S)
                    return
            self._go_on_after(0)
        finally:
            if count:
                self._context.turn.arm()

    def _go_on_after(self, seconds: float) -> None:
        """Begin another turn unless all half messages have ended."""
        if self._progress.half_offset < self._queue_end:
            self.work.after(seconds)

    def _head(self) -> HalfMessage | None:
        """Return the oldest open half message, or None; lost ones are skipped."""
        progress = self._progress
        queue = self._context.store.queue(TRANS_HALF_TOPIC, 0)
        for _ in range(STEPS_MAX):
            if not progress.advance():
                continue
            if queue is None or progress.half_offset >= queue.max_offset:
                return None
            if progress.half_offset < queue.min_offset:
                progress.skip_to(queue.min_offset)
                continue
            self._queue_end = max(self._queue_end, queue.max_offset)
            queue_offset = progress.half_offset
            unit = queue.unit_at(queue_offset)
            try:
                if unit is None or unit[2] == HOLE_TAGS_CODE:
                    raise ValueError("the record does not exist")
                return HalfMessage.read(self._context.store.message_at(unit[0]))
            except ValueError as error:
                log.error("the half message %d is lost: %s", queue_offset, error)
                progress.done(queue_offset)
        return None

    # --- handling the head ------------------------------------------------------------------------------------------

    def _wait_ms(self, half: HalfMessage) -> tuple[int, bool]:
        """Return the time in ms from the message's store time until it is handled, and whether a producer is asked then."""
        interval_ms = self._context.config.transaction_check_interval
        if half.check_times:
            return interval_ms, True
        immunity_ms = half.immunity_ms
        free_ms = self._context.config.transaction_time_out if immunity_ms is None else immunity_ms
        free_ms -= half.store_timestamp_ms - half.since_ms
        return (free_ms, True) if free_ms <= interval_ms else (interval_ms, False)

    def _due_ms(self, half: HalfMessage, now_ms: int) -> int:
        """Return when the head must be handled, by the steady clock, so that changes of the calendar do not matter."""
        if self._is_too_old(half, now_ms):
            return 0
        if self._seen[0] != half.queue_offset:
            self._seen = (half.queue_offset, now_ms)
        wait_ms, _ = self._wait_ms(half)
        shift_ms = self._context.steps.shift_ms(half.physical_offset, half.store_timestamp_ms)
        # If the calendar was set back while no broker ran, the wait is limited to the configured time from now.
        return min(half.store_timestamp_ms + shift_ms, self._seen[1]) + wait_ms

    def _is_too_old(self, half: HalfMessage, now_ms: int) -> bool:
        return now_ms - half.since_ms > self._context.store.config.file_reserved_time * _HOUR_MS

    def _serve(self, head: HalfMessage, now_ms: int) -> bool:
        """Store the head again or give it up, as due; return False if that is not decided yet.

        Raises RemotingError or OSError if it cannot be stored.
        """
        progress, times = self._progress, head.check_times
        if times >= self._context.config.transaction_check_max or self._is_too_old(head, now_ms):
            self._give_up(head)
            return True
        _, is_asked = self._wait_ms(head)
        try:
            result = self._putter.put_at_once(head.renewed(self._context.store_host, times + 1 if is_asked else 0))
        except RemotingError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            log.error("the half message %d cannot be stored again: %s", head.queue_offset, error.remark)
            self._give_up(head)
            return True
        self._queue_end = result.queue_offset + 1
        progress.copies[head.first_offset] = HalfPlace(result.queue_offset, result.physical_offset)
        progress.done(head.queue_offset)
        if is_asked:
            self._ask(HalfMessage.read(self._context.store.message_at(result.physical_offset)))
        return True

    def _give_up(self, head: HalfMessage) -> None:
        topic = self._topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1).topic_name
        try:
            self._putter.put_at_once(head.given_up(self._context.store_host))
        except RemotingError as error:
            if error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            topic = f"the log only, at physical offset {head.physical_offset}: {error.remark}"
        self._progress.copies.pop(head.first_offset, None)
        self._progress.done(head.queue_offset)
        log.error(
            "the transaction of %s (topic %s, group %s) was neither committed nor rolled back after %d checks; "
            "it is now in %s",
            head.unique_key, head.real_topic, head.producer_group, head.check_times, topic,
        )  # fmt: skip

    def _ask(self, half: HalfMessage) -> None:
        """Ask one of the group's producers, a different one each time."""
        group = half.producer_group
        producers = self._clients.producer_clients(group) if group else []
        channels = [producer.channel for producer in producers if producer.channel.is_writable]
        if not channels:
            log.warning(
                "the transaction of %s cannot be checked: producer group %s has no reachable client", half.unique_key, group
            )
            return
        self._asked += 1
        header = CheckTransactionStateRequestHeader(
            half.queue_offset,
            half.physical_offset,
            half.unique_key,
            half.unique_key,
            encode_message_id(half.store_host, half.physical_offset),
        )
        channel = channels[self._asked % len(channels)]
        channel.invoke_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, half.for_producer())

"""ActingServices: the services of a master that run on an acting master; the resulting messages go to other brokers.

    levels         from the progress copied from the master
    timers         from a wheel that is filled from the slave's log when the slave begins to act
    transactions   open half messages are sent to another master as prepared messages when their check is due; it asks the
                   producers then
    pop            popped messages that are not acknowledged in time are sent to the retry topic of their group

These are a master's own services, except that their copies go to the `EscapeBridge`. The master takes over their progress
when it returns.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor
from typing import Any, Final

from pocketmq.broker.context import Context
from pocketmq.broker.delay.engine import DelayEngine
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.delay.sources import Source
from pocketmq.broker.delay.wheel_source import WheelSource
from pocketmq.broker.ha.escape_bridge import EscapeBridge
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.pop.pop_record import CheckPoint, read_revive_record
from pocketmq.broker.pop.pop_revive import revived_copy
from pocketmq.broker.put.copy_sink import UNDER_WAY, CopySink, PutTogether
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.transaction.transaction import GROUP
from pocketmq.broker.transaction.transaction_check import TransactionCheck
from pocketmq.broker.transaction.transaction_half import HalfMessage
from pocketmq.broker.transaction.transaction_op import TransactionProgress
from pocketmq.store.format.message import Arrival, Message, PutResult, PutStatus
from pocketmq.store.format.properties import TAGS

log = logging.getLogger("broker")

SETTLE_S: Final = 1.0
"""Longest wait until the services have recorded the copies that the bridge has sent."""
LOOK_S: Final = 0.02
SYNC_S: Final = 2.0
ACKS_MAX: Final = 100_000
WAITING_MAX: Final = 4096
"""Limit of due messages whose copies are being sent, or are to be sent next, and of check points that wait."""
_DONE: Final = PutResult(PutStatus.PUT_OK)


class RevivingSink:
    """A sink for timers: revives popped messages when their check point is due, and passes on all other copies.

    Check points are due a second before the messages become visible, and acks before that, so a check point is kept until
    then. No record is stored in the revive topic.
    """

    def __init__(self, context: Context, bridge: EscapeBridge) -> None:
        self.under_way_max: int | None = WAITING_MAX
        self.put_together: PutTogether | None = None
        self._context = context
        self._bridge = bridge
        self._topic = REVIVE_TOPIC_PREFIX + context.config.broker_cluster_name
        self._acknowledged: dict[Hashable, set[int]] = {}

    def waits(self, source: Hashable) -> bool:
        return self._bridge.waits(source)

    def put(self, message: Message, source: Hashable) -> PutResult:
        if message.topic != self._topic:
            return self._bridge.put(message, source)
        try:
            entry = read_revive_record(message.properties.get(TAGS), bytes(message.body))
        except ValueError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        if isinstance(entry, CheckPoint):
            return self._revive(entry)
        if len(self._acknowledged) >= ACKS_MAX:
            self._acknowledged.clear()
        self._acknowledged.setdefault(entry.key, set()).update(entry.queue_offsets())
        return _DONE

    def _revive(self, check_point: CheckPoint) -> PutResult:
        context = self._context
        due_ms = check_point.revive_ms + context.steps.shift_since_ms(check_point.pt)
        if context.clock.message_time_ms() <= due_ms:
            return UNDER_WAY
        acknowledged = self._acknowledged.get(check_point.key, set())
        result = _DONE
        for index, queue_offset in enumerate(check_point.queue_offsets()):
            if check_point.bm >> index & 1 or queue_offset in acknowledged:
                continue
            try:
                copy = revived_copy(
                    context.store, check_point, queue_offset, context.store_host,
                    with_v2=context.config.enable_retry_topic_v2,
                )  # fmt: skip
            except ValueError as error:
                log.warning("message %d of %s/%d is lost: %s", queue_offset, check_point.t, check_point.q, error)
                continue
            if self._bridge.put(copy, (check_point.key, queue_offset)) is UNDER_WAY:
                result = UNDER_WAY
            else:
                self._acknowledged.setdefault(check_point.key, set()).add(queue_offset)
        if result is _DONE:
            self._acknowledged.pop(check_point.key, None)
        return result


class EscapingCheck(TransactionCheck):
    """Sends half messages to another master, through `sink`, when their check is due."""

    sink: CopySink

    def _serve(self, head: HalfMessage, now_ms: int) -> bool:
        if self.sink.waits(head.physical_offset):
            return False
        if self.sink.put(head.escaped(), head.physical_offset) is UNDER_WAY:
            return False
        self._progress.copies.pop(head.first_offset, None)
        self._progress.done(head.queue_offset)
        return True


class ActingServices:
    """The services of an acting master. An instance is started and stopped once."""

    def __init__(
        self, context: Context, bridge: EscapeBridge, delays: DelayEngine, schedule: LevelSource,
        offsets: ConsumerOffsetManager, make_timers: Callable[[], WheelSource] | None,
        make_check: Callable[[TransactionProgress], EscapingCheck],
    ) -> None:  # fmt: skip
        """`make_timers`: None without timers (timerWheelEnable=false)."""
        self._context = context
        self._bridge = bridge
        self._delays = delays
        self._schedule = schedule
        self._offsets = offsets
        self._make_timers = make_timers
        self._timers: WheelSource | None = None
        self._progress = TransactionProgress()
        self._check = make_check(self._progress)
        self._check.sink = bridge

    def start(self) -> None:
        """Start all services. Raises OSError if the timer files cannot be created."""
        sources: list[Source[Any]] = [self._schedule]
        if self._make_timers is not None:
            self._timers = self._make_timers()
            self._timers.recover()
            sources.append(self._timers)
        self._delays.sink, self._delays.sources = RevivingSink(self._context, self._bridge), sources
        self._delays.start()
        self._progress.read(self._context.store, *(self._offsets.query(GROUP, topic, 0) for topic in _TRANSACTION_TOPICS))
        self._check.work.start()

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Pass on the arrivals of messages that were just copied from the master."""
        self._delays.arrived(tuple(arrivals))

    def persist_in(self, executor: Executor) -> None:
        """Write the progress to disk in `executor`."""
        self._schedule.persist_in(executor)
        self._delays.mark_in(executor)
        self._commit()

    def _commit(self) -> None:
        offsets = self._progress.half_offset, self._progress.op_offset
        for topic, queue_offset in zip(_TRANSACTION_TOPICS, offsets, strict=True):
            if queue_offset > max(self._offsets.query(GROUP, topic, 0), 0):
                self._offsets.commit(GROUP, topic, 0, queue_offset)

    async def stop(self) -> None:
        """Let sends that are under way end, stop all services, and write their progress to disk."""
        loop, store = asyncio.get_running_loop(), self._context.store
        await self._bridge.drain()
        deadline_s = loop.time() + SETTLE_S
        while self._bridge.has_unclaimed and loop.time() < deadline_s:
            await asyncio.sleep(LOOK_S)
        self._delays.stop()
        self._check.work.stop()
        self._commit()
        if self._timers is not None:
            store.request_sync(store.max_physical_offset)
            deadline_s = loop.time() + SYNC_S
            while store.flushed_offset < store.max_physical_offset and loop.time() < deadline_s:
                await asyncio.sleep(LOOK_S)
            self._timers.close()
            self._timers = None


_TRANSACTION_TOPICS: Final = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)

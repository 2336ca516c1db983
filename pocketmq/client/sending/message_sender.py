"""MessageSender: chooses a queue for each send, tries another broker after a failure, and reads the answer."""

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pocketmq.client.sending.outgoing import STORED, Outgoing, SendResult
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.send import RecallableSendMessageResponseHeader

if TYPE_CHECKING:
    from pocketmq.client.client_instance import ClientInstance

RETRIES: Final = 2
SEND_TIMEOUT_S: Final = 3.0
WORTH_ANOTHER_BROKER: Final = {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
}
"""Refusals after which another broker may store the message."""

_AVOIDED: Final = ((15_000, 600.0), (3_000, 180.0), (2_000, 120.0), (1_000, 60.0), (550, 30.0))
"""Latency in ms from which on a broker is avoided, and for how many seconds."""
FAILED_MS: Final = 30_000.0
"""Latency that a failed send counts as."""

Select = Callable[[Sequence[MessageQueue]], MessageQueue]


class LatencyFaultTolerance:
    """Times until which brokers get no messages, because they failed or were slow (Apache: MQFaultStrategy)."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._avoided_until_s: dict[str, float] = {}

    def sent(self, broker_name: str, latency_ms: float) -> None:
        """Take the latency of a send into account; a fast one ends the avoidance."""
        avoid_s = next((seconds for slow_ms, seconds in _AVOIDED if latency_ms >= slow_ms), 0.0)
        self._avoided_until_s[broker_name] = self._now_s() + avoid_s

    def usable(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return the queues of brokers that are not avoided; if all are, those of the one that is avoided least."""
        now_s = self._now_s()
        usable = [queue for queue in queues if self._until_s(queue) <= now_s]
        if usable:
            return usable
        least_s = min(map(self._until_s, queues))
        return [queue for queue in queues if self._until_s(queue) == least_s]

    def _until_s(self, queue: MessageQueue) -> float:
        return self._avoided_until_s.get(queue.broker_name, 0.0)


class MessageSender:
    """Sends in the name of a producer group. Without `select` it uses queues in turn, and another broker after a failure."""

    def __init__(
        self,
        instance: "ClientInstance",
        group: str,
        check_open: Callable[[], None] = lambda: None,
        fault_tolerance: LatencyFaultTolerance | None = None,
    ) -> None:
        """`check_open` raises RuntimeError once the producer is closed."""
        self.instance, self.group = instance, group
        self._check_open = check_open
        self._fault_tolerance = fault_tolerance
        self._turn = itertools.count()
        self._with_timer: set[str] = set()
        """Names of brokers that are known to deliver at arbitrary times."""

    async def send(self, out: Outgoing, select: Select | None = None, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Send a message and wait until it is stored. With `select` only the selected queue is tried.

        Raises RemotingError with the broker's code and remark, or another MQError if no broker could be reached.
        """
        avoid: str | None = None
        tries_left = RETRIES if select is None else 0
        while True:
            self._check_open()  # it may have been closed between two attempts
            queue = await self._choose(out.topic, select, avoid)
            try:
                answer = await self._invoke(out, queue, timeout_s)
                if answer.code in STORED:
                    return await self._result(answer, out.msg_id, queue)
                remark = answer.remark or f"broker {queue.broker_name!r} refused the message with code {answer.code}"
                raise RemotingError(answer.code, remark)
            except (OSError, TimeoutError, RemotingError) as failure:
                final = isinstance(failure, RemotingError) and failure.code not in WORTH_ANOTHER_BROKER
                if final or tries_left == 0:
                    raise
            tries_left -= 1
            avoid = queue.broker_name
            if out.topic in self.instance.routes.by_topic:
                with contextlib.suppress(OSError):  # the known route may have another broker
                    await self.instance.routes.refresh(out.topic)

    async def send_oneway(self, out: Outgoing, select: Select | None = None) -> None:
        """Send without waiting for an answer."""
        queue = await self._choose(out.topic, select, avoid=None)
        await self._check_timer(out, queue.broker_name)
        address = await self.instance.connect(queue.broker_name)
        await self.instance.remoting.invoke_oneway(address, out.code, out.header(self.group, queue), out.body)

    async def _invoke(self, out: Outgoing, queue: MessageQueue, timeout_s: float) -> RemotingCommand:
        await self._check_timer(out, queue.broker_name)
        header, began_s, is_stored = out.header(self.group, queue), time.monotonic(), False
        try:
            answer = await self.instance.invoke(queue.broker_name, out.code, header, out.body, timeout_s)
            is_stored = answer.code in STORED
        except OSError:  # also TimeoutError
            self._note(queue, None)
            raise
        self._note(queue, (time.monotonic() - began_s) * 1000 if is_stored else None)
        return answer

    def _note(self, queue: MessageQueue, latency_ms: float | None) -> None:
        """Take the latency of a send into account; None if it failed."""
        if self._fault_tolerance is not None:
            self._fault_tolerance.sent(queue.broker_name, FAILED_MS if latency_ms is None else latency_ms)

    async def _check_timer(self, out: Outgoing, broker_name: str) -> None:
        """Raise RemotingError if the broker would ignore the delivery time and deliver at once, as 4.x does."""
        if not out.needs_timer or broker_name in self._with_timer:
            return
        answer = await self.instance.invoke(broker_name, RequestCode.GET_TIMER_CHECK_POINT)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            remark = (
                f"broker {broker_name!r} knows delay levels only, and would deliver a message with delay= or deliver_at= at "
                "once: use delay_level=1 (1 s) to 18 (2 h)"
            )
            raise RemotingError(ResponseCode.VERSION_NOT_SUPPORTED, remark)
        self._with_timer.add(broker_name)

    async def _result(self, answer: RemotingCommand, msg_id: str, queue: MessageQueue) -> SendResult:
        stored = answer.header(RecallableSendMessageResponseHeader)
        if queue.topic not in self.instance.routes.by_topic:  # it was just created
            with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
                await self.instance.routes.refresh(queue.topic)
        placed = MessageQueue(queue.broker_name, stored.queue_id, queue.topic)
        return SendResult(
            status=STORED[ResponseCode(answer.code)],
            msg_id=msg_id,
            offset_msg_id=stored.msg_id,
            queue=placed,
            queue_offset=stored.queue_offset,
            recall_handle=stored.recall_handle,
            region_id=stored.region_id,
            is_traced=stored.trace_on,
        )

    async def _choose(self, topic: str, select: Select | None, avoid: str | None) -> MessageQueue:
        queues: Sequence[MessageQueue] = await self.instance.routes.publish_queues(topic)
        if not queues and topic in self.instance.routes.by_topic:  # a master may have come back
            await self.instance.routes.refresh(topic)
            queues = await self.instance.routes.publish_queues(topic)
        if not queues:
            remark = f"topic {topic!r} has no writable queue at a broker with a master"
            raise RemotingError(ResponseCode.NO_PERMISSION, remark)
        if select is not None:
            chosen = select(queues)
            if not isinstance(chosen, MessageQueue):
                raise TypeError(f"select must return one of the queues passed to it, not {type(chosen).__name__}")
            return chosen
        others = [queue for queue in queues if queue.broker_name != avoid] or queues
        if self._fault_tolerance is not None:
            others = self._fault_tolerance.usable(others)
        return others[next(self._turn) % len(others)]

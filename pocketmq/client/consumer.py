"""Push consumer: the clients of a group share the queues of its topics, and a listener is called with each message.

    consumer = PushConsumer("127.0.0.1:9876", "billing", start="first")
    consumer.subscribe("TopicTest", listener, tags="paid || refunded")
    async with consumer: ...

It is implemented by pulling. Each queue allocated to this client has one task, which pulls (the broker holds the request
until a message arrives), gives the messages to the listener one by one, advances the consumer offset, and pulls again. So
the messages of a queue are consumed in order. If the listener raises, the message is sent back to the broker and is
redelivered through the group's retry topic, after a longer delay each time, until the broker puts it into the dead-letter
topic.

Messages are pulled from the master of a queue, or from a slave: if the broker suggests it, and while the master cannot be
reached. Consumer offsets are then stored at the slave, and at the master once it is back. Only masters accept messages that
are sent back. While a queue's master is away, another broker's master is used; without one, the queue waits.

Queues are allocated again when the broker notifies a change of the group (NOTIFY_CONSUMER_IDS_CHANGED), and every 20 s.
Brokers also ask what a consumer does, have it consume one message, and reset its offsets (client/broker_requests).
"""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.broker_requests import CR_SUCCESS, CR_THROW_EXCEPTION, ConsumeMessageDirectlyResult
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import RETRY_GROUP_PREFIX, RETRY_TOPIC, MessageExt, now_ms
from pocketmq.client.message_check import check_group, check_tags, check_topic
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.pull_consumer import PullConsumer
from pocketmq.client.route import allocate_averagely
from pocketmq.client.running_info import running_info
from pocketmq.client.send_back import send_back
from pocketmq.remoting.bodies import ConsumerData, ConsumerIdList, MessageQueue, SubscriptionData, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader
from pocketmq.runtime.peer_text import REMARK_SIZE_MAX, clipped
from pocketmq.store.format.java_hash import java_hash

log = logging.getLogger("client")

REBALANCE_S: Final = 20.0
PERSIST_OFFSETS_S: Final = 5.0
HOLD_MS: Final = 15_000
PAUSE_S: Final = 1.0
"""Delay between attempts after a failure."""

Listener = Callable[[MessageExt], Awaitable[None] | None]

_FROM_WHERE = {"first": "CONSUME_FROM_FIRST_OFFSET", "last": "CONSUME_FROM_LAST_OFFSET"}


class PushConsumer:
    """A member of a consumer group (clustering). `start` ("first" or "last") applies to a group without offsets."""

    def __init__(self, namesrv: str, group: str, start: str = "last", access: Access = PLAIN) -> None:
        if start not in _FROM_WHERE:
            raise ValueError(f"start must be 'first' or 'last', not {start!r}")
        check_group(group)
        self.instance = ClientInstance(namesrv, access)
        self.group = group
        self._lifecycle = Lifecycle("the consumer")
        self._start = start
        self._puller = PullConsumer(namesrv, group, instance=self.instance)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._listeners: dict[str, Listener] = {}
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._started_ms = now_ms()
        self._resets: dict[MessageQueue, int] = {}
        """Allocated queue -> consumer offset at which a broker has asked to continue."""
        self._rates: dict[str, ConsumeRates] = {}
        self._rebalance_now = asyncio.Event()
        self._rebalance_task: asyncio.Task[None] | None = None
        self._is_finishing = False
        self.instance.consumer_data = self._consumer_data
        self.instance.member = self

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def subscribe(self, topic: str, listener: Listener, tags: str = "*") -> None:
        """Call `listener` with each message of `topic` that has one of `tags` (`a || b`). Must be called before `start`.

        Raises TypeError or ValueError for invalid arguments, RuntimeError after `start`.
        """
        self._lifecycle.check_new("call subscribe() before start()")
        if not callable(listener):
            raise TypeError(f"listener must be callable with a message, not {type(listener).__name__}")
        self._subscriptions[topic] = subscription(topic, tags)
        self._listeners[topic] = listener

    @property
    def queues(self) -> list[MessageQueue]:
        """Return the queues currently allocated to this client."""
        return list(self._held)

    async def start(self) -> None:
        """Join the group. Raises RemotingError if a topic is unknown, ConnectionError if no server answers.

        It can be called again after such a failure. Raises RuntimeError if the consumer is started, closed, or has no topic.
        """
        self._lifecycle.check_new("start() can be called once")
        if not self._listeners:
            raise RuntimeError("the consumer has no topic: call subscribe(topic, listener) before start()")
        for topic in self._listeners:
            await self.instance.routes.refresh(topic)
        retry_topic = RETRY_GROUP_PREFIX + self.group
        self._subscriptions[retry_topic] = subscription(retry_topic, "*")
        await self.instance.heartbeat()  # creates the group and its retry topic
        await self._rebalance()
        self._lifecycle.start()
        self.instance.start()
        self.instance.every(PERSIST_OFFSETS_S, self._commit_all)
        self._rebalance_task = asyncio.create_task(self._keep_balanced())

    async def close(self) -> None:
        """Finish the messages in the listeners, store the offsets, leave the group. The consumer cannot be started again."""
        if not self._lifecycle.close():
            return
        if self._rebalance_task is not None:
            self._rebalance_task.cancel()
            await asyncio.gather(self._rebalance_task, return_exceptions=True)
        await self._drop(list(self._held))
        await self.instance.close(self.group)

    def finish(self) -> None:
        """Take no further message, not even pulled ones; `close` must still be called. May be called by a listener."""
        self._is_finishing = True
        for work in self._held.values():
            work.drop()

    # The group

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_from_where=_FROM_WHERE[self._start],
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def _keep_balanced(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_S):  # wait_for of 3.11 may swallow the cancellation by `close`
                    await self._rebalance_now.wait()
            self._rebalance_now.clear()
            try:
                await self._apply_resets()
                await self._rebalance()
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("rebalance of %s failed: %s", self.group, failure)

    async def _rebalance(self) -> None:
        for topic in () if self._is_finishing else tuple(self._subscriptions):
            try:
                queues = await self.instance.routes.subscribe_queues(topic)
            except RemotingError as refusal:
                if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                continue  # the retry topic, while the name server does not know it
            client_ids = await self._client_ids(queues)
            if client_ids is None:
                continue
            mine = set(allocate_averagely(queues, client_ids, self.instance.client_id))
            held = {queue for queue in self._held if queue.topic == topic}
            await self._drop(list(held - mine))
            for queue in () if self._is_finishing else mine - held:
                self._take(ProcessQueue(queue))

    def _take(self, work: ProcessQueue) -> None:
        self._held[work.queue] = work
        work.task = asyncio.create_task(self._consume_queue(work))

    async def _apply_resets(self) -> None:
        """Continue queues at the offsets that a broker has sent, after the messages in the listeners."""
        resets, self._resets = self._resets, {}
        works = [self._held[queue] for queue in resets if queue in self._held and not self._is_finishing]
        await _finish(works)
        for work in works:
            begin = ProcessQueue(work.queue, resets[work.queue])
            self._take(begin)
            await self._commit(begin)

    async def _client_ids(self, queues: list[MessageQueue]) -> list[str] | None:
        """Return the client ids of the group from a broker; None if no broker knows the group, to keep the allocation.

        Raises OSError or TimeoutError if no broker can be reached.
        """
        header = ConsumerGroupRequestHeader(self.group)
        failures: list[OSError] = []
        is_answered = not queues
        for broker_name in sorted({queue.broker_name for queue in queues}):
            try:
                answer, _ = await self.instance.invoke_any(broker_name, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            except OSError as failure:  # also TimeoutError
                failures.append(failure)
                continue
            is_answered = True
            if answer.code == ResponseCode.SUCCESS:
                return decode_body(ConsumerIdList, answer.body).consumer_id_list
            await self.instance.heartbeat()  # the broker may not know this client yet; the next round will find it
        if not is_answered:
            raise failures[0]
        return None

    async def _drop(self, queues: list[MessageQueue]) -> None:
        works = [self._held.pop(queue) for queue in queues]
        await _finish(works)
        for work in works:
            await self._commit(work)

    # Requests of brokers (client/broker_requests)

    def allocate_now(self) -> None:
        """Allocate the queues again at once."""
        self._rebalance_now.set()

    def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue allocated queues at these consumer offsets, after the messages in the listeners."""
        self._resets |= {queue: offset for queue, offset in offsets.items() if queue in self._held}
        self._rebalance_now.set()

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the consumer offsets of the allocated queues of a topic, as far as they are known."""
        held = (work for work in self._held.values() if work.queue.topic == topic and work.consumer_offset >= 0)
        return {work.queue: work.consumer_offset for work in held}

    def running_info(self, with_stacks: bool) -> dict[str, Any]:
        """Return ConsumerRunningInfo, the answer of GET_CONSUMER_RUNNING_INFO."""
        works, addresses = self._held.values(), self.instance.routes.namesrv_addresses
        return running_info(self._consumer_data(), addresses, self._started_ms, works, self._rates, with_stacks)

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Give one message to the listener of its topic; offsets do not change. Raises LookupError without a listener."""
        topic = message.topic if message.topic in self._listeners else message.properties.get(RETRY_TOPIC, message.topic)
        listener = self._listeners.get(topic)
        if listener is None:
            raise LookupError(f"this consumer has no listener for topic {topic}, only for {', '.join(self._listeners)}")
        began_s = time.monotonic()
        failure = await self._listen(message, topic, listener)
        spent_ms = int((time.monotonic() - began_s) * 1000)
        if failure is None:
            return ConsumeMessageDirectlyResult(CR_SUCCESS, spent_ms)
        return ConsumeMessageDirectlyResult(
            CR_THROW_EXCEPTION, spent_ms, clipped(f"{type(failure).__name__}: {failure}", REMARK_SIZE_MAX)
        )

    # One queue

    async def _consume_queue(self, work: ProcessQueue) -> None:
        while not work.is_dropped:
            try:
                await self._consume_batch(work)
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("consuming from %s failed: %s", work.queue, failure)
                if isinstance(failure, RemotingError) and failure.code in (
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    ResponseCode.SUBSCRIPTION_NOT_LATEST,
                ):
                    await self.instance.heartbeat()  # the broker was restarted and does not know the group yet
                await asyncio.sleep(PAUSE_S)

    async def _consume_batch(self, work: ProcessQueue) -> None:
        work.is_pulling = True  # until it has messages, the task may be cancelled at any point
        if work.consumer_offset < 0:
            work.consumer_offset = await self._begin_offset(work.queue)
        own = self._subscriptions[work.queue.topic]
        asked_s = time.monotonic()
        result = await self._puller.pull(
            work.queue,
            work.consumer_offset,
            tags=None,
            wait_ms=HOLD_MS,
            commit_offset=work.consumer_offset,
            sub_version=own.sub_version,
        )
        if result.is_refused_by_slave:
            await asyncio.sleep(PAUSE_S)
        work.is_pulling = False
        work.pulled(result.messages)
        if result.messages:
            self._rates_of(work.queue.topic).pulled(len(result.messages), (time.monotonic() - asked_s) * 1000)
        for message in result.messages:
            if work.is_dropped:
                return
            is_wanted = not own.tags_set or message.tags in own.tags_set  # brokers compare hashes only
            if is_wanted and not await self._consume(message, work):
                return
            work.consumer_offset = message.queue_offset + 1
            work.consumed()
        work.consumer_offset = result.next_begin_offset

    async def _begin_offset(self, queue: MessageQueue) -> int:
        stored = await self._puller.committed(queue)
        if stored is not None:
            return stored
        if self._start == "last" and not queue.topic.startswith(RETRY_GROUP_PREFIX):
            return await self._puller.max_offset(queue)
        return max(0, await self._puller.min_offset(queue))

    async def _consume(self, message: MessageExt, work: ProcessQueue) -> bool:
        """Return whether the offset may advance: the message was consumed, or sent back to the broker."""
        failure = await self._listen(message, work.queue.topic, self._listeners[message.topic])
        if failure is None:
            return True
        log.error("consuming message %s of %s failed; sending it back", message.msg_id, message.topic, exc_info=failure)
        while not await send_back(self.instance, self.group, message):
            if work.is_dropped:
                return False
            await asyncio.sleep(PAUSE_S)
        return True

    async def _listen(self, message: MessageExt, topic: str, listener: Listener) -> Exception | None:
        """Give a message of a topic, or of the retry topic, to a listener; return its failure."""
        began_s, failure = time.monotonic(), None
        try:
            if message.problem is not None:
                raise ValueError(f"the body of message {message.msg_id} cannot be decompressed: {message.problem}")
            outcome = listener(message)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as raised:
            failure = raised
        self._rates_of(topic).consumed((time.monotonic() - began_s) * 1000, is_ok=failure is None)
        return failure

    def _rates_of(self, topic: str) -> ConsumeRates:
        return self._rates.setdefault(topic, ConsumeRates())

    # Offsets

    async def _commit_all(self) -> None:
        for work in list(self._held.values()):
            await self._commit(work)

    async def _commit(self, work: ProcessQueue) -> None:
        if work.consumer_offset < 0 or work.consumer_offset == work.committed_offset:
            return
        offset_now = work.consumer_offset
        try:
            if await self._puller.commit_somewhere(work.queue, offset_now):
                work.committed_offset = offset_now
        except (OSError, TimeoutError, RemotingError) as failure:
            log.warning("consumer offset %d of %s could not be stored: %s", offset_now, work.queue, failure)


async def _finish(works: list[ProcessQueue]) -> None:
    """Wait until the messages in the listeners are consumed, and take no further ones."""
    for work in works:
        work.drop()
    await asyncio.gather(*(work.task for work in works), return_exceptions=True)


def subscription(topic: str, tags: str) -> SubscriptionData:
    """Return a group's subscription to a topic: `*` or tags separated by `||`. Raises TypeError or ValueError."""
    check_topic(topic)
    if not isinstance(tags, str):
        raise TypeError(f"tags must be str, 'a || b' or '*', not {type(tags).__name__}")
    wanted = [] if tags.strip() in ("", "*") else sorted({tag.strip() for tag in tags.split("||")} - {""})
    if not wanted and tags.strip() not in ("", "*"):
        raise ValueError(f"tags {tags!r} contain no tag: write 'a || b', or '*' for all")
    for tag in wanted:
        check_tags(tag)
    return SubscriptionData(
        topic=topic,
        sub_string=tags if wanted else "*",
        sub_version=now_ms(),
        tags_set=wanted,
        code_set=[java_hash(tag) for tag in wanted],
    )

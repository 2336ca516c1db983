"""Push consumer: the clients of a group share the queues of its topics, and each message is given to a listener or a loop.

    consumer = PushConsumer("127.0.0.1:9876", "billing", start="first")
    consumer.subscribe("TopicTest", listener, tags="paid || refunded")
    async with consumer: ...

    consumer.subscribe("TopicTest")
    async with consumer:
        async for message in consumer: ...

It is implemented by pulling ahead (client/consuming/held_queues). Without `concurrency` the messages of a queue are consumed
one by one, and those of different queues at the same time. If a listener raises, the message is sent back to the broker and
is redelivered through the group's retry topic, after a longer delay each time, until the broker puts it into the dead-letter
topic. An ordered consumer keeps the message and suspends its queue; a broadcasting one only logs the failure.

Messages are pulled from the master of a queue, or from a slave: if the broker suggests it, and while the master cannot be
reached. Consumer offsets are then stored at the slave, and at the master once it is back. Only masters accept messages that
are sent back. While a queue's master is away, another broker's master is used; without one, the queue waits.

Brokers also ask what a consumer does, have it consume one message, and reset its offsets (client/broker_requests).
"""

import time

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.broker_requests import CR_SUCCESS, CR_THROW_EXCEPTION, ConsumeMessageDirectlyResult
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consuming.consumer_options import DEFAULT_INSTANCE, DEFAULTS, ConsumerOptions
from pocketmq.client.consuming.consumption import Consumption, taken_by_loop
from pocketmq.client.consuming.group_member import GroupMember
from pocketmq.client.consuming.held_queues import HeldQueues, Start, check_start, from_where
from pocketmq.client.consuming.listening import Listening
from pocketmq.client.consuming.offset_stores import BrokerOffsets, LocalOffsets, OffsetStore
from pocketmq.client.consuming.process_queue import ProcessQueue
from pocketmq.client.consuming.push_source import PushSource
from pocketmq.client.consuming.queue_locks import QueueLocks
from pocketmq.client.consuming.queue_requests import QueueRequests
from pocketmq.client.consuming.subscription import SQL92, subscription
from pocketmq.client.message import RETRY_GROUP_PREFIX, RETRY_TOPIC, MessageExt, local_address
from pocketmq.client.message_check import check_group
from pocketmq.remoting.bodies import CheckClientRequestBody, ConsumerData, MessageQueue, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime.peer_text import REMARK_SIZE_MAX, clipped


class PushConsumer(Listening[ProcessQueue], GroupMember):
    """A member of a consumer group. `start` ("first", "last", or a time in ms) applies to a group without offsets."""

    def __init__(
        self,
        namesrv: str,
        group: str,
        start: Start = "last",
        access: Access = PLAIN,
        *,
        ordered: bool = False,
        broadcast: bool = False,
        concurrency: int | None = None,
        options: ConsumerOptions = DEFAULTS,
    ) -> None:
        """`ordered`: queues are locked at the brokers, and a failed message is consumed again before the later ones.

        `broadcast`: each consumer of the group gets all messages, and keeps its offsets in a local file. `concurrency`:
        number of messages consumed at the same time, None: one of each queue. With a number the messages of a queue are
        not consumed in order, unless the consumer is ordered.
        """
        _check(start, ordered, broadcast, concurrency)
        check_group(group)
        instance = ClientInstance(namesrv, access)
        name = options.instance_name or (DEFAULT_INSTANCE if broadcast else None)
        if name is not None:
            instance.client_id = f"{local_address()}@{name}"
        Listening.__init__(self, instance, group, options)
        self._start, self._is_ordered, self._is_broadcasting = start, ordered, broadcast
        self._concurrency = concurrency
        requests = QueueRequests(instance, group, self._lifecycle)
        offsets: OffsetStore = BrokerOffsets(requests, zero_if_new=isinstance(start, str))
        if broadcast:
            offsets = LocalOffsets(options.offsets_folder, instance.client_id, group)
        queues = HeldQueues(
            requests,
            offsets,
            self._subscriptions,
            options,
            start,
            one_by_one=ordered or concurrency is None,
            locks=QueueLocks(instance, group) if ordered else None,
        )
        queues.commits_when_pulling = not broadcast
        queues.on_taken = lambda: self._consumption.staff(len(queues.held))
        self._consumption = Consumption[ProcessQueue](
            PushSource(queues, ordered, broadcast),
            self._listeners,
            self._hooks,
            queues.rates,
            concurrency,
            options.auto_ack,
        )
        GroupMember.__init__(self, queues, broadcast)

    @property
    def queues(self) -> list[MessageQueue]:
        """Return the queues currently allocated to this client."""
        return list(self._queues.held)

    async def start(self) -> None:
        """Join the group. Raises RemotingError if a topic is unknown, ConnectionError if no server answers.

        It can be called again after such a failure. Raises RuntimeError if the consumer is started, closed, or has no topic.
        """
        self._check_ready()
        for topic in self._listeners:
            await self.instance.routes.refresh(topic)
        await self._check_expressions()
        if not self._is_broadcasting:
            retry_topic = RETRY_GROUP_PREFIX + self.group
            self._subscriptions[retry_topic] = subscription(retry_topic, "*")
        if not self._consumption.has_listeners:
            self._queues.release_timeout_s = self._options.release_timeout_s
        await self.rebalancing.start()
        self._lifecycle.start()

    async def _check_expressions(self) -> None:
        """Have the brokers check SQL92 expressions. Raises RemotingError for a refusal."""
        for own in self._subscriptions.values():
            if own.expression_type == SQL92:
                body = encode_body(CheckClientRequestBody(self.instance.client_id, self.group, None, own))
                for name in {queue.broker_name for queue in await self.instance.routes.subscribe_queues(own.topic)}:
                    await self.instance.call(name, RequestCode.CHECK_CLIENT_CONFIG, None, body)

    async def close(self) -> None:
        """Finish the messages in the listeners, store the offsets, leave the group. The consumer cannot be started again.

        Messages that loops of other tasks have in hand are waited for, at most `release_timeout_s`. The last message of a
        loop of the calling task is delivered again; at the end of `async with` it counts as consumed.
        """
        if not self._lifecycle.begin_close():
            return
        await self._consumption.end_loops(is_clean=False)
        await self.rebalancing.stop()
        self._queues.ready.close()
        await self._queues.drop(list(self._queues.held))
        await self._consumption.close()
        await self._leave()

    def finish(self) -> None:
        """Take no further message, not even pulled ones; `close` must still be called. May be called by a listener."""
        self.rebalancing.is_finishing = True
        for work in self._queues.held.values():
            work.drop()

    # Requests of brokers (client/broker_requests)

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            message_model="BROADCASTING" if self._is_broadcasting else "CLUSTERING",
            consume_from_where=from_where(self._start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def _settings(self) -> dict[str, str]:
        workers = str(self._concurrency or 1)
        return {"PROP_CONSUMEORDERLY": str(self._is_ordered).lower(), "PROP_THREADPOOL_CORE_SIZE": workers}

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Give one message to the listener of its topic; offsets do not change. Raises LookupError without a listener."""
        topic = message.topic if message.topic in self._listeners else message.properties.get(RETRY_TOPIC, message.topic)
        listener = self._listeners.get(topic)
        if listener is None or listener is taken_by_loop:
            names = ", ".join(name for name, one in self._listeners.items() if one is not taken_by_loop) or "none"
            raise LookupError(f"this consumer has no listener for topic {topic}, only for {names}")
        began_s = time.monotonic()
        failure = await self._consumption.listen(message, topic, listener)
        spent_ms = int((time.monotonic() - began_s) * 1000)
        if failure is None:
            return ConsumeMessageDirectlyResult(CR_SUCCESS, spent_ms, order=self._is_ordered)
        remark = clipped(f"{type(failure).__name__}: {failure}", REMARK_SIZE_MAX)
        return ConsumeMessageDirectlyResult(CR_THROW_EXCEPTION, spent_ms, remark, order=self._is_ordered)


def _check(start: Start, ordered: bool, broadcast: bool, concurrency: int | None) -> None:
    check_start(start)
    if ordered and broadcast:
        raise ValueError("a broadcasting consumer cannot be ordered: queues are locked for one consumer of a group")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be 1 or more, not {concurrency}")

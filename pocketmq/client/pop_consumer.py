"""Pop consumer, for brokers of 5.x and PocketMQ's: the broker hands out each message to one client of the group for a time.

    async with PopConsumer("127.0.0.1:9876", "billing", start="first") as consumer:
        async for message in consumer: ...

No queue is allocated to a client, so a slow client does not delay the others. A message is acknowledged when it was
consumed; meanwhile its invisible time is prolonged. If it fails, or its client dies, the broker hands it out again.
"""

import asyncio
import logging
from typing import Final

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consume_rates import ConsumeRates
from pocketmq.client.consuming.consumer_options import DEFAULTS, ConsumerOptions
from pocketmq.client.consuming.consumption import Consumption
from pocketmq.client.consuming.held_queues import PAUSE_S, cancelled, from_where
from pocketmq.client.consuming.listening import Listening
from pocketmq.client.consuming.pop_source import Popped, PopSource
from pocketmq.client.consuming.popped import popped_messages
from pocketmq.client.consuming.subscription import is_wanted
from pocketmq.client.message import now_ms
from pocketmq.client.message_check import check_group
from pocketmq.remoting.bodies import ConsumerData, SubscriptionData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pop import PopMessageRequestHeader
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("client")

POLL_MS: Final = 15_000
ANSWER_S: Final = 10.0
"""Time for which the answer to a pop is awaited after its long polling."""
LOOK_FOR_BROKERS_S: Final = 20.0
ANY_QUEUE: Final = -1
INVISIBLE_MS: Final = 60_000
INVISIBLE_MIN_MS: Final = 5_000
POP_COUNT_MAX: Final = 32
_INIT_MODE: Final = {"first": 0, "last": 1}
_EMPTY: Final = (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class PopConsumer(Listening[Popped]):
    """A client of a popping group. `start` ("first" or "last") applies to a group without offsets."""

    def __init__(
        self,
        namesrv: str,
        group: str,
        start: str = "last",
        access: Access = PLAIN,
        *,
        concurrency: int = 1,
        invisible_ms: int = INVISIBLE_MS,
        options: ConsumerOptions = DEFAULTS,
    ) -> None:
        """`concurrency`: number of messages consumed at the same time. `invisible_ms`: time after which the messages of a
        client that died are handed out again.

        Of the options, `max_reconsume_times`, `pull_batch_size`, `auto_ack`, `release_timeout_s`, `hooks` and `trace`
        apply.
        """
        if start not in _INIT_MODE:
            raise ValueError(f"start must be 'first' or 'last', not {start!r}")
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        if invisible_ms < INVISIBLE_MIN_MS:
            raise ValueError(f"invisible_ms must be {INVISIBLE_MIN_MS} or more, not {invisible_ms}")
        check_group(group)
        super().__init__(ClientInstance(namesrv, access), group, options)
        self._start, self._concurrency, self._invisible_ms = start, concurrency, invisible_ms
        self._source = PopSource(self.instance, group, invisible_ms, options.max_reconsume_times)
        self._rates: dict[str, ConsumeRates] = {}
        self._consumption = Consumption[Popped](
            self._source, self._listeners, self._hooks, self._rates, concurrency, options.auto_ack
        )
        self._popping: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._failures = RefusalLog(log)  # by broker
        self.instance.consumer_data = self._consumer_data

    async def start(self) -> None:
        """Begin to pop. Raises RemotingError if a topic is unknown or a broker does not serve pops, else ConnectionError."""
        self._check_ready()
        for topic in self._listeners:
            self._rates[topic] = ConsumeRates()
            await self.instance.routes.refresh(topic)
        await self.instance.heartbeat()
        await self._check_brokers()
        await self._look_for_brokers()
        self._consumption.staff(self._concurrency)
        self._lifecycle.start()
        self.instance.start()
        self.instance.every(LOOK_FOR_BROKERS_S, self._look_for_brokers)
        self.instance.every(self._invisible_ms / 4000, self._source.renew)

    async def _check_brokers(self) -> None:
        """Raise RemotingError if a broker does not know pops."""
        for topic in self._listeners:
            for broker_name in await self._broker_names(topic):
                header = QueryConsumerOffsetRequestHeader(self.group, topic, 0)
                answer = await self.instance.invoke(broker_name, RequestCode.POLLING_INFO, header)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    remark = f"broker {broker_name!r} does not serve pops, which exist since 5.0: use PushConsumer"
                    raise RemotingError(answer.code, remark)

    async def _broker_names(self, topic: str) -> set[str]:
        return {queue.broker_name for queue in await self.instance.routes.subscribe_queues(topic)}

    async def close(self) -> None:
        """Finish the messages in hand and leave. Popped messages that were not taken come again soon.

        Messages that a pop under way brings come again after their invisible time.
        """
        if not self._lifecycle.begin_close():
            return
        await self._consumption.end_loops(is_clean=False)
        await cancelled(self._popping.values())
        await self._source.close(None if self._consumption.has_listeners else self._options.release_timeout_s)
        await self._consumption.close()
        await self._source.returned()
        await self._leave()

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_POP",
            consume_from_where=from_where(self._start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def _look_for_brokers(self) -> None:
        """Pop from every broker that has queues of a topic."""
        for topic in self._listeners:
            for broker_name in await self._broker_names(topic):
                if (topic, broker_name) not in self._popping:
                    self._popping[topic, broker_name] = asyncio.create_task(self._pop(topic, broker_name))

    async def _pop(self, topic: str, broker_name: str) -> None:
        while True:
            try:
                await self._source.room(max(self._concurrency, 2))
                await self._pop_once(topic, broker_name)
                self._failures.over(broker_name)
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                self._failures.refused(broker_name, f"popping from {topic} of broker {broker_name} failed: {failure}")
                await asyncio.sleep(PAUSE_S)

    async def _pop_once(self, topic: str, broker_name: str) -> None:
        own = self._subscriptions[topic]
        header = PopMessageRequestHeader(
            self.group,
            topic,
            ANY_QUEUE,
            min(self._options.pull_batch_size, POP_COUNT_MAX),
            self._invisible_ms,
            POLL_MS,
            born_time=now_ms(),
            init_mode=_INIT_MODE[self._start],
            exp_type=own.expression_type,
            exp=own.sub_string,
        )
        code, timeout_s = RequestCode.POP_MESSAGE, POLL_MS / 1000 + ANSWER_S
        answer = await self.instance.invoke(broker_name, code, header, timeout_s=timeout_s)
        if answer.code in _EMPTY:
            return
        if answer.code != ResponseCode.SUCCESS:
            remark = answer.remark or f"broker {broker_name!r} refused the pop with code {answer.code}"
            raise RemotingError(answer.code, remark)
        await self._take(topic, own, answer, broker_name)

    async def _take(self, topic: str, own: SubscriptionData, answer: RemotingCommand, broker_name: str) -> None:
        for message, handle in list(popped_messages(answer, broker_name)):
            message.topic = topic  # also of a message from the retry topic
            popped = Popped(topic, message, handle, self._invisible_ms)
            if is_wanted(own, message):
                self._source.add(popped)
            else:
                await self._source.succeeded(popped, message)

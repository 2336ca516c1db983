"""Subscriptions of consumers whose messages go to listeners, or to loops (`async for`)."""

from typing import Generic, Self, TypeVar

from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.consuming.consume_hook import Hooks
from pocketmq.client.consuming.consumer_options import ConsumerOptions
from pocketmq.client.consuming.consumption import Consumption, Listener, MessageLoop, ReconsumeLater, taken_by_loop
from pocketmq.client.consuming.subscription import subscription
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import MessageExt
from pocketmq.client.spans import IS_INSTALLED, SpanHook
from pocketmq.client.trace import TraceHook
from pocketmq.remoting.bodies import SubscriptionData

P = TypeVar("P")


class Listening(Generic[P]):
    """Base of push and pop consumers, whose `start` needs a subscription. `P` is the place of a message in its source."""

    _consumption: Consumption[P]

    def __init__(self, instance: ClientInstance, group: str, options: ConsumerOptions) -> None:
        self.instance, self.group, self._options = instance, group, options
        self._lifecycle = Lifecycle("the consumer")
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._listeners: dict[str, Listener] = {}
        self._trace = TraceHook(instance, group, options.trace) if options.trace else None
        hooks = list(options.hooks)
        if self._trace is not None:
            hooks.append(self._trace)
        if IS_INSTALLED:
            hooks.append(SpanHook())
        self._hooks = Hooks(group, instance.client_id, hooks)

    async def _leave(self) -> None:
        """Send the last trace records, leave the group and close all connections."""
        if self._trace is not None:
            await self._trace.writer.close()
        self._lifecycle.close()
        await self.instance.close(self.group)

    async def start(self) -> None:
        """Begin to receive messages."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._consumption.end_loops(is_clean=kind is None)
        await self.close()

    def subscribe(self, topic: str, listener: Listener = taken_by_loop, tags: str = "*", *, sql: str | None = None) -> None:
        """Call `listener` with each message of `topic` that has one of `tags` (`a || b`), or matches an SQL92 expression.

        Without a listener, `async for` takes the messages. Must be called before `start`. Raises TypeError or ValueError
        for invalid arguments, RuntimeError after `start`.
        """
        self._lifecycle.check_new("call subscribe() before start()")
        if not callable(listener):
            raise TypeError(f"listener must be callable with a message, not {type(listener).__name__}")
        if self._listeners and (taken_by_loop in self._listeners.values()) != (listener is taken_by_loop):
            raise ValueError("either all topics of a consumer have a listener, or none has")
        self._subscriptions[topic] = subscription(topic, tags, sql)
        self._listeners[topic] = listener

    def _check_ready(self) -> None:
        """Raise RuntimeError if the consumer is started, closed, or has no topic."""
        self._lifecycle.check_new("start() can be called once")
        if not self._listeners:
            raise RuntimeError("the consumer has no topic: call subscribe(topic, listener) before start()")

    def __aiter__(self) -> MessageLoop[P]:
        """Return an iterator over the messages of the topics. Several tasks may have one each, and share the messages.

        Iteration ends when the consumer is closed. Raises RuntimeError if the messages go to listeners.
        """
        return self._consumption.loop()

    async def ack(self, message: MessageExt) -> None:
        """Count a message from a loop as consumed. Without effect on one that was acknowledged, or has been given up."""
        await self._consumption.ack(message)

    async def nack(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have a message from a loop delivered again, as if a listener had raised ReconsumeLater(delay_level)."""
        await self._consumption.ack(message, ReconsumeLater(delay_level))

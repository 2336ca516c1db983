"""Synchronous facade of the asyncio client, for programs without an event loop.

    from pocketmq.sync import Producer, PushConsumer

    with Producer("127.0.0.1:9876", "orders") as producer:
        producer.send("TopicTest", b"hello", tag="a")

    consumer = PushConsumer("127.0.0.1:9876", "billing", start="first")
    consumer.subscribe("TopicTest")
    with consumer:
        for message in consumer: ...

The methods are those of the asyncio classes, with the same arguments, results and errors. A client has a thread with a loop
of its own, and may be used by several threads.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

from pocketmq.client import consumer
from pocketmq.client import producer as asynchronous
from pocketmq.client.access import PLAIN, Access
from pocketmq.client.consuming.consumer_options import ConsumerOptions
from pocketmq.client.consuming.consumption import Listener, taken_by_loop
from pocketmq.client.consuming.held_queues import Start
from pocketmq.client.loop_thread import LoopThread
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.message_check import MESSAGE_SIZE_MAX
from pocketmq.client.sending import request_reply
from pocketmq.client.sending.message_sender import SEND_TIMEOUT_S, Select
from pocketmq.client.sending.outgoing import COMPRESS_OVER, SendResult
from pocketmq.client.sending.transaction import Check, Transaction, TransactionState

__all__ = ["Producer", "PushConsumer", "SyncTransaction"]


T = TypeVar("T")


class SyncTransaction:
    """A transaction for `with`; see pocketmq.Transaction."""

    def __init__(self, thread: LoopThread, transaction: Transaction) -> None:
        self._thread, self._transaction = thread, transaction

    def __enter__(self) -> Self:
        self._thread.call(self._transaction.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.call(self._transaction.__aexit__(kind, error, trace))

    @property
    def result(self) -> SendResult:
        """Result of sending the half message."""
        return self._transaction.result

    @property
    def state(self) -> TransactionState | None:
        """Commit, rollback or unknown; None before the transaction is ended."""
        return self._transaction.state

    @property
    def is_confirmed(self) -> bool:
        """Whether the broker has carried out the commit or rollback."""
        return self._transaction.is_confirmed

    def commit(self) -> None:
        """Deliver the message."""
        self._thread.call(self._transaction.commit())

    def rollback(self) -> None:
        """Discard the message."""
        self._thread.call(self._transaction.rollback())

    def leave_open(self) -> None:
        """Decide later: the broker will ask `check`."""
        self._transaction.leave_open()


class Producer:
    """pocketmq.Producer for synchronous programs. `check` is called in a thread of a pool, so it may block."""

    def __init__(
        self,
        namesrv: str,
        group: str = "DEFAULT_PRODUCER",
        access: Access = PLAIN,
        message_size_max: int = MESSAGE_SIZE_MAX,
        *,
        check: Check | None = None,
        compress_over: int | None = COMPRESS_OVER,
        trace: bool | str = False,
        send_latency_fault: bool = False,
    ) -> None:
        """Connect to nothing yet; the arguments are those of pocketmq.Producer."""

        async def make() -> asynchronous.Producer:
            return asynchronous.Producer(
                namesrv, group, access, message_size_max, check=None if check is None else _in_thread(check),
                compress_over=compress_over, trace=trace, send_latency_fault=send_latency_fault,
            )  # fmt: skip

        self._thread, self._producer = _started("synchronous producer", make)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start sending heartbeats."""

        async def start() -> None:
            self._producer.start()

        self._thread.call(start())

    def close(self) -> None:
        """Close all connections and end the thread; a second call does nothing."""
        if self._thread.is_open:
            try:
                self._thread.call(self._producer.close())
            finally:
                self._thread.close()

    @overload
    def send(self, message: Message, /, *, select: Select | None = None, timeout_s: float = ...) -> SendResult: ...

    @overload
    def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        /,
        *,
        select: Select | None = None,
        timeout_s: float = ...,
        **fields: Unpack[asynchronous.MessageFields],
    ) -> SendResult: ...

    def send(self, what: Any, body: Any = None, /, **arguments: Any) -> SendResult:
        """Send a message, given as a Message or by topic, body and further fields."""
        return self._thread.call(self._producer.send(what, body, **arguments))

    def send_batch(
        self, messages: Sequence[Message], timeout_s: float = SEND_TIMEOUT_S, select: Select | None = None
    ) -> SendResult:
        """Send messages of one topic in one request."""
        return self._thread.call(self._producer.send_batch(messages, timeout_s, select))

    def send_all(self, messages: Iterable[Message], timeout_s: float = SEND_TIMEOUT_S) -> list[SendResult]:
        """Send messages of any topics and number."""
        return self._thread.call(self._producer.send_all(messages, timeout_s))

    def send_oneway(self, message: Message, select: Select | None = None) -> None:
        """Send without waiting for an answer."""
        self._thread.call(self._producer.send_oneway(message, select))

    def transaction(self, message: Message, timeout_s: float = SEND_TIMEOUT_S) -> SyncTransaction:
        """Return a transaction, for `with`."""
        return SyncTransaction(self._thread, self._producer.transaction(message, timeout_s))

    def request(
        self, message: Message, timeout_s: float = asynchronous.REQUEST_TIMEOUT_S, select: Select | None = None
    ) -> MessageExt:
        """Send a message and wait for the reply of its consumer."""
        return self._thread.call(self._producer.request(message, timeout_s, select))

    def reply(self, message: MessageExt, body: bytes, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Answer a request message; see pocketmq.reply."""
        return self._thread.call(request_reply.reply(self._producer, message, body, timeout_s))

    def recall(self, topic: str, recall_handle: str, timeout_s: float = SEND_TIMEOUT_S) -> str:
        """Recall a message that is not delivered yet."""
        return self._thread.call(self._producer.recall(topic, recall_handle, timeout_s))

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every broker, or change its number of queues."""
        self._thread.call(self._producer.create_topic(topic, queues))


class PushConsumer:
    """pocketmq.PushConsumer for synchronous programs. Listeners are called in threads of a pool, so they may block.

    Each thread that iterates has a loop of its own over the messages, as each task has with `async for`.
    """

    def __init__(
        self,
        namesrv: str,
        group: str,
        start: Start = "last",
        access: Access = PLAIN,
        **arguments: Unpack["ConsumerArguments"],
    ) -> None:
        """The arguments are those of pocketmq.PushConsumer."""

        async def make() -> consumer.PushConsumer:
            return consumer.PushConsumer(namesrv, group, start, access, **arguments)

        self._thread, self._consumer = _started("synchronous consumer", make)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._thread.call_in_own_task(self._consumer.__aexit__(kind, error, trace))
        finally:
            self._thread.close()

    def subscribe(self, topic: str, listener: Listener = taken_by_loop, tags: str = "*", *, sql: str | None = None) -> None:
        """Call `listener` with each message of a topic. Without a listener, iteration over the consumer takes them."""
        if callable(listener) and listener is not taken_by_loop:
            listener = _in_thread(listener)

        async def subscribe() -> None:
            self._consumer.subscribe(topic, listener, tags, sql=sql)

        self._thread.call(subscribe())

    def start(self) -> None:
        """Join the group."""
        self._thread.call(self._consumer.start())

    def close(self) -> None:
        """Leave the group and end the thread; a second call does nothing."""
        if self._thread.is_open:
            try:
                self._thread.call(self._consumer.close())
            finally:
                self._thread.close()

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield messages. Asking for the next one acknowledges the last one; iteration ends when the consumer is closed."""
        messages = aiter(self._consumer)

        async def next_message() -> MessageExt | None:
            return await anext(messages, None)

        while (message := self._thread.call_in_own_task(next_message())) is not None:
            yield message

    def ack(self, message: MessageExt) -> None:
        """Count a message from iteration as consumed."""
        self._thread.call(self._consumer.ack(message))

    def nack(self, message: MessageExt, delay_level: int = 0) -> None:
        """Have a message from iteration delivered again."""
        self._thread.call(self._consumer.nack(message, delay_level))


class ConsumerArguments(TypedDict, total=False):
    """Further arguments of a push consumer."""

    ordered: bool
    broadcast: bool
    concurrency: int | None
    options: ConsumerOptions


def _started(name: str, make: Callable[[], Coroutine[Any, Any, T]]) -> tuple[LoopThread, T]:
    """Return a thread with a loop, and the client that was made in it."""
    thread = LoopThread(name)
    try:
        return thread, thread.call(make())
    except BaseException:
        thread.close()
        raise


def _in_thread(callback: Callable[[MessageExt], Any]) -> Callable[[MessageExt], Coroutine[Any, Any, Any]]:
    """Return a callback that runs in a thread, so that it does not hold up the loop."""

    async def called(message: MessageExt) -> Any:
        outcome = await asyncio.to_thread(callback, message)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return called

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
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from pocketmq.client import consumer
from pocketmq.client import producer as asynchronous
from pocketmq.client.access import PLAIN, Access
from pocketmq.client.consuming.consumer_options import ConsumerOptions
from pocketmq.client.consuming.consumption import Listener, for_thread, taken_by_loop
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
P = ParamSpec("P")
C = TypeVar("C", asynchronous.Producer, consumer.PushConsumer)


def _called(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate["_Client[Any]", P], T]:
    """Return the synchronous method of an asynchronous one, with the same arguments, result and errors."""

    @functools.wraps(method)
    def called(self: "_Client[Any]", /, *arguments: P.args, **named: P.kwargs) -> T:
        return self._thread.call(method(self._client, *arguments, **named))

    return called


async def _in_loop(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function of the asynchronous client, which needs the running loop."""
    return work(*arguments, **named)


class _Client(Generic[C]):
    """An asynchronous client in a thread with a loop of its own."""

    def __init__(self, name: str, made: type[C], *arguments: Any, **named: Any) -> None:
        self._thread = LoopThread(name)
        try:
            self._client: C = self._thread.call(_in_loop(made, *arguments, **named))
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Begin to work."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the cluster, close all connections and end the thread; a second call does nothing."""
        if self._thread.is_open:
            try:
                self._thread.call(self._client.close())
            finally:
                self._thread.close()


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


class Producer(_Client[asynchronous.Producer]):
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
        checked = None if check is None else _in_thread(check)
        super().__init__(
            "synchronous producer", asynchronous.Producer, namesrv, group, access, message_size_max, check=checked,
            compress_over=compress_over, trace=trace, send_latency_fault=send_latency_fault,
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start sending heartbeats."""
        self._thread.call(_in_loop(self._client.start))

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
        return self._thread.call(self._client.send(what, body, **arguments))

    send_batch = _called(asynchronous.Producer.send_batch)
    send_all = _called(asynchronous.Producer.send_all)
    send_oneway = _called(asynchronous.Producer.send_oneway)
    request = _called(asynchronous.Producer.request)
    recall = _called(asynchronous.Producer.recall)
    create_topic = _called(asynchronous.Producer.create_topic)

    def transaction(self, message: Message, timeout_s: float = SEND_TIMEOUT_S) -> SyncTransaction:
        """Return a transaction, for `with`."""
        return SyncTransaction(self._thread, self._client.transaction(message, timeout_s))

    def reply(self, message: MessageExt, body: bytes, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Answer a request message; see pocketmq.reply."""
        return self._thread.call(request_reply.reply(self._client, message, body, timeout_s))


class PushConsumer(_Client[consumer.PushConsumer]):
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
        super().__init__("synchronous consumer", consumer.PushConsumer, namesrv, group, start, access, **arguments)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._thread.call(for_thread(threading.get_ident(), self._client.__aexit__(kind, error, trace)))
        finally:
            self._thread.close()

    def subscribe(self, topic: str, listener: Listener = taken_by_loop, tags: str = "*", *, sql: str | None = None) -> None:
        """Call `listener` with each message of a topic. Without a listener, iteration over the consumer takes them."""
        if callable(listener) and listener is not taken_by_loop:
            listener = _in_thread(listener)
        self._thread.call(_in_loop(self._client.subscribe, topic, listener, tags, sql=sql))

    start = _called(consumer.PushConsumer.start)
    ack = _called(consumer.PushConsumer.ack)
    nack = _called(consumer.PushConsumer.nack)

    def __iter__(self) -> Iterator[MessageExt]:
        """Yield messages. Asking for the next one acknowledges the last one; iteration ends when the consumer is closed."""
        messages = aiter(self._client)

        async def next_message() -> MessageExt | None:
            return await anext(messages, None)

        while (message := self._thread.call(for_thread(threading.get_ident(), next_message()))) is not None:
            yield message


class ConsumerArguments(TypedDict, total=False):
    """Further arguments of a push consumer."""

    ordered: bool
    broadcast: bool
    concurrency: int | None
    options: ConsumerOptions


def _in_thread(callback: Callable[[MessageExt], Any]) -> Callable[[MessageExt], Coroutine[Any, Any, Any]]:
    """Return a callback that runs in a thread, so that it does not hold up the loop."""

    async def called(message: MessageExt) -> Any:
        outcome = await asyncio.to_thread(callback, message)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return called

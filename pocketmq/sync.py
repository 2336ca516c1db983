"""Synchronous facade of the asyncio client, for programs without an event loop.

    from pocketmq.sync import Producer

    with Producer("127.0.0.1:9876", "orders") as producer:
        producer.send("TopicTest", b"hello", tag="a")

The methods are those of the asyncio classes, with the same arguments, results and errors. A client has a thread with a loop
of its own, and may be used by several threads.
"""

import asyncio
import inspect
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack, overload

from pocketmq.client import producer as asynchronous
from pocketmq.client.access import PLAIN, Access
from pocketmq.client.loop_thread import LoopThread
from pocketmq.client.message import Message, MessageExt
from pocketmq.client.message_check import MESSAGE_SIZE_MAX
from pocketmq.client.sending import request_reply
from pocketmq.client.sending.message_sender import SEND_TIMEOUT_S, Select
from pocketmq.client.sending.outgoing import COMPRESS_OVER, SendResult
from pocketmq.client.sending.transaction import Check, Transaction, TransactionState

__all__ = ["Producer", "SyncTransaction"]


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

        self._thread = LoopThread("synchronous producer")
        try:
            self._producer = self._thread.call(make())
        except BaseException:
            self._thread.close()
            raise

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


def _in_thread(check: Check) -> Check:
    """Return a check that runs in a thread, so that it does not hold up the loop."""

    async def checked(message: MessageExt) -> TransactionState:
        outcome = await asyncio.to_thread(check, message)
        return await outcome if inspect.isawaitable(outcome) else outcome

    return checked

"""Producer: sends messages of any topic, alone or in batches, in transactions, or waiting for a reply; and recalls them.

    async with Producer("127.0.0.1:9876", "orders") as producer:
        await producer.send("TopicTest", b"hello", tag="a", keys="order-7", delay=30)
        await producer.send(Message("TopicTest", b"hello", tags="a", delay_level=3))

docs/python-client.md describes the features, client/sending implements them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypedDict, Unpack, overload

from pocketmq.client import spans
from pocketmq.client.access import PLAIN, Access
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import Message, MessageExt, now_ms
from pocketmq.client.message_check import MESSAGE_SIZE_MAX, check_group, check_topic
from pocketmq.client.route import DEFAULT_TOPIC, READ, WRITE
from pocketmq.client.sending import request_reply
from pocketmq.client.sending.message_sender import SEND_TIMEOUT_S, LatencyFaultTolerance, MessageSender, Select
from pocketmq.client.sending.outgoing import (
    COMPRESS_OVER,
    BatchError,
    SendResult,
    checked,
    is_delayed,
    outgoing,
    outgoing_batch,
    split,
)
from pocketmq.client.sending.transaction import PGROUP, TRAN_MSG, Check, Transaction, TransactionChecker
from pocketmq.client.trace import DELAYED, HALF, NORMAL, TRACE_TOPIC, TraceWriter, pub
from pocketmq.errors import MQError
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.recall_handle import decode_recall_handle
from pocketmq.remoting.headers.delay import RecallMessageRequestHeader, RecallMessageResponseHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from pocketmq.store.format.message import TRANSACTION_PREPARED_TYPE

REQUEST_TIMEOUT_S: Final = 5.0


class MessageFields(TypedDict, total=False):
    """Fields of a message besides topic and body. `tag` is `tags` of Message; the others have the same names."""

    tag: str | None
    keys: str | Sequence[str] | None
    properties: dict[str, str]
    delay: float | timedelta | None
    deliver_at: float | datetime | None
    delay_level: int
    flag: int


class Producer:
    """Sends to any topic. Without `select` it uses queues in turn, and another broker after a failure."""

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
        """Set up a producer; it is started by `async with`.

        `message_size_max`: maximum bytes of a body; should match the brokers' `maxMessageSize`. `check`: answers brokers
        that ask about a transaction. `compress_over`: size from which on a body is compressed; None: never. `trace`: True,
        or the trace topic, to send message traces. `send_latency_fault`: avoid brokers that failed or were slow for a while
        (sendLatencyFaultEnable).
        """
        check_group(group)
        self.instance = ClientInstance(namesrv, access)
        self.instance.producer_group = self.group = group
        self._checker = self.instance.checker = None if check is None else TransactionChecker(group, check)
        self._message_size_max, self._compress_over = message_size_max, compress_over
        self._lifecycle = Lifecycle("the producer")
        tolerance = LatencyFaultTolerance() if send_latency_fault else None
        self._sender = MessageSender(self.instance, group, self._lifecycle.check_started, tolerance)
        self._trace = TraceWriter(self.instance, group, TRACE_TOPIC if trace is True else trace) if trace else None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Start sending heartbeats. Raises RuntimeError if it was started or closed before."""
        self._lifecycle.start()
        self.instance.start()

    async def close(self) -> None:
        """Unregister and close all connections. A closed producer cannot be started again.

        Running checks of transactions are finished, and trace records sent; other pending calls fail.
        """
        if not self._lifecycle.close():
            return
        for waiting in self.instance.replies.values():
            if not waiting.done():
                waiting.set_exception(ChannelClosed("the producer was closed before the reply came"))
        if self._checker is not None:
            await self._checker.close()
        if self._trace is not None:
            await self._trace.close()
        await self.instance.close()

    @overload
    async def send(self, message: Message, /, *, select: Select | None = None, timeout_s: float = ...) -> SendResult: ...

    @overload
    async def send(self, message: Message, select: Select | None, timeout_s: float = ..., /) -> SendResult: ...

    @overload
    async def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
        /,
        *,
        select: Select | None = None,
        timeout_s: float = ...,
        **fields: Unpack[MessageFields],
    ) -> SendResult: ...

    async def send(
        self,
        what: Any,
        second: Any = None,
        timeout_s: float = SEND_TIMEOUT_S,
        *,
        select: Select | None = None,
        **fields: Any,
    ) -> SendResult:
        """Send a message, given as a Message or by topic, body and further fields, and wait until it is stored.

        With `select` (ordered messages) only the selected queue is tried. Raises TypeError or ValueError for an invalid
        message, RuntimeError before `start` or after `close`, RemotingError with the broker's code and remark, or another
        MQError if no broker could be reached.
        """
        self._lifecycle.check_started()
        if callable(second):
            second, select = None, second
        message = message_of(what, second, fields)
        began_ms = now_ms()
        with spans.sending(self.group, [message]) as ((message,), span):
            out = outgoing(message, self._message_size_max, self._compress_over)
            result = await self._sender.send(out, select, timeout_s)
            spans.sent(span, result.msg_id)
        self._add_trace(message, result, began_ms)
        return result

    async def send_batch(
        self, messages: Sequence[Message], timeout_s: float = SEND_TIMEOUT_S, select: Select | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: either all are stored, in sequence, or none. Their ids are joined by
        `,`.

        Raises ValueError for an empty batch, several topics, or a delay (brokers do not schedule members), else as `send`.
        """
        self._lifecycle.check_started()
        began_ms = now_ms()
        with spans.sending(self.group, messages) as (messages, _):
            result = await self._sender.send(outgoing_batch(messages, self._message_size_max), select, timeout_s)
        for message, msg_id, offset_msg_id in zip(
            messages, result.msg_id.split(","), result.offset_msg_id.split(","), strict=False
        ):
            one = SendResult(result.status, msg_id, offset_msg_id, result.queue, result.queue_offset)
            self._add_trace(message, one, began_ms)
        return result

    async def send_all(self, messages: Iterable[Message], timeout_s: float = SEND_TIMEOUT_S) -> list[SendResult]:
        """Send messages of any topics and number, in as many batches as needed; return their results.

        Nothing is sent if one message is invalid (TypeError, ValueError). Raises BatchError if a batch fails: the earlier
        ones are stored.
        """
        self._lifecycle.check_started()
        batches, results = list(split(messages, self._message_size_max)), list[SendResult]()
        for number, batch in enumerate(batches):
            try:
                alone = self.send(batch[0], timeout_s=timeout_s) if len(batch) == 1 else None
                results.append(await (alone or self.send_batch(batch, timeout_s)))
            except (MQError, OSError) as failure:
                unsent = [message for rest in batches[number:] for message in rest]
                raise BatchError(failure, results, unsent) from failure
        return results

    async def send_oneway(self, message: Message, select: Select | None = None) -> None:
        """Send without waiting for an answer. Raises as `send` for failures before the broker has the message."""
        self._lifecycle.check_started()
        with spans.sending(self.group, [message]) as ((message,), _):
            await self._sender.send_oneway(outgoing(message, self._message_size_max, self._compress_over), select)

    def transaction(self, message: Message, timeout_s: float = SEND_TIMEOUT_S) -> Transaction:
        """Return a transaction, for `async with`: it sends the message as a half message, and commits or rolls it back.

        Raises RuntimeError if the producer has no `check`, ValueError for a delayed message.
        """
        self._lifecycle.check_started()
        if self._checker is None:
            raise RuntimeError("this producer cannot answer for its transactions: create it with check=")
        if is_delayed(checked(message).all_properties()):
            raise ValueError("a message of a transaction cannot be delayed")
        added = {TRAN_MSG: "true", PGROUP: self.group}
        half = outgoing(
            spans.carrying(message), self._message_size_max, self._compress_over, added, TRANSACTION_PREPARED_TYPE
        )
        began_ms = now_ms()
        return Transaction(self._sender, half, timeout_s, lambda result: self._add_trace(message, result, began_ms, HALF))

    async def request(
        self, message: Message, timeout_s: float = REQUEST_TIMEOUT_S, select: Select | None = None
    ) -> MessageExt:
        """Send a message and wait for the reply of its consumer. Raises RequestTimeout if none came in time, else as
        `send`."""
        self._lifecycle.check_started()
        with spans.sending(self.group, [message]) as ((message,), _):
            return await request_reply.request(self._sender, message, self._message_size_max, timeout_s, select)

    async def recall(self, topic: str, recall_handle: str, timeout_s: float = SEND_TIMEOUT_S) -> str:
        """Recall a message that is not delivered yet; return its unique key. Raises RemotingError if it is too late."""
        self._lifecycle.check_started()
        check_topic(topic)
        try:
            broker_name = decode_recall_handle(recall_handle).broker_name
        except (ValueError, TypeError):
            raise ValueError(f"recall_handle {recall_handle!r} is invalid: use that of a SendResult") from None
        await self.instance.routes.route(topic)
        header = RecallMessageRequestHeader(topic, recall_handle, self.group)
        answer = await self.instance.call(broker_name, RequestCode.RECALL_MESSAGE, header, b"", timeout_s)
        return answer.header(RecallMessageResponseHeader).msg_id

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every broker with autoCreateTopicEnable, or change its number of queues. Raises as `send`."""
        self._lifecycle.check_started()
        check_topic(topic)
        if not isinstance(queues, int) or queues < 1:
            raise ValueError(f"queues must be 1 or more, not {queues!r}")
        header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, READ | WRITE, "SINGLE_TAG")
        await self.instance.routes.refresh(DEFAULT_TOPIC)
        for broker_name in self.instance.routes.masters():
            await self.instance.call(broker_name, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def _add_trace(self, message: Message, result: SendResult, began_ms: int, kind: int | None = None) -> None:
        if self._trace is None or not result.is_traced:
            return
        if kind is None:
            kind = DELAYED if is_delayed(message.all_properties()) else NORMAL
        try:
            address = self.instance.routes.master(result.queue.broker_name).address
        except RemotingError:  # it has left the route meanwhile
            address = ""
        self._trace.add(pub(self.group, message, result, address, began_ms, now_ms() - began_ms, kind))


def message_of(what: Any, body: Any, fields: dict[str, Any]) -> Message:
    """Return the message given to `send`. Raises TypeError for fields beside a Message."""
    if not isinstance(what, str):
        if body is not None or fields:
            raise TypeError("send(Message(...)) takes no further fields of the message: set them in Message(...)")
        return checked(what)
    tag = fields.pop("tag", None)
    return Message(what, body, tag, **fields)

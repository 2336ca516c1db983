"""Producer: sends messages, batches and recalls.

async with Producer("127.0.0.1:9876", "orders") as producer:
    await producer.send(Message("TopicTest", b"hello", tags="a", delay_level=3))
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import msgspec

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.client_instance import ClientInstance
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.message import Message, encode_batch, encode_properties, now_ms
from pocketmq.client.message_check import MESSAGE_SIZE_MAX, check_group, check_topic
from pocketmq.client.route import DEFAULT_TOPIC, READ, WRITE
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.recall_handle import decode_recall_handle
from pocketmq.remoting.headers.delay import RecallMessageRequestHeader, RecallMessageResponseHeader
from pocketmq.remoting.headers.send import (
    RecallableSendMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader
from pocketmq.store.format.properties import DELAY, UNIQ_KEY

RETRIES: Final = 2
SEND_TIMEOUT_S: Final = 3.0
DEFAULT_TOPIC_QUEUE_NUMS: Final = 4

STORED = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
"""Answers that mean that the message is in the log, with the send status for each."""
WORTH_ANOTHER_BROKER = {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
}


class SendResult(msgspec.Struct):
    """Result of a send. `status` is SEND_OK, or names the guarantee that was not met when the broker answered."""

    status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str | None = None
    """Handle to recall a message with an arbitrary delay (TIMER_DELAY_MS and such), not with a delay level."""


Select = Callable[[Sequence[MessageQueue]], MessageQueue]


class Producer:
    """Sends to any topic. Without `select` it uses queues in turn, and another broker after a failure."""

    def __init__(
        self,
        namesrv: str,
        group: str = "DEFAULT_PRODUCER",
        access: Access = PLAIN,
        message_size_max: int = MESSAGE_SIZE_MAX,
    ) -> None:
        """`message_size_max`: maximum bytes of a body; should match the brokers' `maxMessageSize`."""
        check_group(group)
        self.instance = ClientInstance(namesrv, access)
        self.instance.producer_group = self.group = group
        self._message_size_max = message_size_max
        self._lifecycle = Lifecycle("the producer")
        self._turn = itertools.count()

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
        """Unregister and close all connections. A closed producer cannot be started again."""
        if self._lifecycle.close():
            await self.instance.close()

    async def send(self, message: Message, select: Select | None = None, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Send a message and wait until it is stored. With `select` (ordered messages) only the selected queue is tried.

        Raises TypeError or ValueError for an invalid message, RuntimeError before `start` or after `close`, RemotingError
        with the broker's code and remark, OSError or TimeoutError if no broker could be reached.
        """
        self._lifecycle.check_started()
        body = _checked(message).checked_body(self._message_size_max)
        properties = message.all_properties()
        text = encode_properties(properties)
        return await self._send(message.topic, body, text, properties[UNIQ_KEY], message.flag, select, timeout_s)

    async def send_batch(self, messages: Sequence[Message], timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Send messages of one topic in one request: either all are stored, in sequence, or none. Their ids are joined by
        `,`.

        Raises ValueError for an empty batch, several topics, or a delay (brokers do not schedule members), else as `send`.
        """
        self._lifecycle.check_started()
        topics = {_checked(message).topic for message in messages}
        if len(topics) != 1:
            raise ValueError(f"a batch must have messages of exactly one topic, not {sorted(topics) or 'none'}")
        rows = [message.all_properties() for message in messages]
        if any(DELAY in row for row in rows):
            raise ValueError("a message in a batch cannot be delayed")
        body = encode_batch(messages, rows, self._message_size_max)
        ids = ",".join(row[UNIQ_KEY] for row in rows)
        return await self._send(topics.pop(), body, "", ids, 0, None, timeout_s, batch=True)

    async def send_oneway(self, message: Message, select: Select | None = None) -> None:
        """Send without waiting for an answer. Raises as `send` for failures before the broker has the message."""
        self._lifecycle.check_started()
        body = _checked(message).checked_body(self._message_size_max)
        text = encode_properties(message.all_properties())
        queue = await self._choose(message.topic, select, avoid=None)
        header = self._header(message.topic, text, message.flag, queue)
        address = await self.instance.connect(queue.broker_name)
        await self.instance.remoting.invoke_oneway(address, RequestCode.SEND_MESSAGE_V2, header, body)

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

    async def _send(
        self,
        topic: str,
        body: bytes,
        properties: str,
        msg_id: str,
        flag: int,
        select: Select | None,
        timeout_s: float,
        batch: bool = False,
    ) -> SendResult:
        avoid: str | None = None
        tries_left = RETRIES if select is None else 0
        while True:
            self._lifecycle.check_started()  # it may have been closed between two attempts
            queue = await self._choose(topic, select, avoid)
            header = self._header(topic, properties, flag, queue, batch)
            try:
                code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
                answer = await self.instance.invoke(queue.broker_name, code, header, body, timeout_s)
                if answer.code in STORED:
                    return await self._result(answer, msg_id, queue)
                remark = answer.remark or f"broker {queue.broker_name!r} refused the message with code {answer.code}"
                raise RemotingError(answer.code, remark)
            except (OSError, TimeoutError, RemotingError) as failure:
                final = isinstance(failure, RemotingError) and failure.code not in WORTH_ANOTHER_BROKER
                if final or tries_left == 0:
                    raise
            tries_left -= 1
            avoid = queue.broker_name
            if topic in self.instance.routes.topics:
                with contextlib.suppress(OSError):  # the known route may have another broker
                    await self.instance.routes.refresh(topic)

    async def _result(self, answer: RemotingCommand, msg_id: str, queue: MessageQueue) -> SendResult:
        stored = answer.header(RecallableSendMessageResponseHeader)
        if queue.topic not in self.instance.routes.topics:  # it was just created
            await self._learn_route(queue.topic)
        placed = MessageQueue(queue.broker_name, stored.queue_id, queue.topic)
        status = STORED[ResponseCode(answer.code)]
        return SendResult(status, msg_id, stored.msg_id, placed, stored.queue_offset, stored.recall_handle)

    async def _learn_route(self, topic: str) -> None:
        try:
            await self.instance.routes.refresh(topic)
        except RemotingError as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise

    async def _choose(self, topic: str, select: Select | None, avoid: str | None) -> MessageQueue:
        queues = await self.instance.routes.publish_queues(topic)
        if not queues and topic in self.instance.routes.topics:  # a master may have come back
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
        return others[next(self._turn) % len(others)]

    def _header(
        self, topic: str, properties: str, flag: int, queue: MessageQueue, batch: bool = False
    ) -> SendMessageRequestHeader:
        about = {"default_topic_queue_nums": DEFAULT_TOPIC_QUEUE_NUMS, "reconsume_times": 0, "batch": batch}
        return send_header(self.group, topic, queue, properties, flag, **about)


def send_header(
    group: str, topic: str, queue: MessageQueue, properties: str, flag: int, sys_flag: int = 0, **about: Any
) -> SendMessageRequestHeader:
    """Return the header of a send to a queue, now. `about`: further fields."""
    return SendMessageRequestHeaderV2(
        producer_group=group,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp=now_ms(),
        flag=flag,
        properties=properties,
        **about,
    )


def _checked(message: Message) -> Message:
    if not isinstance(message, Message):
        raise TypeError(f"message must be a client.message.Message, not {type(message).__name__}")
    return message

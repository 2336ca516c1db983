"""Sending.

async with Producer("127.0.0.1:9876", "orders") as producer:
    await producer.send(Message("TopicTest", b"hello", tags="a", delay_level=3))
"""

import base64
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from client.access import PLAIN, Access
from client.client_instance import ClientInstance
from client.message import DELAY, UNIQ_KEY, Message, encode_batch, encode_properties
from client.route import DEFAULT_TOPIC, READ, WRITE
from remoting.bodies import MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.dispatch import RemotingError
from remoting.headers.delay import RecallMessageRequestHeader, RecallMessageResponseHeader
from remoting.headers.send import RecallableSendMessageResponseHeader, SendMessageRequestHeader, SendMessageRequestHeaderV2
from remoting.headers.topic import CreateTopicRequestHeader

RETRIES: Final = 2
SEND_TIMEOUT_S: Final = 3.0
DEFAULT_TOPIC_QUEUE_NUMS: Final = 4

STORED = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
"""Answers after which the message is in the log, with the status that tells how safely."""
WORTH_ANOTHER_BROKER = {
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
}


class SendResult(msgspec.Struct):
    """Where a message went. `status` is SEND_OK, or what was not yet sure when the broker answered."""

    status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str | None = None
    """With it a message that is due later (TIMER_DELAY_MS and the like, not a delay level) can be taken back."""


Select = Callable[[Sequence[MessageQueue]], MessageQueue]


class Producer:
    """Sends to any topic. Without `select` it takes queues in turn and another broker after a failure."""

    def __init__(self, namesrv: str, group: str = "DEFAULT_PRODUCER", access: Access = PLAIN) -> None:
        self.instance = ClientInstance(namesrv, access)
        self.instance.producer_group = self.group = group
        self._turn = itertools.count()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        self.instance.start()

    async def close(self) -> None:
        await self.instance.close()

    async def send(self, message: Message, select: Select | None = None, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Send and wait until it is stored. With `select` (ordered messages) only the queue chosen is tried.

        Raises RemotingError with the broker's code and remark, OSError or TimeoutError when none could be reached.
        """
        properties = message.all_properties()
        text = encode_properties(properties)
        return await self._send(message.topic, message.body, text, properties[UNIQ_KEY], message.flag, select, timeout_s)

    async def send_batch(self, messages: Sequence[Message], timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
        """Send messages of one topic as one request: all are stored, one behind the other, or none. Ids are joined by `,`.

        Raises ValueError for an empty batch, several topics, or a delay (brokers do not schedule members).
        """
        topics = {message.topic for message in messages}
        if len(topics) != 1:
            raise ValueError(f"a batch has messages of one topic, not {sorted(topics) or 'none'}")
        rows = [message.all_properties() for message in messages]
        if any(DELAY in row for row in rows):
            raise ValueError("a message of a batch cannot be delayed")
        ids = ",".join(row[UNIQ_KEY] for row in rows)
        return await self._send(topics.pop(), encode_batch(messages, rows), "", ids, 0, None, timeout_s, batch=True)

    async def send_oneway(self, message: Message, select: Select | None = None) -> None:
        """Send without asking how it went."""
        queue = await self._choose(message.topic, select, avoid=None)
        header = self._header(message.topic, encode_properties(message.all_properties()), message.flag, queue, False)
        address = self.instance.routes.address(queue.broker_name)
        await self.instance.remoting.invoke_oneway(address, RequestCode.SEND_MESSAGE_V2, header, message.body)

    async def recall(self, topic: str, recall_handle: str, timeout_s: float = SEND_TIMEOUT_S) -> str:
        """Take back a message that is not delivered yet; its unique key. Raises RemotingError when it is too late."""
        try:
            broker_name = base64.urlsafe_b64decode(recall_handle + "=" * (-len(recall_handle) % 4)).decode().split(" ")[2]
        except (ValueError, IndexError):
            raise ValueError(f"{recall_handle!r} is no recall handle") from None
        await self.instance.routes.route(topic)
        address = self.instance.routes.address(broker_name)
        header = RecallMessageRequestHeader(topic, recall_handle, self.group)
        answer = await self.instance.remoting.call(address, RequestCode.RECALL_MESSAGE, header, b"", timeout_s)
        return answer.header(RecallMessageResponseHeader).msg_id

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic on every broker that takes new ones, or change its number of queues. Raises as `send` does."""
        header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, READ | WRITE, "SINGLE_TAG")
        await self.instance.routes.refresh(DEFAULT_TOPIC)
        for address in self.instance.routes.broker_addresses():
            await self.instance.remoting.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

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
            queue = await self._choose(topic, select, avoid)
            header = self._header(topic, properties, flag, queue, batch)
            try:
                address = self.instance.routes.address(queue.broker_name)
                code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
                answer = await self.instance.remoting.invoke(address, code, header, body, timeout_s)
                if answer.code in STORED:
                    return await self._result(answer, msg_id, queue)
                raise RemotingError(answer.code, answer.remark or f"{address} refused the message with {answer.code}")
            except (OSError, TimeoutError, RemotingError) as failure:
                final = isinstance(failure, RemotingError) and failure.code not in WORTH_ANOTHER_BROKER
                if final or tries_left == 0:
                    raise
            tries_left -= 1
            avoid = queue.broker_name
            if topic in self.instance.routes.topics:
                await self.instance.routes.refresh(topic)

    async def _result(self, answer: RemotingCommand, msg_id: str, queue: MessageQueue) -> SendResult:
        stored = answer.header(RecallableSendMessageResponseHeader)
        if queue.topic not in self.instance.routes.topics:  # it was made just now
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
        if not queues:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"topic {topic!r} has no queue that may be written")
        if select is not None:
            return select(queues)
        others = [queue for queue in queues if queue.broker_name != avoid] or queues
        return others[next(self._turn) % len(others)]

    def _header(self, topic: str, properties: str, flag: int, queue: MessageQueue, batch: bool) -> SendMessageRequestHeader:
        return SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUE_NUMS,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=flag,
            properties=properties,
            reconsume_times=0,
            batch=batch,
        )

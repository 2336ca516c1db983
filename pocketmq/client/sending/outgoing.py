"""A message, or a batch, ready to be sent: the checked and encoded parts of its request; and the result of its send.

`split` divides messages of any topics and size into batches that brokers accept.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pocketmq.client.delivery_time import TIMED
from pocketmq.client.message import Message, encode_batch, encode_properties, now_ms
from pocketmq.client.route import DEFAULT_TOPIC
from pocketmq.errors import MQError
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.properties import DELAY, UNIQ_KEY

STORED: Final = {
    ResponseCode.SUCCESS: "SEND_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
"""Answers that mean that the message is in the log, with the send status for each."""
COMPRESS_OVER: Final = 4096
"""Size of a body from which on it is compressed, as in Apache's clients."""
_COMPRESS_LEVEL: Final = 5
_NO_PROPERTIES: Final[Mapping[str, str]] = {}
BATCH_SIZE_MAX: Final = 1024 * 1024
"""Size of a batch above which the next one begins; a larger message is sent alone."""
_RECORD_SIZE: Final = 128
"""Size of a stored message without topic, body and properties, generously: brokers limit the stored size of a batch."""


class SendResult(msgspec.Struct):
    """Result of a send. `status` is SEND_OK, or names the guarantee that was not met when the broker answered."""

    status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int
    recall_handle: str | None = None
    """Handle to recall a message with an arbitrary delay (delay=, TIMER_DELAY_MS and such), not with a delay level."""
    region_id: str = "DefaultRegion"
    is_traced: bool = True
    """Whether the broker wants the message to be traced by clients that do so."""


class Outgoing(msgspec.Struct):
    """The parts of a send that are the same for every queue and attempt. `msg_id`: of a batch the ids joined by `,`."""

    topic: str
    body: bytes
    properties: str
    msg_id: str
    flag: int = 0
    sys_flag: int = 0
    code: int = RequestCode.SEND_MESSAGE_V2
    needs_timer: bool = False
    """Whether it has `delay` or `deliver_at`, which not all brokers know."""

    def header(self, group: str, queue: MessageQueue) -> SendMessageRequestHeader:
        """Return the header of the request to a queue."""
        about = {"default_topic_queue_nums": 4, "reconsume_times": 0, "batch": self.code == RequestCode.SEND_BATCH_MESSAGE}
        return send_header(group, self.topic, queue, self.properties, self.flag, self.sys_flag, **about)


def outgoing(
    message: Message,
    size_max: int,
    compress_over: int | None = None,
    added: Mapping[str, str] = _NO_PROPERTIES,
    sys_flag: int = 0,
) -> Outgoing:
    """Encode a message. `added`: properties reserved for clients. Raises TypeError or ValueError for an invalid message."""
    body = checked(message).checked_body(size_max)
    properties = message.all_properties()
    text = encode_properties({**properties, **added})
    if compress_over is not None and len(body) >= compress_over:
        small = zlib.compress(body, _COMPRESS_LEVEL)
        if len(small) < len(body):
            body, sys_flag = small, sys_flag | COMPRESSED_FLAG
    needs_timer = message.delay is not None or message.deliver_at is not None
    return Outgoing(message.topic, body, text, properties[UNIQ_KEY], message.flag, sys_flag, needs_timer=needs_timer)


def outgoing_batch(messages: Sequence[Message], size_max: int) -> Outgoing:
    """Encode a batch; its members are not compressed, as in Apache's clients. Raises TypeError or ValueError."""
    topics = {checked(message).topic for message in messages}
    if len(topics) != 1:
        raise ValueError(f"a batch must have messages of exactly one topic, not {sorted(topics) or 'none'}")
    rows = [message.all_properties() for message in messages]
    if any(is_delayed(row) for row in rows):
        raise ValueError("a message in a batch cannot be delayed")
    body = encode_batch(messages, rows, size_max)
    ids = ",".join(row[UNIQ_KEY] for row in rows)
    return Outgoing(topics.pop(), body, "", ids, code=RequestCode.SEND_BATCH_MESSAGE)


def is_delayed(properties: Mapping[str, str]) -> bool:
    """Return whether a message with these properties is delivered later."""
    return DELAY in properties or not TIMED.isdisjoint(properties)


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


def checked(message: Message) -> Message:
    """Return the message. Raises TypeError for anything else."""
    if not isinstance(message, Message):
        raise TypeError(f"message must be a pocketmq.Message, not {type(message).__name__}")
    return message


# --- batches of any number of messages -----------------------------------------------------------------------------


class BatchError(MQError):
    """A part of the messages is sent: `results` of the batches before the failure, and the messages in `unsent`.

    The first messages of `unsent` may be stored as well if no answer came. The failure is `__cause__`.
    """

    def __init__(self, failure: BaseException, results: list[SendResult], unsent: list[Message]) -> None:
        super().__init__(f"{len(unsent)} messages are not sent: {failure or type(failure).__name__}")
        self.results, self.unsent = results, unsent


def split(messages: Iterable[Message], size_max: int) -> Iterator[Sequence[Message]]:
    """Yield the messages in batches of one topic, each in sequence; delayed messages, which fit no batch, one by one.

    Raises TypeError or ValueError for an invalid message, before the first batch.
    """
    limit = min(size_max, BATCH_SIZE_MAX)
    by_topic: dict[str, list[tuple[Message, int, bool]]] = {}
    for message in messages:
        body = checked(message).checked_body(size_max)
        properties = message.all_properties()
        size = _RECORD_SIZE + len(message.topic) + len(body) + len(encode_properties(properties).encode())
        by_topic.setdefault(message.topic, []).append((message, size, is_delayed(properties)))
    return _batches(by_topic.values(), limit)


def _batches(topics: Iterable[list[tuple[Message, int, bool]]], limit: int) -> Iterator[Sequence[Message]]:
    for rows in topics:
        batch: list[Message] = []
        batch_size = 0
        for message, size, is_alone in rows:
            if batch and (is_alone or batch_size + size > limit):
                yield batch
                batch, batch_size = [], 0
            batch.append(message)
            batch_size += limit if is_alone else size
        if batch:
            yield batch

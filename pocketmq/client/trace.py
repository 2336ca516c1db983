"""Message trace in Apache's format: records of sends and consumptions, which a client sends to a trace topic.

A record is `field \\x01 field ... \\x02`; `mqadmin queryMsgTraceById` finds it by the id of its message, which is a key of
the trace message (admin/api/message_tracks reads it). Records are collected for a moment and sent together. A trace is best
effort: it neither delays nor fails what it describes.
"""

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from pocketmq.client.consuming.consume_hook import ConsumeContext
from pocketmq.client.message import Message, MessageExt, now_ms
from pocketmq.client.message_check import MESSAGE_SIZE_MAX, joined_keys
from pocketmq.client.sending.message_sender import MessageSender
from pocketmq.client.sending.outgoing import SendResult, outgoing
from pocketmq.errors import MQError

if TYPE_CHECKING:
    from pocketmq.client.client_instance import ClientInstance

log = logging.getLogger("client")

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
PUB, SUB_BEFORE, SUB_AFTER = "Pub", "SubBefore", "SubAfter"
NORMAL, HALF, DELAYED = 0, 1, 3
"""Types of a sent message in a Pub record (Apache's MessageType)."""
FIELD_END: Final = "\x01"
EVENT_END: Final = "\x02"
COLLECT_S: Final = 0.5
RECORDS_MAX: Final = 2048
"""Maximum number of records that wait; further ones are dropped."""
_BATCH_MAX: Final = 100
_BATCH_SIZE_MAX: Final = 128_000
EXCEPTION = 2
"""Code of a record whose listener raised."""


class TraceRecord(NamedTuple):
    """One or more events, and the keys by which they are found."""

    text: str
    keys: tuple[str, ...]


def _event(*fields: object) -> str:
    return FIELD_END.join(str(field).lower() if isinstance(field, bool) else str(field) for field in fields) + EVENT_END


def pub(
    group: str, message: Message, result: SendResult, broker_address: str, began_ms: int, cost_ms: int, kind: int = NORMAL
) -> TraceRecord:
    """Return the record of a message that was sent. `kind`: NORMAL, HALF or DELAYED."""
    keys = joined_keys(message.keys)
    text = _event(
        *(PUB, began_ms, result.region_id, group, message.topic, result.msg_id, message.tags or "", keys, broker_address),
        *(len(message.body), cost_ms, kind, result.offset_msg_id, result.status == "SEND_OK"),
    )
    return TraceRecord(text, (*result.msg_id.split(","), *keys.split()))


def sub_before(group: str, message: MessageExt, request_id: str, began_ms: int) -> TraceRecord:
    """Return the record of a message that is given to a listener. `request_id` joins it with its SubAfter."""
    region, keys = message.properties.get("MSG_REGION", "DefaultRegion"), message.keys or ""
    text = _event(SUB_BEFORE, began_ms, region, group, request_id, message.msg_id, message.reconsume_times, keys)
    return TraceRecord(text, (message.msg_id, *keys.split()))


def sub_after(
    group: str, message: MessageExt, request_id: str, end_ms: int, cost_ms: int, succeeded: bool, code: int = 0
) -> TraceRecord:
    """Return the record of a listener's end. `code`: 0 success, 1 timeout, 2 exception, 3 null, 4 failed."""
    keys = message.keys or ""
    text = _event(SUB_AFTER, request_id, message.msg_id, cost_ms, succeeded, keys, code, end_ms, group)
    return TraceRecord(text, (message.msg_id, *keys.split()))


def is_wanted(message: MessageExt) -> bool:
    """Return whether the broker wants the consumption of a message to be traced."""
    return message.properties.get("TRACE_ON") != "false"


class TraceWriter:
    """Sends the records of one client. Create it inside a running loop, and close it before its ClientInstance."""

    def __init__(self, instance: "ClientInstance", group: str, topic: str = TRACE_TOPIC) -> None:
        self._sender = MessageSender(instance, f"_INNER_TRACE_PRODUCER-{group}"[:255])
        self._topic = topic
        self._records: deque[TraceRecord] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def add(self, record: TraceRecord) -> None:
        """Send a record soon, together with others; it is dropped if RECORDS_MAX wait."""
        if len(self._records) >= RECORDS_MAX:
            log.warning("a trace record is dropped: %d others wait", RECORDS_MAX)
            return
        self._records.append(record)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_later())

    async def close(self) -> None:
        """Send the waiting records."""
        self._closing.set()
        if self._task is not None:
            await self._task
        await self._send_all()

    async def _send_later(self) -> None:
        while self._records:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COLLECT_S):
                    await self._closing.wait()
            await self._send_all()

    async def _send_all(self) -> None:
        while self._records:
            texts: list[str] = []
            keys: dict[str, None] = {}
            size = 0
            while self._records and len(texts) < _BATCH_MAX and size + len(self._records[0].text) <= _BATCH_SIZE_MAX:
                record = self._records.popleft()
                texts.append(record.text)
                keys |= dict.fromkeys(record.keys)
                size += len(record.text)
            if not texts:
                self._records.popleft()  # larger than a trace message
                continue
            await self._send("".join(texts), " ".join(keys))

    async def _send(self, text: str, keys: str) -> None:
        try:
            await self._sender.send(outgoing(Message(self._topic, text.encode(), keys=keys), MESSAGE_SIZE_MAX))
        except (MQError, OSError, ValueError) as failure:
            log.warning("trace records could not be sent: %s", failure)


class TraceHook:
    """Writes the records of one consumer."""

    def __init__(self, instance: "ClientInstance", group: str, topic: bool | str) -> None:
        """`topic`: True for the usual trace topic, or another one."""
        self.writer = TraceWriter(instance, group, TRACE_TOPIC if topic is True else str(topic))

    def before_consume(self, context: ConsumeContext) -> None:
        """Note that a message is given to its listener."""
        if is_wanted(context.message):
            self.writer.add(sub_before(context.group, context.message, _request_id(context), context.began_ms))

    def after_consume(self, context: ConsumeContext) -> None:
        """Note how it ended."""
        if is_wanted(context.message):
            is_ok = context.failure is None
            code, cost_ms = 0 if is_ok else EXCEPTION, int(context.spent_ms)
            record = sub_after(context.group, context.message, _request_id(context), now_ms(), cost_ms, is_ok, code)
            self.writer.add(record)


def _request_id(context: ConsumeContext) -> str:
    """Return the id that joins the two records of one consumption."""
    return f"{context.client_id}-{context.began_ms}-{id(context):x}"

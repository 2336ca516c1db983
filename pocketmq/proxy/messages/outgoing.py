"""Stored records as messages for gRPC consumers."""

import hashlib

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pocketmq.proxy.messages import properties as names
from pocketmq.proxy.messages.incoming import type_of
from pocketmq.proxy.messages.names import resource_of
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.store.format.host import host_text
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import Record

_TYPES = {name: pb.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY")}


def timestamp(time_ms: int) -> Timestamp:
    """Return a time in ms as a Timestamp."""
    seconds, rest_ms = divmod(time_ms, 1000)
    return Timestamp(seconds=seconds, nanos=rest_ms * 1_000_000)


def duration(time_ms: int) -> Duration:
    """Return ms as a Duration."""
    seconds, rest_ms = divmod(max(time_ms, 0), 1000)
    return Duration(seconds=seconds, nanos=rest_ms * 1_000_000)


def message_id(record: Record, properties: dict[str, str]) -> str:
    """Return the sender's id of a message, or the broker's if the sender gave none."""
    return properties.get(UNIQ_KEY) or (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper()


def message_of(record: Record, topic: str, reconsume_times: int | None = None) -> pb.Message:
    """Return the message of a record, under the name of the topic to which its consumer is subscribed."""
    properties = decode_properties(record.properties)
    system = pb.SystemProperties(
        message_id=message_id(record, properties),
        body_digest=pb.Digest(type=pb.MD5, checksum=hashlib.md5(record.body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=pb.GZIP if record.sys_flag & COMPRESSED_FLAG else pb.IDENTITY,
        message_type=_TYPES[type_of(properties)],
        born_timestamp=timestamp(_born_ms(record, properties)),
        born_host=properties.get(names.BORN_HOST) or host_text(record.born_host),
        store_timestamp=timestamp(record.store_timestamp_ms),
        store_host=host_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=(record.reconsume_times if reconsume_times is None else reconsume_times) + 1,
        keys=properties.get(KEYS, "").split(),
    )
    if TAGS in properties:
        system.tag = properties[TAGS]
    if names.SHARDING_KEY in properties:
        system.message_group = properties[names.SHARDING_KEY]
    if names.TRACE_CONTEXT in properties:
        system.trace_context = properties[names.TRACE_CONTEXT]
    if _is_number(due := properties.get(names.TIMER_DELIVER_MS)):
        system.delivery_timestamp.CopyFrom(timestamp(int(due or 0)))
    if _is_number(priority := properties.get(names.PRIORITY)):
        system.priority = min(int(priority or 0), (1 << 31) - 1)
    if names.DLQ_ORIGIN_TOPIC in properties:
        origin = properties[names.DLQ_ORIGIN_TOPIC], properties.get(names.DLQ_ORIGIN_MESSAGE_ID, "")
        system.dead_letter_queue.CopyFrom(pb.DeadLetterQueue(topic=origin[0], message_id=origin[1]))
    user = {name: value for name, value in properties.items() if name not in names.SYSTEM}
    return pb.Message(topic=resource_of(topic), user_properties=user, system_properties=system, body=record.body)


def _born_ms(record: Record, properties: dict[str, str]) -> int:
    text = properties.get(names.BORN_TIMESTAMP)
    return int(text or 0) if _is_number(text) else max(record.born_timestamp_ms, 0)


def _is_number(text: str | None) -> bool:
    """Return whether a text is a number of ms that a Timestamp can have."""
    return text is not None and text.isascii() and text.isdigit() and len(text) <= 14

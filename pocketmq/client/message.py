"""Messages of a client: property strings, batch bodies, decoding of pulled records, unique ids.

Pulled records have the format of the store (docs/format.md), which decodes them.
"""

import importlib
import itertools
import os
import socket
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final

import msgspec

from pocketmq.client.delivery_time import TIMED, delivery_properties
from pocketmq.client.message_check import (
    MESSAGE_SIZE_MAX,
    body_bytes,
    check_delay_level,
    check_flag,
    check_properties_size,
    check_tags,
    check_topic,
    check_user_properties,
    joined_keys,
)
from pocketmq.remoting import hosts
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.properties import DELAY, KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import Record, decode_record

WAIT: Final = "WAIT"
RETRY_TOPIC: Final = "RETRY_TOPIC"

RETRY_GROUP_PREFIX: Final = "%RETRY%"
DECOMPRESSED_SIZE_MAX: Final = 64 * 1024 * 1024
"""Size limit of a decompressed body: a few KB may expand to GB."""
DECOMPRESSED_TOTAL_MAX: Final = 32 * DECOMPRESSED_SIZE_MAX
"""Size limit of all decompressed bodies of one answer: as many as a pull asks for, each of the largest size."""

_BATCH_HEAD = struct.Struct(">IIIII")
_SEPARATORS = ("\x01", "\x02")


class Message(msgspec.Struct):
    """A message to send; it is validated by the send.

    `keys` are searchable by QUERY_MESSAGE: a list, or one text with keys separated by spaces. At most one of these delays
    it: `delay_level` 1 to 18 (1 s to 2 h) at any broker; `delay` (seconds or timedelta) or `deliver_at` (epoch seconds or
    datetime, without a time zone in local time) at PocketMQ's and Apache's 5.x brokers.
    """

    topic: str
    body: bytes | bytearray | memoryview
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    delay_level: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    flag: int = 0
    delay: float | timedelta | None = None
    deliver_at: float | datetime | None = None

    def checked_body(self, size_max: int = MESSAGE_SIZE_MAX) -> bytes:
        """Return the body as bytes, after checking topic and flag too. Raises TypeError or ValueError."""
        check_topic(self.topic)
        check_flag(self.flag)
        return body_bytes(self.body, size_max)

    def all_properties(self) -> dict[str, str]:
        """Return user properties and those for the other fields, including UNIQ_KEY. Raises TypeError or ValueError."""
        check_user_properties(self.properties)
        check_tags(self.tags)
        check_delay_level(self.delay_level)
        properties = dict(self.properties)
        properties.setdefault(UNIQ_KEY, unique_id())
        properties.setdefault(WAIT, "true")
        if self.tags:
            properties[TAGS] = self.tags
        if keys := joined_keys(self.keys):
            properties[KEYS] = keys
        if timed := delivery_properties(self.delay, self.deliver_at):
            if self.delay_level or not TIMED.isdisjoint(properties):
                raise ValueError("delay= and deliver_at= cannot be combined with delay_level or a TIMER_ property")
            properties |= timed
        if self.delay_level:
            properties[DELAY] = str(self.delay_level)
        return properties


class MessageExt(msgspec.Struct, gc=False):
    """A pulled message. `topic` is the original topic, also for a message from the group's retry topic."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    reconsume_times: int
    body: bytes
    properties: dict[str, str]
    offset_msg_id: str
    problem: str | None = None
    """Reason why `body` is still compressed; None if `body` is as it was sent."""

    @property
    def msg_id(self) -> str:
        """The sender's id, or the broker's if the sender gave none."""
        return self.properties.get(UNIQ_KEY, self.offset_msg_id)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)


def encode_properties(properties: dict[str, str]) -> str:
    """Return `name \\x01 value \\x02 ...`. Raises ValueError for a separator in a name or value, or too many bytes."""
    for name, value in properties.items():
        if any(separator in name or separator in value for separator in _SEPARATORS):
            raise ValueError(f"property {name!r}={value!r} contains \\x01 or \\x02, which separate properties")
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    check_properties_size(text)
    return text


def encode_batch(
    messages: Iterable[Message], properties: Iterable[dict[str, str]], size_max: int = MESSAGE_SIZE_MAX
) -> bytes:
    """Return the body of SEND_BATCH_MESSAGE: the encoded members in sequence. Raises the errors of their checks."""
    out = []
    for message, own in zip(messages, properties, strict=True):
        text, body = encode_properties(own).encode(), message.checked_body(size_max)
        size = _BATCH_HEAD.size + len(body) + 2 + len(text)
        head = _BATCH_HEAD.pack(size, 0, 0, message.flag & 0xFFFFFFFF, len(body))
        out += [head, body, struct.pack(">H", len(text)), text]
    return body_bytes(b"".join(out), size_max, "body of the batch")


def decode_messages(records: bytes, broker_name: str) -> list[MessageExt]:
    """Return the messages in a pull's body. Raises ValueError for bytes that are not whole records."""
    return [message for _, message in decode_records(records, broker_name)]


def decode_records(records: bytes, broker_name: str) -> Iterator[tuple[Record, MessageExt]]:
    """Yield the records in a pull's body, each with its message. Raises ValueError for bytes that are not whole records."""
    left = DECOMPRESSED_TOTAL_MAX
    for record in records_of(records):
        message = _message_of(record, broker_name, left)
        if record.sys_flag & COMPRESSED_FLAG:
            left = max(left - (len(message.body) if message.problem is None else DECOMPRESSED_SIZE_MAX), 0)
        yield record, message


def records_of(records: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Yield the records in a pull's body, whose own bodies may be compressed. Raises ValueError as `decode_records`."""
    view, position = memoryview(records), 0
    while position < len(view):
        record = decode_record(view, position)
        yield record
        position += record.total_size


def _message_of(record: Record, broker_name: str, left: int) -> MessageExt:
    """Return the message of a record. `left`: bytes that its decompressed body may have, besides DECOMPRESSED_SIZE_MAX."""
    topic = record.topic.decode()
    properties = decode_properties(record.properties)
    plain, problem = plain_body(record.body, record.sys_flag, left)
    return MessageExt(
        topic=properties.get(RETRY_TOPIC, topic) if topic.startswith(RETRY_GROUP_PREFIX) else topic,
        broker_name=broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        reconsume_times=record.reconsume_times,
        body=plain,
        properties=properties,
        offset_msg_id=(record.store_host + struct.pack(">q", record.physical_offset)).hex().upper(),
        problem=problem,
    )


def plain_body(body: bytes, sys_flag: int, left: int = DECOMPRESSED_SIZE_MAX) -> tuple[bytes, str | None]:
    """Return (decompressed body, None), or (the body as stored, reason why it could not be decompressed)."""
    if not sys_flag & COMPRESSED_FLAG:
        return body, None
    try:
        plain = _decompressed(body, sys_flag >> 8 & 7, min(DECOMPRESSED_SIZE_MAX, left))
    except ImportError as missing:
        return body, f"it is compressed with {missing.name}, which is not installed"
    except Exception as error:  # each library has exceptions of its own
        return body, f"it cannot be decompressed: {error}"
    if len(plain) > DECOMPRESSED_SIZE_MAX:
        return body, f"its decompressed size exceeds {DECOMPRESSED_SIZE_MAX} bytes"
    if len(plain) > left:
        return body, f"the decompressed bodies of one answer exceed DECOMPRESSED_TOTAL_MAX={DECOMPRESSED_TOTAL_MAX} bytes"
    return plain, None


def _decompressed(body: bytes, kind: int, allowed: int) -> bytes:
    """Decompress up to one byte more than allowed. Producers may use zlib (0, 3), LZ4 (1) or zstd (2)."""
    size_max = allowed + 1
    if kind == 1:
        inflater = importlib.import_module("lz4.frame").LZ4FrameDecompressor()
    elif kind == 2:  # Java's frames lack the decompressed size, which the one-shot call requires
        return bytes(importlib.import_module("zstandard").ZstdDecompressor().stream_reader(body).read(size_max))
    elif kind in (0, 3):
        inflater = zlib.decompressobj()
    else:
        raise ValueError(f"unknown compression type {kind} (0 and 3 zlib, 1 LZ4, 2 zstd)")
    plain = bytes(inflater.decompress(body, size_max))
    if len(plain) < size_max and not inflater.eof:
        raise ValueError("its compressed data is truncated")
    return plain


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


_counter = itertools.count()
_process_id_part = struct.pack(">H", os.getpid() & 0xFFFF) + os.urandom(4)


def unique_id() -> str:
    """Return a UNIQ_KEY like Java's: address, pid, random number of this process, ms since the month began, counter; hex."""
    now = time.time()
    month = datetime.fromtimestamp(now).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since_month_ms = int((now - month.timestamp()) * 1000) & 0x7FFFFFFF
    tail = struct.pack(">IH", since_month_ms, next(_counter) & 0xFFFF)
    return (socket.inet_aton(local_address()) + _process_id_part + tail).hex().upper()


local_address = cache(hosts.local_address)
"""Return this machine's IPv4 address, as used in ids."""

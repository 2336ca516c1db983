"""CommitLog records: encoding, decoding, and the checks of recovery.

The code uses `struct` and slices; `layout.RECORD` declares the same format in `construct`, and property tests compare the
two. All positions are relative to the given view.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from isal.isal_zlib import crc32

from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    BORNHOST_V6_FLAG,
    HOST_V6_SIZE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PHYSICAL_OFFSET_POSITION,
    RECORD_FIXED_STRUCTS,
    RECORD_SIZE_MIN,
    STORE_TIMESTAMP_POSITION,
    STOREHOSTADDRESS_V6_FLAG,
    SYS_FLAG_POSITION,
)
from pocketmq.store.format.message import DispatchRequest, Message
from pocketmq.store.format.properties import KEYS, UNIQ_KEY, decode_properties, encode_properties, entries_from

CRC_MASK: Final = 0x7FFFFFFF
HOST_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
TOPIC_SIZE_MAX_V1: Final = 127  # read back as a signed byte
TOPIC_SIZE_MAX_V2: Final = 32767
PROPERTIES_SIZE_MAX: Final = 32767
# Unit that a disk writes atomically. A lost sector reads as zeros, because new files consist of zeros.
SECTOR_SIZE: Final = 512

_INT64 = struct.Struct(">q")
_UINT16 = struct.Struct(">H")
_UINT32 = struct.Struct(">I")
_FIXED = RECORD_FIXED_STRUCTS
_FIXED_SIZES: Final = {host_flags: fixed.size for host_flags, fixed in _FIXED.items()}
# Total size, magic code, the byte of sysFlag with the host bits, and the body size, valid only if both hosts are IPv4.
_SHAPE = struct.Struct(">Ii31xB44xI")
SHAPE_SIZE: Final = _SHAPE.size
SHAPE_OF: Final = _SHAPE.unpack_from
UINT16_OF: Final = _UINT16.unpack_from
assert _FIXED_SIZES[0] == SHAPE_SIZE
_PACK: Final = {host_flags: fixed.pack for host_flags, fixed in _FIXED.items()}
_PACK_PLAIN: Final = _PACK[0]
_PACK_UINT16: Final = _UINT16.pack

# (topic, properties, store time in ms) -> tags code of a record: the hash of its tags, or its delivery time.
TagsCode = Callable[[str, dict[str, str], int], int]


class Record(msgspec.Struct, gc=False):
    """All fields of a stored record; hosts packed, `body`, `topic` and `properties` as stored."""

    total_size: int
    magic_code: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes

    def copy_to(self, topic: str, queue_id: int, store_host: bytes, properties: dict[str, str]) -> Message:
        """Return this record's message with other properties, to be put into another queue."""
        return Message(
            topic,
            queue_id,
            self.body,
            self.born_host,
            store_host,
            self.flag,
            self.sys_flag,
            self.born_timestamp_ms,
            self.reconsume_times,
            0,
            properties,
            encode_properties(properties).encode(),
        )


class BadRecordError(ValueError):
    """The bytes are not a complete valid record; the text says why."""


# --- encoding -------------------------------------------------------------------------------------------------------


def topic_part(name: bytes) -> tuple[int, bytes]:
    """Return (magic code, topic's length and bytes) of a record. The caller must have checked the topic's size."""
    if len(name) <= TOPIC_SIZE_MAX_V1:
        return MESSAGE_MAGIC_CODE, bytes((len(name),)) + name
    return MESSAGE_MAGIC_CODE_V2, _PACK_UINT16(len(name)) + name


def host_flags(message: Message) -> int:
    """Return the two bits of sysFlag that mark IPv6 hosts."""
    return (BORNHOST_V6_FLAG if len(message.born_host) == HOST_V6_SIZE else 0) | (
        STOREHOSTADDRESS_V6_FLAG if len(message.store_host) == HOST_V6_SIZE else 0
    )


def record_size(message: Message, topic_part_size: int) -> int:
    """Return the size of the message's record."""
    return _FIXED_SIZES[host_flags(message)] + len(message.body) + topic_part_size + 2 + len(message.properties_bytes)


def encode_record(
    message: Message,
    magic_code: int,
    topic: bytes,
    size: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp_ms: int,
) -> bytes:
    """Encode the record of a message. `magic_code` and `topic` are from `topic_part`, `size` is from `record_size`.

    The host bits of sysFlag are set from the hosts themselves, whatever the sender claims.
    """
    body, properties = message.body, message.properties_bytes
    born_host, store_host = message.born_host, message.store_host
    sys_flag, pack = message.sys_flag & ~HOST_FLAGS, _PACK_PLAIN
    if len(born_host) != 8 or len(store_host) != 8:
        hosts = host_flags(message)
        sys_flag, pack = sys_flag | hosts, _PACK[hosts]
    return b"".join(
        (
            pack(
                size,
                magic_code,
                crc32(body) & 0x7FFFFFFF,
                message.queue_id,
                message.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                message.born_timestamp_ms,
                born_host,
                store_timestamp_ms,
                store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                len(body),
            ),
            body,
            topic,
            _PACK_UINT16(len(properties)),
            properties,
        )
    )


# --- decoding -------------------------------------------------------------------------------------------------------


def decode_record(view: memoryview, position: int = 0) -> Record:
    """Decode the record at `position`, without checking the body's CRC. Raises BadRecordError if it is not complete."""
    _, _, topic_start, topic_size = bounds(view, position)
    sys_flag = int.from_bytes(view[position + SYS_FLAG_POSITION : position + SYS_FLAG_POSITION + 4], "big")
    fixed = _FIXED[sys_flag & HOST_FLAGS]
    values = fixed.unpack_from(view, position)
    body_start = position + fixed.size
    properties_start = topic_start + topic_size + 2
    fields = (
        *values[:-1],
        bytes(view[body_start : body_start + values[-1]]),
        bytes(view[topic_start : topic_start + topic_size]),
        bytes(view[properties_start : position + values[0]]),
    )
    return Record(*fields)


def bounds(view: memoryview, position: int) -> tuple[int, int, int, int]:
    """Return (total size, start of body, start of topic, size of topic) of the record at `position`.

    Raises BadRecordError if its inner sizes are inconsistent.
    """
    room = len(view) - position
    if room < RECORD_SIZE_MIN:
        raise BadRecordError(f"{room} bytes are left, the smallest record has {RECORD_SIZE_MIN}")
    size, magic_code = BLANK_STRUCT.unpack_from(view, position)
    if magic_code == MESSAGE_MAGIC_CODE:
        topic_length_size = 1
    elif magic_code == MESSAGE_MAGIC_CODE_V2:
        topic_length_size = 2
    else:
        raise BadRecordError(f"magic code {magic_code & 0xFFFFFFFF:#010x} is not a record's")
    if not RECORD_SIZE_MIN <= size <= room:
        raise BadRecordError(f"total size {size} is not within {RECORD_SIZE_MIN}..{room}")
    body_start = position + _FIXED_SIZES[view[position + SYS_FLAG_POSITION + 3] & HOST_FLAGS]
    end = position + size
    if body_start > end:
        raise BadRecordError(f"hosts extend beyond the record's end at {end}")
    topic_start = body_start + _UINT32.unpack_from(view, body_start - 4)[0] + topic_length_size
    if topic_start + 2 > end:
        raise BadRecordError(f"body extends beyond the record's end at {end}")
    topic_size = view[topic_start - 1]
    if topic_length_size == 2:
        topic_size |= view[topic_start - 2] << 8
    properties_start = topic_start + topic_size + 2
    if properties_start > end:
        raise BadRecordError(f"topic of {topic_size} bytes extends beyond the record's end at {end}")
    properties_size = UINT16_OF(view, properties_start - 2)[0]
    if properties_start + properties_size != end:
        raise BadRecordError(f"properties of {properties_size} bytes do not end with the record at {end}")
    return size, body_start, topic_start, topic_size


def entries_of(view: memoryview, position: int) -> str:
    """Return the property entries (`properties.entries_from`) of the record at `position`; none if it is not complete."""
    try:
        size, magic_code, host_bits, body_size = SHAPE_OF(view, position)
        if magic_code == MESSAGE_MAGIC_CODE and not host_bits & HOST_FLAGS:
            # Inlined from `bounds` for the common case.
            start = position + SHAPE_SIZE + body_size
            start += view[start] + 3
            end = position + size
            text = view[start:end]
            if len(text) == end - start == UINT16_OF(view, start - 2)[0]:
                return entries_from(text)
        size, _, topic_start, topic_size = bounds(view, position)
    except (BadRecordError, struct.error, IndexError):
        return entries_from(b"")
    return entries_from(view[topic_start + topic_size + 2 : position + size])


def entries_of_each(block: bytes | memoryview, sizes: Iterable[int]) -> list[str]:
    """Return `entries_of` for adjacent records of these sizes, faster than one by one."""
    found: list[str] = []
    append, text, end = found.append, str(block, "latin-1"), 0
    for size in sizes:
        position, end = end, end + size
        try:
            total_size, magic_code, host_bits, body_size = SHAPE_OF(block, position)
            start = position + SHAPE_SIZE + body_size
            start += block[start] + 3
            if (
                total_size == size
                and magic_code == MESSAGE_MAGIC_CODE
                and not host_bits & HOST_FLAGS
                and end - start == UINT16_OF(block, start - 2)[0]
            ):
                append(f"\x02{text[start:end]}\x02")
                continue
        except (struct.error, IndexError):
            pass
        append(entries_of(memoryview(block)[position:end], 0))
    return found


def is_blank(view: memoryview, position: int) -> bool:
    """Return whether a BLANK mark is at `position`; its size must extend exactly to the end of the file."""
    room = len(view) - position
    return room >= 8 and BLANK_STRUCT.unpack_from(view, position) == (room, BLANK_MAGIC_CODE)


def physical_offset_of(view: memoryview, position: int = 0) -> int:
    """Return the physical offset stored in the record at `position`."""
    return int(_INT64.unpack_from(view, position + PHYSICAL_OFFSET_POSITION)[0])


def store_timestamp_of(view: memoryview, position: int = 0) -> int:
    """Return the store time of the record at `position` in ms."""
    born_v6 = view[position + SYS_FLAG_POSITION + 3] & BORNHOST_V6_FLAG
    return int(_INT64.unpack_from(view, position + STORE_TIMESTAMP_POSITION + (12 if born_v6 else 0))[0])


def decode_dispatch_request(view: memoryview, position: int, tags_code: TagsCode) -> DispatchRequest:
    """Decode the fields of the record at `position` for queues and index. Raises BadRecordError if it is not complete."""
    size, body_start, topic_start, topic_size = bounds(view, position)
    sys_flag = int.from_bytes(view[position + SYS_FLAG_POSITION : position + SYS_FLAG_POSITION + 4], "big")
    values = _FIXED[sys_flag & HOST_FLAGS].unpack_from(view, position)
    queue_id, queue_offset, physical_offset, store_timestamp_ms = values[3], values[5], values[6], values[10]
    topic = str(view[topic_start : topic_start + topic_size], "utf-8", "replace")
    properties = decode_properties(view[topic_start + topic_size + 2 : position + size])
    return DispatchRequest(
        topic,
        queue_id,
        physical_offset,
        size,
        tags_code(topic, properties, store_timestamp_ms),
        store_timestamp_ms,
        queue_offset,
        sys_flag,
        properties.get(KEYS),
        properties.get(UNIQ_KEY),
    )


# --- recovery -------------------------------------------------------------------------------------------------------


def check_record(view: memoryview, position: int, physical_offset: int, check_crc: bool = True, complete_to: int = 0) -> int:
    """Return the total size of the record at `physical_offset`. Raises BadRecordError if it is not intact.

    In addition to Apache's CommitLog.checkMessageAndReturnSize, the stored offset must equal the position (which is not the
    case for bytes left by a truncation), and topic and properties, which no checksum covers, must not contain a lost sector.
    A record whose properties end in a zero byte is torn, as a killed process leaves it, if zeros follow it in `view` and it
    ends after `complete_to`; elsewhere a client has sent that zero byte, which Apache's broker stores.
    """
    size, body_start, topic_start, topic_size = bounds(view, position)
    claimed = physical_offset_of(view, position)
    if claimed != physical_offset:
        raise BadRecordError(
            f"the record at {physical_offset} has physical offset {claimed}: it is left over from before a truncation"
        )
    body_size = int.from_bytes(view[body_start - 4 : body_start], "big")
    if check_crc:
        crc = crc32(view[body_start : body_start + body_size]) & CRC_MASK
        stored_crc = int.from_bytes(view[position + 8 : position + 12], "big")
        if crc != stored_crc:
            raise BadRecordError(f"CRC of the body is {crc:#x}, the record has {stored_crc:#x}")
    if topic_size == 0 or 0 in view[topic_start : topic_start + topic_size]:
        raise BadRecordError("topic is empty or has zero bytes")
    properties_start, end = topic_start + topic_size + 2, position + size
    is_in_doubt = physical_offset + size > complete_to and properties_start < end
    if is_in_doubt and view[end - 1] == 0 and bytes(view[end : end + BLANK_SIZE]) == bytes(BLANK_SIZE):
        raise BadRecordError("properties end in a zero byte: the record is torn")
    _check_sectors(view, properties_start, end, physical_offset - position)
    return size


def _check_sectors(view: memoryview, start: int, end: int, view_offset: int) -> None:
    """Raise BadRecordError if all bytes of [start, end) in one sector are zero, and those behind `end` in the last one.

    `view_offset` is the physical offset of the view's first byte. Sectors are aligned to the file, not to the view.
    """
    while start < end:
        sector_end = start + SECTOR_SIZE - (start + view_offset) % SECTOR_SIZE
        stop = min(sector_end, end)
        # Nearly always the first byte is not zero, so the rest need not be scanned.
        if view[start] == 0 and not any(view[start:sector_end]):
            raise BadRecordError(
                f"bytes {start + view_offset}..{stop + view_offset} are zero: a sector of the properties is lost"
            )
        start = stop

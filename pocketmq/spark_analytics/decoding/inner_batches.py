"""Batches that 5.x stores as one record, in topics with `queue.type=BatchCQ`, unpacked into their messages.

The body of such a record is a sequence of messages, each with its size, a magic code, a CRC (always 0), its flag, body and
properties. As Apache's client does, each message gets the batch's other fields, and queue offsets count from the batch's.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from isal.isal_zlib import crc32

from pocketmq.spark_analytics.decoding.columns import Records
from pocketmq.store.format.layout import RECORD_FIXED, RECORD_FIXED_STRUCTS, field_position
from pocketmq.store.format.message import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from pocketmq.store.format.record import CRC_MASK

# Total size, magic code, body CRC, flag and body size; the size of the properties follows the body.
_MESSAGE: Final = struct.Struct(">iiiii")
_PROPERTIES_SIZE: Final = struct.Struct(">H")
_OVERHEAD: Final = _MESSAGE.size + _PROPERTIES_SIZE.size
_CRC, _FLAG, _QUEUE_OFFSET, _SIZE = (
    field_position(RECORD_FIXED, name) for name in ("body_crc", "flag", "queue_offset", "total_size")
)


def unpacked(records: Records) -> Records:
    """Return the records with the messages of each batch in its place; the lengths must add up.

    Each message becomes a record of its own, whose storeSize is its size within the batch. A batch whose body is compressed
    or not a sequence of messages stays one record.
    """
    batches = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    is_batch = records.fixed("sys_flag") & (batches | COMPRESSED_FLAG) == batches
    if not is_batch.any():
        return records
    parts: list[bytes] = []
    offsets: list[int] = []
    for row, own in enumerate(records.physical_offsets.tolist()):
        start, size = int(records.starts[row]), int(records.sizes[row])
        record = records.data[start : start + size].tobytes()
        found = list(_messages(records, row, record)) if is_batch[row] else []
        parts += found or [record]
        offsets += [own] * max(len(found), 1)
    ends = np.cumsum([len(part) for part in parts])
    sizes = np.diff(ends, prepend=0)
    whole = type(records)(np.frombuffer(b"".join(parts), np.uint8), 0, ends - sizes, sizes)
    whole.path, whole.broker_name, whole.delay_levels = records.path, records.broker_name, records.delay_levels
    whole.own_offsets = np.array(offsets, np.int64)
    return whole


def _messages(records: Records, row: int, record: bytes) -> Iterator[bytes]:
    """Yield a record for each message of a batch; nothing if its body is not a sequence of messages."""
    start = int(records.starts[row])
    head_size = RECORD_FIXED_STRUCTS[int(records.host_flags[row])].size
    body = record[head_size : int(records.body_ends[row]) - start]
    topic = record[head_size + len(body) : int(records.topic_ends[row]) - start]
    # Of a damaged batch no message is intact.
    difference = (crc32(body) & CRC_MASK) ^ int.from_bytes(record[_CRC : _CRC + 4], "big")
    queue_offset = int(records.fixed("queue_offset")[row])
    for number, (begin, end) in enumerate(pairwise(_bounds(body))):
        size, _, _, flag, body_size = _MESSAGE.unpack_from(body, begin)
        own_begin, own_end = begin + _MESSAGE.size, begin + _MESSAGE.size + body_size
        head = bytearray(record[:head_size])
        struct.pack_into(">i", head, _SIZE, size)
        struct.pack_into(">i", head, _CRC, (crc32(body[own_begin:own_end]) & CRC_MASK) ^ difference)
        struct.pack_into(">i", head, _FLAG, flag)
        struct.pack_into(">q", head, _QUEUE_OFFSET, queue_offset + number)
        struct.pack_into(">i", head, head_size - 4, body_size)
        yield bytes(head) + body[own_begin:own_end] + topic + body[own_end:end]


def _bounds(body: bytes) -> list[int]:
    """Return the begins of the messages in a body, and its end; nothing if it is not a sequence of messages."""
    bounds, position = [], 0
    while len(body) - position >= _OVERHEAD:
        size, _, _, _, body_size = _MESSAGE.unpack_from(body, position)
        rest = size - _OVERHEAD - body_size
        if body_size < 0 or rest < 0 or size > len(body) - position:
            return []
        if _PROPERTIES_SIZE.unpack_from(body, position + _MESSAGE.size + body_size) != (rest,):
            return []
        bounds.append(position)
        position += size
    return [*bounds, position] if position == len(body) else []

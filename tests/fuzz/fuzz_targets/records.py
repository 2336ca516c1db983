"""Targets for records of the CommitLog, decoded one by one and as record windows."""

import random
import struct
import zlib
from functools import cache

import numpy as np

from pocketmq.broker.delay.records import read_timer_record
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import BadRecordError, bounds, check_record, decode_dispatch_request, decode_record
from pocketmq.store.format.record_chain import chained, record_candidates
from pocketmq.store.format.record_window import RecordWindow
from tests.fuzz.fuzz_oracle import One, Target, Wrong

HOST, HOST_V6 = bytes((127, 0, 0, 1, 0, 0, 0, 1)), bytes(15) + b"\1" + bytes(3) + b"\1"
TIMED = {"TIMER_OUT_MS": "1700000005000", "REAL_TOPIC": "T", "TIMER_DELAY_SEC": "5", "REAL_QID": "0"}


@cache
def sample_log() -> bytes:
    """Return four consecutive records."""
    log = b""
    rows = (
        ("T", HOST, b"hello", {"KEYS": "k", "TAGS": "a"}),
        ("T2", HOST_V6, b"", {}),
        ("rmq_sys_wheel_timer", HOST, b"x" * 40, TIMED),
        ("x" * 200, HOST, b"long", {"KEYS": "k"}),
    )
    for topic, host, body, properties in rows:
        message = Message(
            topic, 0, body, host, host, properties=properties, properties_bytes=encode_properties(properties).encode()
        )
        log += bytes(_encoded(message, len(log)))
    return log


def _encoded(message: Message, physical_offset: int) -> bytes:
    """Return the record as stored in the log."""
    from pocketmq.runtime.clock import VirtualClock
    from pocketmq.store.config import MessageStoreConfig
    from pocketmq.store.disk.memory_disk import MemoryDisk
    from pocketmq.store.message_store import MessageStore

    config = MessageStoreConfig("/s", mapped_file_size_commit_log=1 << 16, max_hash_slot_num=4, max_index_num=8)
    store = MessageStore(config, MemoryDisk(), VirtualClock())
    store.load()
    result = store.commit_log.put(message)
    store.dispatch()
    view = store.message_at(result.physical_offset)
    assert view is not None
    data = bytearray(view)
    struct.pack_into(">q", data, 28, physical_offset)
    store.shutdown()
    return bytes(data)


def _records() -> One:
    def one(data: bytes) -> None:
        view, position, sizes = memoryview(data), 0, []
        try:
            while position < len(view):
                size = bounds(view, position)[0]
                decode_dispatch_request(view, position, lambda topic, properties, ms: 0)
                decode_record(view, position)
                if position == 0:
                    read_timer_record(view, 1000)
                check_record(view, position, position)
                sizes.append(size)
                position += size
        finally:
            # The decoder of single records and the record window must agree on which records are valid.
            array = np.frombuffer(data, np.uint8)
            window = RecordWindow(array, 0, *chained(array, 0))
            invalid = window.first_invalid()
            count = len(window) if invalid is None else invalid
            if count < len(sizes) or (sizes != window.sizes[: len(sizes)].tolist()):
                raise Wrong(f"sizes {sizes} one by one, {window.sizes[:count].tolist()} as a window")

    return one


def _window() -> One:
    def one(data: bytes) -> None:
        array = np.frombuffer(data, np.uint8)
        record_candidates(array, 0)
        window = RecordWindow(array, 0, *chained(array, 0))
        invalid = window.first_invalid()
        if invalid is not None:
            window = window.rows(slice(invalid))
        if len(window):
            window.topics()
            window.property_spans(b"KEYS")
            window.fixed("body_size")
            window.property_text.rows_with_zeros()
            for start in window.starts.tolist():
                decode_record(memoryview(data), start)

    return one


def _seeds() -> list[bytes]:
    log, view, position, seeds = sample_log(), memoryview(sample_log()), 0, []
    while position < len(log):
        size = bounds(view, position)[0]
        record = bytearray(log[position : position + size])
        struct.pack_into(">q", record, 28, 0)
        seeds.append(bytes(record))
        position += size
    return [*seeds, log, log[:-3], log + bytes(100)]


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Change bytes, and often correct the fields that are checked first: total size, CRC of the body, offset."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if changed:
            at = rng.randrange(min(len(changed), rng.choice((20, 100, 2000))))
            changed[at] = rng.choice((0, 1, 2, 127, 128, 255, changed[at] ^ 1 << rng.randrange(8)))
    if rng.random() < 0.2:
        at = rng.randrange(len(changed) + 1)
        changed[at:at] = rng.choice((b"\0", b"\1", b"\2", b"\0" * 512, b"a\1b\2", b"\xff"))
    if rng.random() < 0.6 and len(changed) >= 100:
        size = struct.unpack_from(">i", changed)[0]
        if rng.random() < 0.5 or not 0 < size <= len(changed):
            struct.pack_into(">i", changed, 0, len(changed))
        body_size = struct.unpack_from(">i", changed, 84)[0]
        if 0 <= body_size <= len(changed) - 88:
            struct.pack_into(">i", changed, 8, zlib.crc32(changed[88 : 88 + body_size]) & 0x7FFFFFFF)
    return bytes(changed)


_EXPECTED = (BadRecordError, UnicodeDecodeError, ValueError)
TARGETS = (
    Target("records", _records, _seeds, _EXPECTED, _mutate),
    Target("record_window", _window, _seeds, _EXPECTED, _mutate),
)

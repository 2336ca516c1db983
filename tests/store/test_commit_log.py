"""Puts: the stored records, their offsets, and refusals."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_STRUCT, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from pocketmq.store.format.message import PutStatus
from pocketmq.store.format.record import decode_record
from pocketmq.store.log.commit_log import CommitLog
from tests.store.stores import HOST, HOST_V6, bodies, message, open_store, records
from tests.support.amount import cases

FILE_SIZE = 16 << 10


def test_put_returns_the_offsets_that_the_record_contains() -> None:
    clock = VirtualClock(1234)
    store = open_store(MemoryDisk(), clock)
    store.commit_log.put(message("T", 1, b"first"))
    result = store.commit_log.put(message("T", 1, b"second", TAGS="A"))
    assert (result.status, result.queue_offset, result.store_timestamp_ms) == (PutStatus.PUT_OK, 1, 1234)
    stored = store.message_at(result.physical_offset)
    assert stored is not None and len(stored) == result.size == result.end_offset - result.physical_offset
    record = decode_record(stored)
    assert (record.body, record.topic, record.properties) == (b"second", b"T", b"TAGS\x01A")
    assert (record.physical_offset, record.queue_offset, record.queue_id) == (result.physical_offset, 1, 1)
    assert store.message_at(result.physical_offset + 1) is None and store.message_at(result.end_offset) is None


@settings(deadline=None, max_examples=cases(50, 200))
@given(
    topic=st.sampled_from(("T", "中文", "t" * 127, "t" * 128, "t" * 300, "")),
    queue_id=st.integers(0, 3),
    body=st.binary(max_size=40) | st.just(bytes(5000)) | st.just(bytes(15_000)),
    hosts=st.tuples(st.sampled_from((HOST, HOST_V6)), st.sampled_from((HOST, HOST_V6))),
    numbers=st.tuples(*[st.integers(0, (1 << 31) - 1)] * 3),
    sys_flag=st.integers(0, 0x3F),
    properties=st.dictionaries(
        st.sampled_from(("KEYS", "UNIQ_KEY", "TAGS", "DELAY", "X")), st.sampled_from(("a", "a b", "7"))
    ),
)
def test_put_and_batch_of_one_store_the_same_bytes(
    topic: str,
    queue_id: int,
    body: bytes,
    hosts: tuple[bytes, bytes],
    numbers: tuple[int, int, int],
    sys_flag: int,
    properties: dict[str, str],
) -> None:
    one = message(topic, queue_id, body, **properties)
    one.born_host, one.store_host = hosts
    one.flag, one.reconsume_times, one.prepared_transaction_offset = numbers
    one.sys_flag = sys_flag
    ways = []
    for put in (CommitLog.put, lambda log, each: log.put_batch([each])):
        store = open_store(MemoryDisk(), VirtualClock(7777), max_message_size=10_000)
        for _ in range(3):
            result = put(store.commit_log, one)
            result.physical_offsets = None
            stored = store.message_at(result.physical_offset)
            ways.append((result, bytes(stored or b"")))
        ways.append((store.commit_log.tail.undispatched, store.commit_log.tail.queue_offsets))
    assert ways[:4] == ways[4:]


def test_store_time_never_goes_backwards_within_the_log() -> None:
    clock = VirtualClock(5000)
    store = open_store(MemoryDisk(), clock)
    store.commit_log.put(message())
    clock.set_ms(1000)
    assert store.commit_log.put(message()).store_timestamp_ms == 5000
    assert store.commit_log.put_batch([message(), message()]).store_timestamp_ms == 5000


def test_file_ends_with_a_blank_mark_if_the_next_record_does_not_fit() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    overhead = store.commit_log.put(message(body=b"")).size
    # Exactly the 8 bytes of a blank mark are left.
    store.commit_log.put(message(body=bytes(FILE_SIZE - 2 * overhead - 8)))
    first_in_next = store.commit_log.put(message(body=b""))
    assert first_in_next.physical_offset == FILE_SIZE
    log = disk.read_file(f"/store/commitlog/{0:020}")
    assert BLANK_STRUCT.unpack_from(log, FILE_SIZE - 8) == (8, BLANK_MAGIC_CODE)

    # In the second file only 7 bytes would be left: the record goes to the third.
    assert store.commit_log.put(message(body=bytes(FILE_SIZE - 2 * overhead - 7))).physical_offset == 2 * FILE_SIZE


def test_batch_is_stored_as_consecutive_records_in_one_file() -> None:
    store = open_store(MemoryDisk())
    store.commit_log.put(message(body=bytes(FILE_SIZE - 1000)))
    batch = [message("T", 0, b"%d" % number) for number in range(10)]
    result = store.commit_log.put_batch(batch)
    assert result.physical_offsets is not None and result.physical_offset == result.physical_offsets[0] == FILE_SIZE
    assert (result.queue_offset, store.commit_log.put(message()).queue_offset) == (1, 11)
    found = [decode_record(store.message_at(offset) or memoryview(b"")) for offset in result.physical_offsets]
    assert [(record.body, record.queue_offset) for record in found] == [(b"%d" % n, n + 1) for n in range(10)]
    assert result.end_offset == result.physical_offset + result.size == found[-1].physical_offset + found[-1].total_size


def test_batch_is_stored_completely_or_not_at_all() -> None:
    store = open_store(MemoryDisk(), max_message_size=2000)
    for size in (*[2000] * 7, 1000):  # some 600 bytes are left in the file
        store.commit_log.put(message("T", 0, bytes(size)))
    for texts in ([b"a", bytes(2001)], [bytes(2000), b"a"]):
        assert store.commit_log.put_batch([message("T", 0, text) for text in texts]).status is PutStatus.MESSAGE_ILLEGAL
    result = store.commit_log.put_batch([message("T", 0, b"%d" % number) for number in range(10)])
    assert (result.physical_offset, result.queue_offset) == (FILE_SIZE, 8), "all of them in one file"
    assert store.commit_log.put(message("T", 0)).queue_offset == 18


def test_long_topics_make_v2_records() -> None:
    store = open_store(MemoryDisk())
    for size, magic_code in ((127, MESSAGE_MAGIC_CODE), (128, MESSAGE_MAGIC_CODE_V2)):
        stored = store.message_at(store.commit_log.put(message("t" * size)).physical_offset)
        assert stored is not None and decode_record(stored).magic_code == magic_code
    store.dispatch()
    assert store.max_offset("t" * 128, 0) == 1


def test_ipv6_hosts_make_a_record_24_bytes_larger() -> None:
    store = open_store(MemoryDisk())
    one = message()
    one.born_host = one.store_host = HOST_V6
    result = store.commit_log.put(one)
    stored = store.message_at(result.physical_offset)
    assert stored is not None and decode_record(stored).store_host == HOST_V6
    assert result.size == store.commit_log.put(message()).size + 24


@pytest.mark.parametrize(
    "one, status, words",
    [
        (message(body=bytes(2001)), PutStatus.MESSAGE_ILLEGAL, ["2001", "maxMessageSize", "2000"]),
        (message(A="x" * 32766), PutStatus.PROPERTIES_SIZE_EXCEEDED, ["32768", "32767"]),
        (message("t" * 32768), PutStatus.MESSAGE_ILLEGAL, ["topic", "32768", "32767"]),
        (message("a/b"), PutStatus.MESSAGE_ILLEGAL, ["topic", "'a/b'"]),
        (message("t" * 256), PutStatus.MESSAGE_ILLEGAL, ["topic", "256", "255"]),
        (message(""), PutStatus.MESSAGE_ILLEGAL, ["topic", "0 bytes"]),
        (message(body=bytes(2000), A="x" * 15_000), PutStatus.MESSAGE_ILLEGAL, ["mappedFileSizeCommitLog", "16376"]),
    ],
)
def test_invalid_message_is_refused_with_a_reason_and_leaves_no_trace(
    one: object, status: PutStatus, words: list[str]
) -> None:
    store = open_store(MemoryDisk(), max_message_size=2000)
    for result in (store.commit_log.put(one), store.commit_log.put_batch([message(one.topic), one])):  # type: ignore[attr-defined,arg-type]
        assert result.status is status
        assert all(word in result.reason for word in words), result.reason
    assert store.max_physical_offset == 0 and store.dispatch() == []
    assert store.commit_log.put(message()).queue_offset == 0


def test_long_topic_is_refused_if_v2_records_are_disabled() -> None:
    store = open_store(MemoryDisk(), auto_message_version_on_topic_len=False)
    refused = store.commit_log.put(message("t" * 128))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL and "127" in refused.reason


def test_batch_above_the_message_size_limit_is_refused() -> None:
    store = open_store(MemoryDisk(), max_message_size=2000)
    refused = store.commit_log.put_batch([message(body=bytes(1001)), message(body=bytes(1000))])
    assert refused.status is PutStatus.MESSAGE_ILLEGAL and "2001" in refused.reason
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("sys_flag, queued", [(0x0, True), (0x4, False), (0x8, True), (0xC, False)])
def test_prepared_and_rolled_back_records_take_no_queue_offset(sys_flag: int, queued: bool) -> None:
    store = open_store(MemoryDisk())
    store.commit_log.put(message())
    one = message(KEYS="k")
    one.sys_flag = sys_flag
    assert store.commit_log.put(one).queue_offset == (1 if queued else 0)
    store.dispatch()
    assert store.max_offset("T", 0) == (2 if queued else 1)
    assert len(store.query_message("T", "k", 9, 0, 1 << 60).views) == (0 if sys_flag == 0xC else 1)


@pytest.mark.parametrize("one_of_two", [False, True])
def test_put_with_a_number_out_of_range_leaves_no_trace(one_of_two: bool) -> None:
    store = open_store(MemoryDisk())
    store.commit_log.put(message(body=b"before"))
    one = message(body=b"wrong")
    one.reconsume_times = 1 << 31
    with pytest.raises(struct.error):
        store.commit_log.put_batch([message(body=b"right"), one]) if one_of_two else store.commit_log.put(one)
    store.commit_log.put(message(body=b"behind"))
    store.dispatch()
    assert bodies(store) == [b"before", b"behind"]
    assert store.max_physical_offset == sum(record.total_size for record in records(store))


def test_put_is_refused_while_no_file_can_be_created_and_works_later() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.commit_log.put(message(body=bytes(FILE_SIZE - 500)))
    create = disk.map

    def full(path: str, size: int, **hints: bool) -> object:
        raise OSError(24, "Too many open files")

    disk.map = full  # type: ignore[method-assign,assignment]
    refused = store.commit_log.put(message(body=bytes(1000)))
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED and "Too many open files" in refused.reason
    disk.map = create  # type: ignore[method-assign]
    assert store.commit_log.put(message(body=bytes(1000))).physical_offset == FILE_SIZE


def test_the_next_file_is_made_ahead_once_the_last_is_half_full() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.commit_log.put(message(body=bytes(FILE_SIZE // 2)))
    assert len(disk.listdir("/store/commitlog")) == 1
    store.request_sync(store.max_physical_offset)
    store.flush_service.run_once()
    assert len(disk.listdir("/store/commitlog")) == 2
    assert store.commit_log.put(message(body=bytes(FILE_SIZE // 2))).physical_offset == FILE_SIZE

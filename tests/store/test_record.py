"""Encoding and decoding of records, compared with the `construct` declaration; the checks that recovery makes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal.isal_zlib import crc32

from pocketmq.store.format import layout
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import entries_from
from pocketmq.store.format.record import (
    BadRecordError,
    bounds,
    check_record,
    decode_dispatch_request,
    decode_record,
    encode_record,
    entries_of,
    entries_of_each,
    host_flags,
    is_blank,
    record_size,
    store_timestamp_of,
    topic_part,
)
from tests.store.stores import HOST, HOST_V6, message

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


@st.composite
def messages(draw: st.DrawFn) -> Message:
    # Short topics, and long ones, which make V2 records; often those just below and above the limit.
    topic = draw(st.one_of(st.text("aB9%_", min_size=1, max_size=20), st.sampled_from(["x" * 127, "x" * 128, "ü" * 300])))
    return Message(
        topic,
        draw(INT32),
        draw(st.binary(max_size=200)),
        draw(HOSTS),
        draw(HOSTS),
        flag=draw(INT32),
        sys_flag=draw(st.integers(0, 0x7FF)),
        born_timestamp_ms=draw(INT64),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        properties_bytes=draw(st.binary(max_size=300)),
    )


def encode(message: Message, queue_offset: int = 0, physical_offset: int = 0, store_timestamp_ms: int = 7) -> bytes:
    magic_code, topic = topic_part(message.topic.encode())
    size = record_size(message, len(topic))
    return encode_record(message, magic_code, topic, size, queue_offset, physical_offset, store_timestamp_ms)


@given(messages(), INT64, INT64, INT64)
def test_encoded_record_matches_the_construct_declaration(
    one: Message, queue_offset: int, physical_offset: int, now: int
) -> None:
    data = encode(one, queue_offset, physical_offset, now)

    declared = layout.RECORD.parse(data)
    assert layout.RECORD.build(declared) == data
    assert declared.total_size == len(data)
    assert declared.body_crc == crc32(one.body) & 0x7FFFFFFF
    assert declared.sys_flag == one.sys_flag & ~0x30 | host_flags(one)
    assert (declared.born_host, declared.store_host) == (one.born_host, one.store_host)
    assert (declared.body, declared.topic, declared.properties) == (one.body, one.topic.encode(), one.properties_bytes)
    assert (declared.magic_code == layout.MESSAGE_MAGIC_CODE_V2) == (len(one.topic.encode()) > 127)

    record = decode_record(memoryview(b"before" + data + b"behind"), 6)
    assert {name: getattr(record, name) for name in record.__struct_fields__} == {
        name: declared[name] for name in record.__struct_fields__
    }
    assert store_timestamp_of(memoryview(data)) == now
    assert entries_of(memoryview(b"before" + data + b"behind"), 6) == entries_from(one.properties_bytes)


@given(messages(), st.data())
def test_damaged_record_is_never_decoded_beyond_its_bytes(one: Message, data: st.DataObject) -> None:
    record = bytearray(encode(one))
    cut = data.draw(st.integers(0, len(record) - 1))
    with pytest.raises(BadRecordError):
        bounds(memoryview(bytes(record[:cut])), 0)
    assert entries_of(memoryview(bytes(record[:cut])), 0) == entries_from(b"")
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        size, body_start, topic_start, topic_size = bounds(memoryview(record), 0)
    except BadRecordError:
        assert entries_of(memoryview(record), 0) == entries_from(b"")
        return
    assert entries_of(memoryview(record), 0) == entries_from(bytes(record[topic_start + topic_size + 2 : size]))
    assert 88 <= body_start <= topic_start <= topic_start + topic_size <= size <= len(record)


@pytest.mark.parametrize("host_bits", [0x10, 0x20, 0x30])
def test_short_record_with_flags_of_ipv6_hosts_is_refused(host_bits: int) -> None:
    record = bytearray(encode(Message("T", 0, b"", bytes(8), bytes(8))))
    record[39] ^= host_bits
    with pytest.raises(BadRecordError, match="hosts extend beyond the record's end at 92"):
        bounds(memoryview(record), 0)


@given(st.lists(messages(), max_size=4), st.data())
def test_entries_of_consecutive_records_equal_those_of_single_records(some: list[Message], data: st.DataObject) -> None:
    stored = [bytearray(encode(one)) for one in some]
    assert entries_of_each(b"".join(stored), map(len, stored)) == [entries_from(one.properties_bytes) for one in some]
    for record in stored:
        if data.draw(st.booleans()):
            record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    block = memoryview(b"".join(stored))
    assert entries_of_each(block, map(len, stored)) == [entries_of(memoryview(record), 0) for record in stored]


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), INT64)
def test_queue_unit_struct_and_dtype_match_the_declaration(size: int, physical_offset: int, tags_code: int) -> None:
    import numpy as np

    data = layout.CONSUME_QUEUE_UNIT_STRUCT.pack(physical_offset, size, tags_code)
    declared = layout.CONSUME_QUEUE_UNIT.parse(data)
    (unit,) = np.frombuffer(data, layout.CONSUME_QUEUE_UNIT_DTYPE).tolist()
    assert (declared.physical_offset, declared.size, declared.tags_code) == (physical_offset, size, tags_code) == unit
    assert layout.unit_run_struct(2).unpack(data + data) == (physical_offset, size, tags_code) * 2


def test_dispatch_request_holds_what_queues_and_index_need() -> None:
    one = message("Orders", 3, b"x", TAGS="A", KEYS="k1 k2", UNIQ_KEY="U")
    data = encode(one, queue_offset=5, physical_offset=0, store_timestamp_ms=99)
    request = decode_dispatch_request(memoryview(data), 0, lambda topic, properties, now: len(properties) + now)
    assert (request.topic, request.queue_id, request.queue_offset, request.size) == ("Orders", 3, 5, len(data))
    assert (request.keys, request.uniq_key, request.tags_code, request.store_timestamp_ms) == ("k1 k2", "U", 102, 99)


def test_ipv6_flags_come_from_the_hosts_not_from_the_sender() -> None:
    lying = message()
    lying.sys_flag = 0x30
    assert decode_record(memoryview(encode(lying))).sys_flag == 0
    lying.born_host, lying.store_host = HOST_V6, HOST
    assert decode_record(memoryview(encode(lying))).sys_flag == 0x10


def test_a_record_that_stands_at_another_offset_is_refused() -> None:
    data = memoryview(encode(message(), physical_offset=1000))
    assert check_record(data, 0, 1000) == len(data)
    with pytest.raises(
        BadRecordError, match="the record at 2000 has physical offset 1000: it is left over from before a truncation"
    ):
        check_record(data, 0, 2000)


def test_a_flipped_body_byte_is_found_by_the_crc_unless_that_is_off() -> None:
    data = bytearray(encode(message(body=b"hello")))
    data[90] ^= 1
    with pytest.raises(BadRecordError, match="CRC"):
        check_record(memoryview(data), 0, 0)
    assert check_record(memoryview(data), 0, 0, check_crc=False) == len(data)


def test_a_lost_sector_within_the_properties_is_found() -> None:
    data = bytearray(encode(message(body=b"x", NOTE="y" * 1500)))
    assert check_record(memoryview(data), 0, 0) == len(data)
    data[512:1024] = bytes(512)
    with pytest.raises(BadRecordError, match="bytes 512..1024 are zero"):
        check_record(memoryview(data), 0, 0)


def test_blank_mark_must_reach_to_the_end_of_the_file() -> None:
    view = memoryview(bytearray(100))
    layout.BLANK_STRUCT.pack_into(view, 40, 60, layout.BLANK_MAGIC_CODE)
    assert is_blank(view, 40)
    assert not is_blank(view[:99], 40)
    assert not is_blank(view, 0)

"""Record windows, which are arrays, compared with the functions that read one record."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE_V2
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import BadRecordError, check_record, decode_record, encode_record, record_size, topic_part
from pocketmq.store.format.record_chain import chained
from pocketmq.store.format.record_window import RecordWindow
from tests.support.amount import cases

NAMES = ("KEYS", "TAGS", "UNIQ_KEY", "A_NAME_BEYOND_8_BYTES")
HOSTS = st.sampled_from([bytes(8), bytes(20)])
TOPICS = st.sampled_from(
    ["T", "Topic", "Topic1234", "Topic1235", "%RETRY%a-group-of-more-than-16", "x" * 127, "y" * 128, "ü"]
)
# Valid entries, and invalid ones: without a name, a value or a divider, or with two dividers.
ENTRIES = st.builds(
    lambda name, divider, value: name + divider + value,
    st.sampled_from([*NAMES, "K", "XKEYS", ""]),
    st.sampled_from(["\x01", "\x01\x01", ""]),
    st.text("aé \x01", max_size=9),
)
PROPERTIES = st.lists(ENTRIES, max_size=6).map("\x02".join)


@st.composite
def logs(draw: st.DrawFn, first: int = 0) -> bytearray:
    """Draw a log of a few records, the first of which is at physical offset `first`."""
    log = bytearray()
    for _ in range(draw(st.integers(1, 8))):
        properties = draw(PROPERTIES).encode() + draw(st.sampled_from([b"", b"\x02", b"\xff"]))
        one = Message(draw(TOPICS), 1, draw(st.binary(max_size=40)), draw(HOSTS), draw(HOSTS), properties_bytes=properties)
        log += encode(one, first + len(log))
    return log


def encode(one: Message, physical_offset: int) -> bytes:
    magic_code, topic = topic_part(one.topic.encode())
    return encode_record(one, magic_code, topic, record_size(one, len(topic)), 0, physical_offset, 7)


def window_of(log: bytes | bytearray, physical_offset: int = 0) -> RecordWindow:
    data = np.frombuffer(bytes(log), np.uint8)
    return RecordWindow(data, physical_offset, *chained(data, physical_offset))


@given(logs())
def test_fields_topics_and_properties_are_those_of_the_records(log: bytearray) -> None:
    window = window_of(log)
    records = [decode_record(memoryview(log), start) for start in window.starts.tolist()]
    assert int(window.sizes.sum()) == len(log) and window.lengths_add_up.all()
    for name in ("queue_offset", "physical_offset", "store_timestamp_ms", "body_crc", "sys_flag", "body_size"):
        expected = [len(record.body) if name == "body_size" else getattr(record, name) for record in records]
        assert window.fixed(name).tolist() == expected
    names, ids = window.topics()
    assert [names[number] for number in ids] == [record.topic for record in records]
    assert len(set(names)) == len(names)
    for name in NAMES:
        begins, ends = window.property_spans(name.encode())
        found = [None if b < 0 else log[b:e].decode("utf-8", "replace") for b, e in zip(begins, ends, strict=True)]
        assert found == [decode_properties(record.properties).get(name) for record in records]


def first_refused(window: RecordWindow, check_crc: bool) -> int | None:
    for row, start in enumerate(window.starts.tolist()):
        try:
            check_record(memoryview(window.data), start, window.physical_offset + start, check_crc)  # type: ignore[arg-type]
        except BadRecordError:
            return row
    return None


@settings(max_examples=cases(75, 300))
@given(logs(), st.data(), st.booleans())
def test_the_first_invalid_record_is_the_one_that_check_record_refuses(
    log: bytearray, data: st.DataObject, crc: bool
) -> None:
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(log) - 1))
        damage = data.draw(st.one_of(st.binary(min_size=1, max_size=3), st.integers(1, 700).map(bytes)))
        log[start : start + len(damage)] = damage[: len(log) - start]
    window = window_of(log)
    assert window.first_invalid(crc) == first_refused(window, crc)


def test_no_byte_beyond_the_last_record_is_read() -> None:
    """The damaged body size leaves three bytes, too few for a topic size of two bytes, the topic and the properties size."""
    log = bytearray(encode(Message("T", 0, b"body", bytes(8), bytes(8), properties_bytes=b""), 0))
    log[4:8] = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
    log[84:88] = (len(log) - 88 - 3).to_bytes(4, "big")
    assert window_of(log).first_invalid() == first_refused(window_of(log), True) == 0


@pytest.mark.parametrize("zeros", [(600, 1024), (512, 600), (520, 1030)])
def test_zeros_in_properties_are_a_lost_sector_only_where_they_fill_one(zeros: tuple[int, int]) -> None:
    one = Message("T", 0, b"", bytes(8), bytes(8), properties_bytes=b"A\x01" + b"b" * 1500)
    log = bytearray(encode(one, 0))
    log[zeros[0] : zeros[1]] = bytes(zeros[1] - zeros[0])
    assert window_of(log).first_invalid() is None
    log[512:1024] = bytes(512)
    assert window_of(log).first_invalid() == 0


def test_sectors_are_counted_from_the_file_not_from_the_window() -> None:
    one = Message("T", 0, b"", bytes(8), bytes(8), properties_bytes=b"A\x01" + b"b" * 1500)
    log = bytearray(encode(one, 300))
    log[512 - 300 : 1024 - 300] = bytes(512)
    assert window_of(log, 300).first_invalid() == 0
    with pytest.raises(BadRecordError, match=r"512\.\.1024 are zero"):
        check_record(memoryview(log), 0, 300)


def test_a_record_that_ends_in_zeros_is_torn() -> None:
    one = Message("T", 0, b"x", bytes(8), bytes(8), properties_bytes=b"A\x01b")
    record = bytearray(encode(one, 0))
    record[-1] = 0
    log = record + bytes(20)
    assert window_of(log).first_invalid() == 0
    with pytest.raises(BadRecordError, match="torn"):
        check_record(memoryview(log), 0, 0)
    # It is complete if it was dispatched, or if another record follows.
    assert check_record(memoryview(log), 0, 0, complete_to=len(record)) == len(record)
    log[len(record) :] = encode(one, len(record))
    assert window_of(log).first_invalid() is None
    assert check_record(memoryview(log), 0, 0) == len(record)


def test_topics_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    log = bytearray()
    for topic in ("aa", "bb", "aa", "cc"):
        log += encode(Message(topic, 0, b"", bytes(8), bytes(8)), len(log))
    monkeypatch.setattr("pocketmq.store.format.record_window._TOPIC_HASH_FACTOR", np.uint64(0))
    names, ids = window_of(log).topics()
    assert [names[number] for number in ids] == [b"aa", b"bb", b"aa", b"cc"]

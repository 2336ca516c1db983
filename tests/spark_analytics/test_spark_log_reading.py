"""Reading a log without a JVM: the records found, and each of their fields."""

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.spark_analytics.decoding.properties import PropertyTable
from pocketmq.spark_analytics.reading import split_planning
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.store.format.layout import MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import encode_record, record_size, topic_part
from pocketmq.store.offline.log_walk import Ending, FileWalk
from pocketmq.store.offline.places import LogFile
from tests.spark_analytics.spark_logs import HOST, HOST_V6, LogBuilder, expected_records, physical_offsets, read
from tests.support.amount import cases

pytestmark = pytest.mark.spark

SPLIT_SIZES = (1, 100, 317, 1000, 4096, 1 << 30)
SOME_SPLIT_SIZES = cases(SPLIT_SIZES[1:], SPLIT_SIZES)
"""Without splits of one byte, each of which is a task; the others, too, begin within records."""
SAME_NAMED = [
    *("topic", "queueId", "queueOffset", "physicalOffset", "storeSize", "sysFlag", "flag", "bornHost", "storeHost"),
    *("reconsumeTimes", "preparedTransactionOffset", "offsetMsgId"),
]


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def as_expected(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row in the form of a golden store's expected records."""
    values = {name: row[name] for name in SAME_NAMED}
    body = row["body"]
    values |= {"bodyCRC": row["bodyCrc"], "bodyLen": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
    if len(body) <= 256:
        values["bodyB64"] = base64.b64encode(body).decode()
    return values | {"properties": dict(row["properties"])}


@pytest.mark.parametrize("name", ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"])
def test_every_field_of_every_golden_record(golden_stores: dict[str, Path], name: str) -> None:
    rows, expected = read(golden_stores[name]), expected_records(name)
    assert len(rows) == len(expected)
    for row, record in zip(rows, expected, strict=True):
        seen = as_expected(row)
        assert seen == {key: record[key] for key in seen if key in record}
        assert seen.keys() - record.keys() <= {"bodyB64"}
        assert row["bornTimestamp"] == time(record["bornTimestamp"])
        assert row["storeTimestamp"] == time(record["storeTimestamp"])
        properties = record["properties"]
        assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
        assert row["uniqKey"] == properties.get("UNIQ_KEY")


@pytest.mark.parametrize("name", ["v4_torn_body", "v4_torn_props"])
def test_a_torn_last_record_is_left_out(golden_stores: dict[str, Path], name: str) -> None:
    whole = [record["physicalOffset"] for record in expected_records("v4_kill9")]
    assert physical_offsets(golden_stores[name]) == whole[:-1]


@pytest.mark.parametrize("split_size", [777, 10_000, 65_536, 1 << 20])
def test_splits_of_any_size_give_each_golden_record_once(golden_stores: dict[str, Path], split_size: int) -> None:
    expected = [record["physicalOffset"] for record in expected_records("v4_clean")]
    assert physical_offsets(golden_stores["v4_clean"], maxPartitionBytes=split_size) == expected


@pytest.mark.parametrize("window_size", [1, 50, 300, 5000, 1 << 20])
def test_windows_of_any_size_give_the_same_records(golden_stores: dict[str, Path], window_size: int) -> None:
    path = golden_stores["v4_clean"] / "commitlog" / f"{0:020}"
    walk = FileWalk(LogFile(str(path), 0, path.stat().st_size), 0, path.stat().st_size, window_size)
    seen = [int(window.physical_offset + start) for window in walk for start in window.starts]
    assert seen == [r["physicalOffset"] for r in expected_records("v4_clean") if r["file"] == path.name]
    assert (walk.ending, walk.position) == (Ending.BLANK, 905_702)


def record_image(physical_offset: int) -> bytes:
    message = Message("T", 0, b"image", HOST, HOST)
    magic_code, topic = topic_part(b"T")
    return encode_record(message, magic_code, topic, record_size(message, len(topic)), 0, physical_offset, 1)


@pytest.mark.parametrize("split_size", SOME_SPLIT_SIZES)
def test_record_images_inside_bodies_are_not_read_as_records(tmp_path: Path, split_size: int) -> None:
    log = LogBuilder(20_000)
    log.append()
    for magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        log.append(b"\xda" * 50 + magic.to_bytes(4, "big", signed=True) * 40)
    log.append(record_image(7))
    log.append(record_image(log.next_physical_offset + 88))  # claims exactly the offset at which it is stored
    log.append()
    assert physical_offsets(log.write(tmp_path), maxPartitionBytes=split_size) == log.physical_offsets


@pytest.mark.parametrize("split_size", SOME_SPLIT_SIZES)
def test_old_records_after_a_truncation_are_not_read(tmp_path: Path, split_size: int) -> None:
    log = LogBuilder(20_000)
    cut = [log.append(b"old" * 20) for _ in range(30)][10]
    log.truncate(cut)
    log.append(b"new" * 21)
    assert physical_offsets(log.write(tmp_path), maxPartitionBytes=split_size) == log.physical_offsets
    assert len(log.physical_offsets) == 11


@pytest.mark.parametrize("split_size", SOME_SPLIT_SIZES)
def test_old_records_after_the_end_of_a_full_file_are_not_read(
    tmp_path: Path, split_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_planning, "FULL_FILE_TAIL", 4000)
    log = LogBuilder(20_000)
    cut = [log.append(b"old" * 20) for _ in range(110)][105]
    log.truncate(cut)
    log.append(b"large" * 1000)  # fits into the next file only
    log.append()
    assert len(log.files) == 2
    assert physical_offsets(log.write(tmp_path), maxPartitionBytes=split_size) == log.physical_offsets


@pytest.mark.parametrize("split_size", SPLIT_SIZES)
def test_files_of_several_sizes(tmp_path: Path, split_size: int) -> None:
    log = LogBuilder(1000, 5000, 300, 2000, physical_offset=7000)
    for number in range(80):
        log.append(b"x" * (number % 40))
    assert len(log.files) > 4
    assert physical_offsets(log.write(tmp_path), maxPartitionBytes=split_size) == log.physical_offsets


def test_a_record_larger_than_windows_and_splits(tmp_path: Path) -> None:
    log = LogBuilder(30 << 20)
    for size in (10, 20 << 20, 10):
        log.append(b"z" * size)
    rows = read(log.write(tmp_path), "physicalOffset", "storeSize", "body", maxPartitionBytes="1m")
    assert [row["physicalOffset"] for row in rows] == log.physical_offsets
    assert [len(row["body"]) for row in rows] == [10, 20 << 20, 10]


def test_a_record_cut_anywhere_up_to_its_topic_is_left_out(tmp_path: Path) -> None:
    log = LogBuilder(2000)
    log.append()
    last = log.append(b"body" * 5)
    base, whole = log.files[-1]
    end = log.position
    store = log.write(tmp_path)
    path = store / "commitlog" / f"{base:020}"
    for cut in range(last, end - 3):  # the last 3 bytes are the topic and the length of no properties
        path.write_bytes(bytes(whole[:cut]).ljust(2000, b"\0"))
        assert physical_offsets(store) == log.physical_offsets[:1], f"cut at {cut}"
    path.write_bytes(whole[:end])  # a file that ends with its last record, as a copy may
    assert physical_offsets(store) == log.physical_offsets


@pytest.mark.parametrize("split_size", SOME_SPLIT_SIZES)
@pytest.mark.parametrize("what", ["a record", "the end", "the beginning", "all"])
def test_damage_before_the_last_file_does_not_end_the_log(tmp_path: Path, split_size: int, what: str) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 4:
        log.append()
    own = [offset for offset in log.physical_offsets if 1000 <= offset < 2000]
    begin, stop = {
        "a record": (own[3], own[4]),
        "the end": (own[3], 2000),
        "the beginning": (1000, own[3]),
        "all": (1000, 2000),
    }[what]
    log.files[1][1][begin - 1000 : stop - 1000] = bytes(stop - begin)
    store = log.write(tmp_path)
    with pytest.raises(DamagedRecordError, match=f"physical offset {begin} of .*{1000:020}"):
        physical_offsets(store, maxPartitionBytes=split_size)
    left = [offset for offset in log.physical_offsets if not begin <= offset < stop]
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="DROPMALFORMED") == left
    rows = read(store, "physicalOffset", "_corrupt_record binary", maxPartitionBytes=split_size, mode="PERMISSIVE")
    damaged = {row["physicalOffset"]: row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None}
    assert (damaged, len(rows)) == ({begin: bytes(stop - begin)}, len(left) + 1)


@pytest.mark.parametrize("split_size", SPLIT_SIZES)
def test_filler_with_wrong_size_is_damage(tmp_path: Path, split_size: int) -> None:
    """This also holds if a split ends before the filler, so that another task would read the bytes that follow."""
    log = LogBuilder(1000)
    while len(log.files) < 3:
        log.append(b"x" * 20)
    last = max(own for own in log.physical_offsets if own < 1000)
    filler = last + int.from_bytes(log.files[0][1][last : last + 4])
    log.files[0][1][filler + 3] ^= 1
    store = log.write(tmp_path)
    with pytest.raises(DamagedRecordError, match=f"physical offset {filler} of .*{0:020}"):
        physical_offsets(store, maxPartitionBytes=split_size)
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="DROPMALFORMED") == log.physical_offsets
    shown = physical_offsets(store, maxPartitionBytes=split_size, mode="PERMISSIVE")
    assert shown == sorted([*log.physical_offsets, filler])


def log_of_two_files(monkeypatch: pytest.MonkeyPatch) -> LogBuilder:
    """Return a log with a full file, whose end counts as near only within 2,000 bytes, and a second one."""
    monkeypatch.setattr(split_planning, "FULL_FILE_TAIL", 2000)
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append()
    return log


@pytest.mark.parametrize("at", [4, 84], ids=["magic", "body length"])
def test_damaged_record_fails_the_query_or_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    log = log_of_two_files(monkeypatch)
    damaged = log.physical_offsets[50]
    log.files[0][1][damaged + at] ^= 0x7F
    store = log.write(tmp_path)
    with pytest.raises(DamagedRecordError, match=f"physical offset {damaged} of .*{0:020}"):
        physical_offsets(store)
    left = [own for own in log.physical_offsets if own != damaged]
    assert physical_offsets(store, mode="dropMalformed") == left


@pytest.mark.parametrize("split_size", [100, 317, 1 << 30])
@pytest.mark.parametrize("wrong", [1, -1, 64, 200, 1 << 30])
def test_wrong_length_loses_only_one_record(tmp_path: Path, split_size: int, wrong: int) -> None:
    log = LogBuilder(1500)
    for number in range(25):
        log.append(b"x" * (number % 7 * 20))
    damaged = log.physical_offsets[9]
    at = slice(damaged, damaged + 4)
    log.files[0][1][at] = (int.from_bytes(log.files[0][1][at]) + wrong).to_bytes(4)
    store = log.write(tmp_path)
    left = [own for own in log.physical_offsets if own != damaged]
    assert physical_offsets(store, mode="DROPMALFORMED", maxPartitionBytes=split_size) == left
    with pytest.raises(DamagedRecordError, match=f"physical offset {damaged} of"):
        physical_offsets(store, maxPartitionBytes=split_size)


@pytest.mark.parametrize("topic", ["T", "long" * 40], ids=["v1", "v2"])
def test_ipv4_and_ipv6_hosts_in_one_window(tmp_path: Path, topic: str) -> None:
    log = LogBuilder(20_000)
    hosts = [(HOST, HOST), (HOST_V6, HOST), (HOST, HOST_V6), (HOST_V6, HOST_V6), (HOST, HOST)]
    for number, (born_host, store_host) in enumerate(hosts):
        log.append(
            b"b%d" % number, topic, {"TAGS": f"t{number}"}, born_host, store_host, 1_700_000_000_000 + number,
            reconsume_times=number, prepared_transaction_offset=number, born_timestamp_ms=number,
        )  # fmt: skip
    text = {HOST: "10.0.0.7:10911", HOST_V6: "[2001:db8::1]:10911"}
    rows = read(log.write(tmp_path))
    for number, (row, (born_host, store_host)) in enumerate(zip(rows, hosts, strict=True)):
        assert (row["bornHost"], row["storeHost"]) == (text[born_host], text[store_host])
        own = log.physical_offsets[number]
        assert row["offsetMsgId"] == (store_host + own.to_bytes(8, "big")).hex().upper()
        assert (row["topic"], row["tags"], row["body"]) == (topic, f"t{number}", b"b%d" % number)
        assert (row["reconsumeTimes"], row["preparedTransactionOffset"]) == (number, number)
        assert row["bornTimestamp"] == time(number)
        assert row["storeTimestamp"] == time(1_700_000_000_000 + number)


property_strings = st.text(st.sampled_from("\x01\x02ab\u00e9"), max_size=30).map(lambda text: text.encode())


@given(st.lists(property_strings | st.binary(max_size=12), min_size=1, max_size=6))
def test_properties_are_read_as_the_store_reads_them(strings: list[bytes]) -> None:
    data, begins, ends = bytearray(), [], []
    for string in strings:
        data += bytes([len(string)])
        begins.append(len(data) - 1)
        data += string
        ends.append(len(data))
    table = PropertyTable(np.frombuffer(bytes(data), np.uint8), np.array(begins), np.array(ends))
    expected = [decode_properties(string) for string in strings]
    assert [dict(entries) for entries in table.map_array().to_pylist()] == expected


def test_topics_with_invalid_utf8_are_read(tmp_path: Path) -> None:
    log = LogBuilder(2000)
    log.append(topic="Tx", properties=b"KEYS\x01\xff\x02TAGS\x01t")
    at = log.files[0][1].index(b"Tx")
    log.files[0][1][at + 1] = 0xFF
    log.append()
    (first, _) = read(log.write(tmp_path))
    assert (first["topic"], first["keys"], first["tags"]) == ("T\ufffd", "\ufffd", "t")


def test_extreme_timestamps_are_clipped(tmp_path: Path) -> None:
    log = LogBuilder(2000)
    log.append(born_timestamp_ms=2**63 - 1)
    log.append(born_timestamp_ms=-(2**63))
    log.write(tmp_path)
    from pocketmq.spark_analytics.decoding.columns import Records

    (window,) = FileWalk(LogFile(str(tmp_path / "commitlog" / f"{0:020}"), 0, 2000), 0, log.position)
    late, early = Records.of(window).timestamps_us("born_timestamp_ms").tolist()
    assert late > 2**62 and early < -(2**62)


def test_new_store_is_empty(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read(tmp_path) == []
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    assert read(tmp_path) == []


def test_a_store_may_be_named_by_its_root_folder_file_or_glob(tmp_path: Path) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 3:
        log.append()
    store = log.write(tmp_path / "a")
    log.write(tmp_path / "b")
    assert physical_offsets(store / "commitlog") == log.physical_offsets
    in_second = [own for own in log.physical_offsets if 1000 <= own < 2000]
    second = store / "commitlog" / f"{1000:020}"
    assert physical_offsets(second) == in_second
    assert physical_offsets(second.rename(tmp_path / "copied.log")) == in_second
    assert physical_offsets(tmp_path / "b" / "commitlog" / "0*") == log.physical_offsets
    assert physical_offsets(tmp_path / "[b]") == log.physical_offsets


def test_reading_does_not_change_the_store(golden_stores: dict[str, Path]) -> None:
    store = golden_stores["v4_kill9"]

    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")}

    before = state()
    assert read(store, "topic")
    assert state() == before

"""Decompressed bodies and bodies as text; damage in each mode; derived columns."""

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from pocketmq.spark_analytics.decoding import bodies
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.spark_analytics.source.data_source import RocketMQDataSource
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, read

pytestmark = pytest.mark.spark

TEXT = b'{"order": 7, "name": "\xc3\xa9"}' * 30
ZLIB, LZ4, ZSTD, ZLIB_BY_NAME = 0x001, 0x101, 0x201, 0x301


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    log = LogBuilder(100_000)
    log.append(TEXT)
    log.append(zlib.compress(TEXT), sys_flag=ZLIB)
    log.append(lz4.frame.compress(TEXT), sys_flag=LZ4)
    log.append(zstandard.ZstdCompressor(write_content_size=False).compress(TEXT), sys_flag=ZSTD)
    log.append(b"short")
    log.append(zlib.compress(TEXT), sys_flag=ZLIB_BY_NAME)
    log.append(b"", sys_flag=ZLIB)
    return log.write(tmp_path)


def test_plain_bodies_are_decompressed(compressed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [TEXT, TEXT, TEXT, TEXT, b"short", TEXT, b""]
    assert [row["body"] for row in read(compressed, "body", bodyAs="plain")] == expected
    assert [row["body"] for row in read(compressed, "body")][:2] == [TEXT, zlib.compress(TEXT)]
    monkeypatch.setattr(bodies, "PORTION_SIZE", 1000)
    rows = read(compressed, "body", "physicalOffset", bodyAs="plain")
    assert [row["body"] for row in rows] == expected
    assert [row["physicalOffset"] for row in rows] == sorted(row["physicalOffset"] for row in rows)


def test_golden_bodies_decompress(golden_stores: dict[str, Path]) -> None:
    rows = read(golden_stores["v4_clean"], "body", "sysFlag", topic="GoldenCompress", bodyAs="plain")
    stored = [row["body"] for row in read(golden_stores["v4_clean"], "body", topic="GoldenCompress")]
    kinds: dict[int, Callable[[bytes], bytes]] = {0: zlib.decompress, 1: lz4.frame.decompress, 3: zlib.decompress}
    kinds[2] = lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body)
    assert {row["sysFlag"] & 0x701 for row in rows} > {0}
    for row, body in zip(rows, stored, strict=True):
        assert row["body"] == (kinds[row["sysFlag"] >> 8 & 7](body) if row["sysFlag"] & 1 else body)


def test_bodies_as_text_and_as_json(tmp_path: Path) -> None:
    log = LogBuilder(10_000)
    for body in (b'{"a": [1, 2]}', b"caf\xc3\xa9", b"\xff\x00", b"", b"[1,", b' "\xc3\xa9" ', b'"\xff"', b"{} {}"):
        log.append(body)
    log.append(zlib.compress(b"[true]"), sys_flag=ZLIB)
    store = log.write(tmp_path)
    as_text = [row["body"] for row in read(store, "body string", bodyAs="string")]
    assert as_text == ['{"a": [1, 2]}', "café", "\ufffd\0", "", "[1,", ' "é" ', '"\ufffd"', "{} {}", "[true]"]
    as_json = [row["body"] for row in read(store, "body string", bodyAs="json")]
    assert as_json == ['{"a": [1, 2]}', None, None, None, None, ' "é" ', None, None, "[true]"]


def bomb() -> bytes:
    return zlib.compress(bytes(bodies.BODY_SIZE_MAX + 1), 1)


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (b"no stream", ZLIB),
        (zlib.compress(TEXT)[:-3], ZLIB),
        (b"no frame", LZ4),
        (lz4.frame.compress(TEXT)[:-8], LZ4),
        (b"no frame", ZSTD),
        (zstandard.compress(TEXT)[:-3], ZSTD),
        (zlib.compress(TEXT), 0x401),
        (bomb(), ZLIB),
    ],
    ids=["zlib", "zlib cut", "lz4", "lz4 cut", "zstd", "zstd cut", "unknown", "bomb"],
)
def test_undecompressable_body_is_damage(tmp_path: Path, body: bytes, sys_flag: int) -> None:
    log = LogBuilder(1 << 20)
    log.append(b"first")
    own = log.append(body, sys_flag=sys_flag)
    log.append(zlib.compress(b"last"), sys_flag=ZLIB)
    store = log.write(tmp_path)
    assert [row["body"] for row in read(store, "body")][1] == body
    assert len(read(store, "topic", bodyAs="plain")) == 3, "nobody asked for the body"
    with pytest.raises(DamagedRecordError, match=f"physical offset {own} of .*: its body cannot be decompressed"):
        read(store, "body", bodyAs="plain")
    dropped = read(store, "physicalOffset", "body", bodyAs="plain", mode="DROPMALFORMED")
    assert [row["body"] for row in dropped] == [b"first", b"last"]
    shown = read(store, "physicalOffset", "topic", "body", "_corrupt_record binary", bodyAs="plain", mode="permissive")
    assert [row["body"] for row in shown] == [b"first", None, b"last"]
    assert [row["topic"] for row in shown] == ["T"] * 3
    record = (store / "commitlog" / f"{0:020}").read_bytes()[own : log.physical_offsets[2]]
    assert [row["_corrupt_record"] for row in shown] == [None, record, None]


def test_permissive_mode_yields_rows_for_damaged_bytes(tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append(b"b" * 40)
    # One record is overwritten; in another one the lengths do not add up.
    first, second = log.physical_offsets[10], log.physical_offsets[20]
    size = log.physical_offsets[1]
    log.files[0][1][first : first + size] = b"x" * size
    log.files[0][1][second + 87] += 1
    store = log.write(tmp_path)
    names = ("physicalOffset", "topic", "bad binary", "storePath", "crcOk")
    rows = read(store, *names, mode="PERMISSIVE", columnNameOfCorruptRecord="bad")
    bad = {row["physicalOffset"]: row for row in rows if row["topic"] is None}
    assert sorted(row["physicalOffset"] for row in rows) == log.physical_offsets
    file = store / "commitlog" / f"{0:020}"
    assert bad[first] == {
        "physicalOffset": first, "topic": None, "bad": b"x" * size, "storePath": str(file), "crcOk": None
    }  # fmt: skip
    assert bad[second]["bad"] == file.read_bytes()[second : second + size]
    assert len(read(store, *names, mode="PERMISSIVE", columnNameOfCorruptRecord="bad", topic="T")) == len(rows) - 2
    assert len(read(store, "topic", mode="PERMISSIVE")) == len(rows), "without the column too"


def time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


STORED_MS = 1_700_000_000_123
DELIVER_TIMES = {
    "level 3": ("SCHEDULE_TOPIC_XXXX", {"DELAY": "3"}, STORED_MS + 10_000),
    "above all levels": ("SCHEDULE_TOPIC_XXXX", {"DELAY": "99"}, STORED_MS + 7_200_000),
    "no level": ("SCHEDULE_TOPIC_XXXX", {"DELAY": "soon"}, None),
    "seconds": ("rmq_sys_wheel_timer", {"TIMER_DELAY_SEC": "7", "TIMER_OUT_MS": "5"}, STORED_MS + 7000),
    "ms": ("rmq_sys_wheel_timer", {"TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": "9"}, STORED_MS + 7),
    "a time": ("rmq_sys_wheel_timer", {"TIMER_DELIVER_MS": str(STORED_MS + 9), "TIMER_OUT_MS": "5"}, STORED_MS + 9),
    "other clients": ("rmq_sys_wheel_timer", {"__STARTDELIVERTIME": str(STORED_MS + 1)}, STORED_MS + 1),
    "rolled": ("rmq_sys_wheel_timer", {"TIMER_DELAY_MS": "7", "TIMER_ROLL_TIMES": "1", "TIMER_OUT_MS": "5000"}, 6000),
    "carried": ("rmq_sys_wheel_timer", {"PMQ_DUE_MS": "77", "TIMER_DELAY_MS": "7"}, 77),
    "nothing": ("rmq_sys_wheel_timer", {}, None),
    "delivered": ("T", {"DELAY": "3", "TIMER_DELIVER_MS": "9"}, None),
}


def test_deliver_times(tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    for topic, properties, _ in DELIVER_TIMES.values():
        log.append(topic=topic, properties=dict(properties), store_timestamp_ms=STORED_MS)
    rows = read(log.write(tmp_path), "deliverTime", "delayLevel")
    expected = {name: None if due is None else time(due) for name, (_, _, due) in DELIVER_TIMES.items()}
    assert dict(zip(DELIVER_TIMES, (row["deliverTime"] for row in rows), strict=True)) == expected
    assert [row["delayLevel"] for row in rows] == [3, 99, *[None] * 8, 3]
    first = read(tmp_path, "deliverTime", delayLevel="1m 2m 3m")[0]
    assert first["deliverTime"] == time(STORED_MS + 180_000)


def test_real_topic_and_queue_of_waiting_messages(tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    real = {"REAL_TOPIC": "Orders", "REAL_QID": "7"}
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%G"):
        log.append(topic=topic, properties=dict(real))
    log.append(topic="SCHEDULE_TOPIC_XXXX")
    rows = [(row["realTopic"], row["realQueueId"]) for row in read(log.write(tmp_path), "realTopic", "realQueueId")]
    assert rows == [("Orders", 7)] * 3 + [("%RETRY%G", 3), ("SCHEDULE_TOPIC_XXXX", 3)]


@pytest.mark.parametrize("name", ["v4_clean", "v5_clean"])
def test_derived_columns_of_golden_stores(golden_stores: dict[str, Path], name: str) -> None:
    names = ("msgId", "crcOk", "rawProperties", "properties", "delayLevel", "realTopic")
    rows = read(golden_stores[name], *names)
    for row, record in zip(rows, expected_records(name), strict=True):
        properties = record["properties"]
        assert row["msgId"] == properties.get("UNIQ_KEY", record["offsetMsgId"])
        assert row["crcOk"]
        assert dict(row["properties"]) == properties
        assert dict(part.split("\x01") for part in row["rawProperties"].split("\x02") if part[-1:] > "\x01") == properties
        assert row["delayLevel"] == (int(properties["DELAY"]) if "DELAY" in properties else None)


def test_wrong_crc_is_reported(tmp_path: Path) -> None:
    log = LogBuilder(2000)
    for _ in range(3):
        log.append(b"some body")
    log.files[0][1][log.physical_offsets[1] + 90] ^= 1
    assert [row["crcOk"] for row in read(log.write(tmp_path), "crcOk")] == [True, False, True]


def test_columns_option_selects_columns(tmp_path: Path) -> None:
    store = str(LogBuilder(1000).write(tmp_path))
    source = RocketMQDataSource({"path": store, "columns": "topic, msgId,body", "bodyas": "json"})
    assert source.schema() == "`topic` string NOT NULL, `msgId` string NOT NULL, `body` string"
    with pytest.raises(ValueError, match="unknown column msgid: did you mean msgId"):
        RocketMQDataSource({"path": store, "columns": "msgid"}).schema()
    with pytest.raises(ValueError, match="option columns is topic, the schema has others: use only one of them"):
        read(store, "queueId", columns="topic")


def test_unknown_table_is_refused() -> None:
    with pytest.raises(ValueError, match="option table is message: did you mean messages"):
        RocketMQDataSource({"path": "/store", "table": "message"}).schema()

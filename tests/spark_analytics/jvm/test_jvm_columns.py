"""Every column of the data source in Java, compared with the one in Python."""

import json
import random
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.jvm import build
from pocketmq.store.format import layout
from pocketmq.store.format.message import COMPRESSED_FLAG
from tests.spark_analytics.jvm.both_readers import EVERY, java_frame, java_rows, python_rows
from tests.spark_analytics.spark_logs import HOST, HOST_V6, LogBuilder

pytestmark = pytest.mark.spark

GOLDEN = ("v4_clean", "v4_kill9", "v4_torn_body", "v4_torn_props", "v5_clean", "v5_kill9")
HOSTS_V6 = [bytes.fromhex(address) + bytes.fromhex("00002a9f") for address in (
    "00000000000000000000000000000000", "00000000000000000000000000000001", "20010db8000000010000000000000001",
    "20010db8000000000001000000000000", "20010db8000100020003000400050006", "00010000000200000000000300040005",
    "fe800000000000000202b3fffe1e8329", "00000001000200030004000500060000",
)]  # fmt: skip


def test_jar_is_stale_after_a_change_of_the_layout(java_built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not java_built:
        pytest.skip("no JDK")
    assert build.is_current()
    monkeypatch.setattr(layout, "BLANK_SIZE", layout.BLANK_SIZE + 1)
    assert not build.is_current()


def test_both_readers_have_the_same_default_schema(spark: Any, jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    store = str(golden_stores["v4_clean"])
    for mode in ("FAILFAST", "PERMISSIVE"):
        frames = [session.read.format("rocketmq").option("mode", mode).load(store) for session in (spark, jvm_spark)]
        assert frames[0].schema == frames[1].schema
    assert frames[1].columns == list(COLUMNS)


@pytest.mark.parametrize("name", GOLDEN)
def test_every_field_of_every_golden_record(jvm_spark: Any, golden_stores: dict[str, Path], name: str) -> None:
    rows = java_rows(jvm_spark, golden_stores[name], maxPartitionBytes="300k")
    assert len(rows) > 200
    assert rows == python_rows(golden_stores[name])


def test_hashes_of_all_columns_agree_in_spark(spark: Any, jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    """Values agree in Spark's own row format, too, which the other tests do not check, because they use `toArrow`."""
    hashed = [name if name != "properties" else "map_entries(properties)" for name in EVERY]
    sums = [
        java_frame(session, golden_stores["v4_clean"])
        .selectExpr(f"xxhash64({', '.join(hashed)}) AS hash")
        .selectExpr("count(*)", "sum(cast(hash AS decimal(38, 0)))", "bit_xor(hash)")
        .collect()
        for session in (spark, jvm_spark)
    ]
    assert sums[0] == sums[1]


def test_user_schema_selects_the_columns(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = jvm_spark.read.format("rocketmq").schema("tags string, topic string").load(str(golden_stores["v4_clean"]))
    assert frame.columns == ["tags", "topic"]
    assert frame.filter("topic = 'GoldenRaw'").count() == 7


def test_spark_prunes_columns(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = java_frame(jvm_spark, golden_stores["v4_clean"]).select("topic", "storeSize")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "topic#" in plan and "storeSize#" in plan and "body#" not in plan and "properties#" not in plan


def test_ipv4_and_ipv6_hosts(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    for number, host in enumerate([HOST, HOST_V6, *HOSTS_V6]):
        for born_host, store_host in ((host, HOST), (HOST, host), (host, host)):
            log.append(
                b"b%d" % number, "T" * (200 if number % 2 else 1), {"TAGS": f"t{number}"}, born_host, store_host,
                reconsume_times=number, prepared_transaction_offset=number, born_timestamp_ms=number,
            )  # fmt: skip
    store = log.write(tmp_path)
    rows = java_rows(jvm_spark, store)
    assert rows == python_rows(store)
    assert {row["bornHost"] for row in rows} >= {"[2001:db8:0:1::1]:10911", "[::]:10911", "10.0.0.7:10911"}


def test_both_readers_replace_invalid_utf8_in_the_same_way(jvm_spark: Any, tmp_path: Path) -> None:
    random_ = random.Random(35)
    log = LogBuilder(300_000)
    pool = [b"\x01", b"\x02", b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", "é€😀".encode(), b"\xed\xa0\x80", b"\xf0\x9f", b"\xff",
            b"\xc3", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x00"]  # fmt: skip
    for _ in range(400):
        properties = b"".join(random_.choices(pool, k=random_.randrange(14)))
        topic = "T" * len(b"".join(random_.choices(pool, k=3)) or b"T")
        at = log.append(properties, topic, properties)
        start = log.files[0][1].index(topic.encode(), at + 88 + len(properties))
        log.files[0][1][start : start + len(topic)] = bytes(random_.choices([0x54, 0xFF, 0xC3, 0xA9, 0xE2], k=len(topic)))
    log.append()
    store = log.write(tmp_path)
    rows = java_rows(jvm_spark, store)
    assert len(rows) == 401
    assert rows == python_rows(store)
    assert java_rows(jvm_spark, store, "physicalOffset", "body", bodyAs="string") == python_rows(
        store, "physicalOffset", "body string", bodyAs="string"
    )


def test_deliver_times(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(200_000)
    numbers = ("0", "3", "-1", "99", "x", "1" * 18, "1" * 19, "-" + "9" * 18, "1700000000123")
    names = ("DELAY", "PMQ_DUE_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME")
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "T"):
        for number in numbers:
            for name in names:
                both = {name: number, "TIMER_OUT_MS": "1700000001000", "REAL_TOPIC": "Real", "REAL_QID": number}
                log.append(topic=topic, properties=both)
                log.append(topic=topic, properties={name: number, "TIMER_ROLL_TIMES": "1"})
    log.append(topic="rmq_sys_wheel_timer", properties={"TIMER_DELAY_SEC": "x", "TIMER_DELAY_MS": "5"})
    store = log.write(tmp_path)
    names = ("physicalOffset", "delayLevel", "deliverTime", "realTopic", "realQueueId", "msgId")
    for options in ({}, {"delayLevel": "2s 7m"}):
        as_numbers = java_frame(jvm_spark, store, *names, **options).selectExpr("*", "unix_micros(deliverTime) AS due")
        rows = as_numbers.orderBy("physicalOffset").drop("deliverTime").toArrow().to_pylist()
        expected = micros_of(store, *names, **options)
        assert [row.pop("due") for row in rows] == [row.pop("deliverTime") for row in expected]
        assert rows == expected


def micros_of(store: Path, *names: str, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of the reader in Python, with times in microseconds: Python's datetime cannot hold some of them."""
    import pyarrow as pa

    from pocketmq.spark_analytics.source.batch import CommitLogReader
    from tests.spark_analytics.spark_logs import spark_schema

    reader = CommitLogReader(spark_schema(*names), {"path": str(store), **options})
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    table = pa.Table.from_batches(batches)
    at = table.schema.get_field_index("deliverTime")
    rows: list[dict[str, Any]] = table.set_column(at, "deliverTime", table["deliverTime"].cast(pa.int64())).to_pylist()
    return rows


def compressed(kind: int, body: bytes) -> bytes:
    if kind == 0x100:
        return lz4.frame.compress(body)
    if kind == 0x200:
        return zstandard.ZstdCompressor().compress(body)
    return zlib.compress(body)


@pytest.mark.parametrize("body_as", ["stored", "plain", "string", "json"])
def test_compressed_bodies(jvm_spark: Any, tmp_path: Path, body_as: str) -> None:
    log = LogBuilder(400_000)
    bodies = [b"", b"plain", b'{"a": [1, 2]}', "é".encode() * 9000, b"x" * 300_000, b"\xff\x00", b"[" * 5000 + b"]" * 5000]
    for body in bodies:
        log.append(body)
        for kind in (0, 0x100, 0x200, 0x300):
            log.append(compressed(kind, body), sys_flag=COMPRESSED_FLAG | kind)
    intact = len(log.physical_offsets)
    for kind in (0, 0x100, 0x200, 0x300, 0x400):
        log.append(compressed(kind, b"truncated" * 50)[:-7], sys_flag=COMPRESSED_FLAG | kind)
        log.append(b"not compressed at all", sys_flag=COMPRESSED_FLAG | kind)
        log.append(b"", sys_flag=COMPRESSED_FLAG | kind)
    store = log.write(tmp_path)
    body = "body binary" if body_as in ("stored", "plain") else "body string"
    damaged = len(log.physical_offsets) - intact - 5
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        rows = java_rows(jvm_spark, store, "physicalOffset", "body", "sysFlag", "_corrupt_record", bodyAs=body_as, mode=mode)
        names = ("physicalOffset", body, "sysFlag", "_corrupt_record binary")
        assert rows == python_rows(store, *names, bodyAs=body_as, mode=mode)
        left_out = damaged if body_as != "stored" and mode == "DROPMALFORMED" else 0
        assert len(rows) == len(log.physical_offsets) - left_out


JSON_TEXTS = (
    *("1", "-0", "01", "1.", ".5", "1.5e+10", "1e", "-", "+1", "true", "tru", "null", "nul", "NaN", "Infinity", "''"),
    *('"a"', '"\\u00e9"', '"\\u00g9"', '"\\x"', '"\t"', '"open', '"\\ud800"', '"\\', "{}", "[]", "[1,]", "[,1]", "[1 2]"),
    *('{"a":1}', '{"a":}', '{"a"}', '{a:1}', '{"a":1,}', '{"a":1,"a":2}', '{"a" : [ { } , [ ] ] }', " 1 ", "1 2", "", "  "),
    *("[[[[]]]]", "[[[[]]]", "]", "}", "[}", '{"a":1]', "\ufeff1", "1\x00", "\x0b1", '{"é":"€"}', "1E400", "[1]x", "-1e-3"),
)  # fmt: skip


def test_both_readers_accept_the_same_json(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(100_000)
    for text in JSON_TEXTS:
        log.append(text.encode())
    for text in (b'"\xff"', b'"\xed\xa0\x80"', b"[\xc3]"):
        log.append(text)
    store = log.write(tmp_path)
    rows = java_rows(jvm_spark, store, "physicalOffset", "body", bodyAs="json")
    expected = python_rows(store, "physicalOffset", "body string", bodyAs="json")
    differing = [text for text, one, other in zip(JSON_TEXTS, rows, expected, strict=False) if one != other]
    assert differing == []
    assert rows == expected
    assert all(json.loads(row["body"]) is not None or row["body"].strip() == "null" for row in rows if row["body"])

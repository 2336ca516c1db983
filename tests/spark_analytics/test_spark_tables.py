"""Companion tables: consumequeue, index, topics, groups, offsets, delays, transactions, deliveries."""

import gzip
import json
import os
import zlib
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pocketmq.spark_analytics.source.batch import TableReader
from pocketmq.spark_analytics.tables import consume_queue
from pocketmq.spark_analytics.tables.table import TABLES, asked_table
from pocketmq.store.format.java_hash import java_hash, tags_code
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_EXT_FIXED_STRUCT,
    CONSUME_QUEUE_UNIT_STRUCT,
    HOLE_TAGS_CODE,
    TIMER_CHECKPOINT_SEAL_STRUCT,
    TIMER_CHECKPOINT_STRUCT,
    TIMER_LOG_UNIT_STRUCT,
)
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder
from tests.golden.golden_files import GOLDEN
from tests.spark_analytics.spark_logs import LogBuilder, expected_records

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
STORES = ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"]
HOUR_MS = 3_600_000
UNIT = 20


def table(name: str, store: Path | str, *columns: str, **options: str) -> list[dict[str, Any]]:
    """Return all rows of a table, in the order in which tasks would yield them."""
    own = asked_table({"table": name})
    assert own is not None
    fields = [field.split(" ", 1) for field in own.ddl.split(", ")]
    schema = StructType([StructField(name, TYPES[kind]) for name, kind in fields if not columns or name in columns])
    reader = TableReader(own, schema, {"path": str(store), **options})
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def write_queue(store: Path, topic: str, queue_id: int, units: list[tuple[int, int, int]], start: int = 0) -> Path:
    """Write a queue file with room for 10 units; `units` are (physical offset, size, tags code)."""
    folder = store / "consumequeue" / topic / str(queue_id)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{start:020}"
    path.write_bytes(b"".join(CONSUME_QUEUE_UNIT_STRUCT.pack(*unit) for unit in units).ljust(10 * UNIT, b"\0"))
    return path


def write_config(store: Path, name: str, document: str | bytes) -> None:
    (store / "config").mkdir(parents=True, exist_ok=True)
    (store / "config" / name).write_bytes(document if isinstance(document, bytes) else document.encode())


# --- consumequeue ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORES)
def test_units_match_the_brokers_queues(golden_stores: dict[str, Path], name: str) -> None:
    with gzip.open(GOLDEN / name / "expected_cq.jsonl.gz", "rt") as lines:
        queues = [json.loads(line) for line in lines]
    expected = {
        (queue["topic"], queue["queueId"], queue["minOffset"] + number): tuple(unit)
        for queue in queues
        for number, unit in enumerate(queue["units"])
    }
    found = {
        (row["topic"], row["queueId"], row["queueOffset"]): (row["physicalOffset"], row["size"], row["tagsCode"])
        for row in table("consumequeue", golden_stores[name])
    }
    # Records that a killed broker had not dispatched have no units.
    lacking = expected.keys() - found.keys()
    assert len(lacking) <= (2 if name.endswith("kill9") else 0)
    assert found == {key: unit for key, unit in expected.items() if key not in lacking}


def test_only_scheduled_messages_have_a_deliver_time(golden_stores: dict[str, Path]) -> None:
    rows = table("consumequeue", golden_stores["v4_clean"])
    stored = {record["physicalOffset"]: record["storeTimestamp"] for record in expected_records("v4_clean")}
    scheduled = [row for row in rows if row["topic"] == "SCHEDULE_TOPIC_XXXX"]
    levels_s = {0: 1, 1: 5, 2: 10, 3: 30, 17: 7200}
    assert len(scheduled) == 40
    assert [epoch_ms(row["deliverTime"]) - stored[row["physicalOffset"]] for row in scheduled] == [
        levels_s[row["queueId"]] * 1000 for row in scheduled
    ]
    assert not any(row["deliverTime"] for row in rows if row["topic"] != "SCHEDULE_TOPIC_XXXX")


def test_queue_begins_after_blank_units_and_units_of_deleted_records(tmp_path: Path) -> None:
    LogBuilder(4096, physical_offset=1000).write(tmp_path)
    blank = (0, 0x7FFFFFFF, 0)
    write_queue(
        tmp_path, "T", 0, [blank] * 3 + [(900, 100, 1), (1000, 100, 2)] + [(1100 + n, 100, 3) for n in range(5)], 200
    )
    write_queue(tmp_path, "T", 0, [(1300, 100, 4), (1300, 100, HOLE_TAGS_CODE)], 400)
    rows = table("consumequeue", tmp_path, "queueOffset", "physicalOffset")
    assert [(row["queueOffset"], row["physicalOffset"]) for row in rows] == [
        *((14, 1000), (15, 1100), (16, 1101), (17, 1102), (18, 1103), (19, 1104), (20, 1300), (21, 1300))
    ]


def test_many_short_queues_are_few_tasks(tmp_path: Path) -> None:
    for queue_id in range(300):
        path = write_queue(tmp_path, "T", queue_id, [(0, 100, 1)])
        os.truncate(path, 6_000_000)  # like a broker's files, nearly all of it is a hole
    assert len(consume_queue.parts(StoreFolder(str(tmp_path)))) == 1
    assert len(table("consumequeue", tmp_path, "queueId")) == 300


def test_gap_between_units_is_an_error(tmp_path: Path) -> None:
    path = write_queue(tmp_path, "T", 0, [(0, 100, 1)] * 4)
    write_queue(tmp_path, "T", 0, [(900, 100, 1)], 200)
    with pytest.raises(DamagedFileError, match=f"{path} has no unit at byte 80, although the queue continues"):
        table("consumequeue", tmp_path)
    path.write_bytes(bytes(30))
    with pytest.raises(DamagedFileError, match=f"{path} has 30 bytes, which is not a multiple of 20"):
        table("consumequeue", tmp_path)


def test_consumequeue_ext_is_looked_up(tmp_path: Path) -> None:
    base = -(2**63)
    write_queue(tmp_path, "T", 0, [(0, 100, base), (100, 100, 77), (200, 100, base + 20)])
    folder = tmp_path / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    pack = CONSUME_QUEUE_EXT_FIXED_STRUCT.pack
    file = folder / f"{0:020}"
    file.write_bytes((pack(20, 5, 1_700_000_000_123, 0) + pack(20, 6, 1_700_000_000_456, 0)).ljust(4096, b"\0"))
    rows = table("consumequeue", tmp_path)
    assert [row["tagsCode"] for row in rows] == [5, 77, 6]
    assert [row["storeTimestamp"] and epoch_ms(row["storeTimestamp"]) for row in rows] == [
        *(1_700_000_000_123, None, 1_700_000_000_456)
    ]
    file.write_bytes(bytes(4096))
    with pytest.raises(DamagedFileError, match="consumequeue_ext/T/0 has no unit at offset 0"):
        table("consumequeue", tmp_path)


# --- index ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORES)
def test_index_finds_the_records_the_broker_found(golden_stores: dict[str, Path], name: str) -> None:
    by_hash: dict[int, set[int]] = {}
    for row in table("index", golden_stores[name]):
        by_hash.setdefault(row["keyHash"], set()).add(row["physicalOffset"])
    with gzip.open(GOLDEN / name / "expected_index.jsonl.gz", "rt") as lines:
        queries = [json.loads(line) for line in lines]
    lacking = 0
    for query in queries:
        expected = {int(msg_id[16:], 16) for msg_id in query["brokerAnswer"]}
        lacking += len(expected - by_hash.get(abs(java_hash(f"{query['topic']}#{query['key']}")), set()))
    assert lacking <= (8 if name.endswith("kill9") else 0)


def test_index_chains_belong_to_their_slots(golden_stores: dict[str, Path]) -> None:
    rows = table("index", golden_stores["v4_clean"])
    stored = {record["physicalOffset"]: record["storeTimestamp"] for record in expected_records("v4_clean")}
    by_number = {(row["file"], row["entry"]): row for row in rows}
    assert len(by_number) == len(rows) > 3000
    for row in rows:
        if row["previousEntry"]:
            assert by_number[row["file"], row["previousEntry"]]["slot"] == row["slot"]
        assert abs(stored[row["physicalOffset"]] - epoch_ms(row["storeTimestamp"])) < 1000


def test_inconsistent_index_file_is_an_error(golden_stores: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    source = next((golden_stores["v4_clean"] / "index").iterdir())
    target = tmp_path / "index" / source.name
    target.write_bytes(source.read_bytes()[:40] + bytes(100_000))
    with pytest.raises(DamagedFileError, match=f"{target}: no number of slots"):
        table("index", tmp_path)
    target.write_bytes(bytes(12))
    with pytest.raises(DamagedFileError, match=f"{target} has 12 bytes"):
        table("index", tmp_path)


# --- config ---------------------------------------------------------------------------------------------------------


def test_topics_and_groups_of_both_brokers(golden_stores: dict[str, Path]) -> None:
    topics = {row["topic"]: row for row in table("topics", golden_stores["v5_clean"])}
    assert dict(topics["V5Tx"]["attributes"]) == {"message.type": "TRANSACTION"}
    assert (topics["V5Tx"]["readQueueNums"], topics["V5Tx"]["perm"], topics["V5Tx"]["order"]) == (2, 6, False)
    assert {row["topic"] for row in table("topics", golden_stores["v4_clean"])} >= {"GoldenNormal", "TBW102"}
    groups = {row["group"]: row for row in table("groups", golden_stores["v4_clean"])}
    assert (groups["GoldenConsumerGroup"]["retryMaxTimes"], groups["GoldenConsumerGroup"]["brokerId"]) == (16, 0)
    assert groups["GoldenConsumerGroup"]["consumeMessageOrderly"] is None
    assert any(row["consumeMessageOrderly"] is False for row in table("groups", golden_stores["v5_clean"]))


def test_lag_of_consumer_groups(golden_stores: dict[str, Path]) -> None:
    rows = {(row["group"], row["topic"], row["queueId"]): row for row in table("offsets", golden_stores["v4_clean"])}
    row = rows["GoldenPartGroup", "GoldenNormal", 0]
    assert [row[name] for name in ("consumerOffset", "minOffset", "maxOffset", "lag")] == [111, 0, 228, 117]
    assert rows["GoldenPartGroup", "%RETRY%GoldenPartGroup", 0]["lag"] is None
    lags = {row["topic"]: row["lag"] for row in table("offsets", golden_stores["v5_clean"])}
    assert lags["%RETRY%V5PopGroup_V5Pop"] == 2


def test_offsets_of_light_queues_and_of_truncated_queues(tmp_path: Path) -> None:
    LogBuilder(4096, physical_offset=1000).write(tmp_path)
    write_queue(tmp_path, "T", 3, [(100 * n, 100, 1) for n in range(10)])
    write_queue(tmp_path, "T", 3, [(1000 + 100 * n, 100, 1) for n in range(4)], 200)
    write_config(tmp_path, "consumerOffset.json", '{"offsetTable":{"T@G":{3:8}}}')
    write_config(tmp_path, "lmqConsumerOffset.json", '{"lmqOffsetTable":{"%LMQ%x@%LMQ%g":7},"offsetTable":{}}')
    rows = table("offsets", tmp_path, "group", "topic", "minOffset", "maxOffset", "lag")
    assert rows == [
        {"group": "G", "topic": "T", "minOffset": 10, "maxOffset": 14, "lag": 6},
        {"group": "%LMQ%g", "topic": "%LMQ%x", "minOffset": None, "maxOffset": None, "lag": None},
    ]


@pytest.mark.parametrize(
    "text, problem",
    [
        ('{"offsetTable":{"T@G":{0:x}}}', "is not readable JSON: .*char"),
        ('{"offsetTable":{"T@G":{0:"x"}}}', "T@G.0 is 'x'"),
        ('{"offsetTable":{"T":{0:1}}}', "key 'T' is not topic@group"),
        ('{"offsetTable":[1]}', r"offsetTable is not an object: \[1\]"),
    ],
)
def test_error_for_a_damaged_document_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    write_config(tmp_path, "consumerOffset.json", text)
    with pytest.raises(DamagedFileError, match=f"{tmp_path}/config/consumerOffset.json.*{problem}"):
        table("offsets", tmp_path)


def test_backup_is_used_for_a_torn_document(tmp_path: Path) -> None:
    write_config(tmp_path, "consumerOffset.json", bytes(100))
    write_config(tmp_path, "consumerOffset.json.bak", '{"offsetTable":{"T@G":{0:1}}}')
    assert [row["consumerOffset"] for row in table("offsets", tmp_path)] == [1]


# --- delays ---------------------------------------------------------------------------------------------------------


def test_pending_delays_of_apache_brokers(golden_stores: dict[str, Path]) -> None:
    levels = table("delays", golden_stores["v4_clean"])
    assert [(row["kind"], row["level"], row["keys"]) for row in levels] == [
        *(("level", 18, "delay18-0"), ("level", 18, "delay18-1"), ("level", 18, "delay18-2"), ("level", 18, "delay99"))
    ]
    assert {row["topic"] for row in levels} == {"GoldenDelay"}
    stored = {record["physicalOffset"]: record["storeTimestamp"] for record in expected_records("v4_clean")}
    assert all(epoch_ms(row["dueTime"]) == stored[row["physicalOffset"]] + 2 * HOUR_MS for row in levels)
    rows = table("delays", golden_stores["v5_clean"])
    # Apache's broker 5.5.0 counted these itself; recalled messages are not included.
    counted = json.loads((golden_stores["v5_clean"] / "config" / "timermetrics").read_text())["timingCount"]
    assert Counter(row["topic"] for row in rows if row["kind"] == "timer") == {
        topic: metric["count"] for topic, metric in counted.items()
    }
    timers = {row["keys"]: row for row in rows if row["topic"] == "V5Timer"}
    assert {"2h-0", "2d-0", "60h", "same-slot-a", "same-slot-b"} <= timers.keys()
    properties = {record["physicalOffset"]: record["properties"] for record in expected_records("v5_clean")}
    for key, delay_ms in (("2h-0", 2 * HOUR_MS), ("60h", 60 * HOUR_MS)):
        row = timers[key]
        assert epoch_ms(row["dueTime"]) - epoch_ms(row["storeTimestamp"]) == delay_ms
    at = timers["same-slot-a"]
    assert epoch_ms(at["dueTime"]) == int(properties[at["physicalOffset"]]["TIMER_DELIVER_MS"])


def timer_store(folder: Path, seal: tuple[int, int] | None = None) -> tuple[Path, dict[str, int]]:
    """Create timers, some of them in the timer log, and of those some delivered; return (store, physical offsets)."""
    log = LogBuilder(1 << 20)
    records: dict[str, tuple[int, int, int]] = {}

    def put(key: str, due_ms: int, **more: str) -> None:
        out_ms = (due_ms - 1) // 1000 * 1000
        properties = {"TIMER_DELIVER_MS": str(due_ms), "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "2"}
        offset = log.append(topic="rmq_sys_wheel_timer", properties={"UNIQ_KEY": key, "KEYS": key, **properties, **more})
        records[key] = offset, log.next_physical_offset - offset, out_ms

    put("delivered", 5_000)
    put("early", 10_001)
    put("late", 10_900)
    put("cancelled", 20_000)
    put("far", 10 * HOUR_MS)
    put("cancel", 20_000, TIMER_DEL_UNIQKEY="T+cancelled")
    put("new", 30_500)
    put("new cancel", 30_600, TIMER_DEL_UNIQKEY="new and gone")
    put("new and gone", 30_700)
    store = log.write(folder)
    write_queue(store, "rmq_sys_wheel_timer", 0, [(offset, size, 0) for offset, size, _ in records.values()])
    units = b"".join(
        TIMER_LOG_UNIT_STRUCT.pack(52, -1, 5 if key == "cancel" else 1, 1_000, out_ms - 1_000, offset, size, 0, 0)
        for key, (offset, size, out_ms) in list(records.items())[:6]
    )
    (store / "timerlog").mkdir()
    (store / "timerlog" / f"{0:020}").write_bytes(units.ljust(4096, b"\0"))
    check = TIMER_CHECKPOINT_STRUCT.pack(10_000, len(units), 6, 0, 0, 0, 0)
    if seal is not None:
        check += TIMER_CHECKPOINT_SEAL_STRUCT.pack(*seal, 0)[:-8]
        check += (0x504D5154 << 32 | zlib.crc32(check)).to_bytes(8, "big")
    write_config(store, "timercheck", check.ljust(4096, b"\0"))
    return store, {key: offset for key, (offset, _, _) in records.items()}


def test_timers_in_the_timer_log_and_not_yet_in_it(tmp_path: Path) -> None:
    store, offsets = timer_store(tmp_path / "apache")
    rows = table("delays", store)
    assert [row["keys"] for row in rows] == ["early", "late", "far", "new"]
    assert [row["physicalOffset"] for row in rows] == [offsets[row["keys"]] for row in rows]
    assert [epoch_ms(row["dueTime"]) for row in rows] == [10_001, 10_900, 10 * HOUR_MS, 30_500]
    assert {(row["topic"], row["queueId"], row["level"]) for row in rows} == {("T", 2, None)}
    # PocketMQ's checkpoint also states which timers of the current slot were delivered.
    store, offsets = timer_store(tmp_path / "ours", (10_900, 0))
    assert [row["keys"] for row in table("delays", store)] == ["late", "far", "new"]


def test_cancelled_level_messages_are_not_pending(tmp_path: Path) -> None:
    log = LogBuilder(1 << 16)
    for number in range(4):
        log.append(topic="SCHEDULE_TOPIC_XXXX", properties={"KEYS": str(number), "REAL_TOPIC": "T", "REAL_QID": "1"})
    store = log.write(tmp_path)
    size = log.physical_offsets[1]
    due = [5_000, 6_000, 7_000, HOLE_TAGS_CODE]
    write_queue(store, "SCHEDULE_TOPIC_XXXX", 4, [(o, size, d) for o, d in zip(log.physical_offsets, due, strict=True)])
    write_config(store, "delayOffset.json", '{"offsetTable":{5:1}}')
    assert [(row["keys"], row["level"], epoch_ms(row["dueTime"])) for row in table("delays", store)] == [
        *(("1", 5, 6_000), ("2", 5, 7_000))
    ]
    write_config(store, "delayCancelled.json", '{"cancelled":{"5":[2]}}')
    assert [row["keys"] for row in table("delays", store)] == ["1"]


def test_a_torn_timercheck_is_an_error(tmp_path: Path) -> None:
    store, _ = timer_store(tmp_path)
    write_config(store, "timercheck", bytes(20))
    with pytest.raises(DamagedFileError, match="config/timercheck has 20 bytes"):
        table("delays", store)


# --- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORES)
def test_transaction_outcomes_match_the_producers_decisions(golden_stores: dict[str, Path], name: str) -> None:
    rows = table("transactions", golden_stores[name])
    records = expected_records(name)
    halves = {r["physicalOffset"]: r for r in records if r["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"}
    commits = {r["preparedTransactionOffset"] for r in records if r["topic"] in ("GoldenTx", "V5Tx")}
    given_up = {r["properties"]["UNIQ_KEY"] for r in records if r["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC"}
    assert [row["physicalOffset"] for row in rows] == sorted(halves)
    for row in rows:
        half = halves[row["physicalOffset"]]
        assert row["producerGroup"] == half["properties"]["PGROUP"]
        assert row["topic"] == half["properties"]["REAL_TOPIC"]
        assert row["checkTimes"] == int(half["properties"].get("TRANSACTION_CHECK_TIMES", 0))
        assert (row["outcome"] == "committed") == (row["physicalOffset"] in commits)
        assert (row["state"] == "resolved") == (row["outcome"] is not None)
        if row["state"] == "givenUp":
            assert row["uniqKey"] in given_up and row["checkTimes"] == 3
    # Of one transaction, only the last half message can still be open.
    still_open = Counter(row["uniqKey"] for row in rows if row["state"] in ("pending", "givenUp"))
    assert set(still_open.values()) <= {1}


def test_op_message_of_5x_names_several_offsets(tmp_path: Path) -> None:
    log = LogBuilder(1 << 16)
    sizes = []

    def put(topic: str, body: bytes = b"x", **fields: Any) -> int:
        offset = log.append(body, topic, **fields)
        sizes.append(log.next_physical_offset - offset)
        return offset

    halves = []
    for number in range(4):
        names = {"UNIQ_KEY": f"K{number}", "PGROUP": "P", "REAL_TOPIC": "T" if number < 3 else "Gone", "REAL_QID": "0"}
        halves.append(put("RMQ_SYS_TRANS_HALF_TOPIC", properties={**names, "TRAN_MSG": "true"}))
    commit = put("T", prepared_transaction_offset=halves[1], sys_flag=8)
    op = put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"5,6,8,")
    store = log.write(tmp_path)
    # LogBuilder gives every record queue offset 5.
    data = bytearray((store / "commitlog" / f"{0:020}").read_bytes())
    for number, offset in enumerate(halves):
        data[offset + 20 : offset + 28] = (5 + number).to_bytes(8, "big")
    (store / "commitlog" / f"{0:020}").write_bytes(data)
    write_queue(
        store, "RMQ_SYS_TRANS_HALF_TOPIC", 0, [(offset, size, 0) for offset, size in zip(halves, sizes, strict=False)]
    )
    write_queue(store, "T", 0, [(commit, sizes[4], 0)])
    write_queue(store, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, [(op, sizes[5], tags_code("d"))])
    rows = table("transactions", store, "halfQueueOffset", "state", "outcome")
    assert [tuple(row.values()) for row in rows] == [
        (5, "resolved", "rolledBack"),
        (6, "resolved", "committed"),
        (7, "pending", None),
        (8, "resolved", None),
    ]


# --- in Spark -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_a_store_without_their_files_are_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / "config").mkdir()
    assert table(name, tmp_path) == []


@pytest.mark.spark
@pytest.mark.parametrize("name", TABLES)
def test_spark_reads_every_table_of_both_brokers_at_once(spark: Any, golden_stores: dict[str, Path], name: str) -> None:
    stores = [str(golden_stores["v4_clean"]), f"{golden_stores['v5_clean']}/commitlog"]
    frame = spark.read.format("rocketmq").option("table", name).load(stores)
    expected = [row for store in stores for row in table(name, store)]
    assert Counter(map(str, frame.toArrow().to_pylist())) == Counter(map(str, expected))
    assert len({row["store"] for row in expected}) == 2


@pytest.mark.spark
def test_pending_by_hour_in_sql(spark: Any, golden_stores: dict[str, Path]) -> None:
    spark.read.format("rocketmq").option("table", "delays").load(str(golden_stores["v5_clean"])).createOrReplaceTempView(
        "delays"
    )
    query = "select date_trunc('hour', dueTime) as hour, count(*) from delays where topic = 'V5Timer' group by 1 order by 1"
    found = {row[0].replace(tzinfo=UTC): row[1] for row in spark.sql(query).collect()}
    assert found == {
        datetime(2026, 11, 21, 4, tzinfo=UTC): 2,
        datetime(2026, 11, 21, 5, tzinfo=UTC): 4,
        datetime(2026, 11, 23, 3, tzinfo=UTC): 4,
        datetime(2026, 11, 23, 15, tzinfo=UTC): 1,
    }


@pytest.mark.spark
def test_spark_shows_the_errors_of_tables(spark: Any, tmp_path: Path) -> None:
    source = spark.read.format("rocketmq")
    with pytest.raises(PySparkException, match="option table is offset: did you mean offsets?"):
        source.option("table", "offset").load(str(tmp_path)).count()
    with pytest.raises(PySparkException, match=f"no store at {tmp_path}: it contains none of commitlog"):
        source.option("table", "offsets").load(str(tmp_path)).count()
    with pytest.raises(PySparkException, match="unknown column lagg: did you mean lag?"):
        source.option("table", "offsets").schema("lagg bigint").load(str(tmp_path)).count()

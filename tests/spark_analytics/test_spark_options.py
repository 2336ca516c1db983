"""Schemas, options and filters of the data source, without a JVM."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pocketmq.spark_analytics.reading import reader, split_planning
from pocketmq.spark_analytics.reading.options import byte_size, read_options
from pocketmq.spark_analytics.source.batch import CommitLogReader, FilteringCommitLogReader
from pocketmq.spark_analytics.source.data_source import RocketMQDataSource
from pocketmq.store.offline import file_bytes, log_walk
from pocketmq.store.offline.log_walk import FileWalk
from tests.spark_analytics.spark_logs import LogBuilder, physical_offsets, read, rows_of, spark_schema

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(3000)
    for number in range(40):
        log.append(topic=f"T{number % 3}", store_timestamp_ms=T0_MS + number * 1000)
    return log.write(tmp_path)


def parameter_id(value: object) -> str:
    """Return an id that is the same in each process of a parallel run, unlike a function's repr."""
    return "matches" if callable(value) else str(value)


def at(second: int) -> datetime:
    return T0 + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("filter_", "matches"),
    [
        (EqualTo(("topic",), "T1"), lambda row: row["topic"] == "T1"),
        (In(("topic",), ("T0", "T2", "absent")), lambda row: row["topic"] in ("T0", "T2")),
        (EqualTo(("topic",), "absent"), lambda row: False),
        (GreaterThan(("physicalOffset",), 970), lambda row: row["physicalOffset"] > 970),
        (GreaterThanOrEqual(("physicalOffset",), 970), lambda row: row["physicalOffset"] >= 970),
        (LessThan(("physicalOffset",), 970), lambda row: row["physicalOffset"] < 970),
        (LessThanOrEqual(("physicalOffset",), 970), lambda row: row["physicalOffset"] <= 970),
        (EqualTo(("physicalOffset",), 970), lambda row: row["physicalOffset"] == 970),
        (GreaterThan(("storeTimestamp",), at(20)), lambda row: row["storeTimestamp"] > at(20)),
        (LessThanOrEqual(("storeTimestamp",), at(20)), lambda row: row["storeTimestamp"] <= at(20)),
        (EqualTo(("storeTimestamp",), at(20)), lambda row: row["storeTimestamp"] == at(20)),
        (EqualTo(("queueId",), 99), lambda row: False),
        (In(("queueId",), (3, 99)), lambda row: True),
        # Not supported: everything is read.
        (Not(EqualTo(("topic",), "T1")), lambda row: True),
        (StringStartsWith(("topic",), "T1"), lambda row: True),
        (GreaterThan(("storeTimestamp",), at(20).replace(tzinfo=None)), lambda row: True),
        (EqualTo(("queueOffset",), 99), lambda row: True),
    ],
    ids=parameter_id,
)
def test_excluded_records_are_not_read(store: Path, filter_: Filter, matches: Any) -> None:
    names = ("topic", "physicalOffset", "storeTimestamp")
    reader = FilteringCommitLogReader(spark_schema(*names), {"path": str(store), "maxPartitionBytes": "500"})
    assert list(reader.pushFilters([filter_])) == [filter_], "Spark has to apply it as well"
    assert list(rows_of(reader)) == [row for row in read(store, *names) if matches(row)]


def test_filters_are_combined(store: Path) -> None:
    reader = FilteringCommitLogReader(spark_schema("physicalOffset"), {"path": str(store)})
    list(reader.pushFilters([EqualTo(("topic",), "T0"), LessThan(("physicalOffset",), 1000)]))
    list(reader.pushFilters([In(("topic",), ("T0", "T1")), GreaterThan(("physicalOffset",), 97)]))
    assert [row["physicalOffset"] for row in rows_of(reader)] == [291, 582, 873]


def test_splits_outside_the_wanted_physical_offsets_are_not_planned(store: Path) -> None:
    reader = FilteringCommitLogReader(spark_schema("topic"), {"path": str(store), "maxPartitionBytes": "100"})
    every = len(reader.partitions())
    reader.pushFilters([GreaterThan(("physicalOffset",), 3300)])
    assert 0 < len(reader.partitions()) < every / 3


def test_requested_columns_in_requested_order(store: Path) -> None:
    assert [*read(store, "storeSize", "topic")[0].items()] == [("storeSize", 97), ("topic", "T0")]


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (
            StructType([StructField("topik", StringType())]),
            {},
            "unknown column topik: did you mean topic",
        ),
        (StructType([StructField("queueId", LongType())]), {}, "column queueId is int, but the schema has bigint"),
        (
            StructType([StructField("tags", StringType(), False)]),
            {},
            "column tags may be null in mode FAILFAST: leave NOT NULL",
        ),
        (StructType([StructField("topic", StringType(), False)]), {"mode": "PERMISSIVE"}, "topic may be null in mode PERM"),
        (spark_schema(), {"path": ""}, "no store given"),
        (spark_schema(), {"mode": "LOUD"}, "option mode is LOUD: it must be one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        (spark_schema(), {"maxPartitionBytes": "-3"}, "option maxPartitionBytes is '-3': it must be a positive size"),
        (spark_schema(), {"maxPartitionBytes": "0"}, "option maxPartitionBytes is '0'"),
        (spark_schema(), {"topics": "T"}, "unknown option topics: did you mean topic"),
        (spark_schema(), {"xyz": "T"}, "unknown option xyz: known names are path, paths, table, columns"),
        (spark_schema(), {"topic": "a,,b"}, "option topic is 'a,,b': it must be a comma-separated list of names"),
        (spark_schema(), {"queueId": "1,x"}, "option queueId is 'x': it must be an integer from 0 to"),
        (spark_schema(), {"startingOffset": "-1"}, "option startingOffset is '-1': it must be an integer from 0 to"),
        (
            spark_schema(),
            {"endingTimestamp": "noon"},
            "option endingTimestamp is 'noon': it must be ms since",
        ),
        (
            spark_schema(),
            {"startingOffset": "7", "endingOffset": "6"},
            "startingOffset is 7: it must not be greater than .*, 6",
        ),
        (spark_schema(), {"bodyAs": "text"}, "option bodyAs is text: it must be one of stored, plain, string, json"),
        (spark_schema(), {"delayLevel": "1s 5x"}, "messageDelayLevel: level 2 is '5x': its unit must be one of s m h d"),
        (spark_schema(), {"paths": "/a"}, "option paths is '/a': it must be a JSON array of strings"),
        (spark_schema(), {"ignoreMissingFiles": "1"}, "option ignoreMissingFiles is '1': it must be true or false"),
    ],
)
def test_bad_schemas_and_options_are_reported(schema: StructType, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CommitLogReader(schema, {"path": "/store"} | options)


def test_filters_are_pushed_only_with_the_option() -> None:
    kinds = {
        value: type(RocketMQDataSource({"path": "/store", "pushFilters": value}).reader(spark_schema()))
        for value in ("true", "false")
    }
    assert kinds == {"true": FilteringCommitLogReader, "false": CommitLogReader}
    with pytest.raises(ValueError, match="pushFilters is 'maybe'"):
        RocketMQDataSource({"path": "/store", "pushFilters": "maybe"}).reader(spark_schema())


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("128m", 128 << 20), ("2 KB", 2048), ("1GiB", 1 << 30), ("64b", 64)])
def test_sizes_with_units(text: str, size: int) -> None:
    assert byte_size("maxPartitionBytes", text) == size


@pytest.mark.parametrize(
    ("processors", "total", "size"),
    [(2, 1 << 30, 256 << 20), (2, 100, 128 << 20), (8, 1 << 30, 128 << 20), (2, 50 << 30, 512 << 20)],
)
def test_split_size_is_half_a_processors_share_within_limits(
    processors: int, total: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    assert read_options({"path": "/store"}).split_size(total) == size
    assert read_options({"path": "/store", "maxpartitionbytes": "64m"}).split_size(total) == 64 << 20


def test_missing_stores_are_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no store at {tmp_path}/absent"):
        read(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=f"no commit log in {tmp_path}: neither a folder"):
        read(tmp_path)
    (tmp_path / "notes").write_text("no record")
    with pytest.raises(FileNotFoundError, match="notes is not a CommitLog file"):
        read(tmp_path / "notes")


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({"TOPIC": "T1, T2"}, lambda row: row["topic"] in ("T1", "T2")),
        ({"queueId": "3"}, lambda row: True),
        ({"queueId": "1,2"}, lambda row: False),
        ({"startingOffset": 970}, lambda row: row["physicalOffset"] >= 970),
        ({"startingOffset": 971, "endingOffset": 3200}, lambda row: 971 <= row["physicalOffset"] < 3200),
        ({"endingOffset": 0}, lambda row: False),
        ({"startingTimestamp": T0_MS + 20_000}, lambda row: row["storeTimestamp"] >= at(20)),
        ({"endingTimestamp": "2026-01-01T00:00:20"}, lambda row: row["storeTimestamp"] < at(20)),
        ({"endingTimestamp": "2026-01-01T01:00:20+01:00"}, lambda row: row["storeTimestamp"] < at(20)),
        ({"startingTimestamp": "2026-01-01", "endingTimestamp": "2026-01-02"}, lambda row: True),
        ({"startingTimestamp": "2026-01-02"}, lambda row: False),
    ],
    ids=parameter_id,
)
def test_options_exclude_records(store: Path, options: dict[str, Any], matches: Any) -> None:
    names = ("topic", "physicalOffset", "storeTimestamp")
    rows = read(store, *names, maxPartitionBytes=500, **options)
    assert rows == [row for row in read(store, *names) if matches(row)]


def clock_set_back(folder: Path) -> tuple[Path, list[int]]:
    """Write a log during which the clock was set back by ten minutes; return it and all store times (ms)."""
    log = LogBuilder(200_000)
    times = [T0_MS + number * 1000 - 600_000 * (number >= 3000) for number in range(6000)]
    for time_ms in times:
        log.append(store_timestamp_ms=time_ms)
    assert len(log.files) > 2
    return log.write(folder), times


def test_records_are_found_by_time_after_the_clock_was_set_back(tmp_path: Path) -> None:
    store, times = clock_set_back(tmp_path)
    for begin in (0, 2300, 2350, 2500, 2900, 3000, 4000):
        asked = {"startingTimestamp": T0_MS + begin * 1000, "endingTimestamp": T0_MS + (begin + 300) * 1000}
        rows = read(store, "storeTimestamp", maxPartitionBytes=70_000, **asked)
        expected = [time for time in times if asked["startingTimestamp"] <= time < asked["endingTimestamp"]]
        assert [int(row["storeTimestamp"].timestamp() * 1000) for row in rows] == expected, begin


def test_a_later_query_passes_over_stretches_stored_at_other_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WINDOW_SIZE", 20_000)
    monkeypatch.setattr(log_walk, "OVERLAP", 200)
    monkeypatch.setattr(FileWalk.__init__, "__defaults__", (20_000, 20_000))
    monkeypatch.setattr(split_planning, "FULL_FILE_TAIL", 5000)
    store, times = clock_set_back(tmp_path)
    asked = {"startingTimestamp": T0_MS + 1_000_000, "endingTimestamp": T0_MS + 1_100_000}
    sizes = []
    for split_size in (150_000, 150_000, 40_000):
        before = file_bytes.bytes_read
        rows = read(store, "storeTimestamp", maxPartitionBytes=split_size, **asked)
        sizes.append(file_bytes.bytes_read - before)
        assert len(rows) == 100
    assert sizes[1] < 0.5 * sizes[0]
    path = sorted((store / "commitlog").iterdir())[0]
    path.write_bytes(path.read_bytes().replace((T0_MS + 7000).to_bytes(8, "big"), (T0_MS + 1_000_007).to_bytes(8, "big")))
    assert len(read(store, "storeTimestamp", maxPartitionBytes=150_000, **asked)) == 101


@pytest.mark.parametrize("first", [0, 1, 700, 1400, 1999])
@pytest.mark.parametrize("count", [1, 50, 1999])
def test_time_bounds_are_exact(tmp_path: Path, first: int, count: int) -> None:
    log = LogBuilder(50_000)
    for number in range(2000):
        log.append(b"b" * (number % 70), store_timestamp_ms=T0_MS + number * 120_000)
    asked = {"startingTimestamp": T0_MS + first * 120_000, "endingTimestamp": T0_MS + (first + count) * 120_000}
    assert physical_offsets(log.write(tmp_path), **asked) == log.physical_offsets[first : first + count]


# --- topics and queues that do not exist ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "GoldenOrdr"}, "option topic is GoldenOrdr, which is not a topic of .*: did you mean GoldenOrder"),
        ({"topic": "GoldenOrder,absent"}, "option topic is absent, which is not a topic of"),
        ({"topic": "GoldenOrder", "queueId": "1,77"}, "option queueId is 77: not a queue of GoldenOrder in .* are 0 to"),
        ({"queueId": "70000"}, "option queueId is 70000: no topic in .*; the queues are 0 to"),
    ],
)
def test_unknown_topic_or_queue_is_refused(golden_stores: dict[str, Path], options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(golden_stores["v4_clean"], "topic", **options)
    rows = read(golden_stores["v4_clean"], "topic", ignoreUnknownTopics=True, **options)
    assert {row["topic"] for row in rows} <= {"GoldenOrder"}


def test_store_without_queues_accepts_every_topic(store: Path) -> None:
    assert read(store, "topic", topic="absent") == []


def test_option_names_ignore_case(store: Path) -> None:
    options = {"PATH": str(store), "Topic": "T1", "MAXPARTITIONBYTES": "1k", "Columns": "topic"}
    source = RocketMQDataSource(options)
    assert source.schema() == "`topic` string NOT NULL"
    assert {row["topic"] for row in rows_of(CommitLogReader(spark_schema("topic"), options))} == {"T1"}
    assert RocketMQDataSource({"PATH": str(store), "TABLE": "Topics"}).schema().startswith("topic string")


def test_error_for_create_table_suggests_a_temporary_view() -> None:
    created = {"owner": "me", "provider": "rocketmq", "path": "/store", "location": "/store"}
    with pytest.raises(ValueError, match="CREATE TABLE .* is not possible: .* Use CREATE TEMPORARY VIEW"):
        RocketMQDataSource(created).schema()
    with pytest.raises(ValueError, match="no store given.*CREATE TEMPORARY VIEW"):
        RocketMQDataSource({}).reader(spark_schema("topic"))

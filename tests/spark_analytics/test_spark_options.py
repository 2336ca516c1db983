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
from spark_logs import LogBuilder, read, rows_of, spark_schema

from spark_analytics.options import size_option
from spark_analytics.source import CommitLogReader, FilteringCommitLogReader, RocketMQDataSource

pytestmark = pytest.mark.spark

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(3000)
    for number in range(40):
        log.append(topic=f"T{number % 3}", store_timestamp_ms=T0_MS + number * 1000)
    return log.write(tmp_path)


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
        # Not understood: everything is read.
        (Not(EqualTo(("topic",), "T1")), lambda row: True),
        (StringStartsWith(("topic",), "T1"), lambda row: True),
        (GreaterThan(("storeTimestamp",), at(20).replace(tzinfo=None)), lambda row: True),
        (EqualTo(("queueOffset",), 99), lambda row: True),
    ],
    ids=str,
)
def test_what_a_filter_excludes_is_not_read(store: Path, filter_: Filter, matches: Any) -> None:
    names = ("topic", "physicalOffset", "storeTimestamp")
    reader = FilteringCommitLogReader(spark_schema(*names), {"path": str(store), "maxPartitionBytes": "500"})
    assert list(reader.pushFilters([filter_])) == [filter_], "Spark has to apply it as well"
    assert list(rows_of(reader)) == [row for row in read(store, *names) if matches(row)]


def test_filters_add_up(store: Path) -> None:
    reader = FilteringCommitLogReader(spark_schema("physicalOffset"), {"path": str(store)})
    list(reader.pushFilters([EqualTo(("topic",), "T0"), LessThan(("physicalOffset",), 1000)]))
    list(reader.pushFilters([In(("topic",), ("T0", "T1")), GreaterThan(("physicalOffset",), 97)]))
    assert [row["physicalOffset"] for row in rows_of(reader)] == [291, 582, 873]


def test_splits_outside_the_wanted_physical_offsets_are_not_planned(store: Path) -> None:
    reader = FilteringCommitLogReader(spark_schema("topic"), {"path": str(store), "maxPartitionBytes": "100"})
    every = len(reader.partitions())
    reader.pushFilters([GreaterThan(("physicalOffset",), 3300)])
    assert 0 < len(reader.partitions()) < every / 3


def test_only_the_columns_asked_for_in_their_order(store: Path) -> None:
    assert [*read(store, "storeSize", "topic")[0].items()] == [("storeSize", 97), ("topic", "T0")]


@pytest.mark.parametrize(
    ("schema", "options", "says"),
    [
        (
            StructType([StructField("topik", StringType())]),
            {},
            "unknown column topik: did you mean topic",
        ),
        (StructType([StructField("queueId", LongType())]), {}, "column queueId is int, the schema says bigint"),
        (spark_schema(), {"path": ""}, "no store named"),
        (spark_schema(), {"mode": "LOUD"}, "option mode is LOUD: it must be one of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        (spark_schema(), {"maxPartitionBytes": "-3"}, "option maxPartitionBytes is '-3': it must be a positive size"),
        (spark_schema(), {"maxPartitionBytes": "0"}, "option maxPartitionBytes is '0'"),
    ],
)
def test_bad_schemas_and_options_are_named(schema: StructType, options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CommitLogReader(schema, {"path": "/store"} | options)


def test_filters_are_taken_only_when_asked_for() -> None:
    kinds = {
        value: type(RocketMQDataSource({"path": "/store", "pushFilters": value}).reader(spark_schema()))
        for value in ("true", "false")
    }
    assert kinds == {"true": FilteringCommitLogReader, "false": CommitLogReader}
    with pytest.raises(ValueError, match="pushFilters is 'maybe'"):
        RocketMQDataSource({"path": "/store", "pushFilters": "maybe"}).reader(spark_schema())


@pytest.mark.parametrize(("text", "size"), [("5", 5), ("128m", 128 << 20), ("2 KB", 2048), ("1GiB", 1 << 30), ("64b", 64)])
def test_sizes(text: str, size: int) -> None:
    assert size_option("maxPartitionBytes", text) == size


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no store at {tmp_path}/absent"):
        read(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=f"no commit log in {tmp_path}: neither a folder"):
        read(tmp_path)
    (tmp_path / "notes").write_text("no record")
    with pytest.raises(FileNotFoundError, match="notes is no CommitLog file"):
        read(tmp_path / "notes")

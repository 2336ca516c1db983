"""Aggregates computed by the reading tasks, compared with a store's messages."""

import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from pocketmq.spark_analytics.decoding import aggregates
from pocketmq.spark_analytics.reading.options import EPOCH, read_options
from pocketmq.spark_analytics.source.batch import CommitLogReader
from pocketmq.spark_analytics.source.data_source import RocketMQDataSource
from pocketmq.store.offline.log_walk import FileWalk
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, rows_of, spark_schema

pytestmark = pytest.mark.spark

TYPES = {"string": StringType, "int": IntegerType, "bigint": LongType, "timestamp": TimestampType}
ASKED = {"groupBy": "topic, queueId", "aggregates": "count, sum(storeSize), min(queueOffset), max(storeTimestamp)"}


def partials(store: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows that the tasks yield."""
    source = RocketMQDataSource({"path": str(store), **options})
    # In production the DDL is parsed by Spark's JVM.
    fields = re.findall("`([^`]+)` ([a-z]+)", source.schema())
    asked = source.reader(StructType([StructField(name, TYPES[kind]()) for name, kind in fields]))
    assert isinstance(asked, CommitLogReader)
    return list(rows_of(asked))


def expected(name: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    groups = defaultdict(list)
    for record in expected_records(name):
        groups[record["topic"], record["queueId"]].append(record)
    return {
        key: (
            len(group),
            sum(record["storeSize"] for record in group),
            min(record["queueOffset"] for record in group),
            EPOCH + timedelta(milliseconds=max(record["storeTimestamp"] for record in group)),
        )
        for key, group in groups.items()
    }


@pytest.mark.parametrize("split_size", ["100k", "1g"])
def test_task_aggregates_add_up(golden_stores: dict[str, Path], split_size: str) -> None:
    found: dict[tuple[str, int], tuple[Any, ...]] = {}
    rows = partials(golden_stores["v4_clean"], maxPartitionBytes=split_size, **ASKED)
    for row in rows:
        key = row["topic"], row["queueId"]
        count, size, first, last = (row[name] for name in list(row)[2:])
        if key in found:
            one = found[key]
            count, size, first, last = one[0] + count, one[1] + size, min(one[2], first), max(one[3], last)
        found[key] = count, size, first, last
    assert found == expected("v4_clean")
    assert len(rows) > len(found), "a log has several files, so the least is a task for each"


@pytest.fixture
def one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that is read by one task, in many windows."""
    monkeypatch.setattr(FileWalk.__init__, "__defaults__", (500, 500))
    log = LogBuilder(1 << 20)
    for number in range(1000):
        log.append(b"body", f"T{number % 3}")
    return log.write(tmp_path)


@pytest.mark.parametrize("rows_at_once", [1, 50, 1 << 17])
def test_task_yields_one_row_per_group(one_file: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    monkeypatch.setattr(aggregates, "_ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(aggregates, "_TABLES_AT_ONCE", 3)
    rows = partials(one_file, groupBy="topic")
    assert sorted((row["topic"], row["count"]) for row in rows) == [("T0", 334), ("T1", 333), ("T2", 333)]


def test_task_without_groups_yields_one_row(one_file: Path) -> None:
    (row,) = partials(one_file, aggregates="count, max(queueId)")
    assert list(row) == ["count", "max(queueId)"] and row["count"] == 1000
    assert partials(one_file, aggregates="count") == [{"count": 1000}]
    assert partials(one_file, aggregates="count", topic="absent") == []


def test_aggregating_tasks_get_larger_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    plain = read_options({"path": "/store"})
    aggregated = read_options({"path": "/store", "aggregates": "count"})
    given = read_options({"path": "/store", "aggregates": "count", "maxPartitionBytes": "64m"})
    mib = 1 << 20
    for total, sizes in {100: (128, 128), 1000: (250, 500), 2048: (512, 1024), 9000: (512, 1024)}.items():
        assert (plain.split_size(total * mib), aggregated.split_size(total * mib)) == (sizes[0] * mib, sizes[1] * mib)
        assert given.split_size(total * mib) == 64 * mib


def test_spark_sums_task_aggregates(spark: Any, golden_stores: dict[str, Path]) -> None:
    source = spark.read.format("rocketmq").options(**ASKED, maxPartitionBytes="200k")
    frame = source.load(str(golden_stores["v4_clean"]))
    assert frame.dtypes[2:] == [
        *(("count", "bigint"), ("sum(storeSize)", "bigint")),
        *(("min(queueOffset)", "bigint"), ("max(storeTimestamp)", "timestamp")),
    ]
    asked = frame.groupBy("topic", "queueId").agg(F.sum("count"), F.sum("sum(storeSize)"))
    found = {(row[0], row[1]): (row[2], row[3]) for row in asked.collect()}
    assert found == {key: group[:2] for key, group in expected("v4_clean").items()}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"groupBy": "topik"}, "option groupBy names topik"),
        ({"groupBy": "properties"}, "option groupBy names properties: it must be a column that is a number, a time"),
        ({"aggregates": "sum(topic)"}, r"option aggregates has 'sum\(topic\)': it must be count, or sum, min or max"),
        ({"aggregates": "avg(storeSize)"}, "option aggregates has 'avg"),
        ({"groupBy": "topic", "columns": "topic"}, "cannot be combined with columns"),
        ({"groupBy": "topic", "mode": "PERMISSIVE"}, "cannot be combined with columns or mode PERMISSIVE"),
    ],
)
def test_invalid_aggregation_options_are_reported(options: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RocketMQDataSource({"path": "/store", **options}).schema()
    with pytest.raises(ValueError, match="define the schema"):
        CommitLogReader(spark_schema("topic"), {"path": "/store", "groupBy": "topic", "aggregates": "count"})

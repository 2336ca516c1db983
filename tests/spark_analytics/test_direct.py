"""Reads of stores without Spark (Arrow, Polars, DuckDB); commands give the same answers with and without Spark."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

from pocketmq import spark_analytics
from pocketmq.spark_analytics.commands.report import make_report
from pocketmq.spark_analytics.direct.engine import DirectEngine
from pocketmq.spark_analytics.pipelines.engine import SparkEngine
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.offline import file_bytes
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, read
from tests.support.amount import cases

pytestmark = pytest.mark.spark

DEFAULT_COLUMNS = 20


@pytest.fixture
def store(golden_stores: dict[str, Path]) -> Path:
    return golden_stores["v4_clean"]


def test_arrow_returns_the_rows_of_the_data_source(store: Path) -> None:
    rows = spark_analytics.arrow(store).read_all().to_pylist()
    assert rows == read(store)
    assert len(rows) == len(expected_records("v4_clean")) and len(rows[0]) == DEFAULT_COLUMNS


def test_options_as_python_arguments(store: Path) -> None:
    chosen = spark_analytics.arrow(
        store,
        columns="topic,queueId,body",
        topic=["GoldenOrder", "GoldenDelay"],
        queue_id=[0, 1],
        starting_timestamp=datetime(2026, 11, 21, tzinfo=UTC),
        body_as="string",
    ).read_all()
    assert chosen.column_names == ["topic", "queueId", "body"]
    assert chosen.to_pylist() == read(
        store, "topic", "queueId", "body string", topic="GoldenOrder,GoldenDelay", queueId="0,1", bodyAs="string"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"columns": ["topik"]}, "unknown column topik: did you mean topic"),
        ({"topics": "T"}, "unknown option topics: did you mean topic"),
        ({"topic": "GoldenOrdr"}, "did you mean GoldenOrder"),
        ({"table": "offset"}, "option table is offset: did you mean offsets"),
        ({"table": "offsets", "columns": ["grup"]}, "unknown column grup: did you mean group"),
        ({"table": "offsets", "topic": "T"}, "unknown option topic"),
    ],
)
def test_wrong_arguments_are_refused_at_once(store: Path, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spark_analytics.arrow(store, **arguments)


def test_missing_store_and_damage(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no store at"):
        spark_analytics.arrow(tmp_path / "absent")
    log = LogBuilder(1000)
    while len(log.files) < 2:
        log.append()
    log.files[0][1][300:340] = b"\xff" * 40
    with pytest.raises(DamagedRecordError):
        spark_analytics.arrow(log.write(tmp_path)).read_all()
    left = spark_analytics.arrow(tmp_path, ["physicalOffset"], mode="DROPMALFORMED").read_all()
    assert left.num_rows == len(log.physical_offsets) - 1


def test_companion_tables_and_aggregates(store: Path) -> None:
    lag = spark_analytics.arrow(store, columns=["group", "lag"], table="offsets").read_all().to_pylist()
    assert {row["group"] for row in lag} >= {"GoldenConsumerGroup"}
    counts = spark_analytics.arrow(store, group_by="topic", aggregates="count").read_all()
    assert sum(counts["count"].to_pylist()) == len(expected_records("v4_clean"))


def test_a_scan_reads_only_the_bytes_that_it_needs(store: Path) -> None:
    lazy = spark_analytics.scan(store)
    counts = lazy.group_by("topic").agg(polars.len()).collect()
    assert dict(counts.iter_rows())["GoldenOrder"] == 100
    assert lazy.select(polars.len()).collect().item() == len(expected_records("v4_clean"))
    assert lazy.filter(polars.col("queueId") == 1).select("topic", "queueId").collect()["queueId"].unique().to_list() == [1]
    before = file_bytes.bytes_read
    assert lazy.head(3).select("topic").collect().height == 3
    few = file_bytes.bytes_read - before
    assert lazy.select("topic").collect().height > 3
    assert file_bytes.bytes_read - before > 2 * few


def test_duckdb_queries_a_reader(store: Path) -> None:
    """The recipe of docs/spark.md."""
    log = spark_analytics.arrow(store, columns="topic,storeSize")  # noqa: F841 (DuckDB finds the name)
    (row,) = duckdb.sql("SELECT count(*), sum(storeSize) FROM log WHERE topic = 'GoldenOrder'").fetchall()
    own = [record["storeSize"] for record in expected_records("v4_clean") if record["topic"] == "GoldenOrder"]
    assert row == (len(own), sum(own))


def test_arrow_does_not_import_spark(store: Path) -> None:
    code = (
        "import sys; from pocketmq.spark_analytics import arrow; "
        f"assert arrow({str(store)!r}).read_all().num_rows; assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=900)


# --- the same answers -----------------------------------------------------------------------------------------------


def told(report: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a report's tables with numbers rounded, since the order of additions differs."""
    return {
        name: [
            {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}
            for row in table.to_pylist()
        ]
        for name, table in report.tables.items()
    }


@pytest.mark.parametrize("name", cases(["v5_clean"], ["v4_clean", "v4_kill9", "v5_clean"]))
def test_report_gives_the_same_answers_with_both_engines(spark: Any, golden_stores: dict[str, Path], name: str) -> None:
    direct, in_spark = (
        told(make_report(engine, str(golden_stores[name]), DelayLevels())) for engine in (DirectEngine(), SparkEngine(spark))
    )
    assert direct.keys() == in_spark.keys()
    for table, rows in direct.items():
        assert rows == in_spark[table], table


def test_report_without_spark_is_the_default_for_small_stores(store: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pocketmq.spark_analytics", "report", str(store), "--out", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    assert "2,280 messages" in done.stdout and (tmp_path / "out" / "report.html").exists()
    assert "pyspark" not in done.stderr and "starting Spark" not in done.stderr

"""Filters, limits and aggregates pushed down to the data source in Java give the same rows as when Spark computes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE, CONSUME_QUEUE_UNIT_STRUCT
from tests.spark_analytics.jvm.both_readers import java_frame, java_refusal, java_rows, python_refusal, python_rows
from tests.spark_analytics.spark_logs import LogBuilder, read, write_queues

pytestmark = pytest.mark.spark

PUSHED = {
    "topic = 'GoldenDelay'": lambda row: row["topic"] == "GoldenDelay",
    "topic in ('GoldenRaw', 'absent')": lambda row: row["topic"] == "GoldenRaw",
    "queueId in (1, 3) and topic <=> 'GoldenNormal'": lambda row: (
        row["queueId"] in (1, 3) and row["topic"] == "GoldenNormal"
    ),
    "tags = 'TagDelay' and queueId = 1": lambda row: row["tags"] == "TagDelay" and row["queueId"] == 1,
    "keys = 'delay-3'": lambda row: row["keys"] == "delay-3",
    "physicalOffset >= 2097152 and physicalOffset < 2500000": lambda row: 2097152 <= row["physicalOffset"] < 2500000,
    "queueOffset > 220": lambda row: row["queueOffset"] > 220,
    "topic = 'GoldenNormal' and queueOffset <= 3": lambda row: row["topic"] == "GoldenNormal" and row["queueOffset"] <= 3,
}
NOT_PUSHED = {
    "topic like '%Delay'": lambda row: row["topic"].endswith("Delay"),
    "topic = 'GoldenDelay' or queueId = 7": lambda row: row["topic"] == "GoldenDelay" or row["queueId"] == 7,
    "tags is null": lambda row: row["tags"] is None,
    "topic = 'GoldenDelay' and storeSize > 281": lambda row: row["topic"] == "GoldenDelay" and row["storeSize"] > 281,
    "topic <> 'GoldenNormal'": lambda row: row["topic"] != "GoldenNormal",
}


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture(scope="module")
def every_row(golden_stores: dict[str, Path]) -> list[dict[str, Any]]:
    return python_rows(golden_stores["v4_clean"])


@pytest.mark.parametrize("condition", [*PUSHED, *NOT_PUSHED])
def test_filters(jvm_spark: Any, golden_stores: dict[str, Path], every_row: list[dict[str, Any]], condition: str) -> None:
    frame = java_frame(jvm_spark, golden_stores["v4_clean"]).filter(condition)
    wanted = (PUSHED | NOT_PUSHED)[condition]
    expected = [row["physicalOffset"] for row in every_row if wanted(row)]
    assert sorted(row.physicalOffset for row in frame.select("physicalOffset").collect()) == expected
    assert frame.count() == len(expected) > 0
    assert ("Filter " in plan_of(frame)) == (condition in NOT_PUSHED)


def test_explain_shows_what_was_pushed(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = java_frame(jvm_spark, golden_stores["v4_clean"]).filter(
        "topic = 'GoldenRaw' and storeSize > 1 and queueId in (0, 1)"
    )
    scan = next(line for line in plan_of(frame).splitlines() if "BatchScan" in line)
    assert "PushedFilters: [topic = 'GoldenRaw', queueId IN (0, 1)]" in scan
    assert "storeSize >" not in scan, "Spark evaluates this one"
    assert "PushedFilters: [], PushedLimit: 5" in plan_of(java_frame(jvm_spark, golden_stores["v4_clean"]).limit(5))
    counts = java_frame(jvm_spark, golden_stores["v4_clean"]).groupBy("topic").count()
    assert "PushedFilters: [], PushedAggregates: [topic, count(*)]" in plan_of(counts)


def statistics_of(frame: Any) -> str:
    """Return what the optimiser expects."""
    plan = frame._jdf.queryExecution().stringWithStats()
    return str(plan.split("Statistics(", 1)[1].split(")", 1)[0])


@pytest.fixture
def counting(spark: Any) -> Iterator[None]:
    """Let the optimiser take row counts; the settings of the active session count."""
    names = ("spark.sql.cbo.enabled", "spark.sql.cbo.planStats.enabled")
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


@pytest.mark.usefixtures("counting")
def test_statistics_are_those_of_the_records_to_be_read(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(1_000_000)
    for number in range(100):
        log.append(bytes(9000), topic="Rare" if number % 25 == 0 else "T")
    frame = java_frame(jvm_spark, write_queues(log.write(tmp_path)), "topic", "physicalOffset")
    assert statistics_of(frame) == "sizeInBytes=976.6 KiB"
    assert statistics_of(frame.filter("topic = 'Rare'")) == "sizeInBytes=44.4 KiB, rowCount=4"
    assert statistics_of(frame.filter(f"physicalOffset >= {log.physical_offsets[90]}")) == "sizeInBytes=88.8 KiB"


def test_filters_by_time(jvm_spark: Any, golden_stores: dict[str, Path], every_row: list[dict[str, Any]]) -> None:
    middle = every_row[1000]["storeTimestamp"]
    frame = java_frame(jvm_spark, golden_stores["v4_clean"], "physicalOffset", "storeTimestamp")
    later = frame.filter(F.col("storeTimestamp") > F.lit(middle))
    assert later.count() == sum(row["storeTimestamp"] > middle for row in every_row) > 0
    assert "Filter " not in plan_of(later)


def test_filters_do_not_persist_in_a_loaded_frame(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    """With a data source in Python they do, which is why its option pushFilters is off by default."""
    frame = java_frame(jvm_spark, golden_stores["v4_clean"])
    raw = frame.filter("topic = 'GoldenRaw'")
    assert frame.filter("topic in ('GoldenDelay', 'absent')").union(raw).count() == 31
    assert frame.count() == 2280


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_pushed_filters_select_the_same_rows_of_damage_as_spark(jvm_spark: Any, tmp_path: Path, mode: str) -> None:
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append(topic="AB"[len(log.physical_offsets) % 2])
    size = log.physical_offsets[1]
    log.files[0][1][9 * size : 10 * size] = b"x" * size
    store = log.write(tmp_path)
    frame = java_frame(jvm_spark, store, "physicalOffset", "topic", mode=mode)
    for condition in ("topic = 'A'", f"physicalOffset < {20 * size}", f"physicalOffset = {9 * size}", "topic is not null"):
        # Spark applies this filter, because the data source does not support it.
        by_spark = frame.filter(f"({condition}) or length(topic) > 100")
        assert frame.filter(condition).count() == by_spark.count(), condition
    assert frame.filter(f"physicalOffset = {9 * size}").count() == (mode == "PERMISSIVE")
    assert frame.groupBy("topic").count().count() == (3 if mode == "PERMISSIVE" else 2)


def test_tag_filter_reads_only_the_records_of_matching_units(jvm_spark: Any, tmp_path: Path) -> None:
    """Damage in a record with another tag is not noticed, because only the records of matching units are read."""
    log = LogBuilder(200_000)
    for number in range(1200):
        log.append(b"z" * 40, topic="AB"[number % 2], properties={"TAGS": f"t{number // 2 % 60}", "KEYS": "k"})
    store = log.write(tmp_path)
    write_queues(store)
    row_by_offset = {row["physicalOffset"]: row for row in read(store, "physicalOffset", "tags")}
    for path in sorted((store / "consumequeue").rglob("0*")):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content), CONSUME_QUEUE_UNIT_DTYPE.itemsize):
            physical_offset, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack_from(content, at)
            if size:
                code = java_hash(row_by_offset[physical_offset]["tags"])
                CONSUME_QUEUE_UNIT_STRUCT.pack_into(content, at, physical_offset, size, code)
        path.write_bytes(content)
    frame = java_frame(jvm_spark, store, "physicalOffset", "topic", "tags")
    wanted = frame.filter("topic = 'A' and tags = 't7'")
    expected = [own for own in log.physical_offsets[::2] if row_by_offset[own]["tags"] == "t7"]
    assert sorted(row.physicalOffset for row in wanted.collect()) == expected
    path = store / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[log.physical_offsets[2] + 88 - 4] = 0x7F  # length of a body
    path.write_bytes(data)
    assert wanted.count() == len(expected)


def test_limits(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = java_frame(jvm_spark, golden_stores["v4_clean"], maxPartitionBytes="300k")
    assert frame.limit(5).count() == 5
    assert len(frame.filter("topic = 'GoldenDelay'").limit(7).collect()) == 7
    assert len(frame.limit(100_000).select("topic").collect()) == 2280
    assert len(frame.filter("topic like '%Delay'").limit(3).collect()) == 3


AGGREGATES = (
    "count(*)",
    "count(topic)",
    "sum(storeSize)",
    "min(queueOffset)",
    "max(storeTimestamp)",
    "min(flag)",
    "avg(flag)",
)


@pytest.mark.parametrize("grouping", [(), ("topic",), ("topic", "queueId"), ("queueId",)])
def test_aggregates(spark: Any, jvm_spark: Any, golden_stores: dict[str, Path], grouping: tuple[str, ...]) -> None:
    stores = [golden_stores["v4_clean"], golden_stores["v5_clean"]]
    results = []
    for session in (spark, jvm_spark):
        frame = java_frame(session, stores, maxPartitionBytes="300k").groupBy(*grouping).agg(*map(F.expr, AGGREGATES))
        results.append(sorted(frame.collect(), key=str))
    assert results[0] == results[1]
    assert "agg_func_0" in plan_of(frame) and "body" not in plan_of(frame)


def test_aggregates_that_are_not_pushed_down(spark: Any, jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    aggregates = ("count(distinct topic)", "sum(physicalOffset)", "count(tags)", "max(topic)", "sum(storeSize + 1)")
    for aggregate in aggregates:
        values = [
            java_frame(session, golden_stores["v4_clean"]).agg(F.expr(aggregate)).collect() for session in (spark, jvm_spark)
        ]
        assert values[0] == values[1], aggregate


def test_aggregates_of_no_records(jvm_spark: Any, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    empty = LogBuilder(4096).write(tmp_path)
    (row,) = java_frame(jvm_spark, empty).agg(F.count("*"), F.sum("storeSize"), F.max("storeTimestamp")).collect()
    assert tuple(row) == (0, None, None)
    assert java_frame(jvm_spark, empty).groupBy("topic").count().collect() == []
    absent = java_frame(jvm_spark, golden_stores["v4_clean"]).filter("topic = 'absent'")
    assert (absent.count(), absent.groupBy("topic").count().count()) == (0, 0)
    assert tuple(absent.agg(F.min("flag"), F.count("*")).collect()[0]) == (None, 0)


def test_aggregates_fail_at_damage(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append()
    size = log.physical_offsets[1]
    log.files[0][1][9 * size : 10 * size] = b"x" * size
    store = log.write(tmp_path)
    with pytest.raises(Exception, match=f"damaged record at physical offset {9 * size} of"):
        java_frame(jvm_spark, store).count()
    count = len(log.physical_offsets)
    assert java_frame(jvm_spark, store, mode="DROPMALFORMED").count() == count - 1
    assert java_frame(jvm_spark, store, mode="PERMISSIVE").count() == count
    assert len(java_rows(jvm_spark, store, mode="PERMISSIVE")) == count


def test_sql_joins_and_subqueries(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    java_frame(jvm_spark, golden_stores["v4_clean"]).createOrReplaceTempView("log")
    joined = jvm_spark.sql(
        "SELECT count(*) FROM log a JOIN log b ON a.uniqKey = b.uniqKey AND a.topic = 'GoldenDelay' "
        "AND b.topic = 'SCHEDULE_TOPIC_XXXX'"
    )
    assert joined.collect()[0][0] == 24
    latest = jvm_spark.sql("SELECT topic FROM log WHERE storeTimestamp = (SELECT max(storeTimestamp) FROM log)")
    assert latest.count() >= 1


def test_both_readers_know_topics_only_from_the_table_of_topics(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(50_000)
    log.append(topic="A")
    store = write_queues(log.write(tmp_path))
    refusals = [java_refusal(jvm_spark, store, topic="absent"), python_refusal(store, topic="absent")]
    assert refusals == ["", ""], "queues alone, as of a partial copy, need not be complete"
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"A":{"topicName":"A"}}}')
    for refusal in (java_refusal(jvm_spark, store, topic="absent"), python_refusal(store, topic="absent")):
        assert "option topic is absent, which is not a topic of" in refusal

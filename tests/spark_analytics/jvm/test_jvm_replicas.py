"""Several stores in one read, by both readers: their paths, the names of their brokers, and each record once."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pocketmq import spark_analytics
from tests.spark_analytics.jvm.both_readers import EVERY, java_frame, java_refusal, java_rows, python_refusal, python_rows
from tests.spark_analytics.jvm.test_jvm_streaming import Sink
from tests.spark_analytics.replica_stores import replicas
from tests.spark_analytics.test_spark_replicas import once
from tests.support.amount import cases

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", range(cases(2, 12)))
def test_all_readers_read_the_same_records_of_several_copies(jvm_spark: Any, tmp_path: Path, seed: int) -> None:
    stores = replicas(tmp_path, seed)
    for options in (
        {"maxPartitionBytes": "1k"},
        {"topic": "Rare", "ignoreUnknownTopics": "true"},
        {"dropReplicas": "false"},
        {"startingOffset": 9000, "mode": "DROPMALFORMED"},
    ):
        rows = java_rows(jvm_spark, stores, **options)
        assert rows == python_rows(stores, **options)
        table = spark_analytics.arrow([str(store) for store in stores], list(EVERY), **options).read_all()
        key = [("storePath", "ascending"), ("physicalOffset", "ascending")]
        assert table.sort_by(key).to_pylist() == rows
    frame = java_frame(jvm_spark, stores)
    assert frame.count() == sum(once(stores).values())
    pushed = {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert pushed == Counter(record[1] for record in once(stores))


@pytest.mark.parametrize("seed", range(cases(1, 4)))
def test_a_stream_that_changes_its_reader_has_each_record_once(jvm_spark: Any, tmp_path: Path, seed: int) -> None:
    stores = replicas(tmp_path / "stores", seed)
    sink = Sink(jvm_spark, tmp_path, Path(f"{tmp_path}/stores/*/store"), maxBytesPerTrigger="3k")
    hidden = stores[0].rename(tmp_path / "hidden")
    sink.run("jvm")
    hidden.rename(stores[0])
    for reader in ("python", "jvm"):
        sink.run(reader)
    assert sink.offsets() == sorted(record[0] for record in once(stores).elements())
    places = jvm_spark.read.parquet(str(tmp_path / "sink")).select("storePath", "brokerName").distinct().collect()
    assert all(Path(row.storePath).parents[2].name == row.brokerName for row in places)


def test_names_and_paths_are_the_same_in_all_readers(jvm_spark: Any, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    v4, v5 = golden_stores["v4_clean"], golden_stores["v5_clean"]
    plain = tmp_path / "broker-b" / "store"
    (plain / "commitlog").mkdir(parents=True)
    for file in (v5 / "commitlog").iterdir():
        (plain / "commitlog" / file.name).write_bytes(file.read_bytes())
    text = f"{v4}, {tmp_path}/{{broker-b,broker-b}}/store,{tmp_path}/broker-?/st*"
    given = {"brokerNames": json.dumps({str(v4): "given"})}
    for paths, options, names in (
        ([v4, v5], {}, {"golden-a", "golden-v5"}),
        ([f"{v4},{plain}"], {}, {"golden-a", "broker-b"}),
        ([text], given, {"given", "broker-b"}),
        ([f"{tmp_path}/{{broker-b,broker-b}}/store/commitlog"], {}, {"broker-b"}),
    ):
        rows = java_rows(jvm_spark, paths, "brokerName", "physicalOffset", "storePath", **options)
        assert {row["brokerName"] for row in rows} == names
        assert rows == python_rows(paths, "brokerName", "physicalOffset", "storePath", **options)
    for reader in ("jvm", "python"):
        source = jvm_spark.read.format("rocketmq").option("reader", reader)
        assert "brokerName" not in source.load(str(v4)).columns, "of one store as before"
        frame = source.load([str(v4), str(v5)])
        assert frame.columns[-1] == "brokerName"
        counts = frame.groupBy("brokerName").agg(F.count("*").alias("n")).collect()
        assert {row.brokerName: row.n for row in counts} == {"golden-a": 2280, "golden-v5": 322}
        assert frame.where("brokerName = 'golden-v5'").count() == 322


@pytest.mark.parametrize(
    ("paths", "options", "told"),
    [
        ("{store},/nowhere", {}, "no store at /nowhere"),
        ("{store},,{store}", {}, "comma-separated list of paths"),
        ("{store}", {"brokerNames": '{"/elsewhere": "a"}'}, "brokerNames has /elsewhere"),
        ("{store}", {"brokerNames": "[1]"}, "must be a JSON object"),
        ("{store}", {"dropReplicas": "maybe"}, "must be true or false"),
    ],
)
def test_refusals_are_the_same(
    jvm_spark: Any, golden_stores: dict[str, Path], paths: str, options: dict[str, str], told: str
) -> None:
    stores = [paths.format(store=golden_stores["v4_clean"])]
    for refusal in (java_refusal(jvm_spark, stores, "topic", **options), python_refusal(stores, "topic", **options)):
        assert told in refusal

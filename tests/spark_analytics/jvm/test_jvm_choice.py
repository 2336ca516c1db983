"""Choice of the reader (in Java or in Python) by session and options."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pocketmq.spark_analytics.session import JARS, with_jar
from pocketmq.spark_analytics.source.data_source import RocketMQDataSource, has_jar
from tests.spark_analytics.spark_logs import LogBuilder

pytestmark = pytest.mark.spark


def reader_of(frame: Any) -> str:
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    return "jvm" if "reader jvm" in plan else "python"


def test_option_forces_a_reader(jvm_spark: Any, spark: Any, golden_stores: dict[str, Path]) -> None:
    store = str(golden_stores["v5_kill9"])
    for session, default in ((jvm_spark, "jvm"), (spark, "python")):
        frames = {
            reader: session.read.format("rocketmq").options(**options).load(store)
            for reader, options in (("", {}), ("jvm", {"reader": "JVM"}), ("python", {"Reader": "python"}))
        }
        assert {asked: reader_of(frame) for asked, frame in frames.items()} == {
            "": default,
            "jvm": "jvm",
            "python": "python",
        }
        assert {frame.count() for frame in frames.values()} == {297}


def test_options_that_only_the_reader_in_python_supports(jvm_spark: Any, golden_stores: dict[str, Path]) -> None:
    def loaded(**options: str) -> Any:
        return jvm_spark.read.format("rocketmq").options(**options).load(str(golden_stores["v4_clean"]))

    assert loaded(table="topics", reader="auto").count() > 10
    assert loaded(groupBy="topic", reader="auto").columns == ["topic", "count"]
    with pytest.raises(PySparkException, match="option table is topics: only the Python reader supports this"):
        loaded(table="topics")
    with pytest.raises(PySparkException, match="option reader is rust: it must be one of auto, python, jvm"):
        loaded(reader="rust")


def test_typed_bodies_are_read_in_python(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(2000)
    log.append(b'{"id": 7}')
    store = str(log.write(tmp_path))

    def source(**options: str) -> Any:
        return jvm_spark.read.format("rocketmq").options(bodyAs="json", **options)

    frames = [
        source(bodySchema="infer", reader="auto").load(store),
        source(reader="auto").schema("body struct<id: bigint>").load(store),
    ]
    assert [reader_of(frame) for frame in frames] == ["python"] * 2
    assert [frame.select("body.id").collect()[0].id for frame in frames] == [7, 7]
    with pytest.raises(PySparkException, match="option bodySchema: only the Python reader supports this"):
        source(bodySchema="infer").load(store)
    with pytest.raises(PySparkException, match="option bodyAs is Avro: only the Python reader supports this"):
        source().option("bodyAs", "Avro").load(store)
    with pytest.raises(PySparkException, match="option bodyDecoders: only the Python reader supports this"):
        source(bodyDecoders="{}").load(store)
    with pytest.raises(PySparkException, match="a schema with a struct for body: only the Python reader supports this"):
        source().schema("body struct<id: bigint>").load(store)


def test_without_the_jar_the_reader_in_java_is_refused() -> None:
    with pytest.raises(ValueError, match="option reader is jvm, but the jar is not on the class path"):
        RocketMQDataSource({"path": "/store", "reader": "jvm"})
    RocketMQDataSource({"path": "/store", "reader": "auto"})


def test_local_session_has_the_jar(jvm_spark: Any) -> None:
    assert has_jar(jvm_spark)
    assert jvm_spark.conf.get(JARS).endswith("pocketmq-spark.jar")
    assert with_jar({JARS: "a.jar"})[JARS].startswith("a.jar,")

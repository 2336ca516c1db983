"""A standalone cluster of two workers that get the jar through `--jars`; their Python has neither PocketMQ nor NumPy."""

import ast
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark_analytics.spark_logs import expected_records
from tests.spark_analytics.test_spark_cluster import daemon

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.getOrCreate()
store, out = sys.argv[1:]

def modules(_):
    import importlib.util
    yield [name for name in ("numpy", "pyarrow", "pocketmq") if importlib.util.find_spec(name)]

found = spark.sparkContext.parallelize([0, 1], 2).mapPartitions(modules).collect()
log = spark.read.format("rocketmq").option("maxPartitionBytes", "300k").load(store)
counts = {row.topic: row["count"] for row in log.groupBy("topic").count().collect()}
bodies = log.select(F.length("body").alias("size"), F.size("properties").alias("entries"), "tags").collect()
stream = spark.readStream.format("rocketmq").option("columns", "physicalOffset,topic").load(store)
query = stream.writeStream.format("parquet").option("checkpointLocation", f"{out}/state").trigger(availableNow=True)
query.start(f"{out}/sink").awaitTermination()
streamed = [row.physicalOffset for row in spark.read.parquet(f"{out}/sink").collect()]
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
spark.stop()
print()
print(repr((found, executors, counts, [tuple(row) for row in bodies], sorted(streamed))))
"""


def bare_python(folder: Path) -> Path:
    """Create a Python with PySpark as its only library."""
    import py4j
    import pyspark

    libraries = folder / "libraries"
    libraries.mkdir()
    for module in (pyspark, py4j):
        (libraries / module.__name__).symlink_to(Path(module.__file__).parent)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec {shlex.quote(sys.executable)} -S "$@"\n'
    )
    program.chmod(0o755)
    return program


@pytest.mark.long
def test_jar_alone_reads_on_a_cluster(java_built: bool, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    import pyspark

    from pocketmq.spark_analytics.jvm import jar_path
    from pocketmq.spark_analytics.session import find_java, make_java_home

    if not java_built:
        pytest.skip("no JDK")
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    environment |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "JAVA_HOME": str(make_java_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(bare_python(tmp_path)),
    }
    quick = {"sql.shuffle.partitions": 2, "sql.adaptive.enabled": "false", "sql.codegen.wholeStage": "false"}
    settings = {"ui.enabled": "false", "executor.memory": "512m", "driver.host": "127.0.0.1", "executor.cores": 1} | quick
    options = [part for key, value in settings.items() for part in ("--conf", f"spark.{key}={value}")]
    worker = ("--cores", "1", "--memory", "512m")
    registered = "Successfully registered with master"
    with (
        daemon(environment, "master.Master", says=r"spark://[\d.]+:[1-9]\d*") as master,
        daemon(environment, "worker.Worker", *worker, "--work-dir", f"{tmp_path}/one", master, says=registered),
        daemon(environment, "worker.Worker", *worker, "--work-dir", f"{tmp_path}/two", master, says=registered),
    ):
        submit = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", master, "--jars", str(jar_path()), *options]
        done = subprocess.run(
            [*submit, job, golden_stores["v4_clean"], tmp_path], env=environment, capture_output=True, text=True, timeout=900
        )
    assert done.returncode == 0, done.stderr
    found, executors, counts, bodies, streamed = ast.literal_eval(done.stdout.splitlines()[-1])
    expected = expected_records("v4_clean")
    assert (found, executors) == ([[], []], 2)
    assert counts == Counter(record["topic"] for record in expected)
    assert Counter(bodies) == Counter(
        (record["bodyLen"], len(record["properties"]), record["properties"].get("TAGS")) for record in expected
    )
    assert streamed == [record["physicalOffset"] for record in expected]

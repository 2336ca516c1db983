"""A standalone cluster in separate processes, whose workers have the libraries and get PocketMQ as a zip file."""

import ast
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark_analytics.spark_logs import expected_records

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
DEPLOY = "org.apache.spark.deploy"
JOB = """
import os, sys
from pyspark.sql import SparkSession
from pocketmq import spark_analytics
from pocketmq.spark_analytics.__main__ import main

spark = SparkSession.builder.getOrCreate()
spark_analytics.register(spark)
store, out = sys.argv[1:]

def place(_):
    from pocketmq import spark_analytics, store as format_modules
    yield spark_analytics.__file__, format_modules.__file__, os.getcwd()

places = spark.sparkContext.parallelize([0], 1).mapPartitions(place).collect()
log = spark.read.format("rocketmq").option("maxPartitionBytes", "500k").load(store)
counts = {row.topic: row["count"] for row in log.groupBy("topic").count().collect()}
stop, SparkSession.stop = SparkSession.stop, lambda session: None
codes = [main(command) for command in (
    ["audit", store], ["export", store, "--out", f"{out}/export"], ["report", store, "--out", f"{out}/report"],
)]
exported = spark.read.parquet(f"{out}/export").count()
stop(spark)
print()
print(repr((spark_analytics.__file__, places, counts, codes, exported)))
"""


@contextmanager
def daemon(environment: dict[str, str], name: str, *arguments: str, says: str) -> Iterator[str]:
    """Run one of Spark's daemons; yield the match of `says` in its output."""
    kept: deque[str] = deque(maxlen=50)
    program = [f"{environment['SPARK_HOME']}/bin/spark-class", f"{DEPLOY}.{name}", "--host", "127.0.0.1"]
    with subprocess.Popen(
        [*program, "--port", "0", "--webui-port", "0", *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        rest = threading.Thread(target=kept.extend, args=(process.stderr,))
        try:
            for line in process.stderr:
                kept.append(line)
                if found := re.search(says, line):
                    break
            else:
                pytest.fail("".join(kept))
            rest.start()
            yield found[0]
        finally:
            process.terminate()
            if rest.ident is not None:
                rest.join()


def python_without_us(folder: Path) -> Path:
    """Create a Python that has the libraries but not PocketMQ: it ignores the .pth files of an editable install."""
    libraries = os.pathsep.join(dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib")))
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec {shlex.quote(sys.executable)} -S "$@"\n'
    )
    program.chmod(0o755)
    return program


def zip_as_documented(folder: Path) -> Path:
    command = re.search(r"^    python (-m zipfile -c )(\S+) (.*)$", (ROOT / "docs" / "spark.md").read_text(), re.MULTILINE)
    assert command is not None
    packed = folder / command[2]
    subprocess.run([sys.executable, *shlex.split(command[1]), packed, *shlex.split(command[3])], cwd=ROOT, check=True)
    return packed


@pytest.mark.long
def test_standalone_cluster_runs_jobs_from_a_zip(
    golden_stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark

    from pocketmq.spark_analytics.session import find_java, make_java_home

    python, packed, job = python_without_us(tmp_path), zip_as_documented(tmp_path), tmp_path / "job.py"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    alone = subprocess.run([python, "-c", "import numpy, pyarrow, pocketmq"], env=environment, capture_output=True)
    assert b"No module named 'pocketmq'" in alone.stderr, "else nothing would be shown of the zip"
    environment |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "JAVA_HOME": str(make_java_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": str(python),
    }
    job.write_text(JOB)
    store, out = golden_stores["v4_clean"], tmp_path / "out"
    quick = {"sql.shuffle.partitions": 2, "sql.adaptive.enabled": "false", "sql.codegen.wholeStage": "false"}
    settings = {"ui.enabled": "false", "executor.memory": "512m", "driver.host": "127.0.0.1"} | quick
    options = [part for key, value in settings.items() for part in ("--conf", f"spark.{key}={value}")]
    with (
        daemon(environment, "master.Master", says=r"spark://[\d.]+:[1-9]\d*") as master,
        daemon(
            environment, "worker.Worker", "--cores", "2", "--memory", "512m", "--work-dir", f"{tmp_path}/work", master,
            says="Successfully registered with master",
        ),
    ):  # fmt: skip
        submit = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", master, "--py-files", packed, *options]
        done = subprocess.run([*submit, job, store, out], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    driver, places, counts, codes, exported = ast.literal_eval(done.stdout.splitlines()[-1])
    assert driver.endswith("pocketmq.zip/pocketmq/spark_analytics/__init__.py")
    ((module, format_module, folder),) = places
    assert module.endswith("pocketmq.zip/pocketmq/spark_analytics/__init__.py")
    assert format_module.endswith("pocketmq.zip/pocketmq/store/__init__.py")
    assert folder.startswith(f"{tmp_path}/work/app-")
    expected = [record["topic"] for record in expected_records("v4_clean")]
    assert counts == {topic: expected.count(topic) for topic in set(expected)}
    assert codes == [0, 0, 0]
    assert exported == len(expected)
    assert "<svg" in (out / "report" / "report.html").read_text()

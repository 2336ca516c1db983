"""Data source and commands in a session of Spark Connect, with a server that the session starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.spark_analytics.session import find_java, make_java_home

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession
from pocketmq import spark_analytics
from pocketmq.spark_analytics.__main__ import main
from pocketmq.spark_analytics.session import prepare_environment

spark = SparkSession.builder.remote("local[2]").config(map=prepare_environment("local[2]")).getOrCreate()
assert type(spark).__module__ == "pyspark.sql.connect.session"
if sys.argv[1] == "read":
    spark_analytics.register(spark)
    for table in ("messages", "offsets"):
        print(table, spark.read.format("rocketmq").option("table", table).load(sys.argv[2]).count())
else:
    code = main(sys.argv[1:])
    print("exit code", code)
"""


def run(folder: Path, *arguments: str) -> str:
    """Run the job with arguments in a process of its own; return what it printed."""
    job = folder / "job.py"
    job.write_text(JOB)
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "JAVA_HOME": str(make_java_home(find_java())),
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, str(job), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_reads_of_messages_and_companion_tables(golden_stores: dict[str, Path], tmp_path: Path) -> None:
    shown = run(tmp_path, "read", str(golden_stores["v4_clean"]))
    assert "messages 2280" in shown and "offsets 13" in shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("report", "{store}", "--out", "{out}", "--engine", "spark"), "2,280 messages"),
        (("audit", "{store}", "--engine", "spark"), "valid: 2,280 records"),
        (("trace", "{store}", "delay-3", "--scan", "--engine", "spark"), "68 ms late"),
        (("export", "{store}", "--out", "{out}"), "2,280 new records"),
    ],
)
def test_commands(golden_stores: dict[str, Path], tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    given = [argument.format(store=golden_stores["v4_clean"], out=tmp_path / "out") for argument in arguments]
    shown = run(tmp_path, *given)
    assert expected in shown and "exit code 0" in shown, shown[-3000:]

"""Data source and commands in a session of Spark Connect, with a server that the session starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.spark_analytics.session import find_java, make_java_home
from tests.support.amount import cases

pytestmark = pytest.mark.spark

JOB = """
import json, sys, traceback
from pyspark.sql import SparkSession
from pocketmq import spark_analytics
from pocketmq.spark_analytics.__main__ import main
from pocketmq.spark_analytics.session import prepare_environment

store, *commands = json.loads(sys.argv[1])
spark = SparkSession.builder.remote("local[2]").config(map=prepare_environment("local[2]")).getOrCreate()
assert type(spark).__module__ == "pyspark.sql.connect.session"
type(spark).stop = lambda self: None  # each command ends with it
for arguments in commands:
    print("BEGIN", arguments[0], flush=True)
    try:
        print("exit code", main(arguments), flush=True)
    except BaseException:
        traceback.print_exc(file=sys.stdout)
print("BEGIN read")
spark_analytics.register(spark)
for table in ("messages", "offsets"):
    print(table, spark.read.format("rocketmq").option("table", table).load(store).count())
"""
COMMANDS = (
    # Spark plans these queries of many columns slowly. `test_direct` has those of the report in a session without Connect.
    *cases(
        (),
        (
            (("report", "{store}", "--out", "{out}/report", "--engine", "spark"), "2,280 messages"),
            (("audit", "{store}", "--engine", "spark"), "valid: 2,280 records"),
        ),
    ),
    (("trace", "{store}", "delay-3", "--scan", "--engine", "spark"), "68 ms late"),
    (("export", "{store}", "--out", "{out}/lake"), "2,280 new records"),
)


@pytest.fixture(scope="module")
def shown(golden_stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of each command and of the reads, by name. They share one session, because Spark starts slowly."""
    folder, store = tmp_path_factory.mktemp("connect"), str(golden_stores["v4_clean"])
    job = folder / "job.py"
    job.write_text(JOB)
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "JAVA_HOME": str(make_java_home(find_java())),
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # the server takes a free port, as two runs on one machine need
    }
    given = [[argument.format(store=store, out=folder) for argument in arguments] for arguments, _ in COMMANDS]
    command = [sys.executable, str(job), json.dumps([store, *given])]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    parts = done.stdout.split("BEGIN ")[1:]
    return {part.split()[0]: part for part in parts}


def test_reads_of_messages_and_companion_tables(shown: dict[str, str]) -> None:
    assert "messages 2280" in shown["read"] and "offsets 13" in shown["read"]


@pytest.mark.parametrize(("name", "expected"), [(arguments[0], expected) for arguments, expected in COMMANDS])
def test_commands(shown: dict[str, str], name: str, expected: str) -> None:
    assert expected in shown[name] and "exit code 0" in shown[name], shown[name][-3000:]

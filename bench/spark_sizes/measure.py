"""One measurement: a scan by a new executor, whose heap is touched at its start, so that growth is due to other memory.

The executor is a process of its own with one core (`local-cluster`), as a cluster's worker starts it, because the JVM of a
local session also holds the driver. It is warmed up by two scans of the smallest store.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.spark_read import SIXTEEN, cpu_seconds, ddl
from bench.spark_sizes.memory import ExecutorMemory, accounts_mib, executor_pid, live_heap_mib

HEAP_MIB: Final = 1024
WARM_RUNS: Final = 2
PARQUET, RANGE = "Parquet", "range"
READERS: Final = {"Java": "jvm", "Python": "python"}
JAVA_OPTIONS: Final = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false "
    f"-Xms{HEAP_MIB}m -XX:+AlwaysPreTouch -XX:NativeMemoryTracking=summary"
)


@dataclass
class Found:
    """Result of a scan; memory in MiB. `beside` is the anonymous memory of the executor's JVM without its heap."""

    rows: int
    hash: int
    seconds: float
    cpu_s: float
    live_heap: float
    beside: float
    files: float
    workers: float
    largest_worker: float
    accounts: dict[str, float]


def session(home: Path, collector: str, environment: dict[str, str]) -> Any:
    """Start a session with one executor, whose files are in a folder `home`."""
    import pyspark

    from pocketmq.spark_analytics.session import local_session

    # A worker of `local-cluster` writes its logs into SPARK_HOME.
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    settings = {f"spark_executorEnv_{name}": value for name, value in environment.items()}
    options = f"{JAVA_OPTIONS} -XX:+Use{collector}GC -Xlog:gc:file={home}/gc.log"
    return local_session(
        f"local-cluster[1,1,{HEAP_MIB}]",
        spark_driver_memory="1g",
        spark_executor_memory=f"{HEAP_MIB}m",
        spark_executor_extraJavaOptions=options,
        spark_sql_shuffle_partitions="1",
        **settings,
    )


def hashed(frame: Any, columns: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of rows and a hash over all values of a DataFrame, whatever the order of its rows."""
    from pyspark.sql import functions as F

    row = frame.select(F.xxhash64(*columns).alias("hash")).agg(F.count("*"), F.bit_xor("hash")).collect()[0]
    return int(row[0]), int(row[1])


def scan(spark: Any, kind: str, store: Path, times: int = 1) -> Callable[[], tuple[int, int]]:
    """Return a scan of a store by one of the readers, of a Parquet file `times` times, or of `times` numbers."""

    def run() -> tuple[int, int]:
        if kind == RANGE:
            return hashed(spark.range(times), ("id",))
        if kind == PARQUET:
            return hashed(spark.read.parquet(*[str(store)] * times), SIXTEEN)
        source = spark.read.format("rocketmq").schema(ddl(SIXTEEN)).option("reader", READERS[kind])
        return hashed(source.load(str(store)), SIXTEEN)

    return run


def measure(
    kind: str, warm_up: tuple[Path, int], target: tuple[Path, int], collector: str, environment: dict[str, str]
) -> dict[str, Any]:
    """Measure a scan in a new session; `warm_up` and `target` are the paths and how many times to scan them."""
    home = Path(tempfile.mkdtemp(prefix="spark-sizes-"))
    spark = session(home, collector, environment)
    try:
        for _ in range(WARM_RUNS):
            scan(spark, kind, *warm_up)()
        pid = executor_pid()
        with ExecutorMemory(pid) as memory:
            began, cpu = time.monotonic(), cpu_seconds()
            rows, found_hash = scan(spark, kind, *target)()
            seconds, cpu = time.monotonic() - began, cpu_seconds() - cpu
        accounts = accounts_mib(pid)
        found = Found(
            rows,
            found_hash,
            seconds,
            cpu,
            live_heap_mib(home / "gc.log"),
            memory.anonymous - accounts["Java Heap"],
            memory.files,
            memory.workers,
            memory.largest_worker,
            accounts,
        )
        return asdict(found)
    finally:
        spark.stop()
        shutil.rmtree(home, ignore_errors=True)


def write_parquet(store: Path, target: Path) -> None:
    """Write the messages of a store to a Parquet file, unless it exists."""
    from pocketmq.spark_analytics.session import local_session

    if target.exists():
        return
    spark = local_session("local[1]", spark_driver_memory="2g")
    source = spark.read.format("rocketmq").schema(ddl(SIXTEEN)).option("reader", "jvm").load(str(store))
    source.write.parquet(str(target))
    spark.stop()

"""Speed of reading a CommitLog with Spark: `python -m bench.spark_read FOLDER [--gib 2]`.

Creates stores in FOLDER (kept for the next run), log and queues, with records of about 300 B and with bodies of 1 KiB. For
each it measures: the plain read of its bytes; the decoder alone, in this process; the same columns through Spark, in a query
for messages, bytes and the newest message by topic; the same aggregates computed in the reading tasks; a reader that yields
tuples; a data source that yields prepared columns, which measures Spark itself; and the bytes read for a topic that has one
message in a hundred. If its jar is built, also the data source in Java: a hash over all values of the columns; the query;
`count()` and a filter by topic, compared with the options of the data source in Python that give the same answer.

All figures are CPU seconds of this process, the JVM and the Python workers together, in one session that the queries warm up
first, because the JVM's compilers initially take more than a query. Each row has one run that does not count, and then the
best of some; runs through Spark alternate with runs of the decoder, as the machine's speed varies from minute to minute. MB
is 10^6 bytes of log. Every run must count as many messages as were written.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType
from rich.console import Console
from rich.table import Table

from bench.made_store import RARE, RECORD_WITHOUT_BODY, make_store
from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.session import local_session
from pocketmq.spark_analytics.source.batch import CommitLogReader, Partition
from pocketmq.spark_analytics.source.data_source import has_jar
from pocketmq.store.offline import file_bytes

THREE: Final = ("topic", "storeTimestamp", "storeSize")
SIXTEEN: Final = (*list(COLUMNS)[: list(COLUMNS).index("properties")], "rawProperties")
WITH_MAP: Final = (*SIXTEEN[:-1], "properties")
PYTHON: Final = {"reader": "python"}
JAVA: Final = {"reader": "jvm"}
TUPLES_SIZE: Final = 128 << 20  # a reader of tuples is too slow for more
WARM_RUNS: Final = 4
PREPARED_SIZE: Final = 8 << 20  # of each split, yielded repeatedly
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_seen: dict[int, int] = {}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants; for ended ones, the last known value.

    Spark ends workers that were idle for a minute without waiting for them; a run in which one ended would appear too fast.
    """
    # A thread's list of children may be incomplete while other threads end, so every process's parent is read.
    spent, below = dict[int, int](), defaultdict[int, list[int]](list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        spent[pid] = sum(map(int, fields[11:15]))
        below[int(fields[1])].append(pid)
    pids = [os.getpid()]
    for pid in pids:
        pids += below[pid]
    _seen.update((pid, spent[pid]) for pid in pids if pid in spent)
    return sum(_seen.values()) / _TICKS


def seconds_of(run: Callable[[], int], expected: int) -> float:
    """Return the CPU seconds of one run."""
    began = cpu_seconds()
    found = run()
    seconds = cpu_seconds() - began
    if found != expected:
        sys.exit(f"bench.spark_read: {found} messages counted, {expected} expected")
    return seconds


def best_of(rounds: int, run: Callable[[], int], expected: int) -> float:
    """Return the minimum CPU seconds of some runs, after one that does not count."""
    return min([seconds_of(run, expected) for _ in range(rounds + 1)][1:])


def ddl(names: tuple[str, ...]) -> str:
    known = COLUMNS | DERIVED_COLUMNS
    return ", ".join(known[name].ddl for name in names)


def plain_read(folder: Path) -> int:
    """Read every byte; return the number of bytes."""
    buffer = bytearray(8 << 20)
    total = 0
    for path in sorted((folder / "commitlog").iterdir()):
        with open(path, "rb", buffering=0) as file:
            while size := file.readinto(buffer):
                total += size
    return total


def decoder(folder: Path, names: tuple[str, ...], **options: str) -> Callable[[], int]:
    """Return a function that runs PocketMQ's decoder over all splits of a store, planned beforehand."""
    reader = CommitLogReader(StructType.fromDDL(ddl(names)), {"path": str(folder), **options})
    partitions = reader.partitions()
    return lambda: sum(batch.num_rows for partition in partitions for batch in reader.read(partition))


class PreparedReader(DataSourceReader):  # type: ignore[misc]
    """Reader that decodes the beginning of each split and yields it repeatedly, up to the split's length."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._own = CommitLogReader(schema, options)

    def partitions(self) -> list[Partition]:
        return self._own.partitions()

    def read(self, partition: Any) -> Iterator[Any]:
        split = partition.part
        first = replace(split, stop=min(split.stop, split.begin + PREPARED_SIZE))
        batches = list(self._own.read(Partition(first)))
        for _ in range((split.stop - split.begin) // PREPARED_SIZE):
            yield from batches


class TupleReader(DataSourceReader):  # type: ignore[misc]
    """Reader without Arrow: one tuple per row."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._own = CommitLogReader(schema, options)

    def partitions(self) -> list[Partition]:
        return self._own.partitions()

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in self._own.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class PreparedSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(schema, self.options)


class TupleSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(schema, self.options)


@dataclass
class Bench:
    """The measurements for one store."""

    spark: Any
    folder: Path
    count: int
    rounds: int
    is_small: bool
    table: Table

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "commitlog").iterdir())

    def row(self, name: str, seconds: float, found: str = "", target: str = "", is_met: bool = True) -> None:
        verdict = "" if not target else "met" if is_met else "missed"
        speed, per_message = self.size / 1e6 / seconds, seconds / self.count * 1e9
        self.table.add_row(name, f"{seconds:.2f}", f"{speed:,.0f}", f"{per_message:,.0f}", found, target, verdict)

    def by_topic(self, names: tuple[str, ...], source: str = "rocketmq", **options: str) -> Callable[[], int]:
        """Return the query: messages, bytes and the newest by topic; all of `names` are passed to Spark."""

        def run() -> int:
            # Created for each run, because a DataFrame keeps the results of its tasks.
            frame = self.spark.read.format(source).schema(ddl(names)).options(**PYTHON | options).load(str(self.folder))
            asked = frame.groupBy("topic").agg(F.count("*"), F.sum("storeSize"), F.max("storeTimestamp"))
            return sum(row[1] for row in asked.collect())

        return run

    def in_tasks(self) -> int:
        """The same query, aggregated in the tasks."""
        frame = self.spark.read.format("rocketmq").options(**PYTHON).option("groupBy", "topic")
        frame = frame.option("aggregates", "count, sum(storeSize), max(storeTimestamp)").load(str(self.folder))
        asked = frame.groupBy("topic").agg(F.sum("count"), F.sum("sum(storeSize)"), F.max("max(storeTimestamp)"))
        return sum(row[1] for row in asked.collect())

    def hashed(self, names: tuple[str, ...]) -> Callable[[], int]:
        """Return a query of the data source in Java that uses every value: its aggregate cannot be pushed down."""

        def run() -> int:
            frame = self.spark.read.format("rocketmq").schema(ddl(names)).options(**JAVA).load(str(self.folder))
            values = [name if name != "properties" else "map_entries(properties)" for name in names]
            asked = frame.selectExpr(f"xxhash64({', '.join(values)}) AS hash").agg(F.count("*"), F.bit_xor("hash"))
            return int(asked.collect()[0][0])

        return run

    def java(self) -> Any:
        """Return a DataFrame of the messages, read by the data source in Java."""
        return self.spark.read.format("rocketmq").options(**JAVA).load(str(self.folder))

    def counted(self) -> int:
        """Return the number of messages, counted in the tasks of the data source in Python."""
        frame = self.spark.read.format("rocketmq").options(**PYTHON).option("aggregates", "count").load(str(self.folder))
        return int(frame.agg(F.sum("count")).collect()[0][0])

    def warm_up(self, is_java: bool) -> None:
        """Let the JVM compile the code of the queries; if `is_java`, only of those of the data source in Java."""
        for _ in range(WARM_RUNS):
            for names in (THREE, SIXTEEN, WITH_MAP):
                if not is_java:
                    self.by_topic(names)()
                if has_jar(self.spark):
                    self.hashed(names)()
            self.in_tasks()

    def run(self) -> None:
        self.row("readinto", best_of(self.rounds, lambda: plain_read(self.folder), self.size))
        alone = (("3 columns", THREE, 1.5), ("16 columns", SIXTEEN, 0.5), ("15 and the map", WITH_MAP, None))
        for name, names, target in alone:
            seconds = best_of(self.rounds, decoder(self.folder, names), self.count)
            speed = self.size / 1e9 / seconds
            shown = f">= {target} GB" if target and self.is_small else ""
            self.row(f"decoder, {name}", seconds, f"{speed:.2f} GB/cpu-s", shown, speed >= (target or 0))
        asked = (("3 columns", THREE, 0.35), ("16 columns", SIXTEEN, 0.38 if self.is_small else 0.45))
        for name, names, target in (*asked, ("15 and the map", WITH_MAP, None)):
            self.through_spark(f"Spark, {name}", self.by_topic(names), names, target)
        self.through_spark("aggregates in the task", self.in_tasks, THREE, 0.65)
        for name, names in (("3 columns", THREE), ("16 columns", SIXTEEN)):
            self.prepared(name, names)
        self.tuples()
        self.rare()
        if has_jar(self.spark):
            self.through_java()

    def through_java(self) -> None:
        asked = (("3 columns", THREE, 1.0), ("16 columns", SIXTEEN, 0.45 if self.is_small else 0.38))
        for name, names, target in (*asked, ("15 and the map", WITH_MAP, None)):
            self.through_spark(f"Java, {name}", self.hashed(names), names, target)
        self.beside("Java, the query", lambda: self.by_topic(THREE, **JAVA)(), self.in_tasks, self.count)
        self.beside("Java, count()", lambda: int(self.java().count()), self.counted, self.count)
        rare = decoder(self.folder, THREE, topic=RARE)()

        def filtered() -> int:
            where = self.java().where(F.col("topic") == RARE).select(*THREE)
            return int(where.agg(F.count("storeTimestamp"), F.bit_xor(F.xxhash64(*THREE))).collect()[0][0])

        self.beside("Java, a topic by where", filtered, self.by_topic(THREE, topic=RARE), rare)

    def beside(self, name: str, query: Callable[[], int], by_options: Callable[[], int], expected: int) -> None:
        """Run a query and, alternately, the query by options of the data source in Python that gives the same answer."""
        turns = [(seconds_of(query, expected), seconds_of(by_options, expected)) for _ in range(self.rounds + 1)][1:]
        own, other = min(first for first, _ in turns), min(second for _, second in turns)
        self.row(name, own, f"{own / other:.2f} of the options' CPU", "<= 1.2", own <= 1.2 * other)

    def through_spark(
        self, name: str, query: Callable[[], int], names: tuple[str, ...], target: float | None, found: int | None = None
    ) -> None:
        """Run a query and the decoder alternately; `found` is the query's count if that is not all."""
        alone, expected = decoder(self.folder, names), found or self.count
        turns = [(seconds_of(alone, self.count), seconds_of(query, expected)) for _ in range(self.rounds + 1)][1:]
        beside, spent = [first for first, _ in turns], [second * self.count / expected for _, second in turns]
        ratio = min(beside) / min(spent)
        self.row(name, min(spent), f"{ratio:.2f} of the decoder", f">= {target}" if target else "", ratio >= (target or 0))

    def prepared(self, name: str, names: tuple[str, ...]) -> None:
        query = self.by_topic(names, "prepared")
        # The repeated beginning of a split has not exactly as many messages as the split.
        self.through_spark(f"Spark's own part, {name}", query, names, None, query())

    def tuples(self) -> None:
        limit = {"endingOffset": str(TUPLES_SIZE)}
        expected = decoder(self.folder, THREE, **limit)()
        arrow = best_of(1, self.by_topic(SIXTEEN, **limit), expected)
        seconds = best_of(1, self.by_topic(SIXTEEN, "tuples", **limit), expected)
        times = seconds / arrow
        found = f"Arrow is {times:.1f} times as fast"
        target = ">= 7" if self.is_small else ""
        self.row("tuples, 16 columns", seconds * self.count / expected, found, target, times >= 7)

    def rare(self) -> None:
        before = file_bytes.bytes_read
        count = decoder(self.folder, THREE, topic=RARE)()
        share = (file_bytes.bytes_read - before) / self.size
        seconds = best_of(self.rounds, self.by_topic(THREE, topic=RARE), count)
        name = f"topic with {count / self.count:.2%}"
        self.row(name, seconds, f"{share:.2%} of the bytes read", "< 5%", share < 0.05)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_read", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("bench-store"), help="(./bench-store)")
    parser.add_argument("--gib", type=float, default=2, help="size of each log (2)")
    parser.add_argument("--master", default="local[1]", help="Spark master (local[1]: parallel tasks share a cache)")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs (3)")
    parser.add_argument("--java", action="store_true", help="measure only the data source in Java")
    options = parser.parse_args()
    size = int(options.gib * (1 << 30))
    spark = local_session(options.master, spark_driver_memory="2g")
    for source in (PreparedSource, TupleSource):
        spark.dataSource.register(source)
    for body_size, is_small in ((300 - RECORD_WITHOUT_BODY, True), (1024, False)):
        folder = options.folder / f"spark-{options.gib:g}-{body_size}"
        count = make_store(folder, size, body_size)
        table = Table(title=f"{options.gib:g} GiB, {count:,} records of {size / count:.0f} B")
        for column in ("", "CPU s", "MB/cpu-s", "ns/message", "", "target", ""):
            table.add_column(column, justify="right" if column in ("CPU s", "MB/cpu-s", "ns/message", "target") else "left")
        bench = Bench(spark, folder, count, options.rounds, is_small, table)
        if is_small:  # the first
            bench.warm_up(options.java)
        bench.through_java() if options.java else bench.run()
        Console().print(table)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    spark.stop()


if __name__ == "__main__":
    main()

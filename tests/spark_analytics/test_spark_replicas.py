"""Stores that hold the same log, read together: each record once, and none is lost."""

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pocketmq import spark_analytics
from pocketmq.spark_analytics.source.streaming import CommitLogStreamReader
from tests.spark_analytics.replica_stores import FILE_SIZE, copied, extended, replicas
from tests.spark_analytics.spark_logs import LogBuilder, read, spark_schema, write_queues
from tests.support.amount import cases

pytestmark = pytest.mark.spark

SEEDS = range(cases(8, 24))
# Which store has a record is not told by its bytes, and is left out of comparisons.
NAMES = ("physicalOffset", "topic", "queueId", "queueOffset", "storeTimestamp", "body", "rawProperties")
Record = tuple[Any, ...]


def rows(stores: Iterable[Path], **options: Any) -> list[Record]:
    paths = json.dumps([str(store) for store in stores])
    return [tuple(row.values()) for row in read("", *NAMES, path="", paths=paths, **options)]


def once(stores: Iterable[Path], **options: Any) -> Counter[Record]:
    """Count the records of stores that are read one by one, each record once."""
    return Counter({record for store in stores for record in rows([store], **options)})


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_of_several_copies_is_read_once(tmp_path: Path, seed: int) -> None:
    stores = replicas(tmp_path, seed)
    expected = once(stores)
    for options in ({}, {"maxPartitionBytes": "1k"}):
        assert Counter(rows(stores, **options)) == expected
    table = spark_analytics.arrow([str(store) for store in stores], list(NAMES)).read_all()
    assert Counter(zip(*table.to_pydict().values(), strict=True)) == expected
    for topic in ("Rare", "Orders,Clicks"):
        options = {"topic": topic, "ignoreUnknownTopics": "true"}
        assert Counter(rows(stores, **options)) == once(stores, **options)
    some = max(record[0] for record in expected) // 2
    assert Counter(rows(stores, startingOffset=some)) == once(stores, startingOffset=some)


@pytest.mark.parametrize("seed", SEEDS)
def test_aggregates_count_each_record_once(tmp_path: Path, seed: int) -> None:
    stores = [str(store) for store in replicas(tmp_path, seed)]
    counted = spark_analytics.arrow(stores, group_by="topic", aggregates="count").read_all()
    found: Counter[str] = Counter()
    for row in counted.to_pylist():
        found[row["topic"]] += row["count"]
    assert found == Counter(record[1] for record in once(map(Path, stores)))


def test_copies_are_read_on_request(tmp_path: Path) -> None:
    stores = replicas(tmp_path, 1)
    assert len(rows(stores, dropReplicas="false")) == sum(len(rows([store])) for store in stores)


def test_a_record_that_is_damaged_in_one_copy_is_read_from_the_other(tmp_path: Path) -> None:
    log = LogBuilder(FILE_SIZE)
    extended(log, random.Random(0), 12, "record")
    master = log.write(tmp_path / "a")
    slave = copied(master, tmp_path / "b")
    path = master / "commitlog" / f"{0:020}"
    with open(path, "r+b") as file:
        file.seek(log.physical_offsets[5] + 4)
        file.write(b"\0\0\0\0")
    found = rows([master, slave], mode="DROPMALFORMED")
    assert sorted(record[0] for record in found) == log.physical_offsets
    assert len(rows([slave])) == 12 and len(rows([master], mode="DROPMALFORMED")) == 11


class Following:
    """A stream reader over some stores, called as by Spark."""

    def __init__(self, stores: Iterable[Path], **options: str) -> None:
        paths = json.dumps([str(store) for store in stores])
        self.reader = CommitLogStreamReader(spark_schema(*NAMES), {"paths": paths, **options})
        self.offset = self.reader.initialOffset()

    def batch(self) -> list[Record]:
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        partitions = self.reader.partitions(self.offset, end)
        self.offset = end
        return [tuple(row.values()) for part in partitions for batch in self.reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("limit", ["1k", "6k", "1g"])
@pytest.mark.parametrize("seed", range(cases(4, 8)))
def test_a_stream_has_each_record_once(tmp_path: Path, seed: int, limit: str) -> None:
    stores = replicas(tmp_path, seed)
    stream, found, begin = Following(stores, maxBytesPerTrigger=limit), Counter[Record](), None
    while stream.offset != begin:
        begin = stream.offset
        found.update(stream.batch())
    assert found == once(stores)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_stream_has_a_record_once_whichever_copy_has_it_first(tmp_path: Path, ahead: int) -> None:
    log = LogBuilder(FILE_SIZE)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        (folder / "commitlog").mkdir(parents=True)

    def write(folder: Path) -> None:
        for base, data in log.files:
            path = folder / "commitlog" / f"{base:020}"
            path.touch()
            with open(path, "r+b") as file:
                file.write(data)

    choice = random.Random(ahead)
    extended(log, choice, 9, "first")
    for folder in folders:
        write(folder)
    stream = Following(folders)
    found = stream.batch()
    for step in range(5):
        extended(log, choice, 9, f"step {step}")
        write(folders[ahead])
        found += stream.batch()
        write(folders[1 - ahead])
        found += stream.batch()
    assert sorted(record[0] for record in found) == log.physical_offsets


def test_a_stream_has_the_names_of_brokers(tmp_path: Path) -> None:
    stores = []
    for name in ("a", "b"):
        log = LogBuilder(FILE_SIZE)
        log.append(name.encode())
        stores.append(log.write(tmp_path / name / "store"))
    options = {"paths": json.dumps([str(store) for store in stores])}
    reader = CommitLogStreamReader(spark_schema("brokerName", "body"), options)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [{"brokerName": "a", "body": b"a"}, {"brokerName": "b", "body": b"b"}]


def test_logs_of_different_brokers_are_not_compared(tmp_path: Path) -> None:
    stores = []
    for name in ("a", "b"):
        log = LogBuilder(FILE_SIZE)
        extended(log, random.Random(0), 20, name)
        stores.append(write_queues(log.write(tmp_path / name)))
    assert len(rows(stores)) == 40

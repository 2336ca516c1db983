"""Streams of a rare topic that start long before the end of the log: read through the ConsumeQueues, each record once."""

import shutil
from pathlib import Path

import pytest

from pocketmq.store.offline import file_bytes
from tests.spark_analytics.spark_logs import LogBuilder, write_queues
from tests.spark_analytics.test_spark_streaming import Query

FILE_SIZE = 1 << 20
BODY = b"b" * 4000
LIMIT = "9m"
"""Bytes per micro-batch: enough for a batch to use the queues."""


def backlog(folder: Path) -> LogBuilder:
    """Write a log of 26 MiB, every hundredth record of topic Rare, and its queues; return it."""
    log = LogBuilder(FILE_SIZE)
    for number in range(6_700):
        log.append(BODY, "Rare" if number % 100 == 50 else f"T{number % 3}")
    base, data = log.files[-1]
    log.files[-1] = (base, data[: log.position])
    write_queues(log.write(folder))
    return log


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogBuilder]:
    store = tmp_path_factory.mktemp("backlog") / "store"
    return store, backlog(store)


def rare_of(log: LogBuilder) -> list[int]:
    return log.physical_offsets[50::100]


def batches(query: Query) -> tuple[list[list[int]], int]:
    """Return the rows of each micro-batch to the end of the log, and the bytes read."""
    before, found = file_bytes.bytes_read, []
    last = None
    while query.offset != last:
        last = query.offset
        found.append(query.batch())
    return found[:-1], file_bytes.bytes_read - before


def test_backfill_of_a_rare_topic_reads_few_bytes(written: tuple[Path, LogBuilder], tmp_path: Path) -> None:
    store, log = written
    found, size = batches(Query(store, topic="Rare", maxBytesPerTrigger=LIMIT))
    assert len(found) == 3
    assert sum(found, []) == rare_of(log)
    without_queues = tmp_path / "store"
    shutil.copytree(store / "commitlog", without_queues / "commitlog")
    scanned, scanned_size = batches(Query(without_queues, topic="Rare", maxBytesPerTrigger=LIMIT))
    assert scanned == found
    assert scanned_size > len(log.physical_offsets) * len(BODY)
    assert size < scanned_size / 4


def test_records_after_the_end_of_the_queues_are_scanned(written: tuple[Path, LogBuilder], tmp_path: Path) -> None:
    """The queues end in the middle of the first micro-batch; a batch planned again without them has the same rows."""
    store = tmp_path / "store"
    log = written[1]
    log.write(store)
    write_queues(store, up_to=log.physical_offsets[1_000])
    query = Query(store, topic="Rare", maxBytesPerTrigger=LIMIT)
    begin = query.offset
    first = query.batch()
    middle = query.offset
    shutil.rmtree(store / "consumequeue")
    assert sorted(query.rows(begin, middle)) == sorted(first)
    assert sorted(first + sum(batches(query)[0], [])) == rare_of(log)


def test_several_queue_files(tmp_path: Path) -> None:
    """Only the units of the micro-batch are read, from whichever file of the queue has them."""
    store = tmp_path / "store"
    log = LogBuilder(FILE_SIZE)
    for number in range(32_000):
        log.append(b"b" * 900, "Rare" if number % 10 == 5 else "Other")
    write_queues(log.write(store))
    assert len(list((store / "consumequeue" / "Rare" / "3").iterdir())) > 3
    found = batches(Query(store, topic="Rare", maxBytesPerTrigger=LIMIT))[0]
    assert len(found) == 4
    assert sum(found, []) == log.physical_offsets[5::10]


def test_a_log_that_ends_with_its_file(tmp_path: Path) -> None:
    """A copied store may have been truncated after its last record, so that no bytes follow in which to search for more."""
    store = tmp_path / "store"
    log = LogBuilder(FILE_SIZE)
    for _ in range(3):
        log.append(BODY)
    log.files[-1] = (0, log.files[-1][1][: log.position])
    log.write(store)
    query = Query(store)
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == log.physical_offsets

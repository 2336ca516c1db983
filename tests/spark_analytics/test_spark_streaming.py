"""Streaming a log that is being written."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from pocketmq.spark_analytics.reading import log_tail
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.spark_analytics.reading.log_tail import LogTail
from pocketmq.spark_analytics.source import streaming
from pocketmq.spark_analytics.source.errors import LostRecordsError
from pocketmq.spark_analytics.source.streaming import CommitLogStreamReader
from pocketmq.store.offline import file_bytes
from pocketmq.store.offline.places import log_files
from tests.spark_analytics.spark_logs import LogBuilder, spark_schema
from tests.spark_analytics.streams import run_stream

FILE_SIZE = 64 << 10


class LiveLog:
    """A log with preallocated files, whose last record a test can write in parts."""

    def __init__(self, store: Path, physical_offset: int = 0) -> None:
        self.builder = LogBuilder(FILE_SIZE, physical_offset=physical_offset)
        self.store = store
        (store / "commitlog").mkdir(parents=True)
        self.flush()

    def append(self, count: int = 1, body: bytes = b"x" * 1000, **fields: Any) -> list[int]:
        """Append complete records; return their physical offsets."""
        found = [self.builder.append(body, **fields) for _ in range(count)]
        self.flush()
        return found

    def flush(self, part: int | None = None) -> None:
        """Write all appended records, but only the first `part` bytes of the last one."""
        for base, data in [*self.builder.files, (self.builder.files[-1][0] + FILE_SIZE, bytearray(FILE_SIZE))]:
            shown = bytearray(data)
            if part is not None and base <= self.builder.physical_offsets[-1] < base + FILE_SIZE:
                position = self.builder.physical_offsets[-1] - base
                shown[position + part :] = bytes(len(shown) - position - part)
            # In place: a log file never becomes shorter, even for a moment.
            descriptor = os.open(self.path(base), os.O_WRONLY | os.O_CREAT)
            os.pwrite(descriptor, shown, 0)
            os.close(descriptor)

    def path(self, base: int) -> Path:
        return self.store / "commitlog" / f"{base:020}"

    @property
    def end(self) -> int:
        return self.builder.next_physical_offset


class Query:
    """A stream reader that is called as by Spark, one micro-batch after another."""

    def __init__(self, store: Path | str, start: dict[str, Any] | None = None, **options: str) -> None:
        self.reader = CommitLogStreamReader(spark_schema("physicalOffset", "topic"), {"path": str(store), **options})
        self.offset = self.reader.initialOffset() if start is None else start

    def batch(self) -> list[int]:
        """Return the physical offsets of the rows of the next micro-batch."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        rows = self.rows(self.offset, end)
        self.offset = end
        return rows

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        partitions = self.reader.partitions(start, end)
        return [
            row["physicalOffset"]
            for partition in partitions
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path)


def test_each_record_is_returned_once_across_files(live: LiveLog) -> None:
    query = Query(live.store)
    assert query.offset == {"physicalOffset": 0}
    assert query.batch() == []
    found = []
    for count in (1, 0, 30, 1, 200, 3):
        written = live.append(count)
        batch = query.batch()
        assert batch == written
        found += batch
    assert found == live.builder.physical_offsets
    assert len(live.builder.files) == 4
    assert query.offset == {"physicalOffset": live.end} == query.reader.reportLatestOffset()


def test_a_query_may_begin_before_the_first_message(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()  # a new broker has no folder commitlog until something is sent
    query = Query(tmp_path)
    assert query.batch() == []
    live = LiveLog(tmp_path)
    assert query.batch() + Query(tmp_path, query.offset).batch() == []
    written = live.append(3)
    assert query.batch() == written


def test_query_continues_from_its_checkpoint(live: LiveLog) -> None:
    first = Query(live.store)
    live.append(70)
    assert len(first.batch()) == 70
    behind = live.append(100)
    # A batch planned before the crash and again after it has the same rows.
    end = first.reader.latestOffset(first.offset, ReadAllAvailable())
    live.append(5)
    second = Query(live.store, first.offset)
    assert second.rows(first.offset, end) == behind
    third = Query(live.store, end)
    assert third.batch() == live.builder.physical_offsets[-5:]


@pytest.mark.parametrize("part", [10, 40, 88, 300, 1000, 1095, -1])
def test_record_is_returned_once_complete(live: LiveLog, part: int) -> None:
    live.append(3)
    query = Query(live.store)
    assert len(query.batch()) == 3
    offset = live.builder.append(b"y" * 1000, properties={"KEYS": "k" * 20, "TAGS": "t"})
    size = live.end - offset
    live.flush(part if part > 0 else size - 1)
    assert query.batch() == []
    assert Query(live.store).batch() == live.builder.physical_offsets[:3]
    live.flush()
    assert query.batch() == [offset]


def test_torn_record_before_complete_ones_is_awaited(live: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """When many records are copied at once, the last ones may become visible first; bytes that stay invalid are damage."""
    offsets = live.append(6)
    whole = live.path(0).read_bytes()
    torn = bytearray(whole)
    torn[offsets[2] + 500 : offsets[2] + 600] = bytes(100)
    live.path(0).write_bytes(torn)
    query = Query(live.store)
    assert query.batch() == offsets[:2]
    live.path(0).write_bytes(whole)
    assert query.batch() == offsets[2:]
    live.path(0).write_bytes(torn)
    stays = Query(live.store)
    assert stays.batch() == offsets[:2]
    monkeypatch.setattr(log_tail, "DOUBT_S", 0.01)
    now = Query(live.store)
    now.reader.prepareForTriggerAvailableNow()
    assert now.batch() == offsets


def test_old_records_after_the_end_are_not_read(live: LiveLog) -> None:
    """Records removed by a recovery may still be in the file, intact and at their own offsets."""
    live.append(50)
    live.builder.truncate(live.builder.physical_offsets[30])
    live.append(1, b"z" * 990)
    query = Query(live.store)
    assert query.batch() == live.builder.physical_offsets
    assert query.batch() == []


@pytest.mark.parametrize("size, batches", [("1", 60), ("9k", 30), ("120k", 3), ("1g", 1)])
def test_micro_batches_are_limited_by_bytes(live: LiveLog, size: str, batches: int) -> None:
    offsets = live.append(60, b"x" * 5000)
    # After the end of a full file there may be an old record at its own offset.
    record = offsets[1] - offsets[0]
    rest = FILE_SIZE % record
    stale = LogBuilder(rest, physical_offset=2 * FILE_SIZE - rest + 8)
    stale.append(b"old")
    data = bytearray(live.path(FILE_SIZE).read_bytes())
    data[FILE_SIZE - rest + 8 : FILE_SIZE - rest + 8 + stale.position] = stale.files[0][1][: stale.position]
    live.path(FILE_SIZE).write_bytes(data)
    query = Query(live.store, maxBytesPerTrigger=size)
    found = []
    while batch := query.batch():
        found.append(batch)
    assert sum(found, []) == offsets
    assert abs(len(found) - batches) <= 2
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)


@pytest.mark.parametrize("records", [1, 7, 29, 59, 60, 1000])
def test_micro_batches_are_limited_by_records(live: LiveLog, records: int) -> None:
    offsets = live.append(60, b"x" * 5000)
    query = Query(live.store, maxRecordsPerTrigger=str(records))
    found = []
    while batch := query.batch():
        found.append(batch)
    assert sum(found, []) == offsets
    assert [len(batch) for batch in found[:-1]] == [records] * (len(found) - 1) and len(found[-1]) <= records


def test_a_micro_batch_is_limited_by_default(live: LiveLog) -> None:
    limit = Query(live.store).reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes) and limit.max_bytes == 512 << 20


def test_available_now_reads_up_to_the_end_at_its_start(live: LiveLog) -> None:
    before = live.append(80)
    query = Query(live.store, maxBytesPerTrigger="20k")
    query.reader.prepareForTriggerAvailableNow()
    live.append(80)
    found = []
    while batch := query.batch():
        found += batch
    assert found == before


@pytest.mark.parametrize("starting", ["latest", "exact", "within", "earliest"])
def test_starting_offsets(live: LiveLog, starting: str) -> None:
    before = live.append(80)
    place = {"exact": str(before[40]), "within": str(before[40] - 1)}.get(starting, starting)
    query = Query(live.store, startingOffsets=place)
    after = live.append(3)
    expected = {"latest": after, "earliest": before + after}.get(starting, before[40:] + after)
    assert query.batch() == expected


def test_rows_and_columns_are_selected_as_in_a_batch_read(live: LiveLog) -> None:
    live.append(3)
    wanted = live.append(2, topic="Other")
    assert Query(live.store, topic="Other").batch() == wanted
    assert Query(live.store, startingOffset=str(wanted[1])).batch() == wanted[1:]


def test_several_stores_each_have_an_offset(tmp_path: Path) -> None:
    first, second = LiveLog(tmp_path / "a"), LiveLog(tmp_path / "b")
    first.append(70)
    query = Query(f"{tmp_path}/*")
    assert query.offset == {f"{tmp_path}/{name}/commitlog": {"physicalOffset": 0} for name in "ab"}
    assert len(query.batch()) == 70
    second.append(3, b"y" * 1000)
    first.append(2)
    assert len(query.batch()) == 5
    third = LiveLog(tmp_path / "c", physical_offset=FILE_SIZE)
    third.append(4, b"z" * 1000)
    assert query.batch() == third.builder.physical_offsets
    limited = Query(f"{tmp_path}/*", maxBytesPerTrigger="30k")
    counts = []
    while batch := limited.batch():
        counts.append(len(batch))
    assert sum(counts) == 79 and len(counts) > 2


# --- lost records ---------------------------------------------------------------------------------------------------


def test_records_deleted_by_retention_fail_the_query_by_default(live: LiveLog) -> None:
    live.append(10)
    query = Query(live.store)
    query.batch()
    rest = live.append(150)
    live.path(0).unlink()
    with pytest.raises(LostRecordsError, match=rf"from physical offset {rest[0]} on.*begins at {FILE_SIZE}.*failOnDataLoss"):
        query.batch()
    lenient = Query(live.store, query.offset, failOnDataLoss="false")
    assert lenient.batch() == [offset for offset in rest if offset >= FILE_SIZE]
    assert lenient.batch() == []


def test_planned_batch_with_deleted_files(live: LiveLog) -> None:
    written = live.append(150)
    query, end = Query(live.store), {"physicalOffset": live.end}
    live.path(0).unlink()
    with pytest.raises(LostRecordsError, match="retention"):
        query.rows({"physicalOffset": 0}, end)
    lenient = Query(live.store, failOnDataLoss="false")
    assert lenient.rows({"physicalOffset": 0}, end) == [offset for offset in written if offset >= FILE_SIZE]
    for path in (live.store / "commitlog").iterdir():
        path.unlink()
    assert lenient.rows({"physicalOffset": 0}, end) == []
    with pytest.raises(LostRecordsError, match="deleted"):
        query.rows({"physicalOffset": 0}, end)


def test_lost_file_fails_the_query_by_default(live: LiveLog) -> None:
    written = live.append(400)
    assert live.path(2 * FILE_SIZE).exists()
    live.path(FILE_SIZE).unlink()
    says = f"offset {FILE_SIZE} on are lost: their file is truncated or missing, the next one begins at {2 * FILE_SIZE}"
    with pytest.raises(LostRecordsError, match=says):
        Query(live.store).batch()
    kept = [offset for offset in written if not FILE_SIZE <= offset < 2 * FILE_SIZE]
    assert Query(live.store, failOnDataLoss="false").batch() == kept


def test_file_deleted_between_planning_and_task(live: LiveLog) -> None:
    live.append(150)
    lenient = Query(live.store, failOnDataLoss="false")
    partitions = lenient.reader.partitions({"physicalOffset": 0}, {"physicalOffset": live.end})
    live.path(0).unlink()
    rows = [row for part in partitions for batch in lenient.reader.read(part) for row in batch.to_pylist()]
    assert [row["physicalOffset"] for row in rows] == [o for o in live.builder.physical_offsets if o >= FILE_SIZE]


def test_file_deleted_while_a_batch_is_planned(live: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    written = live.append(150)
    query = Query(live.store, failOnDataLoss="false", maxBytesPerTrigger="100k")
    own = streaming.full_end

    def deleted(file: Any, begin: int) -> int:
        live.path(0).unlink(missing_ok=True)
        return own(file, begin)

    monkeypatch.setattr(streaming, "full_end", deleted)
    found = []
    while batch := query.batch():
        found += batch
    assert found == [offset for offset in written if offset >= FILE_SIZE]


def test_truncated_log_fails_the_query(live: LiveLog) -> None:
    live.append(20)
    query = Query(live.store)
    query.batch()
    live.builder.truncate(live.builder.physical_offsets[10])
    live.builder.files[-1][1][live.builder.position :] = bytes(FILE_SIZE - live.builder.position)
    live.flush()
    for cut in (query, Query(live.store, query.offset)):
        with pytest.raises(LostRecordsError, match=f"the log ends at {live.end}: it was truncated"):
            cut.batch()
    # The log has grown beyond that point again, with records at other offsets.
    live.append(20, b"w" * 1234)
    with pytest.raises(LostRecordsError, match="no record begins there any more"):
        Query(live.store, query.offset).batch()
    lenient = Query(live.store, query.offset, failOnDataLoss="false")
    assert lenient.batch() == [o for o in live.builder.physical_offsets if o >= query.offset["physicalOffset"]]


def test_damage_within_a_micro_batch(live: LiveLog) -> None:
    offsets = live.append(150)
    data = bytearray(live.path(0).read_bytes())
    data[offsets[5] : offsets[5] + 40] = b"\xff" * 40
    live.path(0).write_bytes(data)
    with pytest.raises(DamagedRecordError, match=f"physical offset {offsets[5]}"):
        Query(live.store).batch()
    assert Query(live.store, mode="DROPMALFORMED").batch() == offsets[:5] + offsets[6:]


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"startingOffsets": "newest"}, "option startingOffsets is 'newest': it must be earliest, latest or"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger is '0'"),
        ({"maxRecordsPerTrigger": "0"}, "option maxRecordsPerTrigger is '0': it must be a positive integer"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is 'maybe': it must be true or false"),
        ({"table": "index"}, "option table is index: only messages can be streamed"),
        ({"startingOffsetts": "1"}, "unknown option startingoffsetts: did you mean startingOffset"),
    ],
)
def test_invalid_stream_options_are_refused(live: LiveLog, options: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Query(live.store, **options)


def test_checking_an_unchanged_log_reads_little(tmp_path: Path) -> None:
    log = LogBuilder(8 << 20)
    for _ in range(2000):
        log.append(b"x" * 1000)
    files = log_files(str(log.write(tmp_path)))
    tail = LogTail()
    assert tail.follow(files) == log.next_physical_offset
    before = file_bytes.bytes_read
    for _ in range(10):
        assert tail.follow(files) == log.next_physical_offset
    assert file_bytes.bytes_read - before < 10 * 200


# --- in Spark -------------------------------------------------------------------------------------------------------


@pytest.fixture
def writer(live: LiveLog) -> Iterator[threading.Thread]:
    """Thread that keeps writing."""
    thread = threading.Thread(target=lambda: [live.append(7) for _ in range(60)])
    thread.start()
    yield thread
    thread.join()


@pytest.mark.spark
def test_spark_follows_and_stops_at_available_now(spark: Any, live: LiveLog, writer: Any, tmp_path: Path) -> None:
    def started(**trigger: Any) -> Any:
        stream = spark.readStream.format("rocketmq").schema("physicalOffset bigint, keys string")
        stream = stream.option("maxBytesPerTrigger", "150k").load(str(live.store)).writeStream.format("parquet")
        stream = stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(**trigger)
        return stream.start(f"{tmp_path}/sink")

    def followed(query: Any) -> None:
        writer.join()
        query.processAllAvailable()

    for _ in range(2):
        run_stream(lambda: started(availableNow=True))
    query = run_stream(lambda: started(processingTime="100 milliseconds"), followed)
    query.stop()
    assert query.exception() is None
    rows = spark.read.parquet(f"{tmp_path}/sink").orderBy("physicalOffset").toArrow().to_pylist()
    assert [row["physicalOffset"] for row in rows] == live.builder.physical_offsets
    assert int(query.lastProgress.sources[0].latestOffset.rpartition(":")[2].strip(" }")) == live.end
    run_stream(lambda: started(availableNow=True))
    assert spark.read.parquet(f"{tmp_path}/sink").count() == 420

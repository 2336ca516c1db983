"""Streams of the data source in Java: each record once, and a checkpoint from which either reader can continue."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pocketmq.spark_analytics.session import DEFAULT_READER
from tests.spark_analytics.spark_logs import write_queues
from tests.spark_analytics.streams import run_stream
from tests.spark_analytics.test_spark_stream_backfill import BODY, LIMIT, backlog, rare_of
from tests.spark_analytics.test_spark_streaming import FILE_SIZE, LiveLog
from tests.support.amount import cases

pytestmark = pytest.mark.spark

T0_MS = 1_700_000_000_000


class Sink:
    """A query that is run repeatedly, each time up to the current end of the log."""

    def __init__(self, spark: Any, folder: Path, store: Path, **options: Any) -> None:
        self.spark, self.folder, self.store = spark, folder, str(store)
        self.options = {"mode": "FAILFAST"} | {name: str(value) for name, value in options.items()}

    def run(self, reader: str = "jvm") -> None:
        source = self.spark.readStream.format("rocketmq").options(**self.options | {"reader": reader})
        source = source.option("columns", "physicalOffset,topic,body,storePath,brokerName")
        writer = (
            source.load(self.store)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )
        run_stream(lambda: writer.trigger(availableNow=True).start(str(self.folder / "sink")))

    def offsets(self) -> list[int]:
        """Return the physical offsets of all rows in the sink, ascending."""
        rows = self.spark.read.parquet(str(self.folder / "sink")).select("physicalOffset").collect()
        return sorted(row.physicalOffset for row in rows)

    def progress(self) -> list[Any]:
        """Return the offsets in the checkpoint, batch by batch."""
        logs = sorted((self.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logs]


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    return LiveLog(tmp_path / "store")


def test_each_record_is_read_once_across_files_and_readers(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    sink = Sink(jvm_spark, tmp_path, live.store)
    for count, reader in ((1, "jvm"), (150, "python"), (30, "jvm"), (90, "jvm"), *cases([], [(2, "python")])):
        live.append(count)
        sink.run(reader)
        assert sink.offsets() == live.builder.physical_offsets
    assert len(live.builder.files) == 5
    assert sink.progress()[-1] == {"physicalOffset": live.end}


@pytest.mark.parametrize("reader", cases(["jvm"], ["jvm", "python"]))
def test_a_stream_may_begin_before_the_first_message(jvm_spark: Any, tmp_path: Path, reader: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "checkpoint").touch()  # a new broker has no folder commitlog until something is sent
    sink = Sink(jvm_spark, tmp_path, store)
    sink.run(reader)
    live = LiveLog(store)
    live.append(3)
    sink.run(reader)
    assert sink.offsets() == live.builder.physical_offsets
    frame = jvm_spark.read.format("rocketmq").option("reader", reader)
    assert frame.load(str(store)).count() == 3


def test_several_stores_have_an_offset_each(jvm_spark: Any, tmp_path: Path) -> None:
    logs = [LiveLog(tmp_path / name) for name in "ab"]
    sink = Sink(jvm_spark, tmp_path, tmp_path / "[ab]")
    for reader in ("jvm", "python", "jvm", *cases([], ["python"])):
        for log in logs:
            log.append(20, log.store.name.encode() * 1000)
        sink.run(reader)
    assert sink.offsets() == sorted(logs[0].builder.physical_offsets + logs[1].builder.physical_offsets)
    assert sink.progress()[-1] == {f"{log.store}/commitlog": {"physicalOffset": log.end} for log in logs}


def test_limits_of_a_micro_batch(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    live.append(100)
    by_records = Sink(jvm_spark, tmp_path / "records", live.store, maxRecordsPerTrigger=40)
    by_records.run()
    ends = [offset["physicalOffset"] for offset in by_records.progress()]
    assert [sum(own < end for own in live.builder.physical_offsets) for end in ends] == [40, 80, 100]
    by_bytes = Sink(jvm_spark, tmp_path / "bytes", live.store, maxBytesPerTrigger="30k")
    by_bytes.run()
    assert len(by_bytes.progress()) == 4
    assert by_records.offsets() == by_bytes.offsets() == live.builder.physical_offsets


def test_an_incomplete_record_is_awaited(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    live.append(3)
    sink = Sink(jvm_spark, tmp_path, live.store)
    for part in (40, 300, -1):
        offset = live.builder.append(b"y" * 1000, properties={"KEYS": "k" * 20, "TAGS": "t"})
        live.flush(part if part > 0 else live.end - offset - 1)
        sink.run()
        assert sink.offsets() == live.builder.physical_offsets[:-1]
    live.flush()
    sink.run()
    assert sink.offsets() == live.builder.physical_offsets


def test_starting_offsets(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    written = live.append(100)
    expected = {
        "latest": [],
        str(written[60] - 1): written[60:],
        str(FILE_SIZE): [own for own in written if own >= FILE_SIZE],
    }
    sinks = {starting: Sink(jvm_spark, tmp_path / starting, live.store, startingOffsets=starting) for starting in expected}
    for starting, sink in sinks.items():
        sink.run()
        assert sink.offsets() == expected[starting]
    written = live.append(1)
    for starting, sink in sinks.items():
        sink.run()
        assert sink.offsets() == expected[starting] + written


def test_lost_records_fail_the_query_or_are_skipped(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    live.append(10)
    sinks = [Sink(jvm_spark, tmp_path / value, live.store, failOnDataLoss=value) for value in ("true", "false")]
    for sink in sinks:
        sink.run()
    live.append(120)
    live.path(0).unlink()
    with pytest.raises(StreamingQueryException, match=f"the log begins at {FILE_SIZE}: retention has deleted them"):
        sinks[0].run()
    sinks[1].run()
    left = [own for own in live.builder.physical_offsets if own >= FILE_SIZE]
    assert sinks[1].offsets() == live.builder.physical_offsets[:10] + left


def test_damage_is_handled_by_mode(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    for number in range(21):
        live.append(store_timestamp_ms=T0_MS + number)
    offsets = live.builder.physical_offsets
    data = bytearray(live.path(0).read_bytes())
    data[offsets[10] : offsets[10] + 40] = b"\xff" * 40
    live.path(0).write_bytes(data)
    for mode, expected in (("DROPMALFORMED", offsets[:10] + offsets[11:]), ("PERMISSIVE", offsets)):
        sink = Sink(jvm_spark, tmp_path / mode, live.store, mode=mode)
        sink.run()
        assert sink.offsets() == expected
    with pytest.raises(StreamingQueryException, match=f"damaged record at physical offset {offsets[10]}"):
        Sink(jvm_spark, tmp_path / "FAILFAST", live.store).run()


def test_invalid_options_of_streams(jvm_spark: Any, live: LiveLog) -> None:
    for name, value in (("startingOffsets", "first"), ("maxRecordsPerTrigger", "0"), ("failOnDataLoss", "maybe")):
        source = jvm_spark.readStream.format("rocketmq").option(name, value).load(str(live.store))
        with pytest.raises(StreamingQueryException, match=f"option {name} is .*{value}"):
            source.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(Exception, match="unknown option startingOffsets: did you mean startingOffset"):
        jvm_spark.read.format("rocketmq").option("startingOffsets", "latest").load(str(live.store)).count()
    assert jvm_spark.conf.get(DEFAULT_READER) == "jvm"


def bytes_read(spark: Any) -> int:
    """Return how many bytes the JVM has read from files."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    return int(Path(f"/proc/{pid}/io").read_text().splitlines()[0].split()[1])


def test_a_rare_topic_is_read_through_the_queues(jvm_spark: Any, tmp_path: Path) -> None:
    log = backlog(tmp_path / "store")
    rows, read = [], []
    for attempt in ("first", "queues", "scan"):
        if attempt == "scan":
            shutil.rmtree(tmp_path / "store" / "consumequeue")
        sink = Sink(jvm_spark, tmp_path / attempt, tmp_path / "store", topic="Rare", maxBytesPerTrigger=LIMIT)
        before = bytes_read(jvm_spark)
        sink.run()
        read.append(bytes_read(jvm_spark) - before)
        rows.append(sink.offsets())
        assert len(sink.progress()) == 3
    assert rows == [rare_of(log)] * 3
    assert read[2] - read[1] > len(log.physical_offsets) * len(BODY) / 2


def test_a_killed_batch_has_the_same_rows_without_queues(jvm_spark: Any, tmp_path: Path) -> None:
    """The queues end within the first micro-batch, which the other reader plans again after the queues have been deleted."""
    store = tmp_path / "store"
    log = backlog(store)
    shutil.rmtree(store / "consumequeue")
    write_queues(store, up_to=log.physical_offsets[1_000])
    sink = Sink(jvm_spark, tmp_path, store, topic="Rare", maxBytesPerTrigger=LIMIT)
    sink.run()
    assert sink.offsets() == rare_of(log)
    shutil.rmtree(tmp_path / "checkpoint" / "commits")  # as if it had been killed in the first batch
    for path in (tmp_path / "checkpoint" / "offsets").glob("*[12]*"):
        path.unlink()
    shutil.rmtree(tmp_path / "sink")
    shutil.rmtree(store / "consumequeue")
    sink.run("python")
    assert sink.offsets() == rare_of(log)


def test_progress_shows_the_backlog(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    written = live.append(100)
    source = jvm_spark.readStream.format("rocketmq").option("reader", "jvm").option("maxRecordsPerTrigger", "40")
    writer = (
        source.load(str(live.store)).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [progress["sources"][0] for progress in query.recentProgress if progress["numInputRows"]]
    behind = [live.end - written[40], live.end - written[80], 0]
    assert [int(source["metrics"]["bytesBehindLatest"]) for source in found] == behind
    assert [int(source["metrics"]["maxBytesBehindLatest"]) for source in found] == behind
    offsets = [(json.loads(source["latestOffset"]), json.loads(source["endOffset"])) for source in found]
    assert [latest["physicalOffset"] - end["physicalOffset"] for latest, end in offsets] == behind


def test_progress_describes_the_source_and_its_offsets(jvm_spark: Any, live: LiveLog, tmp_path: Path) -> None:
    live.append(3)
    frame = jvm_spark.readStream.format("rocketmq").option("columns", "topic").load(str(live.store))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    (source,) = json.loads(query.lastProgress.json)["sources"]
    assert source["description"] == (
        f"rocketmq (reader jvm) {live.store}, physicalOffset of the log, startingOffsets earliest"
    )
    assert source["endOffset"] == {"physicalOffset": live.builder.next_physical_offset}

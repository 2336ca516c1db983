"""Reading a topic through its queues: the same rows as a scan, with few bytes read, whatever the state of the queues."""

import copy
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.spark_analytics.jvm import build
from pocketmq.spark_analytics.reading import coverage, log_end, log_tail, queue_pruning, reader, split_planning
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from pocketmq.spark_analytics.source.batch import CommitLogReader
from pocketmq.store.format.layout import BLANK_UNIT_SIZE, CHECKPOINT_FILE_SIZE, CHECKPOINT_STRUCT, CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.offline import file_bytes
from pocketmq.store.offline.log_walk import WINDOW_SIZE
from tests.spark_analytics.spark_logs import LogBuilder, expected_records, read, spark_schema, write_queues

pytestmark = pytest.mark.spark

T0_MS = 1_700_000_000_000
NAMES = ("topic", "queueId", "physicalOffset", "body")
FILE_SIZE = 1 << 20


@pytest.fixture(autouse=True)
def small_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Gaps up to this size are read along with the wanted records; the default is too large for these small logs.
    monkeypatch.setattr(reader, "GAP_LOCAL", 256)


@pytest.fixture(scope="module")
def rare_log() -> LogBuilder:
    """Return a log of 10,000 records, every hundredth of topic Rare."""
    log = LogBuilder(FILE_SIZE)
    for number in range(10_000):
        log.append(
            b"%d" % number * 20, "Rare" if number % 100 == 50 else f"T{number % 3}", store_timestamp_ms=T0_MS + number
        )
    return log


@pytest.fixture(scope="module")
def rare(rare_log: LogBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = copy.copy(rare_log)
    assert len(log.files) > 1
    # Without the unwritten part: the search for the log's end would read it, which would be most of the bytes read.
    base, data = log.files[-1]
    log.files = [*log.files[:-1], (base, data[: log.position])]
    return write_queues(log.write(tmp_path_factory.mktemp("rare")))


@pytest.fixture(scope="module")
def whole(rare_log: LogBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the log with its unwritten part."""
    return write_queues(rare_log.write(tmp_path_factory.mktemp("whole")))


def counted(store: Path, **options: Any) -> tuple[list[dict[str, Any]], int]:
    """Return (rows, bytes read)."""
    before = file_bytes.bytes_read
    rows = read(store, *NAMES, **options)
    return rows, file_bytes.bytes_read - before


def rows_of_topic(store: Path, topic: str) -> list[dict[str, Any]]:
    return [row for row in read(store, *NAMES) if row["topic"] == topic]


def test_rare_topic_reads_few_bytes(rare: Path) -> None:
    rows, size = counted(rare, topic="Rare")
    assert rows == rows_of_topic(rare, "Rare")
    assert len(rows) == 100
    log_size = sum(path.stat().st_size for path in (rare / "commitlog").iterdir())
    assert size < 0.2 * log_size, "the units of all queues are a ninth of this log of small messages"


@pytest.mark.parametrize("split_size", [1000, 50_000, 1 << 30])
def test_topic_combined_with_other_options(rare: Path, split_size: int) -> None:
    every = read(rare, *NAMES, "storeTimestamp")
    middle = every[5000]
    options: dict[str, Any] = {
        "topic": "Rare, T1",
        "startingOffset": middle["physicalOffset"],
        "maxPartitionBytes": split_size,
    }
    options |= {"endingTimestamp": T0_MS + 9000}
    rows = read(rare, *NAMES, **options)
    assert sorted(row["physicalOffset"] for row in rows) == [
        row["physicalOffset"] for row in every[5000:9000] if row["topic"] in ("Rare", "T1")
    ]


@pytest.mark.parametrize("name", ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"])
def test_every_topic_of_the_golden_stores(golden_stores: dict[str, Path], name: str) -> None:
    records = expected_records(name)
    for topic in {record["topic"] for record in records}:
        rows = read(golden_stores[name], "physicalOffset", topic=topic)
        assert sorted(row["physicalOffset"] for row in rows) == [
            record["physicalOffset"] for record in records if record["topic"] == topic
        ]


def test_a_queue_of_a_topic(golden_stores: dict[str, Path]) -> None:
    rows = read(golden_stores["v4_clean"], "topic", "queueId", topic="GoldenOrder", queueId="1,2")
    assert {row["queueId"] for row in rows} == {1, 2}
    every = [r for r in expected_records("v4_clean") if r["topic"] == "GoldenOrder" and r["queueId"] in (1, 2)]
    assert len(rows) == len(every)


def test_undispatched_records_are_scanned(tmp_path: Path) -> None:
    log = LogBuilder(FILE_SIZE)
    for number in range(1000):
        log.append(topic="Rare" if number % 50 == 0 else "T")
    store = write_queues(log.write(tmp_path), up_to=log.physical_offsets[700])
    assert [row["physicalOffset"] for row in read(store, "physicalOffset", topic="Rare")] == log.physical_offsets[::50]


def test_after_a_crash_queues_are_trusted_up_to_the_checkpoint(tmp_path: Path) -> None:
    log = LogBuilder(FILE_SIZE)
    for number in range(1000):
        log.append(topic="Rare" if number % 50 == 0 else "T", store_timestamp_ms=T0_MS + number * 100)
    store = write_queues(log.write(tmp_path))
    # The newest units of one queue did not reach the disk, those of the other did.
    path = store / "consumequeue" / "Rare" / "3" / f"{0:020}"
    units = path.read_bytes()
    path.write_bytes(units[: 15 * CONSUME_QUEUE_UNIT_SIZE].ljust(len(units), b"\0"))
    (store / "abort").touch()
    stamps = CHECKPOINT_STRUCT.pack(T0_MS + 70_000, T0_MS + 70_000, 0, 0, 0)
    (store / "checkpoint").write_bytes(stamps.ljust(CHECKPOINT_FILE_SIZE, b"\0"))
    assert [row["physicalOffset"] for row in read(store, "physicalOffset", topic="Rare")] == log.physical_offsets[::50]


def test_records_of_a_topic_before_it_was_deleted_and_created_again(tmp_path: Path) -> None:
    log = LogBuilder(FILE_SIZE)
    for number in range(3000):
        if number == 2000:
            del log.queue_offsets["Rare", 3]
        log.append(topic="Rare" if number % 10 == 0 else "T")
    store = write_queues(log.write(tmp_path))
    folder = store / "consumequeue" / "Rare" / "3"
    units = (folder / f"{0:020}").read_bytes()
    (folder / f"{0:020}").write_bytes(units[200 * CONSUME_QUEUE_UNIT_SIZE :].ljust(len(units), b"\0"))
    assert [row["physicalOffset"] for row in read(store, "physicalOffset", topic="Rare")] == log.physical_offsets[::10]


@pytest.mark.parametrize("queue_ids", ["", "0,1,2,3", "2"])
def test_records_of_a_queue_without_a_folder(tmp_path: Path, queue_ids: str) -> None:
    log = LogBuilder(FILE_SIZE)
    for number in range(2000):
        log.append(topic="Rare" if number % 10 == 0 else "T", queue_id=number // 10 % 4)
    store = write_queues(log.write(tmp_path))
    shutil.rmtree(store / "consumequeue" / "Rare" / "2")
    options = {"queueId": queue_ids} if queue_ids else {}
    wanted = [2] if queue_ids == "2" else [0, 1, 2, 3]
    expected = [own for number, own in enumerate(log.physical_offsets[::10]) if number % 4 in wanted]
    assert sorted(row["physicalOffset"] for row in read(store, "physicalOffset", topic="Rare", **options)) == expected


def test_records_that_are_never_dispatched(tmp_path: Path) -> None:
    """Prepared and rolled back records are in no queue."""
    log = LogBuilder(FILE_SIZE)
    for number in range(1000):
        log.append(topic="Rare" if number % 10 == 0 else "T", sys_flag=12 if number % 30 == 0 else 0)
    store = write_queues(log.write(tmp_path), without=set(log.physical_offsets[::30]))
    rows = read(store, "physicalOffset", topic="Rare", maxPartitionBytes=500)
    assert [row["physicalOffset"] for row in rows] == log.physical_offsets[::10]


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def _hole(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes(300) + data[500:])


def _noise(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[207] ^= 0xFF
    data[430] ^= 0xFF
    path.write_bytes(bytes(data))


def _elsewhere(path: Path) -> None:
    path.rename(path.with_name(f"{40:020}"))


@pytest.mark.parametrize("damage", [_remove, _hole, _noise, _elsewhere])
def test_damaged_queues_are_not_relied_upon(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    store = Path(shutil.copytree(whole, tmp_path / "store"))
    damage(store / "consumequeue" / "Rare" / "3" / f"{0:020}")
    if damage is _remove:
        (store / "consumequeue" / "Rare" / "3").rmdir()
        (store / "consumequeue" / "Rare").rmdir()
    with caplog.at_level(logging.WARNING, "pocketmq.spark_analytics"):
        rows = read(store, *NAMES, topic="Rare")
    assert sorted(rows, key=lambda row: row["physicalOffset"]) == rows_of_topic(store, "Rare")
    assert "scanning these" in caplog.text or "scanning that part" in caplog.text


def test_topic_with_most_of_the_log_is_scanned(rare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, size = counted(rare, topic="T0")
    monkeypatch.setattr(queue_pruning, "DENSITY_MAX", 0.01)
    scanned, _ = counted(rare, topic="T0")
    assert rows == scanned == rows_of_topic(rare, "T0")


def test_damage_between_wanted_records_is_not_noticed(whole: Path, rare_log: LogBuilder, tmp_path: Path) -> None:
    store = Path(shutil.copytree(whole, tmp_path / "store"))
    begin, end = rare_log.physical_offsets[20:22]
    with open(store / "commitlog" / f"{0:020}", "r+b") as stream:
        stream.seek(begin)
        stream.write(bytes(end - begin))
    assert len(read(store, *NAMES, topic="Rare")) == 100
    with pytest.raises(DamagedRecordError):
        read(store, *NAMES)


def test_planning_with_queues_does_not_scan_the_log(tmp_path: Path) -> None:
    log = LogBuilder(FILE_SIZE)
    for _ in range(5000):
        log.append()
    store = log.write(tmp_path)
    every = read(store, *NAMES)
    planned = []
    for _ in range(2):
        before = file_bytes.bytes_read
        CommitLogReader(spark_schema("topic"), {"path": str(store)}).partitions()
        planned.append(file_bytes.bytes_read - before)
        if len(planned) == 1:
            write_queues(store)
    assert planned[0] >= log.physical_offsets[-1]
    # The walk's first window, and the rest of the file, which must contain no further record.
    assert planned[1] < FILE_SIZE - log.position + (64 << 10) + 10_000
    for split_size in (5000, 1 << 30):
        assert read(store, *NAMES, maxPartitionBytes=split_size) == every
    assert read(store, *NAMES, maxPartitionBytes=100, endingOffset=every[200]["physicalOffset"]) == every[:200]


def test_the_reader_in_java_has_the_same_limits() -> None:
    sources = [path for path in build.java_sources() if path.parent.name in ("files", "reading")]
    source = "".join(path.read_text() for path in sources)
    for name, value in (
        ("UNITS_SHARE_MAX", queue_pruning.UNITS_SHARE_MAX),
        ("WANTED_SHARE_MAX", queue_pruning.WANTED_SHARE_MAX),
        ("UNITS_SIZE_MIN", queue_pruning.UNITS_SIZE_MIN),
        ("DENSITY_MAX", queue_pruning.DENSITY_MAX),
        ("RANGE_SIZE_MIN", queue_pruning.RANGE_SIZE_MIN),
        ("LIGHT_PREFIX", coverage.LIGHT_PREFIX),
        ("STRETCH", WINDOW_SIZE),
        ("PORTION_SIZE", WINDOW_SIZE),
        ("SPAN_MAX", reader.SPAN_MAX),
        ("GAP_REMOTE", reader.GAP_REMOTE),
        ("FULL_FILE_TAIL", split_planning.FULL_FILE_TAIL),
        ("AHEAD_REMOTE", log_end.AHEAD_REMOTE),
        ("LOOK_AHEAD", log_tail.LOOK_AHEAD),
        ("BLANK_UNIT_SIZE", BLANK_UNIT_SIZE),
    ):
        (text,) = re.findall(rf"static final \w+ {name} = (.+);", source)
        assert eval(text) == value, name

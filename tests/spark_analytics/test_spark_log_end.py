"""The end of a log: damage in its last file does not end it if queues or later records prove that it continues."""

from pathlib import Path

import pytest

from pocketmq.spark_analytics.reading import log_end, log_tail
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import LogBuilder, physical_offsets, read, write_queues
from tests.spark_analytics.test_spark_streaming import LiveLog, Query

T0_MS = 1_700_000_000_000
FILE_SIZE = 64 << 10
SPLIT_SIZES = (317, 10_000, 1 << 30)


def small_log(step_ms: int = 1, count: int = 200) -> LogBuilder:
    """Return a log of one file that is not full; its records are stored `step_ms` apart."""
    log = LogBuilder(FILE_SIZE)
    for number in range(count):
        log.append(b"a body", store_timestamp_ms=T0_MS + number * step_ms)
    return log


def crashed(folder: Path, log: LogBuilder) -> Path:
    """Write a log as a running or killed broker leaves it: with the file abort, and without a checkpoint."""
    store = log.write(folder)
    (store / "abort").touch()
    return store


def damage(store: Path, begin: int, stop: int, filler: bytes = b"\0") -> None:
    path = store / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[begin:stop] = filler * (stop - begin)
    path.write_bytes(data)


@pytest.mark.parametrize("split_size", SPLIT_SIZES)
@pytest.mark.parametrize("filler", [b"\0", b"\xff"], ids=["zeroed", "overwritten"])
def test_records_after_damage_belong_to_the_log_of_a_killed_broker(tmp_path: Path, split_size: int, filler: bytes) -> None:
    log = small_log()
    store = crashed(tmp_path, log)
    begin, stop = log.physical_offsets[80], log.physical_offsets[83]
    damage(store, begin, stop, filler)
    with pytest.raises(
        DamagedRecordError, match=f"physical offset {begin} of .*{stop - begin} bytes are not a valid record"
    ):
        physical_offsets(store, maxPartitionBytes=split_size)
    left = log.physical_offsets[:80] + log.physical_offsets[83:]
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="DROPMALFORMED") == left
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="PERMISSIVE") == sorted([*left, begin])


@pytest.mark.parametrize("size", [0, 5, 1 << 30, -1])
def test_a_record_with_an_impossible_size_does_not_end_the_log(tmp_path: Path, size: int) -> None:
    log = small_log()
    damaged = log.physical_offsets[80]
    log.files[0][1][damaged : damaged + 4] = size.to_bytes(4, "big", signed=True)
    store = crashed(tmp_path, log)
    left = [own for own in log.physical_offsets if own != damaged]
    assert physical_offsets(store, mode="DROPMALFORMED") == left
    with pytest.raises(DamagedRecordError, match=f"physical offset {damaged} of"):
        physical_offsets(store)


def test_damage_in_several_places(tmp_path: Path) -> None:
    log = small_log()
    store = crashed(tmp_path, log)
    for row in (20, 80, 198):
        damage(store, log.physical_offsets[row], log.physical_offsets[row] + 40, b"\x01")
    left = [own for row, own in enumerate(log.physical_offsets) if row not in (20, 80, 198)]
    assert physical_offsets(store, mode="DROPMALFORMED") == left


def test_queues_prove_that_the_log_continues_if_store_times_are_equal(tmp_path: Path) -> None:
    log = small_log(step_ms=0)
    store = write_queues(crashed(tmp_path, log))
    damage(store, log.physical_offsets[80], log.physical_offsets[80] + 40)
    left = log.physical_offsets[:80] + log.physical_offsets[81:]
    assert physical_offsets(store, mode="DROPMALFORMED") == left
    assert physical_offsets(store, mode="DROPMALFORMED", topic="T") == left
    with pytest.raises(DamagedRecordError):
        physical_offsets(store)


def test_a_queue_unit_without_a_record_does_not_extend_the_log(tmp_path: Path) -> None:
    log = small_log(step_ms=0)
    store = write_queues(crashed(tmp_path, log))
    damage(store, log.physical_offsets[150], FILE_SIZE)
    assert physical_offsets(store) == log.physical_offsets[:150]


@pytest.mark.parametrize("with_queues", [True, False])
def test_records_left_after_a_truncation_do_not_extend_the_log(tmp_path: Path, with_queues: bool) -> None:
    log = small_log()
    log.truncate(log.physical_offsets[100])
    for number in range(3):
        log.append(b"a body after the start", store_timestamp_ms=T0_MS + 60_000 + number)
    store = crashed(tmp_path, log)
    if with_queues:
        write_queues(store)
    assert physical_offsets(store) == log.physical_offsets


def test_a_torn_last_record_is_left_out(tmp_path: Path) -> None:
    log = small_log()
    store = crashed(tmp_path, log)
    damage(store, log.physical_offsets[-1] + 90, FILE_SIZE)
    assert physical_offsets(store) == log.physical_offsets[:-1]


def ends_in_zeros(folder: Path, *, is_listed: bool, is_torn: bool = False) -> tuple[Path, LogBuilder]:
    """Write a log whose last record's properties end in zeros; `is_torn`: a whole sector of them."""
    log = small_log()
    log.append(properties=b"KEYS\x01k" + bytes(1400 if is_torn else 3))
    end = log.append(b"only for the queues")
    store = write_queues(crashed(folder, log), up_to=end if is_listed else log.physical_offsets[-2])
    damage(store, end, FILE_SIZE)
    log.physical_offsets.pop()
    return store, log


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_last_record_that_ends_in_zeros_is_read_if_a_queue_lists_it(
    tmp_path: Path, is_listed: bool, is_torn: bool
) -> None:
    store, log = ends_in_zeros(tmp_path, is_listed=is_listed, is_torn=is_torn)
    is_kept = is_listed and not is_torn
    for options in ({}, {"topic": "T"}, {"maxPartitionBytes": "300"}):
        assert physical_offsets(store, **options) == log.physical_offsets[: None if is_kept else -1]


def test_remote_files_are_searched_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    log = small_log()
    damaged = log.physical_offsets[80]
    log.files[0][1][damaged : damaged + 40] = bytes(40)
    fsspec.filesystem("memory").pipe(f"/log-end/commitlog/{0:020}", bytes(log.files[0][1]))
    left = [own for own in log.physical_offsets if own != damaged]
    assert physical_offsets("memory://log-end", mode="DROPMALFORMED") == left  # type: ignore[arg-type]
    monkeypatch.setattr(log_end, "AHEAD_REMOTE", 60)
    assert physical_offsets("memory://log-end", mode="DROPMALFORMED") == log.physical_offsets[:80]  # type: ignore[arg-type]


def test_rows_of_damage_contain_the_damaged_bytes(tmp_path: Path) -> None:
    log = small_log()
    store = crashed(tmp_path, log)
    begin, stop = log.physical_offsets[80:82]
    damage(store, begin, stop, b"\x07")
    rows = read(store, "physicalOffset", "_corrupt_record binary", mode="PERMISSIVE")
    assert {row["physicalOffset"]: row["_corrupt_record"] for row in rows if row["_corrupt_record"]} == {
        begin: b"\x07" * (stop - begin)
    }


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    """A log in which one record is overwritten, with ten before and ten after it."""
    live = LiveLog(tmp_path)
    for number in range(21):
        live.append(store_timestamp_ms=T0_MS + number)
    damage(live.store, live.builder.physical_offsets[10], live.builder.physical_offsets[11], b"\xff")
    return live


def test_a_stream_continues_after_permanent_damage(live: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = live.builder.physical_offsets
    monkeypatch.setattr(log_tail, "DOUBT_S", 0.0)
    for mode, expected in {"DROPMALFORMED": offsets[11:], "PERMISSIVE": offsets[10:]}.items():
        query = Query(live.store, mode=mode)
        assert query.batch() == offsets[:10]
        assert batches(query) == expected
        # A query that starts at the damage, as after a restart.
        assert batches(Query(live.store, {"physicalOffset": offsets[10]}, mode=mode)) == expected
    for start in (None, {"physicalOffset": offsets[10]}):
        with pytest.raises(DamagedRecordError, match=f"physical offset {offsets[10]}"):
            batches(Query(live.store, start))


def test_a_stream_skips_a_record_with_an_impossible_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveLog(tmp_path)
    for number in range(21):
        live.append(store_timestamp_ms=T0_MS + number)
    offsets = live.builder.physical_offsets
    damage(live.store, offsets[10], offsets[10] + 1, b"\x7f")
    monkeypatch.setattr(log_tail, "DOUBT_S", 0.0)
    query = Query(live.store, mode="DROPMALFORMED")
    assert query.batch() + batches(query) == offsets[:10] + offsets[11:]


def batches(query: Query) -> list[int]:
    return [own for _ in range(4) for own in query.batch()]


def test_an_available_now_stream_includes_records_after_damage(live: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_tail, "DOUBT_S", 0.01)
    query = Query(live.store, mode="DROPMALFORMED")
    query.reader.prepareForTriggerAvailableNow()
    assert batches(query) == live.builder.physical_offsets[:10] + live.builder.physical_offsets[11:]

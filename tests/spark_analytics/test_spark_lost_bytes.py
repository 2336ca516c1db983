"""Truncated or missing log files that are followed by other files."""

import json
from pathlib import Path

import pytest

from pocketmq.spark_analytics.reading import split_planning
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import LogBuilder, physical_offsets, read, write_queues

pytestmark = pytest.mark.spark

# Records have 98 bytes, so that a file of 1000 bytes holds ten.
SIZE = 98
SPLIT_SIZES = (100, 317, 1 << 30)


def five_files(folder: Path, topics: tuple[str, ...] = ("T",)) -> tuple[Path, LogBuilder]:
    log = LogBuilder(1000)
    while len(log.files) < 5:
        log.append(b"a body", topics[len(log.physical_offsets) % len(topics)])
    return log.write(folder), log


def cut(store: Path, start: int, size: int) -> Path:
    """Truncate the file that begins at `start` to `size` bytes."""
    path = store / "commitlog" / f"{start:020}"
    path.write_bytes(path.read_bytes()[:size])
    return path


def remove(store: Path, start: int) -> None:
    (store / "commitlog" / f"{start:020}").unlink()


@pytest.fixture(params=[64 << 20, 300], ids=["whole files", "tails"])
def looked_at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the size of a file's tail that is searched for its end: the whole file, or a small part as in large files."""
    monkeypatch.setattr(split_planning, "FULL_FILE_TAIL", request.param)


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize("split_size", SPLIT_SIZES)
@pytest.mark.parametrize("size", [0, 3, 500, 4 * SIZE, 8 * SIZE, 10 * SIZE - 1])
def test_truncated_file_is_damaged_after_its_last_complete_record(tmp_path: Path, split_size: int, size: int) -> None:
    store, log = five_files(tmp_path)
    path = cut(store, 1000, size)
    begin = 1000 + size // SIZE * SIZE
    says = f"damaged record at physical offset {begin} of {path}: records up to physical offset 2000 are lost: "
    with pytest.raises(
        DamagedRecordError,
        match=rf"^\[ROCKETMQ_DAMAGED_RECORD\] {says}the file has {size} of 1000 bytes, and the next file begins there;",
    ):
        physical_offsets(store, maxPartitionBytes=split_size)
    left = [own for own in log.physical_offsets if not begin <= own < 2000]
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="DROPMALFORMED") == left
    names = ("physicalOffset", "topic", "storePath", "_corrupt_record binary")
    rows = read(store, *names, maxPartitionBytes=split_size, mode="PERMISSIVE")
    assert [row["physicalOffset"] for row in rows] == sorted([*left, begin])
    (lost,) = (row for row in rows if row["topic"] is None)
    assert (lost["storePath"], lost["_corrupt_record"]) == (str(path), path.read_bytes()[begin - 1000 :])


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize("split_size", SPLIT_SIZES)
def test_missing_file_is_damage_after_the_previous_file(tmp_path: Path, split_size: int) -> None:
    store, log = five_files(tmp_path)
    remove(store, 1000)
    remove(store, 2000)
    says = (
        "offset 1000 of .*/0{20}: records up to physical offset 3000 are lost: the file has 1000 of 1000 bytes, and the next"
    )
    with pytest.raises(DamagedRecordError, match=says):
        physical_offsets(store, maxPartitionBytes=split_size)
    left = [own for own in log.physical_offsets if not 1000 <= own < 3000]
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="DROPMALFORMED") == left
    assert physical_offsets(store, maxPartitionBytes=split_size, mode="PERMISSIVE") == sorted([*left, 1000])


def test_damage_within_a_truncated_file(tmp_path: Path) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 3:
        log.append(b"a body")
    log.files[0][1][2 * SIZE : 3 * SIZE] = bytes(SIZE)
    store = log.write(tmp_path)
    cut(store, 0, 700)
    kept = [own for own in log.physical_offsets if own < 2 * SIZE or 3 * SIZE <= own < 7 * SIZE or own >= 1000]
    assert physical_offsets(store, mode="DROPMALFORMED") == kept
    assert physical_offsets(store, mode="PERMISSIVE") == sorted([*kept, 2 * SIZE, 7 * SIZE])


def test_file_truncated_within_its_filler_has_lost_no_record(tmp_path: Path) -> None:
    store, log = five_files(tmp_path)
    cut(store, 1000, 10 * SIZE + 8)
    assert physical_offsets(store) == log.physical_offsets


def test_loss_outside_the_selection_is_ignored(tmp_path: Path) -> None:
    store, log = five_files(tmp_path)
    cut(store, 1000, 5 * SIZE)
    begin = 1000 + 5 * SIZE
    assert physical_offsets(store, endingOffset=begin) == [own for own in log.physical_offsets if own < begin]
    assert physical_offsets(store, startingOffset=2000) == [own for own in log.physical_offsets if own >= 2000]
    for bounds in ({"startingOffset": 1999}, {"endingOffset": begin + 1}, {"startingOffset": 1700, "endingOffset": 1800}):
        with pytest.raises(DamagedRecordError, match="are lost"):
            physical_offsets(store, **bounds)
    assert physical_offsets(store, mode="PERMISSIVE", startingOffset=1700, endingOffset=1800) == [1700]


def test_loss_of_a_topic_is_found_through_its_queues(tmp_path: Path) -> None:
    store, log = five_files(tmp_path, ("A", "B", *["C"] * 8))
    write_queues(store)
    of_a = log.physical_offsets[::10]
    path = cut(store, 1000, 2 * SIZE)
    assert physical_offsets(store, topic="A") == of_a, "the first record of each file"
    assert physical_offsets(store, topic="B") == [own + SIZE for own in of_a if own < 4000]
    cut(store, 1000, 2 * SIZE - 1)
    assert physical_offsets(store, topic="A") == of_a
    says = f"offset {1000 + SIZE} of {path}: .* are lost: the file has 195 of 1000 bytes"
    with pytest.raises(DamagedRecordError, match=says):
        physical_offsets(store, topic="B")
    left = [own + SIZE for own in of_a if own < 4000 and own != 1000]
    assert physical_offsets(store, topic="B", mode="DROPMALFORMED") == left
    remove(store, 1000)
    with pytest.raises(DamagedRecordError, match="offset 1000 of .* up to physical offset 2000 are lost"):
        physical_offsets(store, topic="A")


def test_log_ends_in_a_truncated_last_file(tmp_path: Path) -> None:
    store, log = five_files(tmp_path)
    whole = 3000 + 4 * SIZE
    (store / "commitlog" / f"{4000:020}").write_bytes(bytes(1000))  # preallocated
    cut(store, 3000, 4 * SIZE + 20)
    assert physical_offsets(store) == [own for own in log.physical_offsets if own < whole]


def test_a_log_may_begin_with_any_file(tmp_path: Path) -> None:
    store, log = five_files(tmp_path)
    remove(store, 0)
    assert physical_offsets(store) == [own for own in log.physical_offsets if own >= 1000]


def test_files_may_be_left_out_of_an_explicit_list(tmp_path: Path) -> None:
    store, log = five_files(tmp_path)
    left = [own for own in log.physical_offsets if 1000 <= own < 2000 or 3000 <= own < 4000]
    paths = json.dumps([str(store / "commitlog" / f"{start:020}") for start in (1000, 3000)])
    assert physical_offsets(store / "commitlog" / "*[13]000") == left
    assert physical_offsets(store, path="", paths=paths) == left
    with pytest.raises(DamagedRecordError, match="are lost: the file has 500 of 1000 bytes"):
        cut(store, 1000, 500)
        physical_offsets(store / "commitlog" / "*[123]000")
    with pytest.raises(DamagedRecordError, match="are lost: the file has 1000 of 1000 bytes"):
        remove(store, 1000)
        physical_offsets(store, path="", paths=json.dumps([str(store), str(store / "commitlog" / f"{0:020}")]))


def test_log_spread_over_several_folders(tmp_path: Path) -> None:
    log = LogBuilder(1000)
    while len(log.files) < 5:
        log.append(b"a body")
    folders = [log.write(tmp_path / name) / "commitlog" for name in "ab"]
    for number in range(5):
        remove(folders[number % 2].parent, number * 1000)
    assert sorted(physical_offsets(tmp_path / "*")) == log.physical_offsets
    with pytest.raises(DamagedRecordError, match="are lost"):
        physical_offsets(folders[0])


def test_files_of_another_broker_do_not_fill_a_gap(tmp_path: Path) -> None:
    store, _ = five_files(tmp_path / "a")
    five_files(tmp_path / "b")
    remove(store, 1000)
    with pytest.raises(DamagedRecordError, match=f"{store}/commitlog/.* are lost"):
        physical_offsets(tmp_path / "*")

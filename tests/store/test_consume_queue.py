from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE, CONSUME_QUEUE_UNIT_STRUCT, HOLE_TAGS_CODE
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore

UNITS_PER_FILE = 10
FILE_SIZE = UNITS_PER_FILE * 20
RECORD_SIZE = 100


def open_queue(tmp_path: Path, *, clean: bool = True) -> ConsumeQueue:
    queue = ConsumeQueue(FileDisk(), str(tmp_path / "T" / "0"), FILE_SIZE, "T", 0)
    queue.recover(clean=clean)
    return queue


def values(first: int, count: int, log_start: int = 0) -> list[int]:
    """Return flat units for `count` queue offsets from `first` on: record n is at `log_start` + 100 n, with tags code n."""
    return [value for n in range(first, first + count) for value in (log_start + n * RECORD_SIZE, RECORD_SIZE, n)]


def tags_codes(queue: ConsumeQueue) -> list[int]:
    """Return the tags codes of all readable units, in order."""
    codes: list[int] = []
    queue_offset = queue.min_offset
    while run := queue.units(queue_offset, 32):
        codes += [code for _, _, code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(run)]
        queue_offset += len(run) // 20
    return codes


def file_names(tmp_path: Path) -> list[int]:
    return sorted(int(path.name) for path in (tmp_path / "T" / "0").iterdir())


@pytest.mark.parametrize("run", [1, 3, 10, 25])
def test_units_are_read_back_over_file_ends(tmp_path: Path, run: int) -> None:
    queue = open_queue(tmp_path)
    for first in range(0, 50, run):
        count = min(run, 50 - first)
        assert queue.append(first, values(first, count)) == count
    assert (queue.min_offset, queue.max_offset, queue.max_physical_offset) == (0, 50, 5000)
    assert tags_codes(queue) == list(range(50))
    assert queue.unit_at(37) == (3700, 100, 37)
    assert queue.unit_at(50) is None
    assert file_names(tmp_path) == [0, 200, 400, 600, 800]


def test_read_ends_at_the_end_of_a_file_or_after_the_given_count(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 25))
    assert len(queue.units(2, 3)) == 3 * 20
    assert len(queue.units(7, 32)) == 3 * 20
    assert len(queue.units(22, 32)) == 3 * 20
    assert len(queue.units(25, 32)) == len(queue.units(-1, 32)) == 0


def test_unused_queue_has_no_file(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    assert queue.max_offset == 0 and not queue.units(0, 32)
    assert not (tmp_path / "T").exists()


def test_redispatched_records_are_not_appended_again(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 12))
    assert queue.append(0, values(0, 12)) == 0
    assert queue.append(5, values(5, 7)) == 0
    assert queue.append(9, values(9, 6)) == 3
    assert queue.max_offset == 15
    assert tags_codes(queue) == list(range(15))


@pytest.mark.parametrize("second_life", [5, 12, 40])
def test_topic_created_again_begins_at_offset_zero_without_its_old_units(tmp_path: Path, second_life: int) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 12))
    for first in range(0, second_life, 5):
        queue.append(first, values(first, min(5, second_life - first), log_start=5000))
    assert (queue.min_offset, queue.max_offset) == (0, second_life)
    assert queue.unit_at(0) == (5000, 100, 0)
    assert tags_codes(queue) == list(range(second_life))
    assert queue.append(0, values(0, 12)) == 0, "records of the deleted topic are ignored"
    queue.flush()
    again = open_queue(tmp_path, clean=False)
    assert (again.max_offset, again.unit_at(0)) == (second_life, (5000, 100, 0))


def test_a_queue_that_begins_late_has_blank_units_below_its_min_offset(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(23, values(23, 2))
    assert (queue.min_offset, queue.max_offset) == (23, 25)
    assert not queue.units(22, 1)
    assert queue.unit_at(23) == (2300, 100, 23)
    queue.flush()
    assert file_names(tmp_path) == [400]
    on_disk = list(CONSUME_QUEUE_UNIT_STRUCT.iter_unpack((tmp_path / "T/0/00000000000000000400").read_bytes()))
    assert on_disk[:4] == [(0, 0x7FFFFFFF, 0)] * 3 + [(2300, 100, 23)]

    again = open_queue(tmp_path)
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (23, 25, 2500)


def test_size_of_a_blank_unit_does_not_count_as_log_bytes(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(23, values(23, 1))
    queue.truncate(2300)
    again = open_queue(tmp_path)
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (23, 23, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_reopened_queue_continues_at_its_end(tmp_path: Path, clean: bool) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 34))
    queue.flush()
    again = open_queue(tmp_path, clean=clean)
    assert (again.min_offset, again.max_offset, again.max_physical_offset) == (0, 34, 3400)
    again.append(34, values(34, 10))
    assert tags_codes(again) == list(range(44))


@pytest.mark.parametrize("torn", [0, 5, 9, 10, 19, 20, 21, 33])
def test_recovery_ends_a_queue_at_its_first_invalid_unit_and_zeroes_the_rest(tmp_path: Path, torn: int) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 34))
    queue.close()
    path = tmp_path / "T" / "0" / f"{torn // UNITS_PER_FILE * FILE_SIZE:020}"
    data = bytearray(path.read_bytes())
    position = torn % UNITS_PER_FILE * 20
    data[position : position + 20] = bytes(20)
    path.write_bytes(data)

    queue = open_queue(tmp_path, clean=False)
    # Only the last three files are checked: older ones have been synced.
    expected = torn if torn >= 10 else 34
    assert queue.max_offset == expected
    if expected == torn:
        queue.append(torn, values(torn, 1))
        queue.close()
        # If the units behind the torn one had not been zeroed, they would reappear now.
        assert open_queue(tmp_path, clean=False).max_offset == torn + 1


@pytest.mark.parametrize(
    ("log_end", "left"), [(5000, 34), (3400, 34), (3399, 34), (3300, 33), (2000, 20), (1900, 19), (1, 1), (0, 0)]
)
def test_truncation_drops_units_beyond_the_end_of_the_log(tmp_path: Path, log_end: int, left: int) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 34))
    queue.truncate(log_end)
    assert queue.max_offset == left
    assert queue.max_physical_offset == left * 100
    assert tags_codes(queue) == list(range(left))
    queue.append(left, values(left, 3))
    assert tags_codes(queue) == list(range(left + 3))
    queue.flush()
    assert open_queue(tmp_path, clean=False).max_offset == left + 3


@pytest.mark.parametrize("torn", [(8, 9), (9,), (5, 6, 7), (8, 13, 28), (8, *range(10, 34)), range(18, 34)])
def test_units_lost_by_a_power_cut_before_intact_units_are_rebuilt(tmp_path: Path, torn: Sequence[int]) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 34))
    queue.close()
    for queue_offset in torn:
        path = tmp_path / "T" / "0" / f"{queue_offset // UNITS_PER_FILE * FILE_SIZE:020}"
        data = bytearray(path.read_bytes())
        position = queue_offset % UNITS_PER_FILE * 20
        data[position : position + 20] = bytes(20)
        path.write_bytes(data)

    queue = open_queue(tmp_path, clean=False)
    queue.truncate(torn[0] // 2 * RECORD_SIZE)
    queue.append(torn[0] // 2, values(torn[0] // 2, 34 - torn[0] // 2))
    queue.flush()
    for _ in range(2):
        assert tags_codes(queue) == list(range(34))
        assert [queue.unit_at(n) for n in torn] == [(n * RECORD_SIZE, RECORD_SIZE, n) for n in torn]
        queue = open_queue(tmp_path)


def test_truncated_queue_keeps_its_queue_offsets(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(23, values(23, 4))
    queue.truncate(0)
    assert (queue.min_offset, queue.max_offset) == (23, 23)
    queue.append(23, values(23, 1))
    assert tags_codes(queue) == [23]


def test_files_of_deleted_records_are_deleted_except_the_last_file(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 34))
    assert queue.delete_below(900) == 0
    assert queue.min_offset == 0
    queue.correct_min_offset(850)
    assert queue.min_offset == 9
    assert queue.delete_below(1850) == 1
    assert (queue.min_offset, file_names(tmp_path)) == (19, [200, 400, 600])
    assert queue.delete_below(10**9) == 2
    # No record is left: the queue is empty, and its next queue offset is unchanged.
    assert (queue.min_offset, queue.max_offset, file_names(tmp_path)) == (34, 34, [600])
    assert not queue.units(33, 1)
    queue.append(34, values(34, 1))
    assert tags_codes(queue) == [34]


def test_refusal_of_a_file_with_another_size_names_the_file(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 1))
    queue.close()
    with pytest.raises(StoreError, match=r"00000000000000000000 has 200 bytes, but files of 400"):
        ConsumeQueue(FileDisk(), str(tmp_path / "T" / "0"), 400).recover(clean=True)


def store_of(tmp_path: Path) -> ConsumeQueueStore:
    queues = ConsumeQueueStore(FileDisk(), str(tmp_path), FILE_SIZE)
    queues.load(clean=False)
    return queues


@pytest.mark.parametrize("damage", ["middle gone", "middle empty", "middle short", "last short", "first long", "all empty"])
def test_queue_with_missing_or_resized_files_is_reported_and_rebuilt(tmp_path: Path, damage: str) -> None:
    queues = store_of(tmp_path)
    for queue_id in (0, 1):
        queues.find_or_create("T", queue_id).append(0, values(0, 25))
    queues.close()
    first, middle, last = sorted((tmp_path / "T" / "0").iterdir())
    if damage == "middle gone":
        middle.unlink()
    elif damage == "all empty":
        for path in (middle, last):
            path.unlink()
        first.write_bytes(b"")
    else:
        path = {"first": first, "middle": middle, "last": last}[damage.split()[0]]
        path.write_bytes(bytes({"empty": 0, "short": 100, "long": 400}[damage.split()[1]]))
    queues = store_of(tmp_path)
    assert queues.broken == {("T", 0)} and queues.queues["T", 1].max_offset == 25
    queues.drop_queue("T", 0)
    assert not queues.broken and not (tmp_path / "T" / "0").exists()
    queues.find_or_create("T", 0).append(0, values(0, 25))
    assert tags_codes(queues.queues["T", 0]) == list(range(25))


def test_if_all_files_have_another_size_the_error_names_the_config_key(tmp_path: Path) -> None:
    queues = store_of(tmp_path)
    queues.find_or_create("T", 0).append(0, values(0, 25))
    queues.close()
    with pytest.raises(StoreError, match="mappedFileSizeConsumeQueue is 400"):
        ConsumeQueueStore(FileDisk(), str(tmp_path), 400).load(clean=True)
    # If one queue has the right size, another size in another queue is damage.
    queues.find_or_create("T", 1).append(0, values(0, 25))
    queues.close()
    for path in (tmp_path / "T" / "0").iterdir():
        path.write_bytes(bytes(100))
    assert store_of(tmp_path).broken == {("T", 0)}


@pytest.mark.parametrize("run", [1, 3, 10, 25, 60])
def test_units_appended_as_arrays_are_the_same_bytes(tmp_path: Path, run: int) -> None:
    queue = open_queue(tmp_path)
    other = ConsumeQueue(FileDisk(), str(tmp_path / "other"), FILE_SIZE)
    # Some runs begin before the end of the queue, with units that it already has.
    for first in range(0, 60, run):
        start = max(first - 2, 0)
        count = min(first + run, 60) - start
        flat = values(start, count)
        array = np.array(list(zip(*[iter(flat)] * 3, strict=True)), CONSUME_QUEUE_UNIT_DTYPE)
        assert queue.append_units(start, array) == other.append(start, flat) == count - (first - start)
    assert (queue.max_offset, queue.max_physical_offset) == (60, 6000)
    queue.close()
    other.close()
    assert [path.read_bytes() for path in sorted((tmp_path / "other").iterdir())] == [
        path.read_bytes() for path in sorted((tmp_path / "T" / "0").iterdir())
    ]


def test_hole_keeps_the_offsets_of_later_units(tmp_path: Path) -> None:
    queue = open_queue(tmp_path)
    queue.append(0, values(0, 8))
    queue.fill_hole(13, 850, 91)
    queue.fill_hole(5, 850, 91)
    queue.append(13, values(13, 2))
    again = open_queue(tmp_path)
    assert again.max_offset == 15 and tags_codes(again) == [*range(8), *[HOLE_TAGS_CODE] * 5, 13, 14]
    again.truncate(1300)
    assert again.max_offset == 13
    again.truncate(850)
    assert again.max_offset == 8


def test_flush_waits_for_enough_pages(tmp_path: Path) -> None:
    queue = ConsumeQueue(FileDisk(), str(tmp_path / "T" / "0"), 300_000 * 20)
    queue.recover(clean=True)
    queue.append(0, values(0, 300))
    assert queue.has_due(least_pages=0) and not queue.has_due(least_pages=2)
    queue.append(300, values(300, 300))
    assert queue.has_due(least_pages=2)
    queue.flush()
    assert not queue.has_due(least_pages=0)

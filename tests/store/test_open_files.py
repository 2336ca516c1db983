"""Limits on the number of mapped files and on the memory that they keep resident."""

import itertools
import resource
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk import open_files as open_files_module
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.open_files import LOG_TAIL_KEPT, OpenFiles
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE
from pocketmq.store.queue.queue_checksums import SumCheck, take
from pocketmq.store.recovery import clean_stop
from tests.store.descriptors import descriptors
from tests.store.stores import message, open_store, records
from tests.support.memory import resident_memory

FILE_SIZE = 8 << 20
TMPFS = Path("/dev/shm")


def rows(folder: Path, open_files: OpenFiles, count: int, file_size: int = 4096) -> list[MappedFileQueue]:
    return [MappedFileQueue(FileDisk(), f"{folder}/{number}", file_size, open_files=open_files) for number in range(count)]


def test_thousands_of_queues_need_few_descriptors_and_lose_nothing(tmp_path: Path) -> None:
    open_files = OpenFiles(20)
    queues = rows(tmp_path, open_files, 2000)
    for text in (b"first", b"again"):
        for number, queue in enumerate(queues):
            queue.append(text + b" %d" % number)
    assert len(open_files) == 20 and descriptors(tmp_path) == 0
    for number, queue in enumerate(queues):
        assert queue.flush()
        written = b"first %d" % number + b"again %d" % number
        assert bytes(queue.view(0, len(written)) or b"") == written
    assert descriptors(tmp_path) <= 20
    for queue in queues:
        queue.close()
    assert len(open_files) == 0 and descriptors(tmp_path) == 0


def test_used_and_pinned_files_stay_mapped(tmp_path: Path) -> None:
    open_files = OpenFiles(3)
    pinned, used, *others = rows(tmp_path, open_files, 9)
    pinned.writable().pinned = True
    used.append(b"x")
    mapped = [queue.files[0] for queue in (pinned, used)]
    views = [file.view for file in mapped]
    for other in others:
        used.file_at(0)
        other.append(b"x")
    assert [file.view for file in mapped] == views, "they were never mapped again"


def test_view_outlives_its_mapping_and_sees_writes_through_the_next(tmp_path: Path) -> None:
    open_files = OpenFiles(1)
    first, second = rows(tmp_path, open_files, 2)
    first.append(b"held by a pull")
    held = first.files[0].view[:24]
    second.append(b"x")
    first.append(b", and on")
    assert bytes(held[:22]) == b"held by a pull, and on"


@pytest.mark.skipif(not TMPFS.is_dir(), reason="there is no tmpfs at /dev/shm")
def test_files_on_tmpfs_are_mapped_again_and_written_in_space_reserved_before() -> None:
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        queues = rows(Path(folder), OpenFiles(1), 2, FILE_SIZE)
        texts = [b"%08d" % number for number in range(1500)]
        for text in texts:
            for row in queues:
                row.append(text)
        for row in queues:
            assert bytes(row.files[0].view[:12_000]) == b"".join(texts)
            row.close()


def test_files_are_mapped_up_to_the_limits_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"max_map_count": 65_530, "overcommit_memory": 0}
    monkeypatch.setattr(open_files_module, "_kernel_setting", settings.__getitem__)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, 1_024))
    assert OpenFiles(0).count_max == OpenFiles(1 << 40).count_max == 65_530 // 3
    assert OpenFiles(20).count_max == 20
    settings["overcommit_memory"] = 2  # a mapping then keeps a descriptor
    assert OpenFiles(0).count_max == 512


def test_resident_memory_stays_bounded_while_a_log_grows_and_is_read(tmp_path: Path) -> None:
    open_files = OpenFiles(100)
    (row,) = rows(tmp_path, open_files, 1, FILE_SIZE)
    bound = resident_memory() + LOG_TAIL_KEPT + FILE_SIZE
    highest = 0
    for _ in range(40):
        row.append(b"x" * FILE_SIZE)
        row.flush()
        open_files.release_memory(row.files, bound)
        highest = max(highest, open_files_module.resident_memory())
    for file in row.files:
        assert file.array.all()
        open_files.release_memory(row.files, bound)
        highest = max(highest, open_files_module.resident_memory())
    assert highest <= bound + FILE_SIZE < 40 * FILE_SIZE


def test_memory_of_queue_files_is_released_if_that_of_the_log_is_not_enough(tmp_path: Path) -> None:
    open_files = OpenFiles(100)
    before = resident_memory()
    for row in rows(tmp_path, open_files, 8, FILE_SIZE):
        row.append(b"x" * FILE_SIZE)
    assert resident_memory() > before + 7 * FILE_SIZE
    open_files.release_memory((), before + FILE_SIZE)
    assert resident_memory() < before + FILE_SIZE


def test_pages_of_queue_files_that_are_used_again_at_once_are_not_released_in_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(100.0, 0.01)
    monkeypatch.setattr(open_files_module, "monotonic", lambda: next(clock))
    open_files, before, others = OpenFiles(100), resident_memory(), list[int]()
    queues = rows(tmp_path, open_files, 8, FILE_SIZE)

    def round_after_use() -> bool:
        for row in queues:
            assert row.files[0].array.all()
        return open_files.release_memory((), before + FILE_SIZE, lambda: others.append(1))

    for row in queues:
        row.append(b"x" * FILE_SIZE)
    assert not round_after_use() and len(others) == 1
    assert round_after_use() and len(others) == 1 and resident_memory() > before + 2 * FILE_SIZE
    clock = itertools.count(110.0, 0.01)
    assert not round_after_use() and len(others) == 2


@pytest.mark.parametrize("open_max", [1, 3])
def test_a_store_works_with_hardly_any_mappings(tmp_path: Path, open_max: int) -> None:
    store = open_store(FileDisk(), root=str(tmp_path), mapped_file_open_max=open_max)
    before = descriptors(tmp_path)
    for number in range(300):
        store.commit_log.put(message("T", number % 30, b"%d" % number + bytes(500)))
        if number % 10 == 9:
            store.dispatch()
    # The last file of the log is pinned, and open for writes; the most recently mapped file is kept in any case.
    assert len(store.open_files) <= open_max + 1 and descriptors(tmp_path) <= before + open_max + 2
    for queue_id in range(30):
        found = [int(record.body.rstrip(b"\0")) for record in records(store, "T", queue_id)]
        assert found == list(range(queue_id, 300, 30))
    store.shutdown()


def test_units_of_files_that_cannot_be_mapped_wait_in_memory_and_a_killed_process_loses_none(tmp_path: Path) -> None:
    sizes = dict(mapped_file_open_max=1, mapped_file_size_consume_queue=4000)
    store = open_store(FileDisk(), root=str(tmp_path), **sizes)

    def in_files() -> int:
        files = (tmp_path / "consumequeue" / "T").glob("*/*")
        return sum(np.count_nonzero(np.fromfile(file, CONSUME_QUEUE_UNIT_DTYPE)["size"]) for file in files)

    def put(numbers: range) -> None:
        for number in numbers:
            store.commit_log.put(message("T", number % 30, b"%d" % number))
            store.dispatch()

    put(range(1800))
    assert in_files() < 1800
    store.checkpoint_service.flush_queues(thorough=True)
    assert in_files() == 1800
    assert not SumCheck(FileDisk(), store.queues, take(list(store.queues))[0], {}).at_start([])
    put(range(1800, 1860))
    assert in_files() < 1860
    known, _ = take(list(store.queues))
    again = open_store(FileDisk(), root=str(shutil.copytree(tmp_path, tmp_path / "killed")), **sizes)
    for queue_id in range(30):
        assert [int(record.body) for record in records(again, "T", queue_id)] == list(range(queue_id, 1860, 30))
    store.checkpoint_service.flush_queues(thorough=True)
    assert in_files() == 1860
    assert not SumCheck(FileDisk(), store.queues, known, {}).at_start([])


def test_checksums_of_many_queues_are_renewed_in_turn_and_all_at_a_clean_stop(tmp_path: Path) -> None:
    store = open_store(FileDisk(), root=str(tmp_path))

    def sizes(renewed_max: int) -> list[int]:
        return sorted(one.size for (one,) in store._take_ends(renewed_max).sums.get("T", {}).values())

    for turn in ([[20, 20], [20, 20, 20, 20], [20] * 5], [[20, 20, 20, 40, 40], [20, 40, 40, 40, 40], [40] * 5]):
        for queue_id in range(5):
            store.commit_log.put(message("T", queue_id))
        store.dispatch()
        assert [sizes(2) for _ in turn] == turn
    store.commit_log.put(message("T", 3))
    store.dispatch()
    store.shutdown()
    known, _ = clean_stop.load(FileDisk(), str(tmp_path))
    assert known is not None and sorted(one.size for (one,) in known.sums["T"].values()) == [40, 40, 40, 40, 60]

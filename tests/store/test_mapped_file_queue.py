from pathlib import Path

import pytest

from store.disk import FileDisk, StoreError
from store.mapped_file_queue import MappedFileQueue
from store.memory_disk import MemoryDisk


def filled(disk: MemoryDisk | FileDisk, directory: str, count: int) -> MappedFileQueue:
    queue = MappedFileQueue(disk, directory, 100)
    for number in range(count):
        queue.writable().append(bytes([number + 1]) * 100)
    return queue


def test_the_row_begins_at_the_file_that_holds_the_first_offset() -> None:
    queue = MappedFileQueue(MemoryDisk(), "/q", 100)
    assert (queue.min_offset, queue.max_offset, queue.file_at(0)) == (0, 0, None)
    assert queue.writable(270).start_offset == 200
    assert queue.writable().append(b"x") == 0
    assert (queue.min_offset, queue.max_offset) == (200, 201)


def test_views_are_within_one_file_and_within_what_is_written() -> None:
    queue = filled(MemoryDisk(), "/q", 2)
    queue.writable().append(b"end")
    assert bytes(queue.view(90, 10) or b"") == b"\x01" * 10
    assert bytes(queue.view(200, 3) or b"") == b"end"
    assert queue.view(201, 3) is None and queue.view(95, 10) is None and queue.view(300, 1) is None


def test_least_pages_hold_a_flush_back_until_so_many_are_dirty() -> None:
    queue = MappedFileQueue(MemoryDisk(), "/q", 100_000)
    queue.writable().append(bytes(3 * 4096))
    assert not queue.flush(least_pages=4) and queue.flushed_offset == 0
    queue.writable().append(bytes(4096))
    assert queue.flush(least_pages=4) and queue.flushed_offset == 4 * 4096
    queue.writable().append(b"x")
    assert not queue.flush(least_pages=4) and queue.flush() and queue.flushed_offset == 4 * 4096 + 1


def test_truncate_deletes_later_files_and_zeroes_the_rest() -> None:
    disk = MemoryDisk()
    queue = filled(disk, "/q", 3)
    assert queue.truncate(130) == 1
    assert disk.listdir("/q") == [f"{0:020}", f"{100:020}"]
    assert queue.max_offset == 130
    assert disk.read_file(f"/q/{100:020}") == b"\x02" * 30 + bytes(70)


def test_files_of_another_size_or_with_a_gap_are_refused(tmp_path: Path) -> None:
    disk = FileDisk()
    filled(disk, str(tmp_path), 3)
    other_size = MappedFileQueue(disk, str(tmp_path), 200)
    with pytest.raises(StoreError, match="has 100 bytes, but files of 200 bytes are configured"):
        other_size.load()
    (tmp_path / f"{100:020}").unlink()
    with pytest.raises(StoreError, match="a file of the row is missing"):
        MappedFileQueue(disk, str(tmp_path), 100).load()


def test_an_empty_last_file_is_removed_and_strange_names_are_left_alone(tmp_path: Path) -> None:
    disk = FileDisk()
    filled(disk, str(tmp_path), 1)
    (tmp_path / f"{100:020}").touch()
    (tmp_path / "notes.txt").write_text("mine")
    queue = MappedFileQueue(disk, str(tmp_path), 100)
    queue.load()
    assert queue.max_offset == 100 and sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020}", "notes.txt"]


def test_a_held_view_survives_the_deletion_of_its_file(tmp_path: Path) -> None:
    queue = filled(FileDisk(), str(tmp_path), 2)
    held = queue.view(10, 5)
    queue.delete_first()
    assert held is not None and bytes(held) == b"\x01" * 5
    assert queue.min_offset == 100 and queue.view(10, 5) is None

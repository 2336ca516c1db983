from pathlib import Path

import pytest

from pocketmq.store.disk.disk import MappedRegion, StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue, Spread
from pocketmq.store.disk.memory_disk import MemoryDisk


def filled(disk: MemoryDisk | FileDisk, directory: str, count: int) -> MappedFileQueue:
    queue = MappedFileQueue(disk, directory, 100)
    for number in range(count):
        queue.writable().append(bytes([number + 1]) * 100)
    return queue


def test_queue_begins_at_the_file_of_the_first_offset() -> None:
    queue = MappedFileQueue(MemoryDisk(), "/q", 100)
    assert (queue.min_offset, queue.max_offset, queue.file_at(0)) == (0, 0, None)
    assert queue.writable(270).start_offset == 200
    assert queue.writable().append(b"x") == 0
    assert (queue.min_offset, queue.max_offset) == (200, 201)


def test_views_stay_within_one_file_and_the_written_range() -> None:
    queue = filled(MemoryDisk(), "/q", 2)
    queue.writable().append(b"end")
    assert bytes(queue.view(90, 10) or b"") == b"\x01" * 10
    assert bytes(queue.view(200, 3) or b"") == b"end"
    assert queue.view(201, 3) is None and queue.view(95, 10) is None and queue.view(300, 1) is None


def test_flush_waits_until_least_pages_are_dirty() -> None:
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
    with pytest.raises(StoreError, match="a file of the sequence is missing"):
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


class SmallDisk(MemoryDisk):
    """Disk with space for `room` reserved bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.mapped: list[str] = []

    def map(self, path: str, size: int, **hints: bool) -> MappedRegion:
        region = super().map(path, size, **hints)
        self.mapped.append(path)

        def reserve(start: int, end: int) -> None:
            if end - start > self.room:
                raise OSError(28, "No space left on device", path)
            self.room -= end - start

        region.reserve = reserve  # type: ignore[method-assign]
        return region


def test_space_is_reserved_before_bytes_are_written() -> None:
    disk = SmallDisk(150)
    queue = MappedFileQueue(disk, "/q", 100, reserve_step=40)
    queue.append(b"a" * 30)
    assert queue.files[0].reserved == 40 and disk.room == 110
    queue.append(b"a" * 30)
    assert queue.files[0].reserved == 80 and disk.room == 70


def test_a_run_over_several_files_is_written_as_a_whole_or_not_at_all() -> None:
    disk = SmallDisk(350)
    queue = MappedFileQueue(disk, "/q", 100)
    queue.append(b"a" * 60)
    with pytest.raises(OSError, match="No space left"):
        queue.append(b"b" * 300)
    assert queue.max_offset == 60 and bytes(queue.view(0, 60) or b"") == b"a" * 60
    disk.room = 1000
    queue.append(b"b" * 300)
    assert queue.max_offset == 360 and len(queue.files) == 4
    assert b"".join(disk.read_file(file.path) for file in queue.files)[:360] == b"a" * 60 + b"b" * 300


def test_loaded_files_are_mapped_on_first_access() -> None:
    disk = SmallDisk(10_000)
    filled(disk, "/q", 3)
    disk.mapped.clear()
    queue = MappedFileQueue(disk, "/q", 100)
    queue.load()
    queue.flush()
    assert disk.mapped == [] and queue.max_offset == 300
    assert bytes(queue.view(150, 2) or b"") == b"\x02\x02"
    assert disk.mapped == [f"/q/{100:020}"]


def test_files_of_a_queue_in_several_folders(tmp_path: Path) -> None:
    disk, folders = FileDisk(), [f"{tmp_path}/a", f"{tmp_path}/b"]

    def row() -> MappedFileQueue:
        spread = Spread(folders[1:], directory_for=lambda start: folders[start // 100 % 2])
        return MappedFileQueue(disk, folders[0], 100, spread=spread)

    queue = row()
    queue.append(bytes(range(250)))
    queue.flush()
    assert disk.listdir(folders[0]) == [f"{0:020}", f"{200:020}"] and disk.listdir(folders[1]) == [f"{100:020}"]
    again = row()
    again.load()
    assert b"".join(bytes(file.view) for file in again.files)[:250] == bytes(range(250))
    assert again.truncate(120) == 1 and disk.listdir(folders[0]) == [f"{0:020}"]
    (tmp_path / "a" / f"{100:020}").write_bytes(bytes(100))
    with pytest.raises(StoreError, match="has the same offset as"):
        row().load()

"""What every Disk promises, on the real one, in memory, and on the simulated one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from power_cut_disk import PowerCutDisk

from store.disk import Disk, FileDisk
from store.memory_disk import MemoryDisk


@pytest.fixture(params=["file", "memory", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return {"file": FileDisk, "memory": MemoryDisk, "simulated": PowerCutDisk}[request.param]()


def test_a_mapped_file_is_zero_and_keeps_what_is_written(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/file"
    region = disk.map(path, 5000, create=True)
    assert bytes(region.view) == bytes(5000) and disk.size(path) == 5000
    region.view[10:13] = b"abc"
    region.sync(10, 13)
    disk.sync_dir(f"{tmp_path}/a/b")
    region.close()
    assert disk.read_file(path)[10:13] == b"abc"
    again = disk.map(path, 5000)
    assert bytes(again.view[10:13]) == b"abc" and int(again.array[10]) == ord("a")
    with pytest.raises(OSError, match="5000 bytes, 6000 expected"):
        disk.map(path, 6000)


def test_views_outlive_a_deleted_file(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    region = disk.map(path, 4096, create=True)
    region.view[:3] = b"abc"
    held = region.view[:3]
    region.close()
    disk.delete(path)
    assert bytes(held) == b"abc" and not disk.exists(path)


def test_a_mapped_file_keeps_one_descriptor_until_it_is_closed(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    disk, before = FileDisk(), descriptors()
    regions = [disk.map(f"{tmp_path}/{n}", 4096, create=True, random_access=n % 2 == 0) for n in range(50)]
    assert descriptors() == before + 50
    for region in regions:
        region.view[0] = 1
        region.sync(0, 1)
        region.clear(0)
    assert descriptors() == before + 50
    for region in regions:
        region.close()
    assert descriptors() == before


def test_syncing_what_the_other_thread_has_deleted_is_no_error(tmp_path: Path) -> None:
    disk = FileDisk()
    region = disk.map(f"{tmp_path}/d/file", 4096, create=True)
    disk.delete_tree(f"{tmp_path}/d")
    region.sync(0, 4096)
    disk.sync_dir(f"{tmp_path}/d")


def test_clear_zeroes_the_rest_and_says_whether_it_had_to(disk: Disk, tmp_path: Path) -> None:
    size = 3 << 20
    region = disk.map(f"{tmp_path}/file", size, create=True)
    region.view[:10] = b"0123456789"
    region.view[size - 1] = 1
    assert region.clear(4)
    assert bytes(region.view[:10]) == b"0123" + bytes(6) and region.view[size - 1] == 0
    assert not region.clear(4)


def test_replace_keeps_the_old_file_as_bak(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/config/topics.json"
    for text in (b"1", b"2", b"3"):
        disk.replace_file(path, text)
    assert (disk.read_file(path), disk.read_file(path + ".bak")) == (b"3", b"2")
    assert disk.listdir(f"{tmp_path}/config") == ["topics.json", "topics.json.bak"]


def test_names(disk: Disk, tmp_path: Path) -> None:
    root = f"{tmp_path}/d"
    assert disk.listdir(root) == [] and not disk.exists(root)
    disk.make_dirs(root)
    disk.write_file(f"{root}/b", b"x")
    disk.write_file(f"{root}/a", b"yy")
    assert disk.listdir(root) == ["a", "b"] and disk.is_dir(root) and not disk.is_dir(f"{root}/a")
    disk.rename(f"{root}/a", f"{root}/b")
    assert disk.read_file(f"{root}/b") == b"yy" and not disk.exists(f"{root}/a")
    disk.delete_tree(root)
    assert not disk.exists(f"{root}/b")
    with pytest.raises(FileNotFoundError):
        disk.read_file(f"{root}/b")
    assert 0 <= disk.usage(f"{root}/no/such/path") <= 1


@pytest.mark.parametrize("disk", ["file", "memory"], indirect=True)
def test_a_lock_is_exclusive_until_closed(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    lock.close()
    disk.lock(path).close()


def test_a_lock_holds_against_another_process(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    lock = FileDisk().lock(path)
    try_lock = f"from store.disk import FileDisk; FileDisk().lock({path!r})"
    tried = subprocess.run([sys.executable, "-c", try_lock], capture_output=True, text=True)
    lock.close()
    assert tried.returncode != 0 and "BlockingIOError" in tried.stderr
    assert Path(path).read_bytes() == b"lock"

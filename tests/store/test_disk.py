"""Behaviour of the disks: the file system, memory, and the simulated disk."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.store.descriptors import descriptors
from tests.store.power_cut_disk import PowerCutDisk


@pytest.fixture(params=["file", "memory", "simulated"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return {"file": FileDisk, "memory": MemoryDisk, "simulated": PowerCutDisk}[request.param]()


def test_new_mapped_file_is_zero_and_keeps_written_bytes(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b/file"
    region = disk.map(path, 5000, create=True)
    assert bytes(region.view) == bytes(5000) and disk.size(path) == 5000
    region.reserve(0, 5000)
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
    region.reserve(0, 4096)
    region.view[:3] = b"abc"
    held = region.view[:3]
    region.close()
    disk.delete(path)
    assert bytes(held) == b"abc" and not disk.exists(path)


def test_reserved_range_is_mapped_without_read_ahead(tmp_path: Path) -> None:
    """The kernel's flags of a mapping show this on any file system: `rr` means random reads, without read-ahead."""
    path, step = f"{tmp_path}/file", 1 << 20
    region = FileDisk().map(path, 4 * step, create=True)

    def alone() -> list[tuple[int, int]]:
        begin = region.array.ctypes.data
        return [(first - begin, last - begin) for first, last, told in mappings(path) if "rr" in told["VmFlags"]]

    assert alone() == []
    region.reserve(0, step)
    assert alone() == [(0, step)]
    region.reserve(step, 3 * step)
    assert alone() == [(step, 3 * step)]


@pytest.mark.parametrize("is_locked", [False, True])
def test_write_is_visible_in_the_mapping_and_becomes_resident_only_if_locked(tmp_path: Path, is_locked: bool) -> None:
    size, end = 1 << 20, (1 << 20) - 5000
    path = f"{tmp_path}/log"
    region = FileDisk().map(path, size, create=True)
    region.reserve(0, size)
    if is_locked:
        region.lock_memory()
    written = bytes(number % 251 for number in range(end))
    region.write(0, written[:777])
    region.write(777, written[777:])
    assert mapped_bytes(path) >= end if is_locked else mapped_bytes(path) == 0
    region.sync(0, end)
    assert Path(path).read_bytes()[:end] == written
    region.view[end] = 7
    region.write(end + 1, b"89")
    assert bytes(region.view[: end + 3]) == written + b"\x0789"


def test_failed_or_partial_write_is_completed_through_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region = FileDisk().map(f"{tmp_path}/log", 1 << 20, create=True)
    region.reserve(0, 1 << 20)
    pwrite = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda descriptor, data, start: pwrite(descriptor, data[:2], start))
    region.write(0, b"abc")

    def refused(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.pwrite", refused)
    region.write(3, b"def")
    assert bytes(region.view[:7]) == b"abcdef\0"


def test_file_is_open_only_while_it_is_written_to(tmp_path: Path) -> None:
    region = FileDisk().map(f"{tmp_path}/log", 1 << 20, create=True)
    region.reserve(0, 1 << 20)
    assert descriptors(tmp_path) == 0, "a mapping needs none"
    region.write(0, b"a")
    assert descriptors(tmp_path) == 1
    region.end_writing()
    assert descriptors(tmp_path) == 0
    region.write(1, b"b")
    region.close()
    assert descriptors(tmp_path) == 0 and (tmp_path / "log").read_bytes()[:3] == b"ab\0"


def mapped_bytes(path: str) -> int:
    """Return how many bytes of a mapped file are resident."""
    return sum(int(told["Rss"][0]) * 1024 for _, _, told in mappings(path))


def mappings(path: str) -> list[tuple[int, int, dict[str, list[str]]]]:
    """Return (first address, end address, attributes in smaps) of each mapping of a file."""
    found: list[tuple[int, int, dict[str, list[str]]]] = []
    told: dict[str, list[str]] = {}
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *values = line.split()
        if name.endswith(":"):
            told[name[:-1]] = values
        else:
            told = {}
            if line.endswith(path):
                first, last = name.split("-")
                found.append((int(first, 16), int(last, 16), told))
    return found


def test_a_mapped_file_keeps_no_descriptor(tmp_path: Path) -> None:
    disk = FileDisk()
    regions = [disk.map(f"{tmp_path}/{n}", 4096, create=True, random_access=n % 2 == 0) for n in range(50)]
    assert descriptors(tmp_path) == 0
    for region in regions:
        region.reserve(0, 1)
        region.view[0] = 1
        region.sync(0, 1)
        region.clear(0)
    assert descriptors(tmp_path) == 0


def test_sync_of_a_file_deleted_by_another_thread_succeeds(tmp_path: Path) -> None:
    disk = FileDisk()
    region = disk.map(f"{tmp_path}/d/file", 4096, create=True)
    disk.delete_tree(f"{tmp_path}/d")
    region.sync(0, 4096)
    disk.sync_dir(f"{tmp_path}/d")


def test_clear_zeroes_the_rest_and_returns_whether_it_changed_anything(disk: Disk, tmp_path: Path) -> None:
    size = 3 << 20
    region = disk.map(f"{tmp_path}/file", size, create=True)
    region.reserve(0, size)
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


def test_files_are_listed_renamed_and_deleted(disk: Disk, tmp_path: Path) -> None:
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
    try_lock = f"from pocketmq.store.disk.file_disk import FileDisk; FileDisk().lock({path!r})"
    tried = subprocess.run([sys.executable, "-c", try_lock], capture_output=True, text=True)
    lock.close()
    assert tried.returncode != 0 and "BlockingIOError" in tried.stderr
    assert Path(path).read_bytes() == b"lock"


# File-system behaviour beyond the contents of files


def allocated(path: str) -> int:
    """Return the number of bytes that are allocated for a file, without its holes."""
    return os.stat(path).st_blocks * 512


def test_a_range_is_read_as_a_slice(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    region = disk.map(path, 5000, create=True)
    region.reserve(4990, 5000)
    region.view[4990:] = b"0123456789"
    assert disk.read_range(path, 4992, 3) == b"234" and disk.read_range(path, 4996, 100) == b"6789"
    with pytest.raises(FileNotFoundError):
        disk.read_range(f"{tmp_path}/none", 0, 1)


def test_written_bytes_are_synced_after_unmapping(tmp_path: Path) -> None:
    disk = PowerCutDisk()
    region = disk.map("/d/file", 4096, create=True)
    region.view[:3] = b"abc"
    disk.sync_dir("/d")
    region.close()
    region.sync(0, 3)
    assert disk.synced_bytes("/d/file", 0, 3) == b"abc"
    region = FileDisk().map(f"{tmp_path}/file", 4096, create=True)
    region.close()
    region.sync(0, 4096)


@pytest.mark.parametrize("has_fallocate", [True, False])
@pytest.mark.parametrize("method", ["reserve", "warm"])
def test_reserved_range_is_allocated_and_keeps_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, has_fallocate: bool
) -> None:
    def unknown(descriptor: int, start: int, size: int) -> None:
        raise OSError(95, "Operation not supported")

    if not has_fallocate:
        monkeypatch.setattr(os, "posix_fallocate", unknown)
    path, size = f"{tmp_path}/file", 8 << 20
    region = FileDisk().map(path, size, create=True)
    region.reserve(5000, 5003)
    region.view[5000:5003] = b"abc"
    before = allocated(path)
    getattr(region, method)(0, 4 << 20)
    assert before < 1 << 20 and 4 << 20 <= allocated(path) < 5 << 20
    assert bytes(region.view[5000:5003]) == b"abc"


TMPFS = Path("/dev/shm")
on_tmpfs = pytest.mark.skipif(not TMPFS.is_dir(), reason="there is no tmpfs at /dev/shm")


@on_tmpfs
def test_reading_holes_on_tmpfs_allocates_no_space() -> None:
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        path, size, disk = f"{folder}/file", (16 << 20) + 100, FileDisk()
        region = disk.map(path, size, create=True)
        region.reserve(5 << 20, (5 << 20) + 100)
        region.view[5 << 20 : (5 << 20) + 3] = b"abc"
        region.reserve(size - 1, size)
        region.view[size - 1] = 7
        later = disk.map(path, size)
        for found in (region, later):
            assert found.array.nonzero()[0].tolist() == [5 << 20, (5 << 20) + 1, (5 << 20) + 2, size - 1]
        assert later.clear(6 << 20) and not region.clear(6 << 20) and region.view[size - 1] == 0
        assert allocated(path) == 2 * 4096


@on_tmpfs
@pytest.mark.parametrize("is_closed", [True, False])
def test_range_reserved_on_tmpfs_is_writable_by_a_later_mapping_once_it_is_shown(is_closed: bool) -> None:
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        path, size, disk = f"{folder}/file", 8 << 20, FileDisk()
        region = disk.map(path, size, create=True)
        if is_closed:
            region.close()
        region.reserve(5000, 4 << 20)
        later = disk.map(path, size)
        later.show_reserved(5000, 4 << 20)
        later.view[5000 : 4 << 20] = b"x" * ((4 << 20) - 5000)
        assert disk.read_range(path, 4998, 4) == b"\0\0xx" and allocated(path) == 4096 * ((4 << 20) // 4096 - 1)


ON_A_FULL_TMPFS = """
import os, sys
from pocketmq.store.disk.file_disk import FileDisk
disk, folder = FileDisk(), sys.argv[1]
region = disk.map(f"{folder}/file", 8 << 20, create=True)
region.reserve(0, 4096)
region.view[:3] = b"abc"
for data in (b"1", b"2"):
    disk.replace_file(f"{folder}/table", data)
with open(f"{folder}/ballast", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
for found in (region, disk.map(f"{folder}/file", 8 << 20)):
    print(bytes(found.view[:3]), found.array.any(), found.array[4096:].any(), found.clear(4096))
    try:
        found.reserve(4096, 8192)
    except OSError as error:
        print(error.errno, found.array[4096:].any())
disk.replace_file(f"{folder}/table", b"3")
print(disk.read_file(f"{folder}/table"), disk.read_file(f"{folder}/table.bak"))
try:
    disk.replace_file(f"{folder}/new", b"1")
except OSError as error:
    print(error.errno, error.filename == f"{folder}/new.tmp", disk.listdir(folder))
os.unlink(f"{folder}/ballast")
region.reserve(4096, 8192)
region.view[4096] = 1
print("room again")
"""


def test_full_tmpfs_raises_errors_and_does_not_kill_the_process(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=1m pocketmq-test {tmp_path}"
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*own_mounts, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    script = f'{mount} && exec "$@"'
    command = [*own_mounts, script, "sh", sys.executable, "-c", ON_A_FULL_TMPFS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *["b'abc' True False False", "28 False"] * 2,
        "b'3' b'2'",
        "28 True ['ballast', 'file', 'table', 'table.bak']",
        "room again",
    ]


def test_error_for_missing_space_contains_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/file"
    region = FileDisk().map(path, 4096, create=True)

    def full(descriptor: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        region.reserve(0, 4096)


def test_releasing_memory_loses_no_data(disk: Disk, tmp_path: Path) -> None:
    region = disk.map(f"{tmp_path}/file", 1 << 20, create=True)
    region.reserve(0, 1 << 20)
    region.array[:] = 7
    region.release_memory(100, 1 << 20)
    assert (region.array == 7).all()
    region.close()
    region.release_memory(0, 1 << 20)


def locked_memory() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmLck:"))


def test_error_of_memory_locking_names_the_limit(tmp_path: Path) -> None:
    region = FileDisk().map(f"{tmp_path}/file", 1 << 30, create=True)
    before = locked_memory()
    try:
        region.lock_memory()
    except OSError as error:
        assert "RLIMIT_MEMLOCK allows" in str(error) and "1073741824 bytes" in str(error) and locked_memory() == before
    else:
        assert locked_memory() == before + (1 << 30)
        region.release_memory(0, 1 << 30)
        region.lock_memory(False)
        assert locked_memory() == before


def test_boot_mark_identifies_the_boot_and_the_mount(tmp_path: Path) -> None:
    disk, boot = FileDisk(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    mark = disk.boot_mark(str(tmp_path))
    assert mark.startswith(boot) and disk.boot_mark(f"{tmp_path}/not/yet/there") == mark
    assert disk.boot_mark("/proc") != mark
    assert MemoryDisk().boot_mark("/anywhere") == "memory"


def test_boot_mark_is_empty_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(path: str) -> None:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr("builtins.open", nothing_there)
    assert FileDisk().boot_mark(str(tmp_path)) == ""


def test_a_directory_of_a_killed_process_is_made_durable_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{tmp_path}/store/commitlog"
    FileDisk().make_dirs(folder)
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    disk = FileDisk()
    disk.sync_dir(folder)
    assert {folder, f"{tmp_path}/store", str(tmp_path)} <= set(synced)
    synced.clear()
    disk.sync_dir(folder)
    assert synced == [folder], "the names of its parents are durable already"
    disk.delete_tree(f"{tmp_path}/store")
    disk.make_dirs(folder)
    disk.sync_dir(folder)
    assert synced[1:] == [folder, f"{tmp_path}/store", str(tmp_path)]


def test_a_file_system_is_synced_as_a_whole_if_its_type_is_known_to_report_errors() -> None:
    disk, folders = FileDisk(), Path("/dev/shm")
    before = descriptors(folders)
    with tempfile.TemporaryDirectory(dir=folders) as folder:
        file_system = disk.file_system(f"{folder}/not/yet/made")
        assert file_system is not None
        file_system.sync()
        assert descriptors(folders) == before + 1
        del file_system
    assert disk.file_system("/proc") is None
    assert descriptors(folders) == before


def test_rewriting_bytes_keeps_their_values(disk: Disk, tmp_path: Path) -> None:
    region = disk.map(f"{tmp_path}/file", 3 << 20, create=True)
    region.reserve(0, 4096)
    region.view[100:105] = b"first"
    region.rewrite(50, 3 << 20)
    region.sync(0, 3 << 20)
    assert bytes(region.view[98:107]) == b"\0\0first\0\0"

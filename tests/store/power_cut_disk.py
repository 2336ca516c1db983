"""Simulated disk in memory: it knows which data is durable, can lose the rest, and can make calls fail.

Each file has the contents that the process sees and the durable contents; each directory has the names that the process sees
and the durable names. `sync` makes pages durable, `sync_dir` names. `power_cut` returns the disk as a machine may find it
after a power cut:

* of each page that was not synced, some sectors of 512 bytes have the new contents and the others the old ones,
  independently of other pages; pages that the kernel wrote back on its own (`write_back`) may be from any earlier moment;
* a name that was created or deleted, or a directory that was created, without a `sync_dir` may be in its old or its new
  state; the two names of a rename are both in the old or both in the new state;
* a file whose length was never synced may be empty.

`killed` returns the disk that the next process finds: everything that the process saw, still not synced. After a failed sync
the kernel considers pages clean although they are not durable, as Linux does, and later syncs skip them.

Space is counted in pages that were reserved or written. A write to a mapped page without reserved space is recorded in
`unreserved`: on a full disk it would cause a SIGBUS. All random choices come from the `Random` that is passed in, in the
order of the paths, so that a seed reproduces them byte for byte.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import SHORTAGE, Disk, FileSystem, MappedRegion

PAGE_SIZE = 4096
SECTOR_SIZE = 512
# METHODS are all methods that may fail. Those in CHANGES alter the disk, and the machine may stop before any of them.
CHANGES = frozenset(
    ("create", "reserve", "warm", "sync", "sync_all", "sync_dir", "write_file", "replace_file", "link", "delete",
     "delete_tree", "rename", "make_dirs")
)  # fmt: skip
SYNCS = frozenset(("sync", "sync_dir", "warm"))
METHODS = CHANGES | {"map", "read_file", "read_range", "listdir", "size", "mtime_ms", "lock", "usage"}


class Stopped(BaseException):
    """The machine or the process stops at this call; no later call changes the disk."""


@dataclass
class Fault:
    """The `nth` call of `method` from now on raises `error`, and with `forever` all after it too, until it is removed."""

    method: str
    nth: int
    error: OSError
    forever: bool = False
    path: str = ""  # only calls for paths that contain this text count
    raised: int = 0

    def call(self, path: str) -> None:
        if self.path in path:
            self.nth -= 1
            if self.nth == 0 or (self.nth < 0 and self.forever):
                self.raised += 1
                raise OSError(self.error.errno, self.error.strerror, path)


def _in_pages(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return a row for each page, the last one padded with zeros."""
    if len(data) % PAGE_SIZE:
        padded = np.zeros(-(-len(data) // PAGE_SIZE) * PAGE_SIZE, np.uint8)
        padded[: len(data)] = data
        data = padded
    return data.view(np.uint64).reshape(-1, PAGE_SIZE // 8)


class SimulatedFile:
    """File with the contents that the process sees (`seen`) and the durable contents (`synced`).

    `clean` is what the kernel believes to be durable. It differs from `synced` only after a failed sync.
    """

    def __init__(self, data: bytes, *, is_durable: bool) -> None:
        self.seen: npt.NDArray[np.uint8] = np.frombuffer(bytearray(data), np.uint8)
        self.synced: npt.NDArray[np.uint8] = self.seen.copy() if is_durable else np.zeros_like(self.seen)
        self.clean = self.synced
        self.size_durable = is_durable
        self.reserved = self.used_pages()
        self.reserved_durably = self.reserved.copy()
        # Whether the kernel has an error of this file that no sync of it has reported yet.
        self.has_error = False

    def used_pages(self) -> npt.NDArray[np.bool_]:
        """Return which pages contain anything but zeros."""
        used: npt.NDArray[np.bool_] = _in_pages(self.seen).any(axis=1)
        return used

    def pages(self, start: int = 0, end: int | None = None) -> list[slice]:
        """Return the pages that overlap [start, end)."""
        end = len(self.seen) if end is None else min(end, len(self.seen))
        return [slice(at, at + PAGE_SIZE) for at in range(start // PAGE_SIZE * PAGE_SIZE, end, PAGE_SIZE)]

    def dirty_pages(self, start: int = 0, end: int | None = None) -> list[slice]:
        """Return the pages overlapping [start, end) that differ from the disk, as far as the kernel knows."""
        pages = self.pages(start, end)
        if not pages:
            return []
        part = slice(pages[0].start, pages[-1].stop)
        differs = (_in_pages(self.seen[part]) != _in_pages(self.clean[part])).any(axis=1)
        return [pages[number] for number in np.flatnonzero(differs)]

    def sync(self, start: int, end: int, *, all_pages: bool = False) -> None:
        for page in self.pages(start, end) if all_pages else self.dirty_pages(start, end):
            self.synced[page] = self.clean[page] = self.seen[page]
        self.size_durable = True
        self.reserved_durably |= self.reserved

    def fail_sync(self, rng: random.Random) -> None:
        """Make some dirty pages durable, and let the kernel consider all of them clean: later syncs skip the others."""
        if self.clean is self.synced:
            self.clean = self.synced.copy()
        for page in self.dirty_pages():
            if rng.random() < 0.5:
                self.synced[page] = self.seen[page]
            self.clean[page] = self.seen[page]

    def dirty_again(self, start: int, end: int) -> None:
        """Note that the pages were written to: the kernel no longer considers them clean."""
        for page in self.pages(start, end):
            self.clean[page] = self.synced[page]

    def write_back(self, rng: random.Random) -> None:
        """Make some dirty pages durable, as the kernel may do at any time."""
        for page in self.dirty_pages():
            if rng.random() < 0.5:
                self.synced[page] = self.clean[page] = self.seen[page]

    def after_power_cut(self, rng: random.Random) -> "SimulatedFile":
        if not self.size_durable and rng.random() < 0.4:
            return SimulatedFile(b"", is_durable=True)
        image = self.synced.copy()
        most = rng.choice((0.0, 0.4, 0.4, 1.0))  # the share of the dirty pages that are completely durable
        for page in self.dirty_pages():
            fate = rng.random()
            for at in range(page.start, min(page.stop, len(image)), SECTOR_SIZE):
                if fate < most or (fate < most + 0.3 and rng.random() < 0.5):
                    image[at : at + SECTOR_SIZE] = self.seen[at : at + SECTOR_SIZE]
        found = SimulatedFile(image.tobytes(), is_durable=True)
        found.reserved |= self.reserved_durably
        return found


class SimulatedRegion(MappedRegion):
    def __init__(self, disk: "PowerCutDisk", path: str, file: SimulatedFile) -> None:
        self._disk, self._path, self._file = disk, path, file
        self.array = file.seen
        self.view = memoryview(self.array)  # type: ignore[arg-type]

    def sync(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= len(self._file.seen), f"{self._path}: sync of {start}..{end}"
        try:
            self._disk.enter("sync", self._path)
        except OSError as error:
            if error.errno not in SHORTAGE:
                self._file.fail_sync(self._disk.rng)
            raise
        if self._file.has_error:
            self._file.has_error = False
            self._disk.failed_syncs += 1
            late = OSError(5, "Input/output error", self._path)
            self._disk.faults.append(Fault("sync", 0, late, raised=1))  # known to have failed, until `heal`
            raise late
        self._disk.note_written(self._path, self._file)
        # Another file may have this name by now; it must not be synced instead.
        if self._disk.names.get(self._path) is self._file:
            self._file.sync(start, end)

    def reserve(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= len(self._file.seen), f"{self._path}: room for {start}..{end}"
        self._disk.enter("reserve", self._path)
        self._disk.take_space(self._path, self._file, start, end)

    def warm(self, start: int, end: int) -> None:
        # All pages are written, even those that the kernel considers clean.
        self._disk.enter("warm", self._path)
        self._disk.take_space(self._path, self._file, start, end)
        self._file.sync(start, end, all_pages=True)

    def rewrite(self, start: int, end: int) -> None:
        super().rewrite(start, end)
        self._file.dirty_again(start, end)

    def clear(self, start: int) -> bool:
        used = super().clear(start)
        if used:
            self._file.dirty_again(start, len(self.array))
        return used

    def release_memory(self, start: int, end: int) -> None:
        assert start >= 0 and end <= len(self._file.seen), f"{self._path}: memory of {start}..{end}"


class SimulatedFileSystem(FileSystem):
    def __init__(self, disk: "PowerCutDisk", path: str) -> None:
        self._disk, self._path = disk, path

    def sync(self) -> None:
        self._disk.sync_all(self._path)


@cache
def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class PowerCutDisk(Disk):
    """Simulated disk: `names` and `dirs` are what the process sees, `durable_names` and `durable_dirs` the durable part."""

    def __init__(self, files: dict[str, bytes] | None = None, rng: random.Random | None = None) -> None:
        self.names = {path: SimulatedFile(data, is_durable=True) for path, data in (files or {}).items()}
        self.durable_names = dict(self.names)
        self.dirs = {""} | {directory for path in self.names for directory in _parents(path)}
        self.durable_dirs = set(self.dirs)
        # Random choices while the disk is in use: which pages a failed sync makes durable.
        self.rng = rng or random.Random(0)
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()
        self.failed_syncs = 0
        # Called before each sync of a file or directory; may raise OSError.
        self.before_sync: Callable[[str], None] = lambda path: None
        # How many more changes succeed before `Stopped` is raised; None: all.
        self.changes_left: int | None = None
        self.stopped = False
        self.capacity: int | None = None
        self.used = 0.0  # the share that `usage` returns while `capacity` is None
        self.unreserved: list[str] = []
        self.locked: set[str] = set()
        self.boot = 0
        self._synced_dirs: set[str] = set()  # as in FileDisk: directories whose names this process has synced
        self._renamed: dict[str, str] = {}  # new name -> old name, until the rename is durable
        self._deleted_dirs: set[str] = set()  # folders that were deleted since their parent was synced
        self._deleted: set[str] = set()  # durable names that were deleted, not yet durably

    # --- methods for tests -----------------------------------------------------------------------------------------

    def power_cut(self, rng: random.Random) -> "PowerCutDisk":
        """Return the disk as it may be found after a power cut."""
        disk = PowerCutDisk(rng=self.rng)
        disk.boot, disk.capacity, disk.used = self.boot + 1, self.capacity, self.used
        for directory in sorted(self.dirs | self.durable_dirs):
            both = directory in self.dirs and directory in self.durable_dirs
            survives = both or rng.random() < 0.5
            if directory == "" or (_parent(directory) in disk.dirs and survives):
                disk.dirs.add(directory)
        disk.durable_dirs = set(disk.dirs)
        fates: dict[str, SimulatedFile | None] = {}
        for path in sorted(self.names.keys() | self.durable_names.keys()):
            before, after = self.durable_names.get(path), self.names.get(path)
            fates[path] = rng.choice((before, after, None if path in self._deleted else after))
        for new, old in self._renamed.items():
            if new in fates and fates[new] is self.durable_names.get(new):
                fates[old] = self.durable_names.get(old)
            else:
                fates[old] = self.names.get(old)
        images: dict[int, SimulatedFile] = {}
        for path, file in sorted(fates.items()):
            if file is not None and _parent(path) in disk.dirs:
                if id(file) not in images:  # two names of one file have the same contents
                    images[id(file)] = file.after_power_cut(rng)
                disk.names[path] = images[id(file)]
        disk.durable_names = dict(disk.names)
        return disk

    def killed(self) -> "PowerCutDisk":
        """Return the disk for the next process, after kill -9: the page cache is kept, and is still not synced."""
        disk = PowerCutDisk(rng=self.rng)
        disk.names, disk.durable_names = dict(self.names), dict(self.durable_names)
        disk.dirs, disk.durable_dirs = set(self.dirs), set(self.durable_dirs)
        disk.boot, disk.capacity, disk.used = self.boot, self.capacity, self.used
        disk._renamed, disk._deleted, disk._deleted_dirs = dict(self._renamed), set(self._deleted), set(self._deleted_dirs)
        return disk

    def write_back(self, rng: random.Random) -> None:
        """Make dirty pages of some files durable, as the kernel may do without a sync."""
        for _, file in sorted(self.names.items()):
            if rng.random() < 0.3:
                file.write_back(rng)

    def synced_bytes(self, path: str, start: int, end: int) -> bytes | None:
        """Return durable bytes of a file; None if its name or its length is not durable."""
        file = self.durable_names.get(path)
        directories = set(_parents(path))
        if file is None or not file.size_durable or not directories <= self.durable_dirs:
            return None
        return file.synced[start:end].tobytes()

    def contents(self) -> dict[str, bytes]:
        """Return path -> contents of all files, as the process sees them."""
        return {path: file.seen.tobytes() for path, file in sorted(self.names.items())}

    def heal(self) -> None:
        """Remove all faults and the limit of the capacity."""
        self.faults.clear()
        self.capacity = None

    # --- faults and space ------------------------------------------------------------------------------------------

    def enter(self, method: str, path: str) -> None:
        """Begin a call of `method`: count it, and raise Stopped or a planned error."""
        if self.stopped:
            raise Stopped
        self.calls[method] += 1
        if method in CHANGES and self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                self.stopped = True
                raise Stopped
        if method in ("sync", "sync_all", "sync_dir"):
            self.before_sync(path)
        for fault in self.faults:
            if fault.method == method:
                try:
                    fault.call(path)
                except OSError:
                    self.failed_syncs += method in SYNCS
                    raise

    @property
    def space_used(self) -> int:
        return (
            sum(int(file.reserved.sum()) for file in {id(file): file for file in self.names.values()}.values()) * PAGE_SIZE
        )

    def take_space(self, path: str, file: SimulatedFile, start: int, end: int) -> None:
        """Reserve the pages of [start, end), or raise ENOSPC and reserve none."""
        pages = slice(start // PAGE_SIZE, -(-end // PAGE_SIZE))
        missing = int((~file.reserved[pages]).sum()) * PAGE_SIZE
        if self.capacity is not None and self.space_used + missing > self.capacity:
            raise OSError(28, "No space left on device", path)
        file.reserved[pages] = True

    def note_written(self, path: str, file: SimulatedFile) -> None:
        holes = file.used_pages() & ~file.reserved
        if holes.any():
            self.unreserved.append(f"{path}: page {int(holes.argmax())} written, but nobody has reserved room for it")
            file.reserved |= holes

    def note_all_written(self) -> None:
        """Record in `unreserved` the pages of all files that were written without reserved space."""
        for path, file in sorted(self.names.items()):
            self.note_written(path, file)

    # --- Disk: files -----------------------------------------------------------------------------------------------

    def _file(self, path: str) -> SimulatedFile:
        if path not in self.names:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self.names[path]

    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        self.enter("map", path)
        if create:
            self.make_dirs(_parent(path))
            if path not in self.names or not len(self.names[path].seen):
                self.enter("create", path)
                self.names[path] = SimulatedFile(bytes(size), is_durable=False)
        file = self._file(path)
        if len(file.seen) != size:
            raise OSError(f"{path} has {len(file.seen)} bytes, {size} expected")
        return SimulatedRegion(self, path, file)

    def read_file(self, path: str) -> bytes:
        self.enter("read_file", path)
        return self._file(path).seen.tobytes()

    def read_range(self, path: str, start: int, size: int) -> bytes:
        self.enter("read_range", path)
        return self._file(path).seen[start : start + size].tobytes()

    def write_file(self, path: str, data: bytes) -> None:
        self.enter("write_file", path)
        if _parent(path) not in self.dirs:
            raise FileNotFoundError(2, "No such file or directory", path)
        self.names[path] = self._written(path, data)

    def _written(self, path: str, data: bytes) -> SimulatedFile:
        file = SimulatedFile(data, is_durable=False)
        file.reserved[:] = False
        self.names[path] = SimulatedFile(b"", is_durable=False)  # the contents if there is no space for the data
        self.take_space(path, file, 0, len(data))
        return file

    def replace_file(self, path: str, data: bytes) -> None:
        # The steps of FileDisk; the machine may stop before each of them.
        new, old = path + ".tmp", path + ".bak"
        self.make_dirs(_parent(path))
        self.enter("replace_file", path)
        file = self.names[new] = self._written(new, data)
        self.enter("sync", new)
        file.sync(0, len(data))
        if path in self.names:
            if old in self.names:
                self.delete(old)
            self.enter("link", old)
            self.names[old] = self.names[path]
        self.rename(new, path)
        self.sync_dir(_parent(path))

    def delete(self, path: str) -> None:
        self._file(path)
        self.enter("delete", path)
        del self.names[path]
        self._renamed.pop(path, None)
        if path in self.durable_names:
            self._deleted.add(path)

    def rename(self, old: str, new: str) -> None:
        file = self._file(old)
        self.enter("rename", old)
        self.names[new] = file
        del self.names[old]
        self._renamed[new] = old

    def size(self, path: str) -> int:
        self.enter("size", path)
        return len(self._file(path).seen)

    def mtime_ms(self, path: str) -> int:
        self.enter("mtime_ms", path)
        self._file(path)
        return 0

    # --- Disk: directories -----------------------------------------------------------------------------------------

    def delete_tree(self, path: str) -> None:
        self.enter("delete_tree", path)
        if path not in self.dirs:
            raise FileNotFoundError(2, "No such file or directory", path)
        for name in sorted(name for name in self.names if name.startswith(path + "/")):
            self.enter("delete", name)
            del self.names[name]
            if name in self.durable_names:
                self._deleted.add(name)
        self._deleted_dirs.add(path)
        self.dirs -= {name for name in self.dirs if name == path or name.startswith(path + "/")}

    def make_dirs(self, path: str) -> None:
        for directory in (*_parents(path), path):
            if directory not in self.dirs:
                self.enter("make_dirs", directory)
                self.dirs.add(directory)
                self._synced_dirs.discard(directory)

    def listdir(self, path: str) -> list[str]:
        self.enter("listdir", path)
        start = len(path) + 1
        return sorted({name[start:] for name in self.names.keys() | self.dirs if name and _parent(name) == path})

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.dirs

    def is_dir(self, path: str) -> bool:
        return path in self.dirs

    def sync_dir(self, path: str) -> None:
        self.enter("sync_dir", path)
        if path not in self.dirs:
            return
        self._sync_one_dir(path)
        while path and path not in self._synced_dirs:
            self._sync_one_dir(_parent(path))
            self._synced_dirs.add(path)
            path = _parent(path)

    def file_system(self, path: str) -> FileSystem:
        return SimulatedFileSystem(self, path)

    def sync_all(self, path: str) -> None:
        """Make everything durable. In a sync that fails some files may have an error, which their own next sync reports."""
        files = {id(file): file for file in self.names.values()}.values()
        try:
            self.enter("sync_all", path)
        except OSError as error:
            for file in files if error.errno not in SHORTAGE else ():
                if self.rng.random() < 0.2:
                    file.fail_sync(self.rng)
                    file.has_error = True
            raise
        self.note_all_written()
        for file in files:
            file.sync(0, len(file.seen))
        for directory in sorted(self.dirs | self.durable_dirs):
            self._sync_one_dir(directory)

    def _sync_one_dir(self, path: str) -> None:
        for name in [name for name in self.durable_names if _parent(name) == path and name not in self.names]:
            del self.durable_names[name]
        for name in [name for name in self.names if _parent(name) == path]:
            self.durable_names[name] = self.names[name]
        for directory in [name for name in self.dirs ^ self.durable_dirs if name and _parent(name) == path]:
            self.durable_dirs ^= {directory}
        for directory in [name for name in self._deleted_dirs if _parent(name) == path]:
            self._deleted_dirs.remove(directory)
            self._forget_below(directory)
        self._renamed = {new: old for new, old in self._renamed.items() if _parent(new) != path}
        self._deleted = {name for name in self._deleted if _parent(name) != path}

    def _forget_below(self, directory: str) -> None:
        """Remove the durable contents of a folder whose deletion is durable; there may be a new folder of the same name."""
        old = [name for name in self.durable_names if name.startswith(directory + "/")]
        for name in [name for name in old if self.durable_names[name] is not self.names.get(name)]:
            del self.durable_names[name]
        self.durable_dirs -= {name for name in self.durable_dirs - self.dirs if name.startswith(directory + "/")}

    # --- Disk: other methods ---------------------------------------------------------------------------------------

    def lock(self, path: str) -> ExitStack:
        self.make_dirs(_parent(path))
        self.enter("lock", path)
        if path in self.locked:
            raise BlockingIOError(f"{path} is locked")
        if not self.exists(path):
            self.names[path] = self._written(path, b"lock")
        self.locked.add(path)
        lock = ExitStack()
        lock.callback(self.locked.discard, path)
        return lock

    def usage(self, path: str) -> float:
        self.enter("usage", path)
        return self.used if self.capacity is None else self.space_used / self.capacity

    def boot_mark(self, path: str) -> str:
        return f"boot {self.boot}"


def _parents(path: str) -> list[str]:
    """Return the parent directories, from the top: "/store/config/x" -> ["", "/store", "/store/config"]."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]

"""MemoryDisk: a `Disk` in memory, for temporary stores that leave nothing on the machine's disks."""

import mmap
import time
from contextlib import ExitStack

import numpy as np

from pocketmq.store.disk.disk import Disk, MappedRegion


class _MemoryFile:
    """Contents of a file in anonymous pages, which use no memory until they are accessed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.mtime_ms = time.time_ns() // 1_000_000


class _MemoryRegion(MappedRegion):
    def __init__(self, file: _MemoryFile) -> None:
        self.array = np.frombuffer(file.pages, np.uint8, file.size)
        self.view = memoryview(self.array)  # type: ignore[arg-type]  # as in store.disk

    def sync(self, start: int, end: int) -> None:
        pass


class MemoryDisk(Disk):
    """In-memory file system. Directories exist only through the files in them, as in an object store."""

    def __init__(self) -> None:
        self._files: dict[str, _MemoryFile] = {}
        self._locked: set[str] = set()

    def paths(self) -> list[str]:
        """Return the sorted paths of all files."""
        return sorted(self._files)

    def _file(self, path: str) -> _MemoryFile:
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(2, "No such file in memory", path)
        return file

    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        if create and path not in self._files:
            self._files[path] = _MemoryFile(size)
        file = self._file(path)
        if file.size != size:
            raise OSError(f"{path} has {file.size} bytes, {size} expected")
        return _MemoryRegion(file)

    def read_file(self, path: str) -> bytes:
        file = self._file(path)
        return file.pages[: file.size]

    def read_range(self, path: str, start: int, size: int) -> bytes:
        file = self._file(path)
        return file.pages[start : min(start + size, file.size)]

    def boot_mark(self, path: str) -> str:
        return "memory"

    def write_file(self, path: str, data: bytes) -> None:
        file = _MemoryFile(len(data))
        file.pages[: len(data)] = data
        self._files[path] = file

    def replace_file(self, path: str, data: bytes) -> None:
        if path in self._files:
            self._files[path + ".bak"] = self._files[path]
        self.write_file(path, data)

    def delete(self, path: str) -> None:
        self._file(path)
        del self._files[path]

    def delete_tree(self, path: str) -> None:
        for name in [name for name in self._files if name.startswith(path + "/")]:
            del self._files[name]

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._file(old)
        del self._files[old]

    def make_dirs(self, path: str) -> None:
        pass

    def listdir(self, path: str) -> list[str]:
        start = len(path) + 1
        return sorted({name[start:].split("/", 1)[0] for name in self._files if name.startswith(path + "/")})

    def exists(self, path: str) -> bool:
        return path in self._files or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        return any(name.startswith(path + "/") for name in self._files)

    def size(self, path: str) -> int:
        return self._file(path).size

    def mtime_ms(self, path: str) -> int:
        return self._file(path).mtime_ms

    def sync_dir(self, path: str) -> None:
        pass

    def lock(self, path: str) -> ExitStack:
        if path in self._locked:
            raise BlockingIOError(f"{path} is locked")
        self._locked.add(path)
        lock = ExitStack()
        lock.callback(self._locked.discard, path)
        return lock

    def usage(self, path: str) -> float:
        return 0.0

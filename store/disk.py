"""The one door to files.

Everything the store does to a file system goes through a `Disk`, so that tests can put a simulated one underneath which
forgets what was not synced. Two promises of a real disk matter above and are all a caller may rely on:

* bytes of a mapped file are durable once `sync` of a range that holds them has returned;
* a created, renamed or deleted *name* is durable once `sync_dir` of its directory has returned (the names of directories
  that were made on the way there included).
"""

import errno
import fcntl
import mmap
import os
import shutil
from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt


class StoreError(Exception):
    """The store cannot be opened as it lies on the disk; the text says which file and what to do."""


class MappedRegion(ABC):
    """A whole file in memory. `view` is for reading and writing at speed, `array` for looking at many bytes at once."""

    view: memoryview
    array: npt.NDArray[np.uint8]

    @abstractmethod
    def sync(self, start: int, end: int) -> None:
        """Make bytes [start, end) durable. May be called from another thread, and does not hold the GIL.

        Raises OSError; afterwards nothing is known about what has reached the disk.
        """

    def clear(self, start: int) -> bool:
        """Zero everything from `start` to the end of the file; whether there was anything else."""
        cleared = False
        block_size = 1 << 20
        for position in range(start, len(self.array), block_size):
            block = self.array[position : position + block_size]
            # Looked at first: writing zeros over a hole would give it pages.
            if block.any():
                block[:] = 0
                cleared = True
        return cleared

    def close(self) -> None:
        """Give up the mapping. Slices of `view` that others still hold stay readable and keep the memory until they go."""
        self.view.release()
        del self.array


class DiskLock(ABC):
    """An exclusive lock on a file, held until `close` or the end of the process."""

    @abstractmethod
    def close(self) -> None: ...


class Disk(ABC):
    """File operations on text paths. All raise OSError."""

    @abstractmethod
    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        """Map a file of exactly `size` bytes. `create` makes it first, sparse and zero, with the directories above.

        `random_access` is a hint: neighbours of what is touched are not worth reading ahead.
        """

    @abstractmethod
    def read_file(self, path: str) -> bytes: ...

    @abstractmethod
    def write_file(self, path: str, data: bytes) -> None:
        """Write a file in place; neither atomic nor durable. For marks such as `abort`."""

    @abstractmethod
    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file atomically and durably: after a crash it holds the old bytes or the new. The old stay as `.bak`."""

    @abstractmethod
    def delete(self, path: str) -> None: ...

    @abstractmethod
    def delete_tree(self, path: str) -> None:
        """Delete a directory with all that is in it."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    @abstractmethod
    def make_dirs(self, path: str) -> None: ...

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when there is none."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def is_dir(self, path: str) -> bool: ...

    @abstractmethod
    def size(self, path: str) -> int: ...

    @abstractmethod
    def mtime_ms(self, path: str) -> int: ...

    @abstractmethod
    def sync_dir(self, path: str) -> None: ...

    @abstractmethod
    def lock(self, path: str) -> DiskLock:
        """Lock exclusively, making the file if needed. Raises BlockingIOError when somebody else holds it."""

    @abstractmethod
    def usage(self, path: str) -> float:
        """Used share, 0..1, of the file system that holds `path` (or will hold it)."""


class _FileRegion(MappedRegion):
    # Python's mmap keeps a descriptor of its own and does not tell it. A second one a file, only to sync with, would be
    # thousands for thousands of queues: what needs one opens the path for the moment (5 us). An error of the kernel's own
    # write-back is not lost by that: until somebody was told of it, it waits for the next who opens the file.

    def __init__(self, path: str, size: int, random_access: bool) -> None:
        self._path = path
        with open(path, "r+b", buffering=0) as file:
            pages = mmap.mmap(file.fileno(), size)
        if random_access:
            # The first touch of a sparse file of 6 MB costs 13 us so, and 2 to 20 ms of reading ahead without. Not for the
            # log: going through it costs 0.6 us a record with reading ahead, 2.1 without.
            pages.madvise(mmap.MADV_RANDOM)
        self.array = np.frombuffer(pages, np.uint8)
        self.view = memoryview(self.array)  # type: ignore[arg-type]  # an ndarray is a buffer; the stubs say so from 3.12 on

    def sync(self, start: int, end: int) -> None:
        # The kernel writes all dirty pages of the file; a mapped file is written in order, so that is the range asked for.
        # Not mmap.flush, which holds the GIL for the whole of its msync (measured on 3.11: the loop stood still for 130 ms;
        # with fdatasync at most 5).
        try:
            descriptor = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return  # deleted meanwhile by the other thread
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def clear(self, start: int) -> bool:
        # As the base class does, but without a look at the holes: a new file of 1 GiB is nothing else.
        end, cleared = len(self.array), False
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            while start < end:
                start = _seek_data(descriptor, start, end)
                stop = os.lseek(descriptor, start, os.SEEK_HOLE) if start < end else end
                if self.array[start:stop].any():
                    self.array[start:stop] = 0
                    cleared = True
                start = stop
        finally:
            os.close(descriptor)
        return cleared


def _seek_data(descriptor: int, start: int, end: int) -> int:
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise


class _FileLock(DiskLock):
    # POSIX record locks do not exclude within one process, so paths locked here are remembered.
    _paths: set[str] = set()

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        if self._path in self._paths:
            raise BlockingIOError(f"{path} is locked by this process")
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115
        try:
            # Byte 0, as Java's FileChannel.tryLock(0, 1) in BrokerController does: the two brokers see each other's lock.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            if os.fstat(self._file.fileno()).st_size == 0:
                self._file.write(b"lock")
        except OSError:
            self._file.close()
            raise
        self._paths.add(self._path)

    def close(self) -> None:
        self._paths.discard(self._path)
        self._file.close()


class FileDisk(Disk):
    """The machine's file systems."""

    def __init__(self) -> None:
        # Directories made here whose own name in the directory above is not yet durable.
        self._new_dirs: set[str] = set()

    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        if create:
            self.make_dirs(os.path.dirname(path))
            with open(path, "ab") as file:
                if file.tell() == 0:
                    file.truncate(size)
        if (found := os.path.getsize(path)) != size:
            raise OSError(f"{path} has {found} bytes, {size} expected")
        return _FileRegion(path, size, random_access)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_file(self, path: str, data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data)

    def replace_file(self, path: str, data: bytes) -> None:
        new, old = path + ".tmp", path + ".bak"
        self.make_dirs(os.path.dirname(path))
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            # A hard link, so that there is no moment without a file under the real name.
            if os.path.exists(old):
                os.unlink(old)
            os.link(path, old)
        os.replace(new, path)
        self.sync_dir(os.path.dirname(path))

    def delete(self, path: str) -> None:
        os.unlink(path)

    def delete_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def make_dirs(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for new in reversed(missing):
            os.makedirs(new, exist_ok=True)
            self._new_dirs.add(new)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def mtime_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_dir(self, path: str) -> None:
        self._sync_one_dir(path)
        while path in self._new_dirs:
            above = os.path.dirname(path)
            self._sync_one_dir(above)
            self._new_dirs.discard(path)
            path = above

    def _sync_one_dir(self, path: str) -> None:
        try:
            descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return  # deleted meanwhile by the other thread
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> DiskLock:
        self.make_dirs(os.path.dirname(path))
        return _FileLock(path)

    def usage(self, path: str) -> float:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        stat = os.statvfs(path)
        used = stat.f_blocks - stat.f_bfree
        # What root keeps for itself counts as neither used nor free, as in `df`.
        return used / (used + stat.f_bavail) if used + stat.f_bavail else 0.0

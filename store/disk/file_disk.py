"""The machine's file systems as a `disk.Disk`: what Linux does about mapped files, and how it is told."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import shutil
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk import disk_holes
from pocketmq.store.disk.disk import NO_ROOM, Disk, DiskLock, MappedRegion
from pocketmq.store.disk.spare_descriptors import keep_spare, opened, sparing

_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; mmap does not name it
_MLOCK_ONFAULT: Final = 1
# The C library's calls by address: mmap's own madvise holds the GIL.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _FileRegion(MappedRegion):
    # No descriptor is kept: thousands of queues would need thousands, and a process has few when it has many connections.
    # A sync goes by the mapping; what needs a descriptor opens the path for the moment (5 us), with a spare one if need be.

    def __init__(self, path: str, size: int, random_access: bool, read_only: bool) -> None:
        self._path = path
        with opened(path, os.O_RDONLY if read_only else os.O_RDWR) as descriptor:
            # Plain view: slicing a memmap makes another memmap, at many times the cost of an array.
            self.array = disk_holes.map_file(descriptor, size, read_only).view(np.ndarray)
            if random_access:
                # The first touch of a sparse file of 6 MB costs 13 us so, and 2 to 20 ms of reading ahead without. Not for
                # the log: going through it costs 0.6 us a record with reading ahead, 2.1 without.
                self._advise(0, size, mmap.MADV_RANDOM)
            self._has_cover = not read_only and disk_holes.looking_takes_room(descriptor)
            if self._has_cover:
                disk_holes.cover(descriptor, self.array.ctypes.data, size)
        self._is_random = random_access
        # Where the kernel was asked not to read ahead.
        self._alone = 0, 0
        self._is_locked = False
        # Of what is written to by `write`.
        self._descriptor = -1
        self.view = memoryview(self.array)  # type: ignore[arg-type]  # an ndarray is a buffer; the stubs say so from 3.12 on

    def sync(self, start: int, end: int) -> None:
        # By msync while the file is mapped, which needs no descriptor. Not by mmap.flush, which holds the GIL all the while
        # (3.11: the loop stood still for 130 ms).
        array = getattr(self, "array", None)
        if array is not None:
            start -= start % mmap.PAGESIZE
            if start < end:
                disk_holes.sync(array.ctypes.data + start, end - start, self._path)
            return
        with suppress(FileNotFoundError), opened(self._path, os.O_RDWR) as descriptor:  # deleted by the other thread
            os.fdatasync(descriptor)

    def write(self, start: int, data: bytes) -> None:
        """By a call, not through the mapping, where the first touch of each page is a fault, and its sync another one.

        Records of 1.2 KB, 8 at once: 0.8 us each instead of 1.5, 32 at once 0.5; one at a time 2.5 instead of 2.3.
        """
        if self._is_locked:  # only what is touched by way of the mapping stays in memory
            super().write(start, data)
            return
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            done = os.pwrite(self._descriptor, data, start)
        except OSError:
            done = 0
        # Room is reserved, so what fails now is the device: as with every page of a mapping then, the process ends.
        if done < len(data):
            super().write(start + done, data[done:])

    def end_writing(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        self.end_writing()
        super().close()

    def reserve(self, start: int, end: int) -> None:
        with opened(self._path, os.O_RDWR) as descriptor:
            has_fallocate = True
            try:
                # A file system that knows no fallocate gets a byte written into each block by the C library.
                os.posix_fallocate(descriptor, start, end - start)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise OSError(error.errno, error.strerror, self._path) from None
                has_fallocate = False
            if self._has_cover:
                self._uncover(descriptor, start, end)
            if not has_fallocate:
                self._populate(start, end)
        if not self._is_random:
            self._touch_alone(start, end)

    def _touch_alone(self, start: int, end: int) -> None:
        """Have the first touch of a page in a range, in which nothing is written yet, bring no others along.

        Reading ahead makes zeros there, on one machine of 8 MB at a time (read_ahead_kb): for that the loop stood still for
        13 to 30 ms, every 8 MB. Reading ahead is useful again when the range is full.
        """
        with suppress(OSError):  # too many mappings: it is nothing but advice
            self._advise(*self._alone, mmap.MADV_NORMAL)
            self._advise(start, end, mmap.MADV_RANDOM)
        self._alone = start, end

    def _uncover(self, descriptor: int, start: int, end: int) -> None:
        # Closed meanwhile, or the file unmapped: the next mapping is not to take this range for a hole.
        array = getattr(self, "array", None)
        disk_holes.uncover(descriptor, None if array is None else array.ctypes.data, start, end)
        if self._is_locked and array is not None:
            self._lock(array[start:end])

    def _populate(self, start: int, end: int) -> None:
        """Have the pages as if each had been written to, but unchanged. Raises OSError where a write would SIGBUS."""
        try:
            self._advise(start, end, _MADV_POPULATE_WRITE)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path) from None
            if error.errno != errno.EINVAL:  # an old kernel: the best that can be done is done
                raise

    def warm(self, start: int, end: int) -> None:
        # Not written to: should the log go over to this file meanwhile, its records are safe.
        self.reserve(start, end)
        self._populate(start, end)
        self.sync(start, end)
        self.release_memory(start, end)

    def release_memory(self, start: int, end: int) -> None:
        try:
            self._advise(start, end, mmap.MADV_DONTNEED)
        except OSError as error:
            if error.errno != errno.EINVAL:  # locked
                raise

    def _advise(self, start: int, end: int, advice: int) -> None:
        # Whoever holds the array holds the mapping: another thread may close the region meanwhile. Nothing to do then.
        array = getattr(self, "array", None)
        if array is not None and start < end:
            start -= start % mmap.PAGESIZE
            address = ctypes.c_void_p(array.ctypes.data + start)
            if _LIBC.madvise(address, ctypes.c_size_t(end - start), advice) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"madvise {advice}: {os.strerror(code)}", self._path)

    def lock_memory(self, locked: bool = True) -> None:
        # On fault: the file is sparse, and pages that nobody has written to need not be in memory at all.
        self._lock(self.array, locked)
        self._is_locked = locked

    def _lock(self, array: npt.NDArray[np.uint8], locked: bool = True) -> None:
        address, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(array))
        done = _LIBC.mlock2(address, size, _MLOCK_ONFAULT) if locked else _LIBC.munlock(address, size)
        if done != 0:
            code, limit = ctypes.get_errno(), resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
            raise OSError(
                code,
                f"cannot lock {len(array)} bytes in memory: {os.strerror(code)}; RLIMIT_MEMLOCK allows {limit} bytes in all "
                "(ulimit -l, LimitMEMLOCK of systemd)",
                self._path,
            )

    def clear(self, start: int) -> bool:
        # As the base class does, but without a look at the holes: a new file of 1 GiB is nothing else.
        end, cleared = len(self.array), False
        with opened(self._path, os.O_RDONLY) as descriptor:
            while start < end:
                start = disk_holes.next_data(descriptor, start, end)
                stop = os.lseek(descriptor, start, os.SEEK_HOLE) if start < end else end
                if self.array[start:stop].any():
                    self.array[start:stop] = 0
                    cleared = True
                start = stop
        return cleared

    def next_data(self, start: int, end: int) -> int:
        with opened(self._path, os.O_RDONLY) as descriptor:
            return disk_holes.next_data(descriptor, start, end)


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
        # Directories whose own name in the directory above was synced by this process. Of others that is not known: they may
        # have been made by one that was killed.
        self._durable_dirs: set[str] = set()
        keep_spare()

    def map(
        self, path: str, size: int, *, create: bool = False, random_access: bool = False, read_only: bool = False
    ) -> MappedRegion:
        if create:
            self.make_dirs(os.path.dirname(path))
            with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
                if os.fstat(descriptor).st_size == 0:
                    os.ftruncate(descriptor, size)
        if (found := os.path.getsize(path)) != size:
            raise OSError(f"{path} has {found} bytes, {size} expected")
        return _FileRegion(path, size, random_access, read_only)

    def read_file(self, path: str) -> bytes:
        with opened(path, os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return file.read()

    def read_range(self, path: str, start: int, size: int) -> bytes:
        with opened(path, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, size, start)

    def boot_mark(self, path: str) -> str:
        path = _nearest(path)
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                boot = file.read().strip()
            descriptor = os.open(path, os.O_PATH)
            try:
                with open(f"/proc/self/fdinfo/{descriptor}") as file:
                    mount = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
            finally:
                os.close(descriptor)
        except (OSError, StopIteration):
            return ""
        return f"{boot} mount {mount} device {os.stat(path).st_dev}" if boot else ""

    def write_file(self, path: str, data: bytes) -> None:
        _write(path, data)

    def replace_file(self, path: str, data: bytes) -> None:
        new, old = path + ".tmp", path + ".bak"
        self.make_dirs(os.path.dirname(path))
        try:
            _write(new, data, sync=True)
        except OSError as error:
            with suppress(FileNotFoundError):
                os.unlink(new)
            if error.errno not in NO_ROOM or not (os.path.exists(path) and os.path.exists(old)):
                raise
            # The file itself is whole: on a full disk its predecessor makes room for its successor.
            os.unlink(old)
            _write(new, data, sync=True)
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
        sparing(lambda: shutil.rmtree(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def make_dirs(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for new in reversed(missing):
            os.makedirs(new, exist_ok=True)
            self._durable_dirs.discard(new)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(sparing(lambda: os.listdir(path)))
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
        while path and path not in self._durable_dirs and not os.path.ismount(path):
            above = os.path.dirname(path)
            # Whoever may not even look into a directory has not made one in it.
            with suppress(PermissionError):
                self._sync_one_dir(above)
            self._durable_dirs.add(path)
            path = above

    def _sync_one_dir(self, path: str) -> None:
        # One that is not there was deleted meanwhile by the other thread.
        with suppress(FileNotFoundError), opened(path or ".", os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def lock(self, path: str) -> DiskLock:
        self.make_dirs(os.path.dirname(path))
        return _FileLock(path)

    def usage(self, path: str) -> float:
        stat = os.statvfs(_nearest(path))
        used = stat.f_blocks - stat.f_bfree
        # What root keeps for itself counts as neither used nor free, as in `df`.
        return used / (used + stat.f_bavail) if used + stat.f_bavail else 0.0


def _write(path: str, data: bytes, *, sync: bool = False) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(path, flags) as descriptor, open(descriptor, "wb", closefd=False) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
    except OSError as error:
        # Those of writes do not tell the file by themselves.
        raise OSError(error.errno, error.strerror, path) from None


def _nearest(path: str) -> str:
    """`path`, or the nearest directory above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path

"""FileDisk: the `Disk` on the machine's file systems, with the Linux calls for mapped files."""

import ctypes
import errno
import fcntl
import mmap
import os
import re
import resource
import shutil
from contextlib import ExitStack, suppress
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk import disk_holes
from pocketmq.store.disk.disk import NO_ROOM, Disk, FileSystem, MappedRegion
from pocketmq.store.disk.spare_descriptors import keep_spare, opened, sparing

PRIVATE_MODE: Final = 0o600
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; mmap does not name it
_MLOCK_ONFAULT: Final = 1
# ext2 to ext4, XFS, btrfs, F2FS and tmpfs write everything in syncfs(2); overlays and network file systems may not.
_SYNCED_AS_A_WHOLE: Final = (0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, disk_holes.TMPFS_MAGIC)
# The first Linux whose syncfs reports errors of earlier writes.
_SYNCFS_REPORTS: Final = (5, 8)
# C library functions, because mmap.madvise of Python holds the GIL.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class _FileRegion(MappedRegion):
    # Keeps no file descriptor: thousands of queues would need thousands, and connections need them, too. `sync` uses the
    # mapping; other calls open the path for a moment, if necessary with a spare descriptor.

    def __init__(self, path: str, size: int, random_access: bool) -> None:
        self._path = path
        with opened(path, os.O_RDWR) as descriptor:
            # A plain array: slicing a memmap creates another memmap, which is far slower.
            self.array = disk_holes.map_file(descriptor, size).view(np.ndarray)
            if random_access:
                # The first access to a sparse file is far cheaper without reading ahead. Not for the log: sequential reading
                # of its records is faster with it.
                self._advise(0, size, mmap.MADV_RANDOM)
            self._has_cover = disk_holes.looking_takes_room(descriptor)
            if self._has_cover:
                disk_holes.cover(descriptor, self.array.ctypes.data, size)
        self._is_random = random_access
        # Range without reading ahead (MADV_RANDOM).
        self._random_range = 0, 0
        self._is_locked = False
        # Descriptor used by `write`, or -1.
        self._descriptor = -1
        self.view = memoryview(self.array)  # type: ignore[arg-type]  # an ndarray is a buffer; the stubs say so from 3.12 on

    def sync(self, start: int, end: int) -> None:
        # msync needs no descriptor while the file is mapped. mmap.flush of Python 3.11 would hold the GIL and block the
        # loop.
        array = getattr(self, "array", None)
        if array is not None:
            start -= start % mmap.PAGESIZE
            if start < end:
                disk_holes.sync(array.ctypes.data + start, end - start, self._path)
            return
        with suppress(FileNotFoundError), opened(self._path, os.O_RDWR) as descriptor:  # deleted by another thread
            os.fdatasync(descriptor)

    def write(self, start: int, data: bytes | memoryview) -> None:
        """Write with pwrite rather than through the mapping, where each page faults at its first access and after a sync."""
        if self._is_locked:  # mlock only keeps pages that are accessed through the mapping
            super().write(start, data)
            return
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            done = os.pwrite(self._descriptor, data, start)
        except OSError:
            done = 0
        # Space is reserved, so only a device error is left. Writing through the mapping then kills the process (SIGBUS).
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
                # On file systems without fallocate the C library writes a byte into each block.
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
            self._disable_read_ahead(start, end)

    def _disable_read_ahead(self, start: int, end: int) -> None:
        """Disable reading ahead in the range that is written next, and enable it in the range before.

        In a range without data the kernel would create zero pages ahead (read_ahead_kb) and block the loop meanwhile.
        """
        with suppress(OSError):  # too many mappings; the advice is optional
            self._advise(*self._random_range, mmap.MADV_NORMAL)
            self._advise(start, end, mmap.MADV_RANDOM)
        self._random_range = start, end

    def show_reserved(self, start: int, end: int) -> None:
        if self._has_cover:
            with opened(self._path, os.O_RDWR) as descriptor:
                self._uncover(descriptor, start, end)

    def _uncover(self, descriptor: int, start: int, end: int) -> None:
        array = getattr(self, "array", None)
        if array is None:  # closed by another thread
            return
        disk_holes.uncover(descriptor, array.ctypes.data, start, end)
        if self._is_locked:
            self._lock(array[start:end])

    def _populate(self, start: int, end: int) -> None:
        """Fault in the pages for writing without changing them. Raises OSError if a write would cause SIGBUS."""
        try:
            self._advise(start, end, _MADV_POPULATE_WRITE)
        except OSError as error:
            if error.errno == errno.EFAULT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path) from None
            if error.errno != errno.EINVAL:  # older kernels do not support it
                raise

    def warm(self, start: int, end: int) -> None:
        # The bytes are never written: the log may switch to this file and write records at the same time.
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
        # The reference to the array keeps the mapping, as another thread may close the region. After a close do nothing.
        array = getattr(self, "array", None)
        if array is not None and start < end:
            start -= start % mmap.PAGESIZE
            address = ctypes.c_void_p(array.ctypes.data + start)
            if _LIBC.madvise(address, ctypes.c_size_t(end - start), advice) != 0:
                code = ctypes.get_errno()
                raise OSError(code, f"madvise {advice}: {os.strerror(code)}", self._path)

    def lock_memory(self, locked: bool = True) -> None:
        # MLOCK_ONFAULT: the file is sparse, and pages that were never written need not be in memory.
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
        # Like the base class, but skips the holes, which a new file of 1 GiB consists of.
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


class _FileSystem(FileSystem):
    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor, self._path = descriptor, path

    def sync(self) -> None:
        if _LIBC.syncfs(self._descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"syncfs: {os.strerror(code)}", self._path)

    def __del__(self) -> None:
        os.close(self._descriptor)


class FileDisk(Disk):
    """The machine's file systems."""

    # POSIX record locks do not exclude within one process, so the locked paths are also kept here.
    _locked: Final[set[str]] = set()

    def __init__(self) -> None:
        # Directories whose entry in the parent directory was synced by this process. Others may have been created by a
        # process that was killed before the sync.
        self._durable_dirs: set[str] = set()
        self._private: set[str] = set()
        keep_spare()

    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        if create:
            self.make_dirs(os.path.dirname(path))
            with opened(path, os.O_WRONLY | os.O_CREAT) as descriptor:
                if os.fstat(descriptor).st_size == 0:
                    os.ftruncate(descriptor, size)
        if (found := os.path.getsize(path)) != size:
            raise OSError(f"{path} has {found} bytes, {size} expected")
        return _FileRegion(path, size, random_access)

    def read_file(self, path: str) -> bytes:
        with opened(path, os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return file.read()

    def read_range(self, path: str, start: int, size: int) -> bytes:
        with opened(path, os.O_RDONLY) as descriptor:
            return os.pread(descriptor, size, start)

    def write_range(self, path: str, start: int, data: bytes) -> None:
        with opened(path, os.O_WRONLY) as descriptor:
            if os.pwrite(descriptor, data, start) < len(data):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)  # as space is reserved

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

    def keep_private(self, path: str) -> None:
        for one in (path, path + ".bak"):
            self._private.add(one)
            with suppress(FileNotFoundError):
                os.chmod(one, PRIVATE_MODE)

    def replace_file(self, path: str, data: bytes) -> None:
        new, old = path + ".tmp", path + ".bak"
        mode = PRIVATE_MODE if path in self._private else None
        self.make_dirs(os.path.dirname(path))
        try:
            _write(new, data, sync=True, mode=mode)
        except OSError as error:
            with suppress(FileNotFoundError):
                os.unlink(new)
            if error.errno not in NO_ROOM or not (os.path.exists(path) and os.path.exists(old)):
                raise
            # The current file is complete, so on a full disk the backup is deleted to make space for the new file.
            os.unlink(old)
            _write(new, data, sync=True, mode=mode)
        if os.path.exists(path):
            # A hard link, so that the real name always exists.
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
            # Without permission to read the parent directory this process has not created anything in it.
            with suppress(PermissionError):
                self._sync_one_dir(above)
            self._durable_dirs.add(path)
            path = above

    def _sync_one_dir(self, path: str) -> None:
        # A missing directory was deleted by another thread.
        with suppress(FileNotFoundError), opened(path or ".", os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def file_system(self, path: str) -> FileSystem | None:
        descriptor = os.open(path := _nearest(path), os.O_RDONLY | os.O_CLOEXEC)
        release = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
        if release >= _SYNCFS_REPORTS and disk_holes.file_system_type(descriptor) in _SYNCED_AS_A_WHOLE:
            return _FileSystem(descriptor, path)
        os.close(descriptor)
        return None

    def lock(self, path: str) -> ExitStack:
        self.make_dirs(os.path.dirname(path))
        own = os.path.realpath(path)
        if own in self._locked:
            raise BlockingIOError(f"{path} is locked by this process")
        with ExitStack() as lock:
            file = lock.enter_context(open(path, "a+b", buffering=0))
            # Byte 0, like FileChannel.tryLock(0, 1) in Java's BrokerController, so that both brokers respect each other's
            # lock.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            if os.fstat(file.fileno()).st_size == 0:
                file.write(b"lock")
            self._locked.add(own)
            lock.callback(self._locked.discard, own)
            return lock.pop_all()

    def usage(self, path: str) -> float:
        stat = os.statvfs(_nearest(path))
        used = stat.f_blocks - stat.f_bfree
        # Blocks reserved for root count as neither used nor free, as in `df`.
        return used / (used + stat.f_bavail) if used + stat.f_bavail else 0.0


def _write(path: str, data: bytes, *, sync: bool = False, mode: int | None = None) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with opened(path, flags) as descriptor, open(descriptor, "wb", closefd=False) as file:
            if mode is not None:
                os.fchmod(descriptor, mode)  # before there is anything to read
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
    except OSError as error:
        # Errors of write calls do not contain the path.
        raise OSError(error.errno, error.strerror, path) from None


def _nearest(path: str) -> str:
    """Return `path` or its nearest existing parent directory."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path

"""Mappings of files as `numpy.memmap`: without a descriptor, and with protection of the holes of files on tmpfs.

`numpy.memmap` keeps a descriptor for as long as the file is mapped, and a store has thousands of queues. So a memmap of
anonymous pages is made first, and the file is then mapped in their place (MAP_FIXED); deleting the memmap unmaps it.

The files of a store are sparse. On most file systems reading a hole yields zeros and allocates nothing, but on tmpfs it
allocates a page. A scan after the log's end would thus fill the file system, or kill the process on a full one (SIGBUS).
Therefore, mappings on tmpfs show holes as read-only anonymous zero pages. When space is reserved for a range (`Disk`), that
range is mapped to the file; also in a later mapping, for which the kernel reports reserved pages that were never accessed as
holes, too.
"""

import ctypes
import errno
import mmap
import os
from typing import Final

import numpy as np

TMPFS_MAGIC: Final = 0x01021994
_MAP_FIXED: Final = 0x10
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_READ_ONLY: Final = (mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED)
_PROT: Final = mmap.PROT_READ | mmap.PROT_WRITE
_MS_SYNC: Final = 4
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class _Placeholder:
    """File object from which `numpy.memmap` makes a mapping of `size` bytes without a file, and so without a descriptor."""

    def __init__(self, size: int) -> None:
        self._size = size

    def fileno(self) -> int:
        """Return -1, which means no file in mmap(2)."""
        return -1

    def seek(self, offset: int, whence: int = 0) -> int:
        """Ignore the call that determines the end of the file."""
        return self._size

    def tell(self) -> int:
        """Return the size of the mapping."""
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Never called; `numpy.memmap` recognizes file objects by this method."""
        return b""


def map_file(descriptor: int, size: int) -> "np.memmap[tuple[int], np.dtype[np.uint8]]":
    """Map `size` bytes of a file, whose descriptor is not needed afterwards. Raises OSError."""
    try:
        pages = np.memmap(_Placeholder(size), np.uint8, "r+", shape=(size,))  # type: ignore[call-overload]
    except OSError:
        # The kernel forbids overcommitting memory, even briefly. Use a normal mapping, which keeps a descriptor.
        with open(descriptor, "r+b", closefd=False) as file:
            return np.memmap(file, np.uint8, "r+", shape=(size,))
    _map(pages.ctypes.data, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor, 0)
    return pages  # type: ignore[no-any-return]


def sync(address: int, size: int, path: str) -> None:
    """Sync `size` mapped bytes at `address`, which must be page-aligned. Raises OSError that names `path`."""
    while _LIBC.msync(address, size, _MS_SYNC) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code), path)


def looking_takes_room(descriptor: int) -> bool:
    """Return whether the file is on tmpfs, where reading a hole allocates a page."""
    return file_system_type(descriptor) == TMPFS_MAGIC


def file_system_type(descriptor: int) -> int:
    """Return the number of a file system's type (statfs(2)); 0 if it is unknown."""
    found = (ctypes.c_long * 64)()  # struct statfs begins with the type
    return found[0] if _LIBC.fstatfs(descriptor, found) == 0 else 0


def cover(descriptor: int, address: int, size: int) -> None:
    """Map anonymous zero pages over the holes of a file whose `size` bytes are mapped at `address`. Raises OSError."""
    start = 0
    while start < size:
        start = os.lseek(descriptor, start, os.SEEK_HOLE)
        if start >= size:
            return
        end = next_data(descriptor, start, size)
        # Both are multiples of the page size, except at the end of the file.
        _map(address + start, end - start, *_READ_ONLY, -1, 0)
        start = end


def uncover(descriptor: int, address: int, start: int, end: int) -> None:
    """Map the reserved bytes [start, end) of the file into the mapping at `address`. Raises OSError."""
    start -= start % mmap.PAGESIZE
    _map(address + start, end - start, _PROT, mmap.MAP_SHARED | _MAP_FIXED, descriptor, start)


def next_data(descriptor: int, start: int, end: int) -> int:
    """Return the first byte in [start, end) outside the holes, or `end`."""
    try:
        return min(os.lseek(descriptor, start, os.SEEK_DATA), end)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end
        raise


def _map(address: int, size: int, prot: int, flags: int, descriptor: int, start: int) -> None:
    if _LIBC.mmap(address, size, prot, flags, descriptor, start) == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap of {size} bytes: {os.strerror(code)}")

"""Disk: the file-system interface through which all store I/O goes.

Tests replace it by simulations that lose unsynced data or run out of space. Callers may rely only on three guarantees of a
real disk:

* bytes of a mapped file are durable once `sync` of a range that contains them has returned;
* a created, renamed or deleted *name* is durable once `sync_dir` of its directory has returned, including the names of
  parent directories created for it;
* writing to a range of a mapped file cannot fail after `reserve` of that range, or `show_reserved` if an earlier mapping
  reserved it. Without them it can, and not with an exception: the first write into a hole on a full file system kills the
  process (SIGBUS; on tmpfs, SIGSEGV even if it is not full). Reading a hole never fails.

A mapping stays valid as long as any part of it is referenced; closing a region only drops one reference. A pull may
therefore still read from a file that has been unmapped or deleted.
"""

import errno
import mmap
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Final

import numpy as np
import numpy.typing as npt

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""Error codes of a full file system, a condition that can end without a restart."""

SHORTAGE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
"""Error codes of a temporary shortage of resources: nothing was done, and the call may be retried."""


class StoreError(Exception):
    """The store cannot be opened in its present state; the text names the file and what to do."""


class MappedRegion(ABC):
    """A file mapped as a whole. `view` is fast for single accesses, `array` for numpy operations on many bytes."""

    view: memoryview
    array: npt.NDArray[np.uint8]

    @abstractmethod
    def sync(self, start: int, end: int) -> None:
        """Make bytes [start, end) durable. May be called from another thread, and does not hold the GIL.

        Also works after `close`, for bytes written before. Raises OSError; it is then unknown which bytes are on the disk.
        """

    def write(self, start: int, data: bytes | memoryview) -> None:
        """Write `data` at `start`, in reserved space. Like writing to `view`, but faster for many new pages."""
        self.view[start : start + len(data)] = data

    def reserve(self, start: int, end: int) -> None:  # noqa: B027  # a disk that cannot fill up has nothing to do
        """Allocate disk space for bytes [start, end), so that writing them cannot fail. Their content is unchanged.

        Raises OSError, with ENOSPC if the disk is full.
        """

    def show_reserved(self, start: int, end: int) -> None:  # noqa: B027
        """Let bytes [start, end) be written, which were reserved in an earlier mapping of the file. Raises OSError."""

    def warm(self, start: int, end: int) -> None:
        """Write bytes [start, end), which must be zero, to the disk, for faster syncs later. Raises OSError."""
        self.reserve(start, end)
        self.sync(start, end)

    def rewrite(self, start: int, end: int) -> None:
        """Mark the pages of [start, end) dirty, so that the next sync writes them.

        After a failed sync the kernel may treat pages as clean that are not on the disk. Not safe with concurrent writers.
        """
        for position in range(start - start % mmap.PAGESIZE, end, mmap.PAGESIZE):
            page = self.array[position : position + mmap.PAGESIZE]
            # All-zero pages are skipped: nothing can be lost, and a hole has no page to write to.
            if page.any():
                page[:] = page.copy()

    def release_memory(self, start: int, end: int) -> None:  # noqa: B027
        """Remove the pages of [start, end) from the resident set. Nothing is lost; the next access maps them again."""

    def lock_memory(self, locked: bool = True) -> None:  # noqa: B027
        """Lock pages in memory when they are first accessed (mlock), or undo that. Raises OSError naming the limit."""

    def clear(self, start: int) -> bool:
        """Zero everything from `start` to the end of the file. Return whether anything was not zero."""
        cleared = False
        block_size = 1 << 20
        for position in range(start, len(self.array), block_size):
            block = self.array[position : position + block_size]
            # Read first, because writing zeros to a hole would allocate pages.
            if block.any():
                block[:] = 0
                cleared = True
        return cleared

    def next_data(self, start: int, end: int) -> int:
        """Return the first byte in [start, end) outside the file's holes, or `end`. Bytes before it are zero."""
        return start

    def end_writing(self) -> None:  # noqa: B027
        """Release what `write` holds open; called when no more writes are expected for now."""

    def close(self) -> None:
        """Drop the mapping. Existing slices of `view` stay readable and keep the memory until they are released."""
        del self.view, self.array


class FileSystem(ABC):
    """A file system on which one call makes everything durable. It keeps a descriptor open."""

    @abstractmethod
    def sync(self) -> None:
        """Make all bytes and names durable. Also raises OSError if any file could not be written since the last call."""


class Disk(ABC):
    """File operations on paths given as str. All raise OSError."""

    @abstractmethod
    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        """Map a file of exactly `size` bytes. With `create` a missing file is created first, sparse, with its directories.

        `random_access` is a hint that reading ahead is useless.
        """

    @abstractmethod
    def read_file(self, path: str) -> bytes: ...

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Read bytes [start, start + size), fewer at the end of the file.

        A bad sector raises OSError, whereas reading it through a mapping kills the process (SIGBUS).
        """
        return self.read_file(path)[start : start + size]

    def write_range(self, path: str, start: int, data: bytes) -> None:
        """Write `data` at `start` of a file that is not mapped, in reserved space."""
        self.map(path, self.size(path)).write(start, data)

    def boot_mark(self, path: str) -> str:
        """Return a text that identifies the running kernel and the mount of `path`.

        As long as it is the same, the page cache has not been lost. Empty if unknown; an empty mark must not be treated as
        equal to any other.
        """
        return ""

    @abstractmethod
    def write_file(self, path: str, data: bytes) -> None:
        """Write a file in place, neither atomically nor durably. For marks such as `abort`."""

    @abstractmethod
    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file atomically and durably: after a crash it has the old or the new bytes. The old stay as `.bak`."""

    def keep_private(self, path: str) -> None:  # noqa: B027  # a disk without users has nothing to do
        """Make a file and its `.bak` readable by their owner alone, now and whenever `replace_file` writes them."""

    @abstractmethod
    def delete(self, path: str) -> None: ...

    @abstractmethod
    def delete_tree(self, path: str) -> None:
        """Delete a directory and its contents."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    @abstractmethod
    def make_dirs(self, path: str) -> None: ...

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory, or [] if it does not exist."""

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

    def file_system(self, path: str) -> FileSystem | None:
        """Return the file system on which `path` is or would be created; None if it cannot be made durable by one call."""
        return None

    @abstractmethod
    def lock(self, path: str) -> ExitStack:
        """Lock a file exclusively, creating it if necessary. Raises BlockingIOError if it is already locked.

        The lock is held until the result is closed, or the process ends.
        """

    @abstractmethod
    def usage(self, path: str) -> float:
        """Return the used fraction (0 to 1) of the file system on which `path` is or would be created."""


def map_sized(disk: Disk, path: str, size: int, *, random_access: bool = False) -> tuple[MappedRegion, int | None]:
    """Map a file of `size` bytes, made anew if it has another size. Return also the size found, None without a file.

    Raises OSError.
    """
    found = disk.size(path) if disk.exists(path) else None
    if found not in (None, size):
        disk.delete(path)
    return disk.map(path, size, create=found != size, random_access=random_access), found


def no_room(disk: Disk, path: str, what: str, error: OSError) -> str:
    """Return the error text for a full file system; `what` is the file that needs space at `path`."""
    try:
        state = f"is {disk.usage(path):.1%} full"
    except OSError as unknown:
        state = f"has unknown usage ({unknown})"
    return f"no room for the {what}: the file system of {path} {state} ({error.strerror or error})"

"""The one door to files.

Everything the store does to a file system goes through a `Disk`, so that tests can put a simulated one underneath which
forgets what was not synced, and has no room left at the worst moment. Three promises of a real disk matter above and are all
a caller may rely on:

* bytes of a mapped file are durable once `sync` of a range that holds them has returned;
* a created, renamed or deleted *name* is durable once `sync_dir` of its directory has returned (the names of directories
  that were made on the way there included);
* writing into a range of a mapped file that `reserve` has returned for cannot fail. Elsewhere it can, and not with an error:
  the first write into a hole of a full file system ends the process (SIGBUS; on tmpfs, full or not, SIGSEGV). Reading a hole
  never fails.

A mapping lives as long as anybody holds a part of it: closing a region only lets go of it. So a pull may still read from a
file that was unmapped, or deleted, behind its back.
"""

import errno
import mmap
from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import numpy.typing as npt

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""What an OSError says when there is no room: the one kind that passes by itself."""

SHORTAGE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN)
"""What an OSError says when the machine lacks something for the moment: nothing was done, and doing it again is right."""


class StoreError(Exception):
    """The store cannot be opened as it lies on the disk; the text says which file and what to do."""


class MappedRegion(ABC):
    """A whole file in memory. `view` is for reading and writing at speed, `array` for looking at many bytes at once."""

    view: memoryview
    array: npt.NDArray[np.uint8]

    @abstractmethod
    def sync(self, start: int, end: int) -> None:
        """Make bytes [start, end) durable. May be called from another thread, and does not hold the GIL.

        Also after `close`: what was written is still to be carried to the disk. Raises OSError; afterwards nothing is known
        about what has reached the disk.
        """

    def write(self, start: int, data: bytes) -> None:
        """Write `data` at `start`, into room that is reserved: as into `view`, and quicker where it is many new pages."""
        self.view[start : start + len(data)] = data

    def reserve(self, start: int, end: int) -> None:  # noqa: B027  # a disk that cannot fill up has nothing to do
        """Take room on the device for bytes [start, end): afterwards writing them cannot fail. Their content stays.

        Raises OSError, ENOSPC when there is no room.
        """

    def warm(self, start: int, end: int) -> None:
        """Carry bytes [start, end), which must be zero yet, to the disk: later syncs of them allocate nothing. OSError."""
        self.reserve(start, end)
        self.sync(start, end)

    def rewrite(self, start: int, end: int) -> None:
        """Have bytes [start, end) carried to the disk by the next sync, whatever the kernel believes.

        After a sync that failed it takes pages for clean that are not on the disk. Not beside other writers.
        """
        for position in range(start - start % mmap.PAGESIZE, end, mmap.PAGESIZE):
            page = self.array[position : position + mmap.PAGESIZE]
            # Only zeros otherwise: nothing that could be lost; and a hole has no page to write to.
            if page.any():
                page[:] = page.copy()

    def release_memory(self, start: int, end: int) -> None:  # noqa: B027
        """Let pages of [start, end) leave our resident set; nothing is lost, they are mapped again when touched."""

    def lock_memory(self, locked: bool = True) -> None:  # noqa: B027
        """Keep the pages in memory once they are touched (mlock), or no more. Raises OSError naming the limit."""

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

    def next_data(self, start: int, end: int) -> int:
        """The first byte in [start, end) that is in no hole of the file; `end` when there is none. Before it are zeros."""
        return start

    def end_writing(self) -> None:  # noqa: B027
        """Nothing more comes by `write` for now."""

    def close(self) -> None:
        """Give up the mapping. Slices of `view` that others still hold stay readable and keep the memory until they go."""
        del self.view, self.array


class DiskLock(ABC):
    """An exclusive lock on a file, held until `close` or the end of the process."""

    @abstractmethod
    def close(self) -> None: ...


class Disk(ABC):
    """File operations on text paths. All raise OSError."""

    @abstractmethod
    def map(
        self, path: str, size: int, *, create: bool = False, random_access: bool = False, read_only: bool = False
    ) -> MappedRegion:
        """Map a file of exactly `size` bytes. `create` makes it first, sparse and zero, with the directories above.

        `random_access` is a hint: neighbours of what is touched are not worth reading ahead. `read_only` needs no right to
        write, and its `view` and `array` cannot be written to.
        """

    @abstractmethod
    def read_file(self, path: str) -> bytes: ...

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Bytes [start, start + size) of a file, fewer at its end; a bad sector is an OSError (in a mapping: SIGBUS)."""
        return self.read_file(path)[start : start + size]

    def boot_mark(self, path: str) -> str:
        """The running kernel and the mount that holds `path`: while the mark is the same, no page cache was lost.

        Empty when that cannot be told; an empty mark equals none.
        """
        return ""

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


def no_room(disk: Disk, path: str, what: str, error: OSError) -> str:
    """A refusal for lack of room on the file system of `path`."""
    try:
        used = f"{disk.usage(path):.1%}"
    except OSError as unknown:
        used = f"nobody knows what ({unknown})"
    return f"no room for the {what}: the file system of {path} is used to {used} ({error.strerror or error})"

"""Return of freed memory to the operating system.

The C library keeps free pages that lie between blocks still in use, so that a process stays at its peak size. `FreedMemory`
regularly compares the size of the process with the smallest size seen. While it is larger, a background thread calls
`malloc_trim`, which gives whole free pages back; each unsuccessful call doubles the time to the next.

Before that, a full collection of garbage frees cycles and empties the lists of free tuples and dicts. These are scattered
over the arenas (1 MiB) of the interpreter's own allocator, and an arena with one of them is not given back. In a server that
has become idle no such collection happens by itself. It stops the event loop, so it is skipped if there are many objects to
scan.

Large blocks get pages of their own, which are returned when the block is freed. By default the C library does so only
until the first of them is freed; later ones are placed among the small blocks.
"""

import asyncio
import gc
import resource
import sys
import threading
from pathlib import Path
from typing import Final

LOOK_S: Final = 5.0
"""Interval between checks of the process size."""
GROWN_BYTES: Final = 2 << 20
"""Growth over the smallest size from which a trim is tried."""
FOUND_BYTES: Final = 1 << 20
"""A trim that gives back less counts as unsuccessful."""
REST_MAX: Final = 6
"""Maximum number of checks between two trims: half a minute."""
COLLECTED_BLOCKS_MAX: Final = 200_000
"""Number of blocks of memory allocated since the start beyond which no garbage is collected."""
COLLECTED_BYTES_MAX: Final = 16 << 20
"""The same limit in bytes of growth, for an allocator that does not count blocks."""
LARGE_BYTES: Final = 512 << 10
"""Size of blocks from which they get pages of their own."""
_M_MMAP_THRESHOLD: Final = -3
_STATM: Final = Path("/proc/self/statm")


def private_bytes() -> int | None:
    """Return the resident bytes of this process that are not file pages; None where the system has no such figure."""
    try:
        fields = _STATM.read_bytes().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def _call(name: str, *arguments: int) -> bool:
    """Call a function of the C library. Returns False where it does not exist."""
    import ctypes  # imported late: it slows the start

    try:
        function = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return False
    function(*arguments)
    return True


class FreedMemory:
    """Trimmer of this process; runs until `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._smallest = self._last = private_bytes()
        self._first_blocks = sys.getallocatedblocks()
        self._rest = self._looks_left = 1
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        if self._smallest is not None:
            self._timer = loop.call_later(LOOK_S, self._first_look)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _first_look(self) -> None:
        _call("mallopt", _M_MMAP_THRESHOLD, LARGE_BYTES)
        _call("malloc_trim", 0)  # gives back memory that only the start needed
        self._look()

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        size = private_bytes()
        if size is None or self._smallest is None or self._last is None:
            return
        self._smallest = min(self._smallest, size)
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None  # the objects of a finished thread may pin an arena of Python's allocator
        if size >= self._last + GROWN_BYTES:
            self._rest = self._looks_left = 1
        self._looks_left -= 1
        if self._looks_left <= 0 and size >= self._smallest + GROWN_BYTES and self._thread is None:
            if self._is_quickly_collected(size - self._smallest):
                gc.collect()  # not in the thread: objects of the event loop may be among the garbage
            self._thread = threading.Thread(target=self._trim, args=(size,), name="freed-memory", daemon=True)
            self._thread.start()

    def _is_quickly_collected(self, grown_bytes: int) -> bool:
        """Return whether the garbage collector has few objects to scan."""
        if self._first_blocks:  # 0 with the C library's allocator
            return sys.getallocatedblocks() - self._first_blocks <= COLLECTED_BLOCKS_MAX
        return grown_bytes <= COLLECTED_BYTES_MAX

    def _trim(self, before: int) -> None:
        """Runs in the background thread. While it runs, `_look` changes no attribute but `_smallest`."""
        if not _call("malloc_trim", 0):
            self._smallest = None
            return
        after = private_bytes() or before
        self._last = after
        self._rest = 1 if before - after >= FOUND_BYTES else min(2 * self._rest, REST_MAX)
        self._looks_left = self._rest

"""Gives freed memory back to the system.

The C library keeps what was freed between blocks that are still in use, so a process stays as large as it was at its worst.
`FreedMemory` looks at the size of the process from time to time. Once it is larger than it was at its smallest, a thread of
its own has the C library give whole free pages back (`malloc_trim`); the longer that finds nothing, the rarer it is tried.
"""

import asyncio
import resource
import threading
from pathlib import Path
from typing import Final

LOOK_S: Final = 5.0
"""How often the size of the process is looked at."""
GROWN_BYTES: Final = 4 << 20
"""A process larger by this than at its smallest may have something to give back."""
FOUND_BYTES: Final = 1 << 20
"""A trim that gave back less found nothing."""
REST_MAX: Final = 6
"""So many looks lie between two trims at most: half a minute."""
_STATM: Final = Path("/proc/self/statm")


def private_bytes() -> int | None:
    """Resident bytes of this process that are not of a file; None where the system does not tell."""
    try:
        fields = _STATM.read_bytes().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def give_back() -> bool:
    """Have the C library give free pages back. False where it has no such function."""
    import ctypes  # takes time and memory at the start, and few processes ever need it

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False
    trim(0)
    return True


class FreedMemory:
    """Trims this process while `loop` runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, look_s: float = LOOK_S) -> None:
        self._loop = loop
        self._look_s = look_s
        self._smallest = self._last = private_bytes()
        self._rest = self._looks_left = 1
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        if self._smallest is not None:
            self._timer = loop.call_later(look_s, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._look_s, self._look)
        size = private_bytes()
        if size is None or self._smallest is None or self._last is None:
            return
        self._smallest = min(self._smallest, size)
        if size >= self._last + GROWN_BYTES:
            self._rest = self._looks_left = 1
        self._looks_left -= 1
        if self._looks_left <= 0 and size >= self._smallest + GROWN_BYTES and not self._is_trimming:
            self._thread = threading.Thread(target=self._trim, args=(size,), name="freed-memory", daemon=True)
            self._thread.start()

    @property
    def _is_trimming(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _trim(self, before: int) -> None:
        """In its thread: while it runs `_look` changes nothing but `_smallest`."""
        if not give_back():
            self._smallest = None
            return
        after = private_bytes() or before
        self._last = after
        self._rest = 1 if before - after >= FOUND_BYTES else min(2 * self._rest, REST_MAX)
        self._looks_left = self._rest

"""Gives freed memory back to the system.

The C library keeps freed memory for later requests. After a peer sent large or many requests, a server would stay as large
as at its peak. So it looks at its own memory at times and, where that has grown, has the C library return free pages.
"""

import ctypes
import logging
import os
from collections.abc import Callable
from typing import Final

from runtime.timers import Timer, Timers

log = logging.getLogger("runtime")

LOOK_S: Final = 15.0
GROWTH_MIN: Final = 4 << 20
"""Bytes of growth since the last time that make it worth while."""


def anonymous_bytes() -> int:
    """Resident memory of this process that no file is behind. Raises OSError where there is no /proc."""
    with open("/proc/self/statm", "rb") as file:
        _, resident, shared, *_ = file.read().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def _trim_function() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # no glibc
        return None
    return trim


class MemoryTrimmer:
    """Returns free memory when this process has grown."""

    def __init__(self) -> None:
        self._trim = _trim_function()
        self._least = 0

    def start(self, timers: Timers) -> Timer:
        """Look each LOOK_S seconds."""
        return timers.every(LOOK_S, self.look)

    def look(self) -> None:
        """Return free memory, if there is more than at the last time."""
        if self._trim is None:
            return
        try:
            before = anonymous_bytes()
            if before < self._least + GROWTH_MIN:
                return
            self._trim(0)
            self._least = anonymous_bytes()
        except OSError:  # no /proc, or no descriptor for the moment
            return
        if before - self._least >= GROWTH_MIN:
            log.info(
                "%d MB of free memory were given back, %d MB are in use", (before - self._least) >> 20, self._least >> 20
            )

"""Waiting for a process as long as it works: a slow machine needs longer, and a process that hangs uses no CPU time."""

import os
import time
from pathlib import Path
from typing import Final

WORK_SHARE: Final = 0.01
"""Share of a CPU above which a process works; one that waits in a loop uses less."""
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Patience:
    """Patience with a process and its descendants: it ends after `idle_s` without work, or after `total_s`."""

    def __init__(self, pid: int, idle_s: float, total_s: float) -> None:
        self._pid, self._idle_s = pid, idle_s
        now_s = time.monotonic()
        self._end_s, self._look_s, self._used_s = now_s + total_s, now_s + idle_s, 0.0

    def is_over(self) -> bool:
        """Return whether to give up. Without /proc only `total_s` counts."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return now_s >= self._end_s
        used_s = cpu_seconds(self._pid)
        is_idle = used_s is not None and used_s - self._used_s < self._idle_s * WORK_SHARE
        self._look_s, self._used_s = now_s + self._idle_s, used_s or 0.0
        return is_idle or now_s >= self._end_s


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time used by a process and its descendants, also those that have ended; None without /proc."""
    used: dict[int, tuple[int, int]] = {}  # pid -> parent, ticks
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        used[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    if not used:
        return None
    return sum(ticks for own, (_, ticks) in used.items() if _descends(own, pid, used)) / _TICKS_A_SECOND


def _descends(pid: int, ancestor: int, used: dict[int, tuple[int, int]]) -> bool:
    while pid != ancestor and pid in used:
        pid = used[pid][0]
    return pid == ancestor

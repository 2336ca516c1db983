"""Time for which other processes kept a process from running, to tell its own lateness from that of a busy machine.

The kernel counts for each thread how long it was ready to run without a processor (`schedstat`), and how long the host of a
virtual machine withheld one (`steal`). Both counters are sampled all the time, so that any past interval can be queried.
"""

import os
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


class CpuWait:
    """Waiting time of a process's first thread, which runs PocketMQ's event loop, or of all of its threads."""

    def __init__(self, pid: int, *, all_threads: bool = False, every_s: float = 0.01) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._names = None if all_threads else (str(pid),)
        self._every_s = every_s
        self._times_ms: list[float] = []
        self._waits_ms: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._note, name="cpu-wait", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def between_ms(self, begin_ms: float, end_ms: float) -> float:
        """Return the waiting time within an interval (epoch ms), rounded up to whole sampling intervals."""
        if not self._times_ms:
            return 0.0
        first = max(bisect_right(self._times_ms, begin_ms) - 1, 0)
        last = min(bisect_left(self._times_ms, end_ms), len(self._times_ms) - 1)
        return max(self._waits_ms[last] - self._waits_ms[first], 0.0)

    def _note(self) -> None:
        while not self._ended.is_set():
            waited_ms = self._read_ms()
            self._times_ms.append(time.time() * 1000)
            self._waits_ms.append(waited_ms)
            self._ended.wait(self._every_s)

    def _read_ms(self) -> float:
        ticks = int(Path("/proc/stat").read_text().split(maxsplit=9)[8])
        waited_ns = 0
        try:
            for name in self._names or os.listdir(self._tasks):
                waited_ns += int((self._tasks / name / "schedstat").read_text().split()[1])
        except OSError:  # a thread ended
            pass
        return waited_ns / 1e6 + ticks * _TICK_MS

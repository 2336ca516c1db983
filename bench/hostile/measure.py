"""Measurements: latencies in windows of time, stalls, memory of the servers."""

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pocketmq.cli.processes import Server

SAMPLE_SECONDS = 0.2
STALL_SECONDS = 0.05

Samples = Iterable[tuple[float, float]]
"""(time of the request, duration until the answer), in seconds."""


@dataclass(frozen=True)
class Window:
    """An interval of the monotonic clock."""

    begin: float
    end: float

    def of(self, samples: Samples) -> list[tuple[float, float]]:
        """Return the samples whose requests were sent within the window."""
        return [row for row in samples if self.begin <= row[0] < self.end]


def percentile_ms(samples: Samples, share: float) -> float:
    """Return a percentile by the nearest-rank method; 0 without samples."""
    values = sorted(seconds for _, seconds in samples)
    return 1000 * values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def stalls(samples: Samples) -> list[float]:
    """Return the durations in which requests waited for more than 50 ms; overlapping waits count as one."""
    merged: list[list[float]] = []
    for began, seconds in sorted(samples):
        if seconds < STALL_SECONDS:
            continue
        if merged and began <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], began + seconds)
        else:
            merged.append([began, began + seconds])
    return [end - begin for begin, end in merged]


def memory_mb(pid: int) -> tuple[float, float]:
    """Return (resident, anonymous) memory of a process in MB; zeros if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "kB" in value}
    return kilobytes.get("VmRSS", 0) / 1024, kilobytes.get("RssAnon", 0) / 1024


@dataclass
class MemoryWatch:
    """Samples the memory of servers in a thread, from `start` to `stop`."""

    servers: Sequence[Server]
    rows: list[tuple[float, list[tuple[float, float]]]] = field(default_factory=list)
    _is_on: bool = True

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_on = False
        self._thread.join()

    def anonymous_mb(self, index: int, window: Window) -> list[float]:
        """Return the sampled anonymous memory of server `index` in a window; a single 0 if there are no samples."""
        return [row[index][1] for at, row in self.rows if window.begin <= at < window.end] or [0.0]

    def median_mb(self, index: int, window: Window) -> float:
        """Return the median of the anonymous memory of server `index` in a window."""
        samples = sorted(self.anonymous_mb(index, window))
        return samples[len(samples) // 2]

    def resident_mb(self, index: int, window: Window) -> list[float]:
        return [row[index][0] for at, row in self.rows if window.begin <= at < window.end] or [0.0]

    def _run(self) -> None:
        while self._is_on:
            self.rows.append((time.monotonic(), [memory_mb(server.process.pid) for server in self.servers]))
            time.sleep(SAMPLE_SECONDS)

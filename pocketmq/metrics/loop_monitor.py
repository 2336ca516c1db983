"""LoopMonitor: whether the event loop of the process turns, and how late its timers run."""

import asyncio
import time
from typing import Final

from pocketmq.metrics.histogram import Histogram

BEAT_S: Final = 0.25
"""Interval between two beats."""
STUCK_S: Final = 10.0
"""Silence after which the event loop counts as stuck. Longer than a healthy turn: a slow disk may block one for seconds."""
LAG_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class LoopMonitor:
    """Beats on the event loop. The figures may be read by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beaten_s = time.monotonic()
        self._handle: asyncio.TimerHandle | None = None
        self.lags = Histogram(LAG_BOUNDS_S)
        """How late the beats were."""

    def start(self) -> None:
        """Begin to beat; to be called on the loop."""
        self._beaten_s = time.monotonic()
        self._handle = self._loop.call_later(BEAT_S, self._beat)

    def stop(self) -> None:
        """Stop beating; to be called on the loop."""
        if self._handle is not None:
            self._handle.cancel()

    @property
    def silence_s(self) -> float:
        """Seconds by which the next beat is late."""
        return max(time.monotonic() - self._beaten_s - BEAT_S, 0.0)

    def _beat(self) -> None:
        self.lags.add(self.silence_s)
        self._beaten_s = time.monotonic()
        self._handle = self._loop.call_later(BEAT_S, self._beat)

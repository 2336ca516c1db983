"""The event loop of the process, as the thread of the HTTP server sees it: its work for that thread, and whether it turns.

Tables of a server belong to its event loop, so the thread of the HTTP server never reads them. It has the loop copy what it
needs: the work is a generator that yields after each small piece, and the loop serves requests between slices.
"""

import asyncio
import time
from collections.abc import Generator
from typing import Final, TypeVar

from pocketmq.metrics.histogram import Histogram

SLICE_S: Final = 0.001
"""Time that the loop works before it serves requests again."""
PAUSE_S: Final = 0.003
BEAT_S: Final = 0.25
"""Interval between two beats."""
STUCK_S: Final = 10.0
"""Silence after which the event loop counts as stuck. Longer than a healthy turn: a slow disk may block one for seconds."""
LAG_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

T = TypeVar("T")
Work = Generator[None, None, T]


class LoopStuck(Exception):
    """The event loop did not do the work in time."""


async def _in_slices(work: Work[T]) -> tuple[T, float]:
    """Do `work` in slices; return its result and the CPU seconds spent on it."""
    spent_s = 0.0
    while True:
        began_s, end_s = time.thread_time(), time.perf_counter() + SLICE_S
        try:
            while time.perf_counter() < end_s:
                next(work)
        except StopIteration as end:
            return end.value, spent_s + time.thread_time() - began_s
        spent_s += time.thread_time() - began_s
        await asyncio.sleep(PAUSE_S)


async def on_loop(loop: asyncio.AbstractEventLoop, work: Work[T], deadline_s: float) -> tuple[T, float]:
    """Have `loop` do `work`; return its result and the CPU seconds that the loop spent on it.

    To be awaited on the event loop of another thread. Raises LoopStuck after `deadline_s`, or if `loop` has ended, and what
    the work raises.
    """
    doing = _in_slices(work)
    try:
        running = asyncio.run_coroutine_threadsafe(doing, loop)
    except RuntimeError:
        doing.close()
        raise LoopStuck("the event loop has ended") from None
    try:
        async with asyncio.timeout(deadline_s):
            return await asyncio.wrap_future(running)
    except TimeoutError:
        running.cancel()
        raise LoopStuck(f"the event loop gave no answer within {deadline_s:g} s") from None


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

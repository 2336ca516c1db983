"""Long computations of the event loop, run in short slices so that other requests are served in between.

Work is an iterator that does one small piece per step. All work of an event loop has one `WorkSlices`, which limits the sum
of what many peers cause at the same time: at most half of the loop's time is spent on it, because after a slice it pauses
for as long as the slice took. Several pieces of work take turns. Most turns are for work that has not begun, so that short
work does not wait behind much long work. A piece may take as long as a slice; even then no slice takes much longer than
`LONG_SLICE_S` and a piece.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from pocketmq.runtime.timers import Timers

log = logging.getLogger("broker")

SLICE_S: Final = 0.004
PAUSE_S: Final = 0.004
"""Shortest pause between two slices."""
PIECES_MIN: Final = 16
"""Number of pieces of new work done at once, so that short work does not wait behind long work."""
OLD_EVERY: Final = 4
"""One of so many turns is for work that has begun, even if other work has not."""
LONG_SLICE_S: Final = 0.016
"""CPU time after the begin of a slice when not even PIECES_MIN pieces are done at once."""


class WorkSlices:
    """Queue of unfinished work."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Iterator[None]] = deque()  # has begun
        self._new: deque[Iterator[None]] = deque()
        self._turn = 0
        self._has_timer = False
        self._end_s = self._cpu_end_s = self._pause_end_s = float("-inf")

    @property
    def is_idle(self) -> bool:
        """Whether no work is unfinished."""
        return not (self._waiting or self._new)

    def start(self, work: Iterator[None]) -> None:
        """Do at least PIECES_MIN pieces now unless they are long, more while this slice lasts, the rest in later slices."""
        began_s = now = time.monotonic()
        if self.is_idle and now >= self._pause_end_s:
            self._begin_slice(now)
        count, has_more = 0, True
        while has_more and (now < self._end_s or (count < PIECES_MIN and time.thread_time() < self._cpu_end_s)):
            has_more = self._step(work)
            count += 1
            now = time.monotonic()
        self._pause_end_s = max(self._pause_end_s, now) + now - began_s
        if has_more:
            (self._waiting if count else self._new).append(work)
            self._pause(now)

    def _begin_slice(self, now: float) -> None:
        self._end_s, self._pause_end_s = now + SLICE_S, now
        self._cpu_end_s = time.thread_time() + LONG_SLICE_S

    def _pause(self, now: float) -> None:
        if self._has_timer:
            return
        self._has_timer = True
        self._timers.after(max(PAUSE_S, self._pause_end_s - now), self._go_on)

    def _go_on(self) -> None:
        self._has_timer = False
        began_s = time.monotonic()
        if began_s < self._pause_end_s:  # other work was begun during the pause
            self._pause(began_s)
            return
        self._begin_slice(began_s)
        try:
            while not self.is_idle and time.monotonic() < self._end_s:
                work = self._next()
                if self._step(work):
                    self._waiting.append(work)
        finally:
            now = time.monotonic()
            self._pause_end_s = now + now - began_s
            if not self.is_idle:
                self._pause(now)

    def _next(self) -> Iterator[None]:
        self._turn = (self._turn + 1) % OLD_EVERY
        return (self._new if self._new and (self._turn or not self._waiting) else self._waiting).popleft()

    @staticmethod
    def _step(work: Iterator[None]) -> bool:
        """Do one piece; return whether there is more. A failure is logged and ends the work."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("a computation run in slices failed")
            return False
        return True

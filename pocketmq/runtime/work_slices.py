"""Long computations of the event loop, run in short slices so that other requests are served in between.

Work is an iterator that does one small piece per step. While work is waiting, at most half of the loop's time is spent on
it: after a slice it pauses for as long as the slice took. Several pieces of work take turns. A piece may take as long as a
slice; even then no slice takes much longer than `LONG_SLICE_S` and a piece.
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
LONG_SLICE_S: Final = 0.016
"""CPU time after the begin of a slice when not even PIECES_MIN pieces are done at once."""


class WorkSlices:
    """Queue of unfinished work."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Iterator[None]] = deque()
        self._end_s = self._cpu_end_s = self._pause_end_s = float("-inf")

    def start(self, work: Iterator[None]) -> None:
        """Do at least PIECES_MIN pieces now unless they are long, more while this slice lasts, the rest in later slices."""
        now = time.monotonic()
        if not self._waiting and now >= self._pause_end_s:
            self._begin_slice(now)
        count = 0
        while now < self._end_s or (count < PIECES_MIN and time.thread_time() < self._cpu_end_s):
            if not self._step(work):
                return
            count += 1
            now = time.monotonic()
        self._put_off(work)

    def _begin_slice(self, now: float) -> None:
        self._end_s, self._pause_end_s = now + SLICE_S, now + SLICE_S + PAUSE_S
        self._cpu_end_s = time.thread_time() + LONG_SLICE_S

    def _put_off(self, work: Iterator[None]) -> None:
        if not self._waiting:
            self._timers.after(PAUSE_S, self._go_on)
        self._waiting.append(work)

    def _go_on(self) -> None:
        began_s, waiting = time.monotonic(), self._waiting
        self._begin_slice(began_s)
        try:
            while waiting and time.monotonic() < self._end_s:
                work = waiting.popleft()
                if self._step(work):
                    waiting.append(work)
        finally:
            now = time.monotonic()
            pause_s = max(PAUSE_S, now - began_s)
            self._pause_end_s = now + pause_s
            if waiting:
                self._timers.after(pause_s, self._go_on)

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

"""Long work of the loop in short slices, between which it serves others.

Work is an iterator that does one small piece each time. Where much work waits, at most half of the loop's time is spent on
it, and each of several gets its turn.
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
PIECES_MIN: Final = 16
"""So many pieces of new work are done at once in any case: other work does not make little work wait."""


class WorkSlices:
    """The work that waits for its next slice."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Iterator[None]] = deque()
        self._end_s = float("-inf")

    def start(self, work: Iterator[None]) -> None:
        """Do a few pieces now, and the others too while this slice lasts; the rest later."""
        now = time.monotonic()
        if not self._waiting and now >= self._end_s + PAUSE_S:
            self._end_s = now + SLICE_S
        count = 0
        while self._step(work):
            count += 1
            if count >= PIECES_MIN and time.monotonic() >= self._end_s:
                self._put_off(work)
                return

    def _put_off(self, work: Iterator[None]) -> None:
        if not self._waiting:
            self._timers.after(PAUSE_S, self._go_on)
        self._waiting.append(work)

    def _go_on(self) -> None:
        self._end_s = time.monotonic() + SLICE_S
        waiting = self._waiting
        try:
            while waiting and time.monotonic() < self._end_s:
                work = waiting.popleft()
                if self._step(work):
                    waiting.append(work)
        finally:
            if waiting:
                self._timers.after(PAUSE_S, self._go_on)

    @staticmethod
    def _step(work: Iterator[None]) -> bool:
        """Do one piece; whether there is more. Work that fails is over."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception:
            log.exception("work in slices failed")
            return False
        return True

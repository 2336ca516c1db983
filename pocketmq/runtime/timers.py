"""Timers of the event loop, by message time or by liveness time (see `clock`).

`at_ms` waits for a message time, which can jump. It never runs early, because it compares the clock again when the loop's
timer fires. `after` and `every` count monotonic seconds, independent of message time: connections must not expire when a
test moves the calendar by a day.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Final

from pocketmq.runtime.clock import Clock, VirtualClock

log = logging.getLogger("runtime")

SLEEP_MAX_S: Final = 60.0
"""Maximum time between two readings of the message clock by `at_ms`, so that a clock set forward is noticed."""


class Timer:
    """Scheduled callback; `cancel()` is allowed at any time."""

    __slots__ = ("callback", "handle", "is_cancelled", "when_ms")

    def __init__(self, callback: Callable[[], None], when_ms: int = 0) -> None:
        self.callback = callback
        self.when_ms = when_ms
        self.is_cancelled = False
        self.handle: asyncio.TimerHandle | None = None
        """The loop's handle, for `cancel`."""

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def run(self) -> None:
        """Call back, unless cancelled; a failure is logged, not raised into the loop."""
        if self.is_cancelled:
            return
        try:
            self.callback()
        except Exception:
            log.exception("a timer's callback failed")

    def run_once(self) -> None:
        """Run a timer whose handle will not be used again."""
        # The handle refers to this timer: such a reference cycle would be left to the garbage collector.
        self.handle = None
        self.run()


class Timers:
    """Timers of one event loop and one clock."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = clock
        self._loop = loop
        self._virtual: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        if isinstance(clock, VirtualClock):
            clock.subscribe(lambda _: self._run_virtual())

    def at_ms(self, when_ms: int, callback: Callable[[], None]) -> Timer:
        """Call back once message time is `when_ms` or later; for a past time in the next turn."""
        timer = Timer(callback, when_ms)
        if isinstance(self.clock, VirtualClock):
            heapq.heappush(self._virtual, (when_ms, next(self._order), timer))
            if when_ms <= self.clock.message_time_ms():
                self._loop.call_soon(self._run_virtual)
        else:
            self._sleep(timer)
        return timer

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back after `seconds` of monotonic time."""
        timer = Timer(callback)
        timer.handle = self._loop.call_later(seconds, timer.run_once)
        return timer

    def every(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back every `seconds` of monotonic time."""
        timer = Timer(callback)

        def again() -> None:
            timer.handle = self._loop.call_later(seconds, again)
            timer.run()

        timer.handle = self._loop.call_later(seconds, again)
        return timer

    def _sleep(self, timer: Timer) -> None:
        left_s = (timer.when_ms - self.clock.message_time_ms()) / 1000
        timer.handle = self._loop.call_later(min(max(left_s, 0.0), SLEEP_MAX_S), self._wake, timer)

    def _wake(self, timer: Timer) -> None:
        if self.clock.message_time_ms() >= timer.when_ms:
            timer.run_once()
        elif not timer.is_cancelled:
            self._sleep(timer)

    def _run_virtual(self) -> None:
        now_ms = self.clock.message_time_ms()
        while self._virtual and self._virtual[0][0] <= now_ms:
            heapq.heappop(self._virtual)[2].run()

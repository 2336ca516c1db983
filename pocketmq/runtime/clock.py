"""The times of PocketMQ.

*Message time* is the calendar: epoch milliseconds, what stands in records, what decides when a delayed message is due and
when a file is old. A virtual clock moves it, so that a test lives through 400 days in a second.

*Steady time* goes on with message time, but nobody can set it: what a delay of ten seconds is measured by when the calendar
jumps meanwhile. Its numbers mean something only to the process, and only as differences.

*Liveness* is `monotonic`: seconds that never jump, for time-outs, heartbeats and flush intervals. A virtual clock leaves it
alone, since sockets and disks do not know of it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

Listener = Callable[[int], None]

# Where there is one that goes on while the machine sleeps, as the calendar does.
_STEADY_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(ABC):
    """What everything of ours reads the time from."""

    @abstractmethod
    def message_time_ms(self) -> int:
        """The calendar, in ms since the epoch; it may go backwards when somebody sets the machine's clock."""

    def steady_ms(self) -> int:
        """Milliseconds from an unspecified start that pass as message time does, but never jump; never goes backwards."""
        return time.clock_gettime_ns(_STEADY_CLOCK) // 1_000_000

    def monotonic(self) -> float:
        """Liveness in seconds, from an unspecified start; never goes backwards."""
        return time.monotonic()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(now_ms)` whenever message time jumps. A system clock never says that it did."""


class SystemClock(Clock):
    """The machine's clocks."""

    def message_time_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualClock(Clock):
    """Message time that stands still until somebody moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 0
        self._listeners: list[Listener] = []

    def message_time_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def advance(self, ms: int) -> None:
        """Let `ms` pass and tell the subscribers, in the order in which they came. Raises ValueError below 0."""
        if ms < 0:
            raise ValueError(f"time does not pass by {ms} ms; `step` sets the calendar back")
        self._steady_ms += ms
        self.set_ms(self._now_ms + ms)

    def step(self, ms: int) -> None:
        """Set the calendar `ms` forward, or back, as an operator may do; no time passes."""
        self.set_ms(self._now_ms + ms)

    def set_ms(self, now_ms: int) -> None:
        """Set the calendar to `now_ms`; no time passes."""
        self._now_ms = now_ms
        for listener in tuple(self._listeners):
            listener(now_ms)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

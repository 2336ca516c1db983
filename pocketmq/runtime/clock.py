"""Clocks. PocketMQ uses three kinds of time.

*Message time* is the calendar, in epoch milliseconds. Records are stamped with it; it decides when a delayed message is due
and when a file has expired. Tests move it with a virtual clock, so that 400 days pass in a second.

*Steady time* advances like message time but never jumps. A delay is measured by it when the machine's clock is set in the
middle of the delay. Only differences between two values of the same process are meaningful.

*Liveness* time is `monotonic`, in seconds, for timeouts, heartbeats and flush intervals. A virtual clock does not change it,
because sockets and disks run in real time.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

Listener = Callable[[int], object]

# CLOCK_BOOTTIME (Linux) also counts while the machine is suspended, as the calendar does.
_STEADY_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(ABC):
    """Source of time for all components."""

    @abstractmethod
    def message_time_ms(self) -> int:
        """Return the calendar time in ms since the epoch; it goes backwards when the machine's clock is set back."""

    def steady_ms(self) -> int:
        """Return ms since an unspecified start; advances like message time, but never jumps or goes backwards."""
        return time.clock_gettime_ns(_STEADY_CLOCK) // 1_000_000

    def monotonic(self) -> float:
        """Return liveness time: seconds since an unspecified start; never goes backwards."""
        return time.monotonic()

    def subscribe(self, listener: Listener) -> None:
        """Call `listener(now_ms)` whenever a virtual clock is moved. A system clock never calls it."""


class SystemClock(Clock):
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)  # read for each request: without a further call

    def message_time_ms(self) -> int:
        return time.time_ns() // 1_000_000


class VirtualClock(Clock):
    """Clock for tests: message time stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._steady_ms = 0
        self._listeners: list[Listener] = []

    def message_time_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def advance(self, ms: int) -> None:
        """Let `ms` pass and call the subscribers in order of subscription. Raises ValueError if `ms` is negative."""
        if ms < 0:
            raise ValueError(f"time cannot advance by {ms} ms; `step` sets the calendar back")
        self._steady_ms += ms
        self.set_ms(self._now_ms + ms)

    def step(self, ms: int) -> None:
        """Set the calendar forward by `ms`, or back, as an operator may do; steady time does not change."""
        self.set_ms(self._now_ms + ms)

    def set_ms(self, now_ms: int) -> None:
        """Set the calendar to `now_ms`; steady time does not change."""
        self._now_ms = now_ms
        for listener in tuple(self._listeners):
            listener(now_ms)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

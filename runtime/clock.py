"""The two times of PocketMQ.

*Message time* is the calendar: epoch milliseconds, what stands in records, what decides when a delayed message is due and
when a file is old. A virtual clock moves it, so that a test lives through 400 days in a second.

*Liveness* is `monotonic`: seconds that never jump, for time-outs, heartbeats and flush intervals. A virtual clock leaves it
alone, since sockets and disks do not know of it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

Listener = Callable[[int], None]


class Clock(ABC):
    """What everything of ours reads the time from."""

    @abstractmethod
    def message_time_ms(self) -> int:
        """The calendar, in ms since the epoch; it may go backwards when somebody sets the machine's clock."""

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
        self._listeners: list[Listener] = []

    def message_time_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move message time forward by `ms` and tell the subscribers, in the order in which they came."""
        self.set_ms(self._now_ms + ms)

    def set_ms(self, now_ms: int) -> None:
        """Jump to `now_ms`, backwards too: a machine's clock can be set back, and the broker must live with it."""
        self._now_ms = now_ms
        for listener in tuple(self._listeners):
            listener(now_ms)

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

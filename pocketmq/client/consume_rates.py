"""Rates of a consumer by topic, as Apache's clients count them: pulls and consumed messages of the last minute, and the
messages that failed in the last hour.
"""

import time
from collections import deque
from typing import Final

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
PERIODS: Final = 12
"""Number of periods of a window, which moves forward by one period at a time."""


class Window:
    """Number and sum of the values that were added in the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._period_s = seconds / PERIODS
        self._periods: deque[list[float]] = deque()
        """Beginning, number and sum of each period with values."""

    def add(self, count: int, total: float = 0.0) -> None:
        """Add `count` values with this sum."""
        now_s = time.monotonic()
        self._forget(now_s)
        if not self._periods or now_s - self._periods[-1][0] >= self._period_s:
            self._periods.append([now_s, 0, 0.0])
        self._periods[-1][1] += count
        self._periods[-1][2] += total

    def totals(self) -> tuple[int, float]:
        """Return the number of values and their sum."""
        self._forget(time.monotonic())
        return int(sum(period[1] for period in self._periods)), sum(period[2] for period in self._periods)

    def _forget(self, now_s: float) -> None:
        while self._periods and now_s - self._periods[0][0] >= self._seconds:
            self._periods.popleft()


class ConsumeRates:
    """Pulls and consumed messages of one topic."""

    def __init__(self) -> None:
        self._pulls, self._pulled, self._consumed, self._failed = (Window(MINUTE_S) for _ in range(4))
        self._failed_in_hour = Window(HOUR_S)

    def pulled(self, count: int, rt_ms: float) -> None:
        """Count a pull that brought messages, and how long the answer took."""
        self._pulls.add(1, rt_ms)
        self._pulled.add(count)

    def consumed(self, rt_ms: float, is_ok: bool) -> None:
        """Count a message that was given to the listener, and how long the listener took."""
        if is_ok:
            self._consumed.add(1, rt_ms)
        else:
            self._failed.add(1, rt_ms)
            self._failed_in_hour.add(1)

    def status(self) -> dict[str, float]:
        """Return ConsumeStatus: times are averages in ms, rates are per second."""
        pulls, pull_ms = self._pulls.totals()
        consumed, consume_ms = self._consumed.totals()
        failed, failed_ms = self._failed.totals()
        return {
            "pullRT": pull_ms / max(pulls, 1),
            "pullTPS": self._pulled.totals()[0] / MINUTE_S,
            "consumeRT": (consume_ms + failed_ms) / max(consumed + failed, 1),
            "consumeOKTPS": consumed / MINUTE_S,
            "consumeFailedTPS": failed / MINUTE_S,
            "consumeFailedMsgs": self._failed_in_hour.totals()[0],
        }

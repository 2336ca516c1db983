"""LoopLag: how late the timers of the event loop run, which is how long other work kept it."""

from time import monotonic

from pocketmq.broker.stats.histogram import Histogram


class LoopLag:
    """Adds the lag to a histogram at each `tick`."""

    def __init__(self, lags: Histogram, step_s: float) -> None:
        self._lags = lags
        self._step_s = step_s
        self._due_s = monotonic() + step_s

    def tick(self) -> None:
        """To be called by a timer of the loop each `step_s` after the last call."""
        now_s = monotonic()
        self._lags.add(now_s - self._due_s)
        self._due_s = now_s + self._step_s

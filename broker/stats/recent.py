"""Figures of the last minute, from totals that only grow: the distribution of put times, and the longest wait for pages."""

from collections import deque
from typing import Final

from pocketmq.metrics.histogram import Histogram

STEP_S: Final = 10.0
"""Interval of samples."""
_SAMPLES: Final = 6


class RecentCounts:
    """The counts of a histogram over the last minute."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._samples: deque[tuple[int, ...]] = deque([(0,) * len(histogram.counts)], _SAMPLES)

    def sample(self) -> None:
        """Must be called each STEP_S."""
        self._samples.append(tuple(self._histogram.counts))

    def counts(self) -> list[int]:
        """Return the counts of the last 50 to 60 seconds, by bucket."""
        return [now - before for now, before in zip(self._histogram.counts, self._samples[0], strict=True)]


class RecentMaximum:
    """The maximum of values over the last minute."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque((), _SAMPLES)

    def sample(self, value: float) -> None:
        """Add the maximum since the last call. Must be called each STEP_S."""
        self._samples.append(value)

    def maximum(self, now: float) -> float:
        """Return the maximum, `now` being that since the last sample."""
        return max(now, *self._samples, 0.0)

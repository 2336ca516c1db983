"""Figures of the last seconds and minutes, from totals that only grow: rates, the distribution of put times, and the longest
wait for pages.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Final

from pocketmq.metrics.histogram import Histogram

STEP_S: Final = 10.0
"""Interval of samples."""
_SAMPLES: Final = 6


class SampleRing:
    """The last samples of some numbers, as floats in one block of memory.

    A small object for each sample would pin a whole arena of Python's allocator if it is allocated among the objects of
    thousands of waiting requests and outlives them.
    """

    def __init__(self, sample_count: int, column_count: int) -> None:
        self._sample_count = sample_count
        self._column_count = column_count
        self._values = array("d", bytes(8 * sample_count * column_count))
        self._added = 0

    def add(self, values: Sequence[float]) -> None:
        """Add a sample, which replaces the oldest one when the ring is full."""
        start = self._added % self._sample_count * self._column_count
        for column in range(self._column_count):
            self._values[start + column] = values[column]
        self._added += 1

    def before(self, count: int) -> Sequence[float]:
        """Return the sample added `count` samples before the last one, or the oldest one. There must be a sample."""
        age = min(count, self._sample_count - 1, self._added - 1)
        start = (self._added - 1 - age) % self._sample_count * self._column_count
        return self._values[start : start + self._column_count]


class RecentCounts:
    """The counts of a histogram over the last minute."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._samples = SampleRing(_SAMPLES, len(histogram.counts))
        self._samples.add((0,) * len(histogram.counts))

    def sample(self) -> None:
        """Must be called each STEP_S."""
        self._samples.add(self._histogram.counts)

    def counts(self) -> list[int]:
        """Return the counts of the last 50 to 60 seconds, by bucket."""
        return [
            now - int(before) for now, before in zip(self._histogram.counts, self._samples.before(_SAMPLES), strict=True)
        ]


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

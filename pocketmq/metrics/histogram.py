"""Histogram: counts of durations by bucket, since the start."""

from bisect import bisect_left
from collections.abc import Sequence

from pocketmq.metrics.family import Buckets


class Histogram:
    """Counts of durations in seconds. One thread adds; any thread may read."""

    __slots__ = ("bounds_s", "counts", "max_s", "sum_s")

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self.bounds_s = tuple(bounds_s)
        """Upper bounds of the buckets, inclusive, ascending; one more bucket has everything above."""
        self.counts = [0] * (len(self.bounds_s) + 1)
        self.sum_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count `count` durations of `seconds`; a negative one, after a step of a clock, counts as 0."""
        if seconds < 0.0:
            seconds = 0.0
        self.counts[bisect_left(self.bounds_s, seconds)] += count
        self.sum_s += seconds * count
        if seconds > self.max_s:
            self.max_s = seconds

    @property
    def buckets(self) -> Buckets:
        """The value of a metric with these durations."""
        return Buckets(self.bounds_s, tuple(self.counts), self.sum_s)


def quantile_s(bounds_s: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Return the duration in seconds that `share` of the counted ones do not exceed, interpolated within its bucket; 0.0
    without any. The last bucket has no upper bound: its lower one is returned."""
    wanted = sum(counts) * share
    below = 0
    low_s = 0.0
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if count and below + count >= wanted:
            return low_s + (bound_s - low_s) * (wanted - below) / count
        below += count
        low_s = bound_s
    return low_s if below < sum(counts) else 0.0

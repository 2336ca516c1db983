"""Measurements of a broker for runtime info, tools and metrics: durations and counts since the start and of the last minute.

How long it took to store messages is measured once per turn of the event loop. All messages of a turn count with the time
from the turn's begin, which is when the first of them was read, until their records are written together; with SYNC_FLUSH
until these are synced, at a SYNC_MASTER until a slave has them. So the time counted for a message is never too short: it
includes the wait for the other messages of its turn.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from pocketmq.metrics.histogram import Histogram
from pocketmq.runtime.turn import Turn

_MS_PER_S: Final = 1000
PUT_BOUNDS_S: Final = tuple(
    bound / _MS_PER_S for bound in (0.25, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
)
"""Include the bounds of Apache's putMessageDistributeTime."""
SYNC_BOUNDS_S: Final = tuple(bound / _MS_PER_S for bound in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000))
LATENESS_BOUNDS_S: Final = (
    *(bound / _MS_PER_S for bound in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)), 2, 5, 10, 30, 60, 300, 3600,
)  # fmt: skip
STEP_S: Final = 10.0
"""Interval of samples."""
_SAMPLES: Final = 6
WAITING_MAX: Final = 10_000
"""Maximum number of turns whose records are waited for; further ones are added to the last of them."""


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


class Measurements:
    """Durations are in seconds and counted since the start."""

    def __init__(self) -> None:
        self.put_time = Histogram(PUT_BOUNDS_S)
        """Per stored message: from the begin of the turn of the event loop that read it, until its record is written; with
        SYNC_FLUSH until it is synced, and at a SYNC_MASTER until a slave has it."""
        self.recent_put_times = RecentCounts(self.put_time)
        """The put times of the last minute."""
        self.sync_time = Histogram(SYNC_BOUNDS_S)
        """Per sync of the CommitLog (fsync or msync); added by the flush thread."""
        self.level_lateness = Histogram(LATENESS_BOUNDS_S)
        """Per delivered message of a delay level: the time from its due time until its delivery."""
        self.timer_lateness = Histogram(LATENESS_BOUNDS_S)
        """The same for messages with a delivery time of their own."""
        self.page_wait_s = RecentMaximum()
        """The longest wait for a write of the log to the page cache, or for space, in the last minute."""
        self.dispatched_max = 0
        """The largest number of records that one turn of the event loop dispatched."""
        self.store_recovery_s = 0.0
        """Time that opening and recovering the store took at the start."""
        self.timer_recovery_s = 0.0
        """Time that recovering timers and transactions took at the start."""
        self.repairs = 0
        """Number of repairs that the start made in the store."""
        self.started_cleanly = True
        """Whether the last broker on this store had stopped cleanly."""


class PutTimes:
    """Adds to `measured.put_time`. As it runs at the end of each turn, it does as little as it can."""

    __slots__ = ("_add", "_count_max", "_measured", "_turn", "_waited_for", "_waiting")

    def __init__(self, measured: Measurements, turn: Turn, waited_for: Callable[[], int | None] | None) -> None:
        """`waited_for` returns the end offset for which the records of this turn wait, None if they do not."""
        self._measured = measured
        self._add = measured.put_time.add
        self._turn = turn
        self._count_max = 0
        self._waited_for = waited_for
        self._waiting: deque[tuple[int, float, int]] = deque()  # end offset, begin of the turn, messages

    def turn_ended(self, count: int) -> None:
        """Count the messages of the turn that ends, whose records are written."""
        if count > self._count_max:
            self._count_max = self._measured.dispatched_max = count
        began_s = self._turn.ending_since_s  # infinity for a turn that was not armed, which counts as no time
        end_offset = None if self._waited_for is None else self._waited_for()
        if end_offset is None:
            self._add(monotonic() - began_s, count)
            return
        if len(self._waiting) >= WAITING_MAX:
            _, began_s, others = self._waiting.pop()
            count += others
        self._waiting.append((end_offset, began_s, count))

    def reached(self, offset: float) -> None:
        """Count the messages before `offset`, which are now synced or replicated as required."""
        waiting, now_s = self._waiting, monotonic()
        while waiting and waiting[0][0] <= offset:
            _, began_s, count = waiting.popleft()
            self._add(now_s - began_s, count)

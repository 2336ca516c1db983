"""Counts, and samples of them as in Java's StatsItem: a minute in steps of 10 s, an hour of 10 min, a day of 1 h.

There is a counter for each queue, for each pair of group and queue, and in total.

A broker has histories for each topic, for each queue and for each group that pulls it. All are sampled at the same times,
so the times are kept once, and a history has entries only where its values changed.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

# (name on the wire, step in ms, samples kept)
ROWS: Final = (("statsMinute", 10_000, 7), ("statsHour", 600_000, 7), ("statsDay", 3_600_000, 25))
CALLS_COLUMN: Final = 2
"""Column of each history with the number of calls that counted the values."""
_EARLY_MS: Final = 500
"""Time by which a sample may be taken before its step is over."""
_ENTRIES_MAX: Final = 48
"""Number of entries at which a history drops those that are no longer needed; at most 40 are needed."""


class Counter(msgspec.Struct, gc=False):
    """Number of messages, bytes and calls since the start."""

    nums: int = 0
    size: int = 0
    times: int = 0
    took_s: float = 0.0
    """Time that the calls took in total; only of pulls."""
    disk_nums: int = 0
    disk_size: int = 0
    """Messages and bytes among these that count as read from the disk."""
    history: "History | None" = None
    """Samples of its values, from the first sample on."""


class SampleTime(NamedTuple):
    number: int
    """Number of the sample since the start."""
    time_ms: int


class SampleTimes:
    """The times of the samples that the figures of all statistics need."""

    def __init__(self) -> None:
        self.latest = SampleTime(0, 0)
        self.rows: tuple[deque[SampleTime], ...] = tuple(deque(maxlen=count) for _, _, count in ROWS)

    def add(self, sample: SampleTime) -> None:
        """Add a sample that all histories have. It goes to each row whose step is over."""
        self.latest = sample
        for (_, step_ms, _), row in zip(ROWS, self.rows, strict=True):
            if not row or not row[-1].time_ms <= sample.time_ms < row[-1].time_ms + step_ms - _EARLY_MS:
                row.append(sample)

    def numbers(self) -> list[int]:
        """Return the numbers of the samples in the rows, in ascending order."""
        return sorted({sample.number for row in self.rows for sample in row})


class History:
    """The values of some totals that are counted together, at the samples since they exist.

    Before its first sample all values are 0. One array holds everything: lists of numbers take several times as much memory.
    """

    __slots__ = ("_width", "_words")

    def __init__(self, created: SampleTime, columns: int) -> None:
        """`created`: the first sample for which there will be values."""
        self._width = 1 + columns
        # The creation, then entries: the number of a sample and the values from there on.
        self._words = array("q", created)

    @property
    def created(self) -> SampleTime:
        """The first sample."""
        return SampleTime(self._words[0], self._words[1])

    def add(self, number: int, values: tuple[int, ...], times: SampleTimes) -> None:
        """Add the values at the sample of that number, which must be greater than those before."""
        words, width = self._words, self._width
        if len(words) > 2 and tuple(words[1 - width :]) == values:
            return
        if len(words) >= 2 + _ENTRIES_MAX * width:
            self._drop_unneeded(times)
        self._words.extend((number, *values))

    def _drop_unneeded(self, times: SampleTimes) -> None:
        """Keep the entries that were in force at a sample of the rows, and the last one."""
        entries = list(self._entries())
        needed, numbers = [], times.numbers()
        for entry, following in zip(entries, entries[1:], strict=False):
            if any(entry[0] <= number < following[0] for number in numbers):
                needed.append(entry)
        needed.append(entries[-1])
        self._words = array("q", (*self._words[:2], *(word for entry in needed for word in entry)))

    def _entries(self) -> Iterator[tuple[int, ...]]:
        for begin in range(2, len(self._words), self._width):
            yield tuple(self._words[begin : begin + self._width])

    def latest(self, column: int) -> int:
        """Return the newest value of a column."""
        return self._words[column - self._width + 1]

    def at(self, number: int, column: int) -> int:
        """Return the value of a column at a sample."""
        words, width = self._words, self._width
        for begin in range(len(words) - width, 1, -width):
            if words[begin] <= number:
                return words[begin + 1 + column]
        return 0


class StatsItem(NamedTuple):
    """One statistic: the figures of a column of a history."""

    times: SampleTimes
    history: History
    column: int

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return the body of VIEW_BROKER_STATS_DATA."""
        return {name: self._figures(row) for row, (name, _, _) in enumerate(ROWS)}

    def minute_tps(self) -> float:
        """Return the rate per second over the last minute."""
        return self._figures(0)["tps"]

    def _figures(self, row: int) -> dict[str, float]:
        """Return the difference between the latest sample and the first one of the row.

        If the history began within the row, or the row is not full, its values count from zero, one step before its begin.
        """
        _, step_ms, count = ROWS[row]
        samples, created, history = self.times.rows[row], self.history.created, self.history
        value, calls = history.latest(self.column), history.latest(CALLS_COLUMN)
        first_ms = created.time_ms - step_ms
        if len(samples) == count and samples[0].number >= created.number:
            first = samples[0]
            first_ms = first.time_ms
            value -= history.at(first.number, self.column)
            calls -= history.at(first.number, CALLS_COLUMN)
        span_ms = self.times.latest.time_ms - first_ms
        return {
            "sum": value,
            "tps": value * 1000.0 / span_ms if span_ms > 0 else 0.0,
            "avgpt": value / calls if calls > 0 else 0.0,
        }

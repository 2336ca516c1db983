"""Counts by key, and samples of them as in Java's StatsItem: a minute in steps of 10 s, an hour of 10 min, a day of 1 h.

A broker counts for each queue, for each pair of group and queue, and in total: up to hundreds of thousands of rows, most of
which change between two samples while it is busy. So a table has the numbers of all its keys in one array, and a sample of
it is a copy of that array. The figures of topics and groups are sums over the rows of their queues.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

# (name on the wire, step in ms, samples kept)
ROWS: Final = (("statsMinute", 10_000, 7), ("statsHour", 600_000, 7), ("statsDay", 3_600_000, 25))
COUNTERS_MAX: Final = 100_000
"""Maximum number of keys of a table; further ones are not counted by themselves."""
_EARLY_MS: Final = 500
"""Time by which a sample may be taken before its step is over."""
_FEW: Final = 64
"""Number of rows up to which a loop sums them sooner than numpy."""
_BLOCK: Final = 128
"""Rows of a table that are copied together. Samples share the blocks that did not change."""

K = TypeVar("K", bound=Hashable)


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
        """Add a sample of all tables. It goes to each row whose step is over."""
        self.latest = sample
        for (_, step_ms, _), row in zip(ROWS, self.rows, strict=True):
            if not row or not row[-1].time_ms <= sample.time_ms < row[-1].time_ms + step_ms - _EARLY_MS:
                row.append(sample)

    def numbers(self) -> set[int]:
        """Return the numbers of the samples that are needed: those in the rows, and the latest."""
        return {self.latest.number, *(sample.number for row in self.rows for sample in row)}


class Copied(NamedTuple, Generic[K]):
    """The keys of a table with their places, and its words."""

    places: tuple[tuple[K, int], ...]
    words: "array[int]"


class Counts(Generic[K]):
    """A table of numbers: a row for each key, whose totals since the start are in the columns."""

    def __init__(self, columns: int, group_of: Callable[[K], Hashable] = lambda key: None) -> None:
        """`group_of` returns what a key's row is added up for, besides the key itself."""
        self.columns = columns
        self.words = array("q")
        """The rows, one behind the other. Those of dropped keys are used again."""
        self.places: dict[K, int] = {}
        """Key -> index of its row's first word."""
        self.groups: dict[Hashable, list[int]] = {}
        """Group -> places of its rows."""
        self._group_of = group_of
        self._free: list[int] = []
        self._dropped: list[int] = []
        """Places that are free once a sample that is being taken is complete."""
        self._new: set[int] = set()
        """Places of the rows that no sample has yet."""
        self._created_numbers, self._created_ms = array("q"), array("q")
        """Number and time of the first sample of each row; 0: it has none yet."""
        self._samples: dict[int, list[array[int]]] = {}
        """Number of a sample -> copy of the words in blocks."""

    def place(self, key: K) -> int:
        """Return the index of the first word of a key's row, -1 if the table is full. A key without a row gets one."""
        found = self.places.get(key)
        return self._add(key) if found is None else found

    def _add(self, key: K) -> int:
        if len(self.places) >= COUNTERS_MAX:
            return -1
        if self._free:
            place = self._free.pop()
        else:
            place = len(self.words)
            self.words.extend((0,) * self.columns)
            self._created_numbers.append(0)
            self._created_ms.append(0)
        self.places[key] = place
        self.groups.setdefault(self._group_of(key), []).append(place)
        self._new.add(place)
        return place

    def set_totals(self, key: K, values: Sequence[int]) -> None:
        """Set a key's totals, which are counted elsewhere."""
        if (place := self.place(key)) >= 0:
            self.words[place : place + self.columns] = array("q", values)

    def drop(self, keys: Iterable[K]) -> None:
        """Forget keys with their totals and samples."""
        gone: dict[Hashable, set[int]] = defaultdict(set)
        for key in keys:
            place = self.places.pop(key)
            gone[self._group_of(key)].add(place)
            self.words[place : place + self.columns] = array("q", bytes(8 * self.columns))
            self._created_numbers[place // self.columns] = 0
            self._new.discard(place)
            self._dropped.append(place)
        for group, places in gone.items():
            self.groups[group] = [place for place in self.groups[group] if place not in places]
            if not self.groups[group]:
                del self.groups[group]

    def copied(self) -> "Copied[K]":
        """Return a copy, which another thread may read."""
        return Copied(tuple(self.places.items()), self.words[:])

    # --- samples ----------------------------------------------------------------------------------------------------

    def sampling(self, sample: SampleTime, before: int) -> Iterator[None]:
        """Take a sample in small steps; `before` is the number of the one before."""
        new, size = self._new.copy(), _BLOCK * self.columns
        last = self._samples.get(before, [])
        blocks: list[array[int]] = []
        for index, start in enumerate(range(0, len(self.words), size)):
            block = self.words[start : start + size]
            blocks.append(last[index] if index < len(last) and last[index] == block else block)
            yield
        self._samples[sample.number] = blocks
        for place in self._new.intersection(new):  # those dropped meanwhile are not in it
            self._new.remove(place)
            row = place // self.columns
            self._created_numbers[row], self._created_ms[row] = sample

    def keep(self, numbers: set[int]) -> None:
        """Forget all samples but these, after each sample."""
        for number in self._samples.keys() - numbers:
            del self._samples[number]
        self._free += self._dropped
        self._dropped.clear()

    def created(self, places: Sequence[int]) -> SampleTime | None:
        """Return the first sample of some rows; None if they have none yet."""
        numbers, times_ms, columns = self._created_numbers, self._created_ms, self.columns
        row = min((place // columns for place in places if numbers[place // columns]), key=numbers.__getitem__, default=None)
        return None if row is None else SampleTime(numbers[row], times_ms[row])

    def at(self, number: int, places: Sequence[int], column: int) -> int:
        """Return the sum of a column over some rows at a sample. It counts rows that were added later as zero."""
        blocks, columns, total = self._samples.get(number, []), self.columns, 0
        if len(places) > _FEW:
            return self._sum_of_many(number, blocks, np.array(places), column)
        for place in places:
            block, row = divmod(place // columns, _BLOCK)
            at = row * columns + column
            is_counted = 0 < self._created_numbers[place // columns] <= number
            if is_counted and block < len(blocks) and at < len(blocks[block]):
                total += blocks[block][at]
        return total

    def _sum_of_many(self, number: int, blocks: "list[array[int]]", places: npt.NDArray[np.int64], column: int) -> int:
        words = np.concatenate([np.frombuffer(block, np.int64) for block in blocks] or [np.zeros(0, np.int64)])
        created = np.frombuffer(self._created_numbers, np.int64)[places // self.columns]
        found = places[(created > 0) & (created <= number) & (places < len(words))]
        return int(words[found + column].sum())


class StatsItem(NamedTuple):
    """One statistic: the figures of a column of a table, summed over some of its rows."""

    times: SampleTimes
    counts: Counts[Any]
    places: Sequence[int]
    column: int
    calls_column: int
    """Column with the number of calls that counted the values."""
    divisor: int = 1
    """By which the values are divided."""

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return the body of VIEW_BROKER_STATS_DATA."""
        created, latest = self.counts.created(self.places), self._at(self.times.latest.number)
        assert created is not None
        return {name: self._figures(row, created, latest) for row, (name, _, _) in enumerate(ROWS)}

    def minute_tps(self) -> float:
        """Return the rate per second over the last minute."""
        return self.snapshot()["statsMinute"]["tps"]

    def latest(self) -> int:
        """Return the total at the latest sample."""
        return self.counts.at(self.times.latest.number, self.places, self.column)

    def _at(self, number: int) -> tuple[int, int]:
        """Return value and calls at a sample."""
        value = self.counts.at(number, self.places, self.column)
        is_same = self.calls_column == self.column
        return value, value if is_same else self.counts.at(number, self.places, self.calls_column)

    def _figures(self, row: int, created: SampleTime, latest: tuple[int, int]) -> dict[str, float]:
        """Return the difference between the latest sample and the first one of the row.

        If the statistic began within the row, or the row is not full, its values count from zero, one step before its begin.
        """
        _, step_ms, count = ROWS[row]
        samples, (value, calls) = self.times.rows[row], latest
        first_ms = created.time_ms - step_ms
        if len(samples) == count and samples[0].number >= created.number:
            first_ms, (first_value, first_calls) = samples[0].time_ms, self._at(samples[0].number)
            value, calls = value - first_value, calls - first_calls
        span_ms, value = self.times.latest.time_ms - first_ms, value // self.divisor
        return {
            "sum": value,
            "tps": value * 1000.0 / span_ms if span_ms > 0 else 0.0,
            "avgpt": value / calls if calls > 0 else 0.0,
        }

"""StatsItem: the samples of one statistic, as in Java's: a minute in steps of 10 s, an hour of 10 min, a day of 1 h."""

from array import array
from typing import Final

# (name on the wire, step in ms, samples kept)
ROWS: Final = (("statsMinute", 10_000, 7), ("statsHour", 600_000, 7), ("statsDay", 3_600_000, 25))
_WIDTH: Final = 3
"""Numbers of a sample: time in ms, value, number of calls."""
_FIRST_ENDS: Final = tuple(_WIDTH * number for number in range(2, len(ROWS) + 2))


class StatsItem:
    """The samples of one statistic: the latest one and the rows, in one array.

    A broker has several items per topic and queue, and lists of numbers would take several times as much memory.
    """

    __slots__ = ("_ends", "_samples")

    def __init__(self, now_ms: int) -> None:
        # Each row begins with a zero sample dated one step back, so that a new item has figures at once.
        first = ((now_ms - step_ms, 0, 0) for _, step_ms, _ in ROWS)
        self._samples = array("q", [now_ms, 0, 0, *(number for sample in first for number in sample)])
        self._ends = _FIRST_ENDS
        """Where each row ends in `_samples`. The first row begins behind the latest sample."""

    @property
    def value(self) -> int:
        """The value of the latest sample."""
        return self._samples[1]

    def add(self, now_ms: int, value: int, times: int) -> None:
        """Add a sample, as the latest one and to each row whose step is over."""
        samples = self._samples
        samples[:_WIDTH] = latest = array("q", (now_ms, value, times))
        ends = []
        begin, moved = _WIDTH, 0
        for (_, step_ms, count), end in zip(ROWS, self._ends, strict=True):
            end += moved
            last_ms = samples[end - _WIDTH]
            if now_ms - last_ms >= step_ms - 500 or now_ms < last_ms:
                samples[end:end] = latest
                end += _WIDTH
                moved += _WIDTH
                if end - begin > count * _WIDTH:
                    del samples[begin : begin + _WIDTH]
                    end -= _WIDTH
                    moved -= _WIDTH
            ends.append(end)
            begin = end
        if moved:
            self._ends = tuple(ends)

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return the body of VIEW_BROKER_STATS_DATA."""
        begins = (_WIDTH, *self._ends)
        return {name: self._figures(begin) for (name, _, _), begin in zip(ROWS, begins, strict=False)}

    def minute_tps(self) -> float:
        """Return the rate per second over the last minute."""
        return self._figures(_WIDTH)["tps"]

    def _figures(self, begin: int) -> dict[str, float]:
        """Return the difference between the latest sample and the first one of the row that begins there."""
        samples = self._samples
        span_ms, value, times = (samples[column] - samples[begin + column] for column in range(_WIDTH))
        return {
            "sum": value,
            "tps": value * 1000.0 / span_ms if span_ms > 0 else 0.0,
            "avgpt": value / times if times > 0 else 0.0,
        }

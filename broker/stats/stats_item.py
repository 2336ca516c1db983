"""StatsItem: the samples of one statistic, as in Java's: a minute in steps of 10 s, an hour of 10 min, a day of 1 h."""

from typing import Final, NamedTuple

# (name on the wire, step in ms, samples kept)
ROWS: Final = (("statsMinute", 10_000, 7), ("statsHour", 600_000, 7), ("statsDay", 3_600_000, 25))


class Sample(NamedTuple):
    """A counter's value at a time."""

    time_ms: int
    value: int
    times: int


class StatsItem:
    """The samples of one statistic."""

    __slots__ = ("latest", "rows")

    def __init__(self, now_ms: int) -> None:
        self.latest = Sample(now_ms, 0, 0)
        # Lists, because deques take seven times as much memory: each group has several items per topic.
        self.rows = tuple([Sample(now_ms - step_ms, 0, 0)] for _, step_ms, _ in ROWS)

    def add(self, now_ms: int, value: int, times: int) -> None:
        """Add a sample to `latest` and to each row whose step is over."""
        self.latest = Sample(now_ms, value, times)
        for row, (_, step_ms, count) in zip(self.rows, ROWS, strict=True):
            if now_ms - row[-1].time_ms >= step_ms - 500 or now_ms < row[-1].time_ms:
                row.append(self.latest)
                if len(row) > count:
                    del row[0]

    def snapshot(self) -> dict[str, dict[str, float]]:
        """Return the body of VIEW_BROKER_STATS_DATA."""
        return {name: _figures(row[0], self.latest) for row, (name, _, _) in zip(self.rows, ROWS, strict=True)}

    def minute_tps(self) -> float:
        return _figures(self.rows[0][0], self.latest)["tps"]


def _figures(first: Sample, last: Sample) -> dict[str, float]:
    value, times, span_ms = last.value - first.value, last.times - first.times, last.time_ms - first.time_ms
    return {
        "sum": value,
        "tps": value * 1000.0 / span_ms if span_ms > 0 else 0.0,
        "avgpt": value / times if times > 0 else 0.0,
    }

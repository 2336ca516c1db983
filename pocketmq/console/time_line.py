"""Time lines of delayed messages as shapes of an SVG: bars by hour or day of the due time, and levels by their delay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pocketmq.admin.api.delayed import LevelCount

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WIDTH: Final = 960
HEIGHT: Final = 160
ROW_HEIGHT: Final = 22
LABEL_WIDTH: Final = 130
_HOURS_MAX: Final = 96
"""Longest time that is shown by hour; a longer one is shown by day."""
_DAYS_MAX: Final = 800


@dataclass(frozen=True)
class Bar:
    """The messages due in [begin_ms, end_ms), and the place of their bar in the picture."""

    begin_ms: int
    end_ms: int
    count: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class LevelBar:
    """The pending messages of a level: they are due between now and its delay from now."""

    level: int
    count: int
    width: float


class TimeLine(NamedTuple):
    bars: list[Bar]
    step_ms: int
    total: int
    highest: int
    cut: int
    """Messages due later than the line is long."""


def by_hour(hours: Mapping[int, int], offset_ms: int = 0) -> TimeLine:
    """Return the bars of messages by the hour in which they are due. `offset_ms`: of local time, where days begin."""
    pending = {hour: count for hour, count in sorted(hours.items()) if count > 0}
    if not pending:
        return TimeLine([], HOUR_MS, 0, 0, 0)
    first, last = min(pending), max(pending)
    step = HOUR_MS if last - first < _HOURS_MAX * HOUR_MS else DAY_MS
    shift = offset_ms if step == DAY_MS else 0
    begin = (first + shift) // step * step - shift
    steps = min((last - begin) // step + 1, _DAYS_MAX)
    counts = [0] * steps
    cut = 0
    for hour, count in pending.items():
        number = (hour - begin) // step
        if number < steps:
            counts[number] += count
        else:
            cut += count
    highest, width = max(counts), WIDTH / max(steps, 24)
    bars = []
    for number, count in enumerate(counts):
        if count:
            height = max(count / highest * HEIGHT, 2)
            begin_ms = begin + number * step
            size = (round(HEIGHT - height, 1), round(max(width - 2, 1), 2), round(height, 1))
            bars.append(Bar(begin_ms, begin_ms + step, count, round(number * width, 2), *size))
    return TimeLine(bars, step, sum(pending.values()), highest, cut)


def by_level(levels: Sequence[LevelCount]) -> list[LevelBar]:
    """Return a row for each level, as long as its delay in proportion to the longest one."""
    longest = max((one.delay_ms or 0 for one in levels), default=0)
    room = WIDTH - LABEL_WIDTH
    return [LevelBar(one.level, one.count, round((one.delay_ms or 0) / longest * room, 1)) for one in levels if longest]


def summed(levels: Sequence[Sequence[LevelCount]]) -> list[LevelCount]:
    """Return the levels of several brokers as one list."""
    total: dict[int, LevelCount] = {}
    for one in (level for found in levels for level in found):
        before = total.get(one.level)
        total[one.level] = one if before is None else LevelCount(one.level, one.delay_ms, before.count + one.count)
    return [total[level] for level in sorted(total)]

"""Histories of statistics: comparison with complete lists of samples, and memory size."""

import random
import sys

import pytest

from pocketmq.broker.stats.stats_item import ROWS, History, SampleTime, SampleTimes, StatsItem

Samples = list[tuple[SampleTime, int, int]]


def expected(samples: Samples, created: int, row_times: list[SampleTime], step_ms: int, count: int) -> dict[str, float]:
    """Compute the figures of a row from all samples; `created` is the index of the first one of the statistic."""
    last, value, calls = samples[-1]
    window = row_times[-count:]
    if len(window) == count and window[0].number >= samples[created][0].number:
        first_ms = window[0].time_ms
        _, first_value, first_calls = next(one for one in samples if one[0] == window[0])
    else:
        first_ms, first_value, first_calls = samples[created][0].time_ms - step_ms, 0, 0
    span_ms, value, calls = last.time_ms - first_ms, value - first_value, calls - first_calls
    return {
        "sum": value,
        "tps": value * 1000.0 / span_ms if span_ms > 0 else 0.0,
        "avgpt": value / calls if calls else 0.0,
    }


@pytest.mark.parametrize("seed", range(6))
def test_figures_are_those_of_complete_lists_of_samples(seed: int) -> None:
    """Samples every 10 s, in quiet and busy times, of a statistic that begins later than the broker."""
    chance = random.Random(seed)
    times, history, samples = SampleTimes(), None, []
    all_row_times: list[list[SampleTime]] = [[] for _ in ROWS]
    now_ms, value, calls, created = 1_700_000_000_000, 0, 0, chance.randrange(400)
    is_busy = True
    for number in range(1, 3000):
        now_ms += 10_000 if chance.random() < 0.97 else chance.choice((9_700, 11_000, 600_000, 3_600_000))
        if chance.random() < 0.02:
            is_busy = not is_busy
        sample = SampleTime(number, now_ms)
        if number > created:
            if is_busy:
                value, calls = value + chance.randrange(100), calls + 1
            if history is None:
                history = History(sample, 3)
            history.add(number, (value, 0, calls), times)
        times.add(sample)
        samples.append((sample, value, calls))
        for (_, step_ms, _), row in zip(ROWS, all_row_times, strict=True):
            if not row or now_ms - row[-1].time_ms >= step_ms - 500:
                row.append(sample)
        if history is not None and number % 17 == 0:
            found = StatsItem(times, history, 0).snapshot()
            for (name, step_ms, count), row in zip(ROWS, all_row_times, strict=True):
                assert found[name] == expected(samples, created, row, step_ms, count), (number, name)


def test_history_of_an_idle_queue_does_not_grow() -> None:
    times, history = SampleTimes(), History(SampleTime(1, 10_000), 3)
    history.add(1, (5, 500, 5), times)
    before = sys.getsizeof(history._words)
    for number in range(1, 10_000):
        times.add(SampleTime(number, number * 10_000))
        history.add(number + 1, (5, 500, 5), times)
    assert sys.getsizeof(history._words) == before
    assert StatsItem(times, history, 0).snapshot()["statsDay"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}


def test_history_of_a_busy_queue_has_a_limit() -> None:
    times, history = SampleTimes(), History(SampleTime(1, 10_000), 3)
    for number in range(1, 10_000):
        history.add(number, (number, number * 100, number), times)
        times.add(SampleTime(number, number * 10_000))
    assert sys.getsizeof(history._words) < 2500
    assert StatsItem(times, history, 1).snapshot()["statsMinute"] == {"sum": 600, "tps": 10.0, "avgpt": 100.0}


def test_clock_step_back_begins_new_rows() -> None:
    times, history = SampleTimes(), History(SampleTime(1, 1_000_000), 3)
    for number, time_ms in enumerate((1_000_000, 1_010_000, 500_000, 510_000), 1):
        history.add(number, (number, 0, number), times)
        times.add(SampleTime(number, time_ms))
    assert StatsItem(times, history, 0).snapshot()["statsMinute"]["sum"] == 4
    assert [one.time_ms for one in times.rows[1]] == [1_000_000, 500_000]

"""Tables of counts and their samples: comparison with complete lists of samples, and memory size."""

import random
import sys
from collections.abc import Sequence

import pytest

from pocketmq.broker.stats.counts import ROWS, Counts, SampleTime, SampleTimes, StatsItem

Samples = list[tuple[SampleTime, int, int]]


def sample(times: SampleTimes, counts: Counts[str], time_ms: int) -> SampleTime:
    """Take a sample of a table."""
    taken = SampleTime(times.latest.number + 1, time_ms)
    for _ in counts.sampling(taken, times.latest.number):
        pass
    times.add(taken)
    counts.keep(times.numbers())
    return taken


def item(times: SampleTimes, counts: Counts[str], keys: Sequence[str] = ("q",), column: int = 0) -> StatsItem:
    return StatsItem(times, counts, [counts.places[key] for key in keys], column, calls_column=2)


def memory(counts: Counts[str]) -> int:
    """Return the bytes of all samples of a table."""
    blocks = {id(block): block for blocks in counts._samples.values() for block in blocks}
    return sum(map(sys.getsizeof, blocks.values()))


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
    times, counts, samples = SampleTimes(), Counts[str](3), []
    all_row_times: list[list[SampleTime]] = [[] for _ in ROWS]
    now_ms, value, calls, created = 1_700_000_000_000, 0, 0, chance.randrange(400)
    is_busy = True
    for number in range(1, 3000):
        now_ms += 10_000 if chance.random() < 0.97 else chance.choice((9_700, 11_000, 600_000, 3_600_000))
        if chance.random() < 0.02:
            is_busy = not is_busy
        if number > created:
            if is_busy:
                value, calls = value + chance.randrange(100), calls + 1
            counts.set_totals("q", (value, 0, calls))
        taken = sample(times, counts, now_ms)
        samples.append((taken, value, calls))
        for (_, step_ms, _), row in zip(ROWS, all_row_times, strict=True):
            if not row or now_ms - row[-1].time_ms >= step_ms - 500:
                row.append(taken)
        if number > created and number % 17 == 0:
            found = item(times, counts).snapshot()
            for (name, step_ms, count), row in zip(ROWS, all_row_times, strict=True):
                assert found[name] == expected(samples, created, row, step_ms, count), (number, name)


def test_figures_of_several_rows_are_their_sums() -> None:
    """A queue that is counted later has zero before, also if its row belonged to another queue before."""
    times, counts = SampleTimes(), Counts[str](3)
    for number in range(300):
        counts.set_totals(f"q{number}", (1, 10, 1))
    sample(times, counts, 10_000)
    counts.drop(["q7", "q200"])
    sample(times, counts, 20_000)
    counts.set_totals("late", (5, 50, 5))
    counts.set_totals("q8", (3, 30, 3))
    sample(times, counts, 30_000)
    both = item(times, counts, ("q8", "late"))
    assert counts.places["late"] in (7 * 3, 200 * 3), "a row is used again"
    assert [counts.at(number, both.places, 0) for number in (1, 2, 3)] == [1, 1, 8]
    assert both.snapshot()["statsMinute"] == {"sum": 8, "tps": 8 / 30, "avgpt": 1.0}


def test_sums_of_many_rows_are_those_of_a_loop() -> None:
    times, counts, keys = SampleTimes(), Counts[str](3), [f"q{number}" for number in range(500)]
    for number in range(1, 6):
        for place, key in enumerate(keys[: number * 100]):
            counts.set_totals(key, (number * place, 1, number))
        sample(times, counts, number * 10_000)
    for number in range(1, 6):
        known = keys[: number * 100]
        for column in range(3):
            many = counts.at(number, [counts.places[key] for key in keys], column)
            assert many == sum(counts.at(number, [counts.places[key]], column) for key in known)
    assert item(times, counts, keys).snapshot()["statsMinute"]["sum"] == 5 * sum(range(500))


def test_row_dropped_during_a_sample_does_not_begin_with_its_old_totals() -> None:
    times, counts = SampleTimes(), Counts[str](3)
    counts.set_totals("old", (100, 100, 100))
    steps = counts.sampling(SampleTime(1, 10_000), 0)
    next(steps)
    counts.drop(["old"])
    counts.set_totals("new", (1, 1, 1))
    assert list(steps) == []
    times.add(SampleTime(1, 10_000))
    counts.keep(times.numbers())
    sample(times, counts, 20_000)
    assert item(times, counts, ("new",)).snapshot()["statsMinute"]["sum"] == 1


def test_samples_of_idle_queues_take_no_memory() -> None:
    times, counts = SampleTimes(), Counts[str](3)
    for number in range(1000):
        counts.set_totals(f"q{number}", (5, 500, 5))
    sample(times, counts, 10_000)
    before = memory(counts)
    for number in range(2, 10_000):
        sample(times, counts, number * 10_000)
    assert memory(counts) == before
    assert item(times, counts, ("q0",)).snapshot()["statsDay"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}


def test_samples_of_busy_queues_have_a_limit() -> None:
    times, counts = SampleTimes(), Counts[str](3)
    for number in range(1, 10_000):
        counts.set_totals("q", (number, number * 100, number))
        sample(times, counts, number * 10_000)
    assert memory(counts) < 5000
    assert item(times, counts, column=1).snapshot()["statsMinute"] == {"sum": 600, "tps": 10.0, "avgpt": 100.0}


def test_clock_step_back_begins_new_rows() -> None:
    times, counts = SampleTimes(), Counts[str](3)
    for number, time_ms in enumerate((1_000_000, 1_010_000, 500_000, 510_000), 1):
        counts.set_totals("q", (number, 0, number))
        sample(times, counts, time_ms)
    assert item(times, counts).snapshot()["statsMinute"]["sum"] == 4
    assert [one.time_ms for one in times.rows[1]] == [1_000_000, 500_000]

"""Steps of the calendar clock do not affect running delays."""

import random

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.runtime.clock_steps import ClockSteps
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.broker.timed import DAY, MINUTE, SECOND, Timed


def copied(disk: Disk) -> MemoryDisk:
    """Return a copy of the disk as a killed process leaves it."""
    assert isinstance(disk, MemoryDisk)
    copy = MemoryDisk()
    for path in disk._files:
        copy.make_dirs(path.rpartition("/")[0])
        copy.write_file(path, bytes(disk.read_file(path)))
    return copy


class InterruptedClock(VirtualClock):
    """A clock that pauses for 8 ms after each of the next `pauses` readings of the calendar."""

    pauses = 0

    def message_time_ms(self) -> int:
        now_ms = super().message_time_ms()
        if self.pauses:
            self.pauses -= 1
            self.advance(8)
        return now_ms


class Log:
    """Records of 100 bytes with their store times, by the calendar (as in the log) and by the monotonic clock."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        self.clock = clock or VirtualClock()
        self.steps = ClockSteps(self.clock)
        self.stored: list[tuple[int, int]] = []

    @property
    def last_ms(self) -> int:
        return self.stored[-1][0] if self.stored else 0

    def put(self) -> None:
        self.stored.append((max(self.clock.message_time_ms(), self.last_ms), self.clock.steady_ms()))

    def note(self) -> None:
        self.steps.note(100 * len(self.stored), self.last_ms)

    def late_ms(self) -> list[int]:
        """Return for each record how late a delay would end, by the monotonic clock."""
        now_ms, steady_ms = self.clock.message_time_ms(), self.clock.steady_ms()
        return [
            stored_ms + self.steps.shift_ms(100 * row, stored_ms) - now_ms - (stored_steady_ms - steady_ms)
            for row, (stored_ms, stored_steady_ms) in enumerate(self.stored)
        ]


@pytest.mark.parametrize("seed", range(30))
def test_delays_are_never_early_and_hardly_late_after_any_clock_steps(seed: int) -> None:
    rng, log = random.Random(seed), Log()
    for _ in range(400):
        for _ in range(rng.choice((0, 1, 5))):
            log.put()
            log.clock.advance(rng.choice((0, 0, 1)))
        if rng.random() < 0.03:
            log.clock.step(rng.choice((-1, 1)) * rng.choice((3, 500, MINUTE)))
        log.note()
        log.clock.advance(rng.choice((0, 1, 10, 1000)))
        # The service notes the clock several times a second.
        log.note()
    late = log.late_ms()
    assert min(late) >= -1
    assert max(late) <= 150 and sorted(late)[len(late) // 2] <= 20


@pytest.mark.parametrize("step", [-MINUTE, MINUTE, -5, 5, -DAY, DAY])
def test_clock_step_between_two_turns_is_measured_to_the_millisecond(step: int) -> None:
    log = Log()
    for _ in range(3):
        log.put()
        log.note()
        log.clock.advance(10)
    log.note()
    log.clock.step(step)
    assert log.steps.shift_ms(0, log.stored[0][0]) == 0
    log.note()
    assert log.late_ms() == [0, 0, 0]
    assert log.steps.ahead_ms == max(-step, 0)
    if step > 0:
        log.put()
        log.note()
        assert log.late_ms() == [0, 0, 0, 0]


@pytest.mark.parametrize("pauses", [1, 2, 100])
def test_pause_between_two_clock_readings_ends_no_delay_early(pauses: int) -> None:
    clock = InterruptedClock()
    log = Log(clock)
    log.put()
    log.note()
    clock.pauses = pauses
    log.note()
    clock.pauses = 0
    assert log.late_ms() == [0]
    log.put()
    log.note()
    assert log.late_ms() == [0, 0]
    clock.step(-MINUTE)
    log.note()
    assert log.late_ms() == [0, 0]


def test_pause_at_the_start_makes_no_earlier_delay_late() -> None:
    clock = InterruptedClock()
    stored_ms = clock.message_time_ms()
    clock.advance(SECOND)
    clock.pauses = 1
    steps = ClockSteps(clock)
    steps.note(100, stored_ms)
    assert steps.shift_ms(0, stored_ms) == 0


@pytest.mark.parametrize("place", [(100, 0), (100, -1), (100, -(2**63)), (-1, 1), (-(2**63), 0)])
def test_damaged_record_counts_as_the_earliest(place: tuple[int, int]) -> None:
    log = Log()
    log.put()
    log.clock.step(SECOND)
    log.note()
    assert log.steps.shift_ms(*place) == log.steps.shift_ms(0, 1) == SECOND


def test_steps_of_deleted_records_are_forgotten() -> None:
    log = Log()
    for step in (MINUTE, -MINUTE, MINUTE, -MINUTE, 0):
        log.put()
        log.clock.step(step)
        log.note()
        log.clock.advance(2 * MINUTE)
        log.note()
    assert log.steps.ahead_ms == MINUTE and log.late_ms() == [0] * 5
    log.steps.forget(300)
    assert log.late_ms()[3:] == [0, 0]
    log.steps.forget(10_000)
    assert log.steps.ahead_ms == 0


@pytest.mark.parametrize("step", [-MINUTE, MINUTE])
async def test_deliver_times_follow_the_calendar_and_delays_do_not(step: int) -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    t.put("delay", TIMER_DELAY_SEC=90)
    t.put("time", TIMER_DELIVER_MS=now + 90 * SECOND)
    await t.advance(SECOND)
    t.clock.step(step)
    await t.settle()
    await t.advance(89 * SECOND - 1)
    assert ("delay" in t.bodies(), "time" in t.bodies()) == (False, step > 0)
    await t.advance(1)
    assert "delay" in t.bodies()
    await t.advance(MINUTE)
    assert sorted(t.bodies()) == ["delay", "time"]


async def test_delay_sent_after_a_step_back_is_not_prolonged() -> None:
    t = Timed()
    t.put("before", TIMER_DELAY_MS=5000)
    t.clock.step(-MINUTE)
    # The log's store times do not advance for a minute.
    t.put("after", TIMER_DELAY_MS=5000)
    await t.advance(4999)
    assert t.bodies() == []
    await t.advance(21)
    assert sorted(t.bodies()) == ["after", "before"]


@pytest.mark.parametrize("ahead", [5 * SECOND, 60 * MINUTE, DAY])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "kill"])
async def test_timers_are_on_time_after_a_run_with_the_calendar_ahead(ahead: int, is_clean: bool) -> None:
    clock = VirtualClock()
    now = clock.message_time_ms()
    t = Timed(clock=VirtualClock(now + ahead))
    t.put("done", TIMER_DELAY_MS=2000)
    await t.advance(3000)
    t.put("open", TIMER_DELAY_MS=20 * SECOND)
    await t.settle()
    assert t.bodies() == ["done"]
    if is_clean:
        t.stop()
    else:
        t.delays.stop()
        t.store.commit_log.tail.write()
    # The calendar is right again; the log's store times do not advance until it has reached them.
    t = Timed(t.disk if is_clean else copied(t.disk), VirtualClock(now + 4000))
    t.put("delay", TIMER_DELAY_MS=5000)
    t.put("time", TIMER_DELIVER_MS=now + 9000)
    await t.advance(4999)
    assert t.bodies() == ["done"]
    await t.advance(1)
    assert sorted(t.bodies()) == ["delay", "done", "time"]
    # For messages stored before, only a lower bound of the calendar's lead is known.
    await t.advance(15 * SECOND)
    assert sorted(t.bodies()) == ["delay", "done", "open", "time"]
    for _ in range(3):
        t.put("more", TIMER_DELAY_MS=1000)
        await t.advance(1030 + ahead // 4096)  # a large step back is recorded less precisely
    assert t.bodies().count("more") == 3


def test_store_times_in_the_future_at_a_start_are_recognized() -> None:
    clock = VirtualClock()
    now_ms = clock.message_time_ms()
    steps = ClockSteps(clock)
    steps.note(500, now_ms + DAY)
    assert steps.shift_ms(0, now_ms - 1) == 0  # stored before the calendar was ahead, as far as can be told
    assert steps.shift_ms(400, now_ms + DAY) == steps.shift_ms(600, now_ms + DAY) == -DAY
    assert steps.ahead_ms == DAY

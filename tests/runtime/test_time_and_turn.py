"""Timers, and the steps at the end of an event-loop turn."""

import asyncio
import gc
import time

import pytest

from pocketmq.runtime.clock import SystemClock, VirtualClock
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.turn import Phase, Turn
from tests.patience import PATIENCE_S

DAY_MS = 86_400_000


async def test_virtual_timers_run_in_order_when_message_time_moves_and_never_early():
    clock, ran = VirtualClock(0), []
    timers = Timers(clock, asyncio.get_running_loop())
    for when_ms in (400 * DAY_MS, 5, 10):
        timers.at_ms(when_ms, lambda when_ms=when_ms: ran.append((when_ms, clock.message_time_ms())))
    timers.at_ms(10, lambda: ran.append("second at 10"))
    timers.at_ms(10, lambda: ran.append("cancelled")).cancel()
    clock.advance(4)
    assert ran == []
    clock.advance(6)
    assert ran == [(5, 10), (10, 10), "second at 10"]
    clock.set_ms(0)
    clock.advance(400 * DAY_MS)
    assert ran[3:] == [(400 * DAY_MS, 400 * DAY_MS)]


async def test_timer_with_a_past_time_runs_in_the_next_turn():
    clock, ran = VirtualClock(100), asyncio.Event()
    Timers(clock, asyncio.get_running_loop()).at_ms(50, ran.set)
    assert not ran.is_set()
    await asyncio.wait_for(ran.wait(), PATIENCE_S)


async def test_liveness_timers_do_not_follow_message_time():
    clock, ran = VirtualClock(), []
    timers = Timers(clock, asyncio.get_running_loop())
    timers.after(3600, lambda: ran.append("late"))
    again = timers.every(0.001, lambda: ran.append("again"))
    clock.advance(400 * DAY_MS)
    assert ran == []
    end = time.monotonic() + PATIENCE_S
    while len(ran) < 2:
        assert time.monotonic() < end
        await asyncio.sleep(0.001)
    again.cancel()
    assert set(ran) == {"again"}


async def test_finished_timer_leaves_no_reference_cycle():
    def there() -> int:
        return sum(isinstance(found, Timer) for found in gc.get_objects())

    clock, ran = SystemClock(), []
    timers = Timers(clock, asyncio.get_running_loop())
    gc.collect()
    gc.disable()
    try:
        before = there()
        timers.after(0, lambda: ran.append("after"))
        timers.at_ms(clock.message_time_ms(), lambda: ran.append("at"))
        assert there() == before + 2
        end = time.monotonic() + PATIENCE_S
        while len(ran) < 2:
            assert time.monotonic() < end
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the loop drops its reference to the handle
        assert there() == before
    finally:
        gc.enable()


async def test_system_timer_is_not_early_when_the_clock_is_set_back():
    class SetBack(SystemClock):
        behind_ms = 0

        def message_time_ms(self):
            return super().message_time_ms() - self.behind_ms

    clock, ran = SetBack(), asyncio.Event()
    due_ms = clock.message_time_ms() + 20
    Timers(clock, asyncio.get_running_loop()).at_ms(due_ms, ran.set)
    clock.behind_ms = 40
    await asyncio.wait_for(ran.wait(), PATIENCE_S)
    assert clock.message_time_ms() >= due_ms


@pytest.mark.parametrize("kind", ["at_ms", "after", "every"])
async def test_failed_callback_does_not_stop_the_others(kind, caplog):
    timers, ran = Timers(SystemClock(), asyncio.get_running_loop()), asyncio.Event()
    timer = getattr(timers, kind)(0.001 if kind != "at_ms" else 0, lambda: 1 / 0)
    timers.after(0.002, ran.set)
    await asyncio.wait_for(ran.wait(), PATIENCE_S)
    timer.cancel()
    assert "a timer's callback failed" in caplog.text


async def test_phases_run_in_order_once_after_all_events_of_the_turn():
    loop, ran = asyncio.get_running_loop(), []
    turn = Turn(loop)
    for phase in (Phase.REPLY, Phase.DISPATCH, Phase.WAKE, Phase.FLUSH):
        turn.add(phase, lambda phase=phase: ran.append(phase))
    turn.add(Phase.DISPATCH, lambda: ran.append("second"))
    done = loop.create_future()
    loop.call_soon(lambda: (turn.arm(), ran.append("event 1")))
    loop.call_soon(lambda: (turn.arm(), ran.append("event 2"), loop.call_later(0.001, done.set_result, None)))
    await done
    assert ran == ["event 1", "event 2", Phase.DISPATCH, "second", Phase.FLUSH, Phase.WAKE, Phase.REPLY]


async def test_step_runs_in_turns_with_something_pending_or_when_it_is_due():
    turn, pending, ran = Turn(asyncio.get_running_loop()), [], []
    step = turn.add(Phase.REPLY, lambda: ran.append(len(pending)), pending, is_always_due=False)
    turn.run()
    assert ran == []
    pending.append("answer")
    turn.run()
    pending.clear()
    turn.run()
    assert ran == [1]
    step.set_due(True)
    turn.run()
    turn.run()
    assert ran == [1, 0, 0]


async def test_failed_step_does_not_prevent_the_replies(caplog):
    ran = []
    turn = Turn(asyncio.get_running_loop())
    turn.add(Phase.DISPATCH, lambda: 1 / 0)
    turn.add(Phase.REPLY, lambda: ran.append("replied"))
    turn.run()
    assert ran == ["replied"] and "ZeroDivisionError" in caplog.text

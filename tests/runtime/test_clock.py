import time

import pytest

from pocketmq.runtime.clock import SystemClock, VirtualClock


def test_system_clock_returns_epoch_milliseconds() -> None:
    before = time.time()
    now_ms = SystemClock().message_time_ms()
    assert before * 1000 - 1 <= now_ms <= time.time() * 1000


def test_virtual_clock_moves_only_when_set_and_calls_its_subscribers() -> None:
    clock = VirtualClock(1000)
    told: list[int] = []
    clock.subscribe(told.append)
    clock.advance(400 * 86_400_000)
    clock.set_ms(500)
    assert told == [1000 + 400 * 86_400_000, 500]
    assert clock.message_time_ms() == 500


def test_monotonic_time_does_not_follow_message_time() -> None:
    clock = VirtualClock()
    before = clock.monotonic()
    clock.advance(1_000_000)
    assert 0 <= clock.monotonic() - before < 100


def test_steady_time_advances_with_message_time_but_cannot_be_set() -> None:
    clock = VirtualClock(1000)
    began = clock.steady_ms()
    clock.advance(50)
    clock.step(-60_000)
    clock.set_ms(7)
    assert (clock.message_time_ms(), clock.steady_ms() - began) == (7, 50)
    with pytest.raises(ValueError, match="advance by -1 ms; `step`"):
        clock.advance(-1)
    before = SystemClock().steady_ms()
    assert 0 <= SystemClock().steady_ms() - before < 10_000

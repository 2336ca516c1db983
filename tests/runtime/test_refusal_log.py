"""Refusals that last: said at once, then each minute with their number."""

import logging
import tracemalloc

import pytest

from runtime import refusal_log
from runtime.refusal_log import RefusalLog


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(refusal_log.time, "monotonic", lambda: now[0])
    return now


def test_a_refusal_is_said_at_once_and_each_minute_with_its_number(caplog, clock):
    refusals = RefusalLog(logging.getLogger("t"))
    for second in range(130):
        clock[0] = 1000.0 + second
        refusals.say("a", "full")
    assert [record.message for record in caplog.records] == [
        "full", "full (59 more since this was last said)", "full (59 more since this was last said)",
    ]  # fmt: skip


def test_what_was_over_is_said_at_once_again(caplog, clock):
    refusals = RefusalLog(logging.getLogger("t"))
    refusals.say("a", "full")
    refusals.forget("a")
    refusals.forget("b")
    refusals.say("a", "full")
    assert [record.message for record in caplog.records] == ["full", "full"]


def test_made_up_reasons_take_neither_memory_nor_log(caplog, clock):
    refusals = RefusalLog(logging.getLogger("t"))
    caplog.set_level(logging.CRITICAL)
    tracemalloc.start()
    for number in range(20_000):
        refusals.say(f"reason {number}" * 20, "refused")
    assert tracemalloc.get_traced_memory()[0] < 500_000
    tracemalloc.stop()
    assert len(refusals._said) <= refusal_log.REASONS_MAX + 1
    clock[0] += 61
    caplog.set_level(logging.WARNING)
    for number in range(1000):
        refusals.say(f"another {number}", "refused")
    assert len(caplog.records) <= refusal_log.REASONS_MAX + 1

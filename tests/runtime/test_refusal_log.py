"""Rate-limited logging of refusals."""

import logging
import tracemalloc

import pytest

from pocketmq.runtime.refusal_log import CAUSES_MAX, RefusalLog
from tests.support.memory import traced_memory


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.value = 1000.0

    def __call__(self) -> float:
        return self.value


@pytest.fixture
def now():
    return Seconds()


def test_refusal_is_logged_at_once_and_each_minute_with_its_count(caplog, now):
    refusals = RefusalLog(logging.getLogger("t"), "full", now=now)
    for second in range(130):
        now.value = 1000.0 + second
        refusals.refused("a", "no room")
    assert [record.message for record in caplog.records] == [
        "full: no room", "full: no room (60 times in the last 60 s)", "full: no room (60 times in the last 60 s)",
    ]  # fmt: skip


def test_end_of_a_cause_is_logged_with_its_count(caplog, now):
    refusals = RefusalLog(logging.getLogger("t"), now=now)
    refusals.refused("a", "full")
    refusals.refused("a", "full")
    now.value += 5
    refusals.over("a")
    refusals.over("b")
    assert [record.message for record in caplog.records] == ["full", "resolved: full (2 times in 5 s)"]


def test_intermittent_cause_is_logged_once_a_minute(caplog, now):
    refusals = RefusalLog(logging.getLogger("t"), now=now)
    for _ in range(20):
        refusals.refused("a", "full")
        refusals.over("a")
        now.value += 1
    assert len(caplog.records) == 2
    now.value += 60
    refusals.refused("a", "full")
    assert caplog.records[-1].message == "full"


def test_causes_beyond_the_limit_are_counted_as_one(caplog, now):
    refusals = RefusalLog(logging.getLogger("t"), now=now)
    caplog.set_level(logging.CRITICAL)
    tracemalloc.start()
    for number in range(20_000):
        refusals.refused(f"cause {number}" * 20, "refused")
    assert traced_memory() < 500_000
    tracemalloc.stop()
    now.value += 61
    caplog.set_level(logging.WARNING)
    for number in range(1000):
        refusals.refused(f"another {number}", "refused")
    assert len(caplog.records) <= CAUSES_MAX + 2

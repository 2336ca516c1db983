"""Statistics by topic, queue and group, over a minute, an hour and a day."""

from datetime import datetime, timedelta

import pytest

from pocketmq.broker.stats.stats import BrokerStats
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.message import Arrival
from tests.broker.sampling import sample


class Clock(VirtualClock):
    def monotonic(self) -> float:
        return self.message_time_ms() / 1000


def stats(clock: Clock | None = None) -> BrokerStats:
    return BrokerStats("c", clock or Clock())


def put(s: BrokerStats, topic: str, queue_id: int, count: int, size: int) -> None:
    """Count `count` messages of `size` bytes in total that arrived in a queue in one turn."""
    s.arrived([Arrival(topic, queue_id, count, [0] * count, 0, size)])


def test_batch_is_counted_once_per_statistic() -> None:
    s = stats()
    put(s, "T", 0, 3, 300)
    put(s, "T", 1, 1, 50)
    s.get(("g", "T", 0), 2, 200, 0.0)
    s.send_back("g", "T")
    sample(s)
    sums = {
        (name, key): s.samples.item(name, key).snapshot()["statsMinute"]["sum"]  # type: ignore[union-attr]
        for name, key in [
            ("TOPIC_PUT_NUMS", "T"), ("TOPIC_PUT_SIZE", "T"), ("QUEUE_PUT_NUMS", "T@1"), ("QUEUE_PUT_SIZE", "T@0"),
            ("BROKER_PUT_NUMS", "c"), ("GROUP_GET_NUMS", "T@g"), ("GROUP_GET_SIZE", "T@g"), ("QUEUE_GET_NUMS", "T@0@g"),
            ("QUEUE_GET_SIZE", "T@0@g"), ("BROKER_GET_NUMS", "c"), ("SNDBCK_PUT_NUMS", "T@g"),
        ]
    }  # fmt: skip
    assert list(sums.values()) == [4, 350, 1, 300, 4, 2, 200, 2, 200, 2, 1]
    assert s.samples.item("TOPIC_PUT_NUMS", "U") is None


def test_rates_over_a_minute_and_an_hour() -> None:
    clock = Clock()
    s = stats(clock)
    put(s, "T", 0, 1, 1)
    sample(s)
    for _ in range(60):  # ten minutes at one message a second
        clock.advance(10_000)
        for _ in range(5):
            put(s, "T", 0, 2, 2)
        sample(s)
    item = s.samples.item("TOPIC_PUT_NUMS", "T")
    assert item is not None
    snapshot = item.snapshot()
    assert snapshot["statsMinute"] == {"sum": 60, "tps": 1.0, "avgpt": 1.0}
    assert snapshot["statsHour"]["sum"] == snapshot["statsDay"]["sum"] == 601
    assert s.group_get_tps("g", "T") == 0.0


def test_statistics_of_the_last_minute_exclude_older_messages() -> None:
    clock = Clock()
    s = stats(clock)
    put(s, "T", 0, 100, 1)
    for _ in range(8):
        sample(s)
        clock.advance(10_000)
    item = s.samples.item("TOPIC_PUT_NUMS", "T")
    assert item is not None and item.snapshot()["statsMinute"] == {"sum": 0, "tps": 0.0, "avgpt": 0.0}


def test_rates_over_the_windows_of_the_runtime_info() -> None:
    clock = Clock()
    s = stats(clock)
    assert s.tps()["putTps"] == [0.0, 0.0, 0.0]
    for second in range(100):
        put(s, "T", 0, 4 if second >= 90 else 2, 1)
        s.get(("g", "T", 0), 3, 1, 0.0)
        s.misses += 1
        clock.advance(1_000)
        s.sample_tps()
    rates = s.tps()
    assert rates["putTps"] == [4.0, pytest.approx(140 / 60), pytest.approx(2.2)]
    assert rates["getFoundTps"] == rates["getMissTps"] == [1.0, 1.0, 1.0]
    assert rates["getTotalTps"] == [2.0, 2.0, 2.0] and rates["getTransferedTps"] == [3.0, 3.0, 3.0]


def test_totals_at_midnight() -> None:
    noon = datetime(2026, 3, 2, 12)
    clock = Clock(int(noon.timestamp() * 1000))
    s = stats(clock)
    sample(s)
    for day in range(1, 3):
        put(s, "T", 0, 10, 1)
        clock.set_ms(int((noon + timedelta(days=day)).timestamp() * 1000))
        sample(s)
    put(s, "T", 0, 1, 1)
    totals = s.day_totals()
    assert (totals["msgPutTotalYesterdayMorning"], totals["msgPutTotalTodayMorning"], totals["msgPutTotalTodayNow"]) == (
        10,
        20,
        21,
    )


def test_statistics_of_a_deleted_topic_are_dropped() -> None:
    s = stats()
    put(s, "T", 0, 1, 1)
    s.get(("g", "T", 0), 1, 1, 0.0)
    put(s, "U", 0, 1, 1)
    sample(s)
    s.forget_topic("T")
    sample(s)
    assert s.samples.item("TOPIC_PUT_NUMS", "T") is None and s.samples.item("GROUP_GET_NUMS", "T@g") is None
    assert s.samples.item("TOPIC_PUT_NUMS", "U") is not None


def test_sampling_in_steps_allows_messages_in_between() -> None:
    clock = Clock()
    s = stats(clock)
    for number in range(5000):
        s.get((f"g{number}", "T", 0), 2, 200, 0.0)
    pieces = s.sampling()
    for count, _ in enumerate(pieces):
        if count == 10:
            put(s, "T", 7, 1, 10)
            s.get(("late", "T", 0), 1, 10, 0.0)
    assert count > 30, "many small steps"
    assert all(s.samples.item("GROUP_GET_NUMS", f"T@g{number}") is not None for number in range(5000))
    sample(s)
    item = s.samples.item("GROUP_GET_NUMS", "T@late")
    assert item is not None and item.latest() == 1


def test_topic_deleted_during_sampling_has_no_statistics() -> None:
    s = stats()
    for number in range(5000):
        s.get((f"g{number}", "T", 0), 2, 200, 0.0)
    pieces = s.sampling()
    for _ in range(10):
        next(pieces)
    s.forget_topic("T")
    for _ in pieces:
        pass
    assert s.samples.item("GROUP_GET_NUMS", "T@g0") is None

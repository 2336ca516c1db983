"""Levels and timers are delivered by one engine: in the order of their due times, and after a refusal once each."""

import asyncio
import random
from collections.abc import Callable

import pytest

from pocketmq.broker.delay.engine import REFUSED_MAX
from pocketmq.broker.delay.pending import Wanted
from pocketmq.store.format.message import SCHEDULE_TOPIC, Message, PutResult, PutStatus
from pocketmq.store.format.properties import encode_properties
from tests.broker.timed import HOST, SECOND, Timed
from tests.patience import PATIENCE_S
from tests.store.power_cut_disk import PowerCutDisk


class Delayed(Timed):
    """Also puts messages of the first level, and can refuse copies."""

    def level(self, body: str) -> None:
        properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "2", "UNIQ_KEY": f"id-{body}"}
        stored = encode_properties(properties).encode()
        message = Message(SCHEDULE_TOPIC, 0, body.encode(), HOST, HOST, properties=properties, properties_bytes=stored)
        assert self.store.commit_log.put(message).status is PutStatus.PUT_OK
        self.turn.run()

    def refuse(self) -> tuple[list[str], Callable[[], None]]:
        """Refuse copies; return the list of their bodies, and a function with which they are accepted again."""
        put, tried = self.store.commit_log.put, []

        def refusing(message: Message) -> PutResult:
            if message.topic != "T":
                return put(message)
            tried.append(bytes(message.body).decode())
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="no room")

        self.store.commit_log.put = refusing  # type: ignore[method-assign]

        def accept() -> None:
            self.store.commit_log.put = put  # type: ignore[method-assign]

        return tried, accept

    async def until_delivered(self, count: int) -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.bodies()) < count:
                await asyncio.sleep(0.001)
                self.turn.run()
        return self.bodies()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_levels_and_timers_are_delivered_in_the_order_of_their_due_times() -> None:
    t = Delayed()
    t.put("b", TIMER_DELAY_MS=1001)
    t.level("a")  # due after 1000 ms
    t.put("first", TIMER_DELAY_MS=500)
    t.put("c", TIMER_DELAY_MS=3700)
    await t.settle()
    t.clock.advance(5000)
    assert await t.until_delivered(4) == ["first", "a", "b", "c"]


async def test_while_copies_are_refused_only_some_are_tried_and_each_is_delivered_once() -> None:
    t = Delayed()
    for number in range(20):
        t.level(f"level {number}")
        t.put(f"timer {number}", TIMER_DELIVER_MS=t.clock.message_time_ms() + 1000)
    await t.settle()
    tried, accept = t.refuse()
    t.clock.advance(2000)
    await turns()
    assert len(set(tried)) == REFUSED_MAX and t.bodies() == []
    assert not t.delays.is_idle
    accept()
    expected = sorted(f"{kind} {number}" for kind in ("level", "timer") for number in range(20))
    assert sorted(await t.until_delivered(40)) == expected
    await t.settle()
    assert len(t.bodies()) == 40


async def test_refused_messages_are_pending_and_survive_a_kill() -> None:
    disk = PowerCutDisk(rng=random.Random(1))
    t = Delayed(disk)
    t.level("level")
    t.put("timer", TIMER_DELAY_MS=SECOND)
    await t.settle()
    t.refuse()
    t.clock.advance(2 * SECOND)
    await turns()
    assert [pending.physical_offset for pending in t.service.waiting.pending()] != []
    assert t.service.delivered_to_ms < t.clock.message_time_ms() - SECOND + 1
    t.delays.stop()
    again = Delayed(disk.killed(), t.clock)
    assert sorted(await again.until_delivered(2)) == ["level", "timer"]


async def test_message_cancelled_while_it_waits_for_another_attempt_is_not_delivered() -> None:
    t = Delayed()
    t.put("cancelled", TIMER_DELAY_MS=1500)
    t.put("kept", TIMER_DELAY_MS=1500)
    await t.settle()
    tried, accept = t.refuse()
    t.clock.advance(1500)
    await turns()
    assert set(tried) == {"cancelled", "kept"}
    out_ms = next(iter(t.service.waiting.pending())).out_ms
    t.cancel("cancelled", out_ms)
    await turns()
    accept()
    assert await t.until_delivered(1) == ["kept"]
    await t.settle()
    assert t.bodies() == ["kept"]


async def test_messages_of_levels_and_timers_are_counted_by_hour() -> None:
    t = Delayed()
    now_ms, hour_ms = t.clock.message_time_ms(), 3_600_000
    hours: dict[int, int] = {}
    for number in range(40):
        due_ms = now_ms + 1000 + number * 1_234_567
        t.put(f"{number}", TIMER_DELIVER_MS=due_ms)
        hours[due_ms // hour_ms * hour_ms] = hours.get(due_ms // hour_ms * hour_ms, 0) + 1
    t.level("level")
    due_ms = now_ms + 1000
    hours[due_ms // hour_ms * hour_ms] += 1
    t.cancel("30", (now_ms + 1000 + 30 * 1_234_567 - 1) // SECOND * SECOND)
    counts, cursor = t.services.delay_query.count(Wanted(), None)
    assert ({int(hour): count for hour, count in counts.hours.items()}, counts.cancelled, cursor) == (hours, 1, None)


async def test_unexpected_failure_of_one_delivery_loses_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Delayed()
    t.level("level")
    t.put("timer", TIMER_DELAY_MS=SECOND)
    await t.settle()
    put, failures = t.store.commit_log.put, [RuntimeError("once"), KeyError("twice")]

    def failing(message: Message) -> PutResult:
        if message.topic == "T" and failures:
            raise failures.pop()
        return put(message)

    monkeypatch.setattr(t.store.commit_log, "put", failing)
    t.clock.advance(SECOND)
    assert sorted(await t.until_delivered(2)) == ["level", "timer"]
    assert failures == []


async def test_stopped_deliveries_cause_no_work_and_are_made_up_for() -> None:
    t = Delayed(stop_dequeue=True)
    for number in range(5):
        t.put(f"{number}", TIMER_DELAY_MS=1000 * number + 500)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(8):
            await t.advance(1000)  # until nothing is to be done
    assert t.bodies() == []
    t.stop()
    assert await Delayed(t.disk, t.clock).until_delivered(5) == ["0", "1", "2", "3", "4"]

"""Timers through kills and power cuts at any step: none is lost or early, only deliveries in progress are repeated."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.runtime.clock import VirtualClock
from tests.broker.built import InlineExecutor
from tests.broker.timed import DAY, MINUTE, SECOND, Timed
from tests.store.power_cut_disk import PowerCutDisk, Stopped
from tests.support.amount import cases

DELAYS_MS = (1, 3, 700, 999, 1000, 1001, 2500, 30 * SECOND, 59 * SECOND, 61 * SECOND, 200 * SECOND, 1000 * SECOND, DAY)


class HandLoop:
    """An event loop that runs only on request, and does not catch the simulated crash."""

    def __init__(self) -> None:
        self.ready: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.later: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> "HandLoop":
        self.ready.append((callback, args))
        return self

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> "HandLoop":
        (self.later if delay_s else self.ready).append((callback, args))
        return self

    def cancel(self) -> None:
        pass

    def run(self) -> None:
        ready, self.ready = self.ready, []
        for callback, args in ready:
            callback(*args)

    def wait(self) -> None:
        self.ready += self.later
        self.later = []
        self.run()


class Life:
    """One process. `delivered` lists its copies; `marked` and `flushed` count those covered by the last mark and flush."""

    def __init__(self, walk: "Walk") -> None:
        self.walk, self.loop = walk, HandLoop()
        self.delivered: list[str] = []
        self.marked = self.flushed = 0
        self.stop_after = -1
        # A service marks and delivers already while it recovers, so it is watched from the beginning.
        self.timed = Timed(walk.disk, walk.clock, self.loop, self.watch, **walk.settings)

    def watch(self, timed: Timed) -> None:
        put, mark = timed.store.commit_log.put, timed.timer_store.mark

        def watched_put(message: Any) -> Any:
            result = put(message)
            if message.topic == "T" and result.physical_offset >= 0:
                body = bytes(message.body).decode()
                self.delivered.append(body)
                assert self.walk.due[body] <= self.walk.clock.message_time_ms(), f"{body} is early"
                self.stop_after -= 1
                if self.stop_after == 0:
                    raise Stopped
            return result

        def watched_mark(*args: Any) -> None:
            mark(*args)
            self.marked = len(self.delivered)

        timed.store.commit_log.put = watched_put  # type: ignore[method-assign]
        timed.timer_store.mark = watched_mark  # type: ignore[method-assign]

    def settle(self) -> None:
        for _ in range(3):
            while self.loop.ready:
                self.loop.run()
            if self.timed.service.refusal is not None:
                self.loop.wait()

    def persist(self) -> None:
        known = self.marked
        self.timed.store.flush_service.flush_log()
        self.timed.delays.mark_in(InlineExecutor())
        self.flushed = known


class Walk:
    def __init__(self, seed: int, kills: tuple[bool, ...]) -> None:
        self.rng = random.Random(seed)
        self.kills = kills
        self.disk = PowerCutDisk(rng=self.rng)
        self.clock = VirtualClock(1_800_000_000_000)
        file_size = self.rng.choice((52 * 20 + 16, 1 << 14))
        self.settings = {"slots_total": 200, "roll_window_slots": self.rng.choice((60, 140)), "log_file_size": file_size}
        self.due: dict[str, int] = {}
        self.cancelled: set[str] = set()
        # Copies that no durable mark covers, and copies that may be delivered again after the end of a process.
        self.unflushed: list[str] = []
        self.unknown: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(4):
            self.disk.changes_left = None if self.rng.random() < 0.3 else self.rng.randrange(80)
            self.live()
        self.disk.changes_left = None
        self.check()

    def live(self) -> None:
        rng = self.rng
        killed, life = rng.choice(self.kills), None
        try:
            life = Life.__new__(Life)
            life.__init__(self)  # type: ignore[misc]
            life.stop_after = rng.choice((-1, -1, rng.randrange(1, 60)))
            for _ in range(rng.randrange(1, 30)):
                self.step(life)
        except Stopped:
            pass
        self.unflushed = life.delivered[life.flushed :] if life.flushed else self.unflushed + life.delivered
        self.unknown.update(life.delivered[life.marked :] if killed else self.unflushed)
        self.disk = self.disk.killed() if killed else self.disk.power_cut(rng)
        # A new clock, because the old one has the listeners of the ended process.
        away_ms = rng.choice((0, 1, 500, 5 * SECOND, 300 * SECOND))
        self.clock = VirtualClock(self.clock.message_time_ms() + away_ms)

    def step(self, life: Life) -> None:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.45:
            for _ in range(rng.choice((1, 1, 3, 40))):
                self.put(life)
            life.timed.turn.run()
        elif kind < 0.5 and self.due:
            self.cancel(life, rng.choice(list(self.due)))
        elif kind < 0.85:
            self.clock.advance(rng.choice((1, 1, 10, 500, 1000, 3 * SECOND, 40 * SECOND)))
        elif kind < 0.95:
            life.persist()
        else:
            self.disk.write_back(rng)
        if rng.random() < 0.8:
            life.settle()
            self.count(life)

    def count(self, life: Life) -> None:
        """Check the wheel's counts, and the hashes of near timers, against every unit."""
        service = life.timed.service
        hashes = sum(service.waiting.counts_by_topic_hash().values())  # enters all postponed messages into the wheel
        count, is_loading = service.count(), service._loader.is_loading
        hours = service.waiting.counts_by_hour().values()
        messages, cancelling = (sum(numbers) for numbers in zip(*hours, strict=True)) if hours else (0, 0)
        if is_loading:  # an earlier process began to deliver the slot: some timers are delivered, or in it twice
            assert hashes >= messages and count >= messages - cancelling
        else:
            assert (hashes, count) == (messages, messages - cancelling)

    def put(self, life: Life) -> None:
        body, now_ms = f"{len(self.due)}", self.clock.message_time_ms()
        delay_ms = self.rng.choice(DELAYS_MS)
        self.due[body] = now_ms + delay_ms
        if self.rng.random() < 0.5:
            life.timed.put(body, turn=False, TIMER_DELAY_MS=delay_ms)
        else:
            life.timed.put(body, turn=False, TIMER_DELIVER_MS=now_ms + delay_ms)

    def cancel(self, life: Life, body: str) -> None:
        if self.due[body] > self.clock.message_time_ms() + SECOND:
            self.cancelled.add(body)
            life.timed.cancel(body, (self.due[body] - 1) // SECOND * SECOND)

    def check(self) -> None:
        """Let everything become due, and check the copies in the log."""
        life = Life.__new__(Life)
        life.__init__(self)  # type: ignore[misc]
        life.settle()
        for _ in range(2 * DAY // (30 * MINUTE)):
            self.clock.advance(30 * MINUTE)
            life.settle()
        assert life.timed.service.waiting.counts_by_hour() == {}
        self.disk.note_all_written()
        assert not [text for text in self.disk.unreserved if "timer" in text]
        stored, cancelled = set(), set()
        for record in life.timed.records("rmq_sys_wheel_timer", 0):
            if record.body == b"0" and b"TIMER_DEL_UNIQKEY" in record.properties:
                cancelled.add(record.properties.partition(b"id-")[2].partition(b"\x02")[0].decode())
            elif record.topic == b"rmq_sys_wheel_timer":  # or the filler of a hole
                stored.add(record.body.decode())
        copies = Counter(life.timed.bodies())
        assert stored - copies.keys() <= cancelled, "lost"
        assert not (copies.keys() - self.unknown.keys()) & (cancelled & stored), "cancelled, but delivered"
        for body, at in life.timed.arrivals():
            assert at >= self.due[body], f"{body} is early"
        for body, count in copies.items():
            assert count <= 1 + self.unknown[body], f"{body} is delivered {count} times, {self.unknown[body]} may be repeats"


@pytest.mark.parametrize("kills", [(True,), (False,), (True, False)], ids=["kills", "power cuts", "both"])
@pytest.mark.parametrize("seed", range(cases(2, 25)))
def test_crashes_lose_no_timer_and_repeat_only_unmarked_deliveries(seed: int, kills: tuple[bool, ...]) -> None:
    Walk(seed, kills).run()


@pytest.mark.parametrize("listed_s", cases((0, 3, 7), range(8)))
@pytest.mark.parametrize("window_slots", [2, 4, 8])
async def test_rolled_timer_is_delivered_once_for_any_roll_window(window_slots: int, listed_s: int) -> None:
    disk, clock = PowerCutDisk(rng=random.Random(1)), VirtualClock()
    t = Timed(disk, clock, roll_window_slots=window_slots)
    bodies = [f"{after_s}" for after_s in range(1, 16)]
    for body in bodies:
        t.put(body, TIMER_DELIVER_MS=clock.message_time_ms() + int(body) * SECOND + 500)
    await t.advance(listed_s * SECOND)
    for is_listed in (True, False):
        t.delays.stop()
        t = Timed(t.disk.killed(), VirtualClock(t.clock.message_time_ms() + 10), **t.settings)
        await t.settle()
        if is_listed:
            # Listing rolls the timers of the loaded slot at once, before the slot is over.
            list(t.service.waiting.pending())
            t.put("marks it", TIMER_DELIVER_MS=clock.message_time_ms() + DAY)
    for _ in range(80):
        await t.advance(250)
    assert t.bodies() == bodies

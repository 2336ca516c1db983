"""Timer messages: on time to the ms, in order and once, over restarts, lost files, clock steps and disk errors."""

import asyncio
import random

import pytest

from pocketmq.broker.delay import wheel_pending as timer_list
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.format.message import Message, PutResult, PutStatus
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.timer.timer_log import unit_times
from tests.broker.timed import DAY, HOUR, MINUTE, SECOND, Timed
from tests.patience import PATIENCE_S
from tests.store.power_cut_disk import PowerCutDisk


async def test_each_kind_of_due_time_is_met_to_the_millisecond() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    t.put("sec", TIMER_DELAY_SEC=2)
    t.put("ms", TIMER_DELAY_MS=1234)
    t.put("at", TIMER_DELIVER_MS=now + 777)
    t.put("start", __STARTDELIVERTIME=now + 61_001)
    due = {"sec": now + 2000, "ms": now + 1234, "at": now + 777, "start": now + 61_001}
    for body, at in sorted(due.items(), key=lambda item: item[1]):
        await t.advance(at - 1 - t.clock.message_time_ms())
        assert body not in t.bodies()
        await t.advance(1)
        assert t.bodies()[-1] == body
    await t.advance(DAY)
    assert t.arrivals() == sorted(due.items(), key=lambda item: item[1])


async def test_delivered_copy_has_the_message_s_fields_and_apache_s_properties() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    t.put("x", TIMER_DELAY_MS=1500, KEYS="k", TAGS="a")
    await t.advance(1500)
    (record,) = t.records()
    assert (record.queue_id, record.flag, record.born_timestamp_ms, record.reconsume_times) == (2, 0, 7, 3)
    assert decode_properties(record.properties) == {
        "UNIQ_KEY": "id-x", "TIMER_DELAY_MS": "1500", "KEYS": "k", "TAGS": "a", "CLUSTER": "c", "REAL_TOPIC": "T",
        "REAL_QID": "2", "TIMER_OUT_MS": str(now + 1000), "TIMER_ENQUEUE_MS": str(now),
        "TIMER_DEQUEUE_MS": str(now + 1500),
    }  # fmt: skip


@pytest.mark.parametrize("is_killed", (True, False))
@pytest.mark.parametrize("is_marked", (True, False))
async def test_idle_wheel_causes_no_work_and_later_timers_are_on_time(
    is_marked: bool, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = PowerCutDisk(rng=random.Random(1))
    t = Timed(disk, slots_total=200, roll_window_slots=60)
    t.put("first", TIMER_DELAY_MS=1500)
    await t.advance(1500)
    with monkeypatch.context() as patch:
        turns: list[object] = []
        for name in ("at_ms", "after"):
            patch.setattr(t.services.timers, name, lambda when, run: turns.append(run))
        for _ in range(100):
            await t.advance(10 * SECOND)
            if is_marked:
                t.persist()
        assert turns == []
    now = t.clock.message_time_ms()
    if is_marked:
        assert t.timer_store.state is not None and t.timer_store.state.read_time_ms == now - now % SECOND
    due = {"near": now + 1001, "soon": now + 5005, "far": now + HOUR}
    for body in ("far", "soon", "near"):
        t.put(body, TIMER_DELIVER_MS=due[body])
    if is_killed:
        t.delays.stop()
        t = Timed(disk.killed(), t.clock, **t.settings)
    for body, at in sorted(due.items(), key=lambda item: item[1]):
        await t.advance(at - 1 - t.clock.message_time_ms())
        assert body not in t.bodies()
        await t.advance(1)
    assert t.bodies() == ["first", "near", "soon", "far"]


@pytest.mark.parametrize("seed", range(4))
async def test_timers_are_delivered_in_order_of_due_time_and_arrival(seed: int) -> None:
    rng = random.Random(seed)
    t = Timed(slots_total=200, roll_window_slots=60)
    due: dict[str, int] = {}
    for number in range(300):
        due[f"{number}"] = (
            t.clock.message_time_ms()
            + rng.choice((1, 500, 999, 1000, 1001, 59_999, 60_000, 200_000, 500_000))
            + rng.randrange(3)
        )
        t.put(f"{number}", TIMER_DELIVER_MS=due[f"{number}"], turn=rng.random() < 0.1)
        if rng.random() < 0.02:
            await t.advance(1)
    t.turn.run()
    while len(t.bodies()) < 300:
        await t.advance(rng.choice((1, 10, 500, 30_000)))
    await t.advance(HOUR)
    arrived = t.arrivals()
    assert len(arrived) == 300
    assert all(at >= due[body] for body, at in arrived)
    assert [body for body, _ in arrived] == sorted(due, key=lambda body: (due[body], int(body)))


async def test_distant_timers_roll_and_are_on_time() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    times = [now + days * DAY + 321 for days in (1, 3, 9, 30, 399)]
    for number, at in enumerate(times):
        t.put(f"{number}", TIMER_DELIVER_MS=at)
    for number, at in enumerate(times):
        while t.clock.message_time_ms() < at - 1:
            await t.advance(min(11 * HOUR, at - 1 - t.clock.message_time_ms()))
        assert len(t.bodies()) == number
        await t.advance(1)
        assert t.arrivals()[number:] == [(f"{number}", at)]


async def test_rolled_timer_is_in_only_one_unread_slot() -> None:
    t = Timed(slots_total=400, roll_window_slots=20)
    slot = t.clock.message_time_ms() // SECOND * SECOND
    t.put("0", TIMER_DELIVER_MS=slot + 200 * SECOND)
    rolls = 0
    for _ in range(190):
        was = slots_of_units(t)
        assert len(was) == 1  # Apache's broker would find it twice, and deliver it twice
        await t.advance(SECOND)
        rolls += was != slots_of_units(t)
    assert rolls >= 9
    await t.advance(10 * SECOND)
    assert t.arrivals() == [("0", slot + 200 * SECOND)]


def slots_of_units(t: Timed) -> list[int]:
    return [time for part in t.timer_store.pending() for time in unit_times(part).tolist()]


async def test_timers_of_many_slots_stay_spread_after_a_clock_leap() -> None:
    t = Timed(slots_total=400, roll_window_slots=60)
    due = {}
    for number in range(50):
        due[f"{number}"] = t.clock.message_time_ms() + 1000 * SECOND
        t.put(f"{number}", TIMER_DELIVER_MS=due[f"{number}"])
        await t.advance(SECOND)
    for leap_s in (90, 200, 30):
        await t.advance(leap_s * SECOND)
        if leap_s == 200:
            t.stop()
            t.disk.delete_tree("/store/timerlog")
            t = Timed(t.disk, t.clock, **t.settings)
        assert len(slots_of_units(t)) == len(set(slots_of_units(t))) == 50
    await t.advance(1000 * SECOND)
    assert t.bodies() == list(due)


async def test_distant_timers_far_apart_in_the_log_also_roll() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    t.put("first", TIMER_DELIVER_MS=now + 9 * DAY)
    for number in range(4200):
        t.put(f"{number}", turn=False, TIMER_DELAY_SEC=60)
    t.put("last", TIMER_DELIVER_MS=now + 9 * DAY)
    await t.advance(9 * DAY - 1)
    assert len(t.bodies()) == 4200
    await t.advance(1)
    assert t.bodies()[4200:] == ["first", "last"]


async def test_clock_leap_of_400_days_delivers_due_timers_in_order() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    rng = random.Random(1)
    due = {f"{number}": now + 1 + rng.randrange(500 * DAY) for number in range(200)}
    t.times.delay_max_ms = 500 * DAY
    for body, at in due.items():
        t.put(body, TIMER_DELIVER_MS=at)
    await t.advance(400 * DAY)
    expected = sorted((body for body, at in due.items() if at <= now + 400 * DAY), key=due.__getitem__)
    assert t.bodies() == expected
    t.put("soon", TIMER_DELAY_SEC=5)
    await t.advance(5 * SECOND)
    assert t.bodies() == [*expected, "soon"]
    await t.advance(100 * DAY)
    assert sorted(t.bodies()) == sorted([*due, "soon"])


async def test_cancelled_timers_are_never_delivered() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    for body, at in (("near", 900), ("kept", 901), ("far", HOUR), ("far kept", HOUR), ("rolled", 10 * DAY)):
        t.put(body, TIMER_DELIVER_MS=now + at)
    for body, at in (("near", 900), ("far", HOUR), ("rolled", 10 * DAY)):
        t.cancel(body, (now + at - 1) // SECOND * SECOND)
    assert [(timer.out_ms - now) // SECOND for timer in t.service.waiting.pending()] == [0, HOUR // SECOND - 1]
    await t.advance(11 * DAY)
    assert t.bodies() == ["kept", "far kept"]
    assert list(t.service.waiting.pending()) == [] and t.service.waiting.counts_by_hour() == {}


async def test_pending_timers_are_listed_by_time_and_topic() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    for number in range(50):
        t.put(f"{number}", topic="T" if number % 5 else "U", TIMER_DELIVER_MS=now + 10 * DAY - number * HOUR // 5)
    t.put("near", topic="U", TIMER_DELAY_MS=5)
    everything = list(t.service.waiting.pending())
    assert [timer.out_ms for timer in everything] == sorted(timer.out_ms for timer in everything) and len(everything) == 51
    assert len(list(t.service.waiting.pending(topic="U"))) == 11
    assert len(list(t.service.waiting.pending(now + 10 * DAY - HOUR, now + 11 * DAY))) == 5
    assert sum(messages for messages, _ in t.service.waiting.counts_by_hour().values()) == 51
    await t.advance(5)
    assert len(list(t.service.waiting.pending(topic="U"))) == 10
    assert sum(messages for messages, _ in t.service.waiting.counts_by_hour().values()) == 50


async def test_paged_list_equals_the_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    for number in range(60):
        at = now + (500, HOUR, HOUR + 1, 2 * HOUR + number % 7 * SECOND, 10 * DAY)[number % 5]
        t.put(f"{number}", TIMER_DELIVER_MS=at)
        if number % 4 == 0:
            t.cancel(f"{number}", (at - 1) // SECOND * SECOND)
    everything = list(t.service.waiting.pending())
    assert len(everything) == 45
    monkeypatch.setattr(timer_list, "_FIRST_LOOK", 2)
    monkeypatch.setattr(timer_list, "_LOOKS_GROW", 1)
    assert list(t.service.waiting.pending()) == everything
    assert list(t.service.waiting.pending(now + HOUR, now + DAY)) == [
        one for one in everything if HOUR <= one.out_ms - now < DAY
    ]


async def test_restart_continues_from_the_checkpoint() -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    for number in range(40):
        t.put(f"{number}", TIMER_DELIVER_MS=now + 50 + number * 100)
    await t.advance(1000)
    for _ in range(5):
        t = t.again()
        await t.advance(700)
    assert t.bodies() == [f"{number}" for number in range(40)]


@pytest.mark.parametrize(
    "lost",
    [
        ("timerwheel",),
        ("timerlog",),
        ("config/timercheck",),
        ("config/timermark",),
        ("timerwheel", "timerlog"),
        ("config/timercheck", "config/timermark"),
    ],
)
async def test_timer_files_are_rebuilt_from_the_log(lost: tuple[str, ...]) -> None:
    t = Timed()
    now = t.clock.message_time_ms()
    for number in range(40):
        t.put(f"{number}", TIMER_DELIVER_MS=now + 1 + number * MINUTE)
    await t.advance(20 * MINUTE)
    t.stop()
    for name in lost:
        if name == "timerlog":
            t.disk.delete_tree("/store/timerlog")
        else:
            t.disk.delete(f"/store/{name}")
    t = Timed(t.disk, t.clock)
    await t.advance(HOUR)
    again = t.bodies()[20:]
    # Without both files it is unknown which timers were delivered.
    assert again == [
        f"{number}" for number in range(0 if {"config/timercheck", "config/timermark"} <= set(lost) else 20, 40)
    ]


async def test_pending_timers_are_copied_forward_before_their_log_file_is_deleted() -> None:
    t = Timed(commit_log_file_size=16 << 10)
    now = t.clock.message_time_ms()
    for number in range(20):
        t.put(f"{number}", TIMER_DELAY_MS=30 * DAY + number * 10)
    t.put("recalled", TIMER_DELIVER_MS=now + 30 * DAY)
    t.cancel("recalled", now + 30 * DAY - SECOND)
    begin = 0
    for _ in range(3):
        # Each round replaces the whole log and restarts the process.
        for _ in range(100):
            t.put("x" * 300, topic="fills")
        await t.remove_files()
        assert t.store.min_physical_offset >= begin + (32 << 10)
        begin = t.store.min_physical_offset
        assert len(list(t.service.waiting.pending())) == 20
        t = t.again()
    await t.advance(30 * DAY - 1)
    assert t.bodies() == []
    await t.advance(1)
    assert t.bodies() == ["0"]
    await t.advance(300)
    assert t.bodies() == [f"{number}" for number in range(20)]
    assert all(b"PMQ_" not in record.properties for record in t.records())


async def test_copy_and_original_are_not_both_delivered() -> None:
    t = Timed(commit_log_file_size=16 << 10)
    for number in range(20):
        t.put(f"{number}", TIMER_DELAY_MS=3 * DAY)
    for _ in range(60):
        t.put("x" * 300, topic="fills")
    for _ in range(2):
        # The timers are copied, but the process ends before the file is deleted.
        assert not t.delays.may_remove(16 << 10)
        await t.settle()
        assert t.store.min_physical_offset == 0
        t = t.again()
    await t.advance(3 * DAY)
    assert sorted(t.bodies(), key=int) == [f"{number}" for number in range(20)]


async def test_without_space_for_copies_the_file_is_kept_and_sends_refused() -> None:
    t = Timed(commit_log_file_size=16 << 10)
    t.put("kept", TIMER_DELAY_MS=3 * DAY)
    for _ in range(100):
        t.put("x" * 300, topic="fills")
    t.store.commit_log.refuse("here", "the disk is full")
    await t.remove_files()
    assert t.store.min_physical_offset == 0
    assert t.service.refusal is not None and "the disk is full" in t.service.refusal
    with pytest.raises(RemotingError, match="cannot be copied out of a file that is to be deleted: the disk is full"):
        t.put("more", TIMER_DELAY_MS=1)
    t.store.commit_log.refuse("here", None)
    await t.remove_files()
    assert t.store.min_physical_offset > 0 and t.service.refusal is None
    await t.advance(3 * DAY)
    assert t.bodies() == ["kept"]


async def test_delivery_that_cannot_be_put_is_retried_without_stopping_others() -> None:
    t = Timed()
    put, refused = t.store.commit_log.put, []

    def put_unless_large(message: Message) -> PutResult:
        if message.topic == "T" and len(message.body) > 10 and len(refused) < 5:
            refused.append(message)
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason="no room for so much")
        return put(message)

    t.store.commit_log.put = put_unless_large  # type: ignore[method-assign]
    for number in range(6):
        t.put("large" * (3 - number % 2 * 3) + f"{number}", TIMER_DELAY_MS=10 + number)
    await t.advance(20)
    assert t.bodies()[:3] == ["1", "3", "5"]
    while len(t.bodies()) < 6:
        await t.advance(100)
    assert sorted(body[-1] for body in t.bodies()) == ["0", "1", "2", "3", "4", "5"] and len(refused) == 5


async def test_delivery_is_retried_until_the_store_accepts() -> None:
    t = Timed()
    for number in range(50):
        t.put(f"{number}", TIMER_DELAY_MS=10)
    t.store.commit_log.refuse("here", "the disk is full")
    t.clock.advance(20)
    for _ in range(10):
        await asyncio.sleep(0)
    assert t.bodies() == []
    t.store.commit_log.refuse("here", None)
    async with asyncio.timeout(PATIENCE_S):
        while len(t.bodies()) < 50:
            await t.advance(100)
    assert sorted(t.bodies(), key=int) == [f"{number}" for number in range(50)]


class StillClock(VirtualClock):
    """Clock whose monotonic time stands still as well: on a busy machine milliseconds pass between two lines."""

    def monotonic(self) -> float:
        return self.steady_ms() / 1000


async def test_postponed_entries_are_pending_on_time_and_survive_a_restart() -> None:
    t = Timed(clock=StillClock())
    for number in range(40):
        t.put(f"{number}", TIMER_DELAY_MS=5 * SECOND)
    assert t.delays.is_idle is False
    assert sum(messages for messages, _ in t.service.waiting.counts_by_hour().values()) == 40
    for number in range(40, 60):
        t.put(f"{number}", TIMER_DELAY_MS=5 * SECOND)
    assert t.timer_store.queue_offset < 60
    t.put("soon", TIMER_DELAY_MS=20)
    t.clock.advance(20)
    t.turn.run()
    assert t.bodies() == ["soon"]
    for number in range(60, 80):
        t.put(f"{number}", TIMER_DELAY_MS=5 * SECOND)
    assert t.timer_store.queue_offset < 81
    again = t.again()
    await again.advance(6 * SECOND)
    assert again.bodies() == ["soon", *(f"{number}" for number in range(80))]


@pytest.mark.parametrize("ahead_ms", [SECOND, MINUTE])  # in a slot that is loaded, and in one that is not yet
async def test_hundreds_of_timers_are_delivered_in_order_without_cancelled_ones(ahead_ms: int) -> None:
    t = Timed()
    now, chance = t.clock.message_time_ms(), random.Random(ahead_ms)
    dues = {str(number): now + ahead_ms + chance.randrange(3) for number in range(700)}
    for number, due_ms in dues.items():
        asked = {"TIMER_DELAY_MS": due_ms - now} if int(number) % 3 else {"TIMER_DELIVER_MS": due_ms}
        t.put(number, turn=False, **asked)
    t.turn.run()
    await t.settle()
    for number in ("5", "350", "699"):
        t.cancel(number, (dues.pop(number) - 1) // SECOND * SECOND)
    await t.advance(ahead_ms + 1)
    assert t.arrivals() == [
        (number, now + ahead_ms + 1)
        for number, due_ms in sorted(dues.items(), key=lambda row: (row[1], int(row[0])))
        if due_ms <= now + ahead_ms + 1
    ]
    await t.advance(1)
    assert len(t.arrivals()) == len(dues)
    again = t.again()
    await again.settle()
    assert len(again.arrivals()) == len(dues)


async def test_idle_broker_writes_its_timer_files_once_a_minute() -> None:
    disk = PowerCutDisk()
    t = Timed(disk)
    t.put("far", TIMER_DELAY_SEC=3600)
    t.put("near", TIMER_DELAY_MS=1500)
    await t.advance(1500)
    t.persist()

    async def syncs(seconds: int) -> int:
        before = disk.calls["sync"]
        for _ in range(seconds):
            await t.advance(SECOND)
            t.persist()
        return disk.calls["sync"] - before

    assert await syncs(58) == 0
    assert await syncs(4) > 0
    again = Timed(disk.power_cut(random.Random(1)), t.clock)
    assert again.bodies() == ["near"]
    await again.advance(HOUR)
    assert again.bodies() == ["near", "far"]

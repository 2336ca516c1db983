"""TimerStore: entered messages are delivered in their slots, despite rolls, kills, power cuts and full disks."""

import random

import numpy as np
import pytest

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL
from pocketmq.store.timer.timer_log import Units, joined, unit_dues
from pocketmq.store.timer.timer_store import RecoveredTimers, TimerStore
from tests.store.power_cut_disk import PowerCutDisk, Stopped
from tests.store.timer_slots import units_at
from tests.support.amount import cases

NOW = 1_800_000_000_000
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
PER_FILE = 20
LOG = "/store/timerlog"
WHEEL = "/store/timerwheel"
CHECKPOINT = "/store/config/timercheck"


def opened(disk: Disk, **settings: int) -> TimerStore:
    """Return timers with a wheel of 400 s, a roll window of 60 s and files of 20 units."""
    small = {"log_file_size": PER_FILE * 52 + 16, "roll_window_slots": 60, "slots_total": 200}
    return TimerStore(disk, "/store/{}".format, **(small | settings))


def offsets(units: Units) -> list[int]:
    found: list[int] = units["physical_offset"].tolist()
    return found


class Service:
    """Minimal timer service: it enters the messages of the timer queue and delivers those that are due.

    `queue` contains the due times by queue offset; the record of each is at physical offset 100 * (queue offset + 1).
    """

    def __init__(self, disk: Disk, queue: list[int], now_ms: int, rng: random.Random) -> None:
        self.disk, self.queue, self.now_ms, self.rng = disk, queue, now_ms, rng
        self.delivered: list[tuple[int, int]] = []  # physical offset, when
        self.timers = opened(disk)
        self.recovered = self.timers.recover(now_ms, 100 * len(queue) + 100, len(queue))
        self.queue_offset = self.recovered.queue_offset
        # Number of queue entries and deliveries that the CommitLog has synced; deliveries at the last mark and flush.
        self.synced, self.synced_deliveries, self.marked, self.flushed = len(queue), 0, 0, 0
        if not self.recovered.complete:
            self.enter_again(self.recovered)
        self.timers.mark(0, self.queue_offset)
        assert self.timers.state is not None
        self.flush()

    def enter_again(self, recovered: RecoveredTimers) -> None:
        entered = max(recovered.entered_to // 100, 0)
        for queue_offset in range(entered, recovered.queue_offset):
            if self.queue[queue_offset] >= recovered.delivered_before[0]:
                self.timers.put(self.queue[queue_offset], self.now_ms, 100 * (queue_offset + 1), 90, 7)
            self.timers.mark(0, queue_offset + 1)
        self.queue_offset = max(entered, recovered.queue_offset)

    def enter(self) -> None:
        if self.rng.random() < 0.5:
            while self.queue_offset < len(self.queue):
                self.timers.put(self.queue[self.queue_offset], self.now_ms, 100 * (self.queue_offset + 1), 90, 7)
                self.queue_offset += 1
        else:
            dues = self.queue[self.queue_offset :]
            self.timers.put_many(dues, self.now_ms, 100 * np.arange(self.queue_offset + 1, len(self.queue) + 1), 90, 7)
            self.queue_offset = len(self.queue)
        self.timers.mark(0, self.queue_offset)

    def deliver(self) -> None:
        while (time_ms := self.timers.next_time_ms(self.now_ms)) is not None:
            found = units_at(self.timers, time_ms)
            assert not len(found.marks) and len(found.messages)
            assert len(set(offsets(found.messages))) == len(found.messages), "a message is in a slot twice"
            rolled = found.messages["magic"] & TIMER_MAGIC_ROLL != 0
            early = rolled & (unit_dues(found.messages) >= self.now_ms)
            for physical_offset in offsets(found.messages[~early]):
                assert self.queue[physical_offset // 100 - 1] <= self.now_ms
                self.delivered.append((physical_offset, self.now_ms))
            self.timers.roll(found.messages[early], self.now_ms)
            self.timers.mark(time_ms + SECOND, self.queue_offset)
            self.marked = len(self.delivered)

    def flush(self) -> None:
        state = self.timers.state
        self.synced, self.synced_deliveries = len(self.queue), len(self.delivered)  # the CommitLog is synced first
        self.timers.flush(state, self.now_ms)
        self.flushed = len(self.delivered)
        self.timers.clean(0)

    def turn(self) -> None:
        for _ in range(self.rng.choice((0, 1, 3, 30))):
            self.queue.append(self.now_ms + SECOND * self.rng.choice((1, 2, 30, 59, 60, 79, 80, 81, 300, 1500)))
        self.enter()
        self.now_ms += self.rng.choice((SECOND, 3 * SECOND, 40 * SECOND))
        self.deliver()
        if self.rng.random() < 0.4:
            self.flush()

    def run_out(self) -> None:
        """Deliver all pending messages, without adding further ones."""
        self.enter()
        while sum(map(len, self.timers.pending())):
            time_ms = self.timers.next_time_ms(self.timers.read_time_ms + 400 * SECOND)
            assert time_ms is not None
            self.now_ms = max(self.now_ms, time_ms + SECOND)
            self.deliver()


# --- without failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(cases(2, 6)))
def test_each_message_is_delivered_once_and_old_log_files_are_deleted(seed: int) -> None:
    disk = MemoryDisk()
    service = Service(disk, [], NOW, random.Random(seed))
    for _ in range(60):
        service.turn()
    file_count = len(disk.listdir(LOG))
    service.run_out()
    assert sorted(offset for offset, _ in service.delivered) == [100 * number + 100 for number in range(len(service.queue))]
    for physical_offset, when_ms in service.delivered:
        assert service.queue[physical_offset // 100 - 1] < when_ms
    service.flush()
    assert len(disk.listdir(LOG)) == 1 < file_count


@pytest.mark.parametrize("due_s", [59, 60, 79, 80, 120, 150, 100_000])
def test_put_and_put_many_choose_the_same_slot(due_s: int) -> None:
    disks = MemoryDisk(), MemoryDisk()
    stores = [opened(disk) for disk in disks]
    for store in stores:
        store.recover(NOW, 0, 0)
    times = [stores[0].put(NOW + due_s * SECOND, NOW + 999, 100 + index, 9, 7, 5) for index in range(25)]
    stores[1].put_many([NOW + due_s * SECOND] * 25, NOW + 999, 100 + np.arange(25), 9, 7, 5)
    ahead_s = (times[0] - NOW) // SECOND
    # 5.5.0's rule: the whole window, or half of it when less than a third would be left over.
    assert ahead_s == (due_s if due_s < 60 else 30 if due_s < 80 else 60)
    for name in disks[0].listdir(LOG):
        assert disks[0].read_file(f"{LOG}/{name}") == disks[1].read_file(f"{LOG}/{name}")
    assert disks[0].read_file(WHEEL) == disks[1].read_file(WHEEL)


def test_cancelling_marks_are_separated_only_in_the_slot_of_their_message() -> None:
    timers = opened(MemoryDisk())
    timers.recover(NOW, 0, 0)
    timers.mark(NOW, 0)
    timers.flush(timers.state, NOW)
    due = NOW + 100 * SECOND
    timers.put_many([due, due, due], NOW, [100, 200, 300], 9, 7, [1, 5, 1])
    on_the_way = units_at(timers, NOW + 60 * SECOND)
    assert (offsets(on_the_way.messages), offsets(on_the_way.marks)) == ([100, 200, 300], [])
    assert timers.roll(on_the_way.messages, NOW + 60 * SECOND).tolist() == [due] * 3
    there = units_at(timers, due)
    assert (offsets(there.messages), offsets(there.marks)) == ([100, 300], [200])
    assert units_at(timers, NOW + 60 * SECOND).messages.tobytes() == on_the_way.messages.tobytes()


def test_slot_whose_units_are_far_apart_is_read_along_its_chain() -> None:
    timers = opened(MemoryDisk(), log_file_size=1 << 20)
    timers.recover(NOW, 0, 0)
    for number in range(3):
        timers.put(NOW + 5 * SECOND, NOW, 10 * number, 9, 7)
        timers.put_many([NOW + 6 * SECOND] * 5000, NOW, np.arange(5000), 9, 7)
    assert offsets(units_at(timers, NOW + 5 * SECOND).messages) == [0, 10, 20]
    assert offsets(units_at(timers, NOW + 6 * SECOND).messages) == [*range(5000)] * 3


def test_overdue_message_goes_into_the_slot_that_is_being_read() -> None:
    timers = opened(MemoryDisk())
    timers.recover(NOW, 0, 0)
    timers.mark(NOW + 10 * SECOND, 0)
    assert timers.put(NOW - 30 * DAY, NOW, 100, 9, 7) == NOW + 10 * SECOND
    assert timers.put_many([NOW - 30 * DAY], NOW, [200], 9, 7).tolist() == [NOW + 10 * SECOND]
    # The clock was set back by two months.
    assert timers.put(NOW - 59 * DAY, NOW - 60 * DAY, 300, 9, 7) == NOW + 10 * SECOND
    assert timers.put(NOW + 10 * SECOND, NOW + 60 * DAY, 400, 9, 7) == NOW + 10 * SECOND
    assert offsets(units_at(timers, NOW + 10 * SECOND).messages) == [100, 200, 300, 400]


def test_message_beyond_the_wheel_waits_in_its_last_slot() -> None:
    for many in (False, True):
        timers = opened(MemoryDisk())
        timers.recover(NOW, 0, 0)
        timers.mark(NOW, 0)
        timers.flush(timers.state, NOW)
        # Nothing was delivered for a long time. The wheel has 400 s, less a minute that 5.5.0 would never fill.
        due, now_ms, last = NOW + 401 * SECOND, NOW + 400 * SECOND, NOW + 340 * SECOND
        if many:
            assert timers.put_many([due, last], now_ms, [100, 200], 9, 7).tolist() == [last, last]
        else:
            assert [timers.put(due, now_ms, 100, 9, 7), timers.put(last, now_ms, 200, 9, 7)] == [last, last]
        waiting = units_at(timers, last).messages
        assert (waiting["magic"] & TIMER_MAGIC_ROLL != 0).tolist() == [True, False]
        assert unit_dues(waiting).tolist() == [due, last]
        timers.mark(last, 0)
        assert timers.roll(waiting[:1], now_ms).tolist() == [due]
        assert timers.next_time_ms(due + SECOND, last + SECOND) == due


def test_pending_messages_from_a_time_and_below_a_physical_offset() -> None:
    rng = np.random.default_rng(3)
    timers = opened(MemoryDisk(), slots_total=7 * 86_400, roll_window_slots=172_800)
    timers.recover(NOW, 0, 0)
    timers.mark(NOW, 0)
    dues = NOW + SECOND * rng.integers(1, 400 * 86_400, 500)
    magics = np.where(rng.random(500) < 0.1, 1 | TIMER_MAGIC_DELETE, 1)
    timers.put_many(dues, NOW, np.arange(500) * 10, 9, 7, magics)
    assert offsets(joined(timers.pending(2000))) == list(range(0, 2000, 10))
    timers.mark(NOW + DAY, 0)
    found = joined(timers.pending())
    assert offsets(found) == [10 * index for index in range(500) if dues[index] >= NOW + DAY]


# --- failures -------------------------------------------------------------------------------------------------------


def accident(seed: int, kills: tuple[bool, ...]) -> None:
    """Run a broker five times; all runs but the last end with a kill or a power cut, at any step."""
    rng = random.Random(seed)
    disk = PowerCutDisk(rng=rng)
    queue: list[int] = []
    now_ms = NOW
    delivered: set[int] = set()  # messages whose delivered copies still exist
    vouched: set[int] = set()  # deliveries that the state on disk covers
    marked: set[int] = set()  # deliveries that the mark covers
    for last in (False, False, False, False, True):
        service = None
        disk.changes_left = None if last or rng.random() < 0.2 else rng.randrange(3, 60)
        killed = rng.choice(kills)
        try:
            service = Service(disk, queue, now_ms, rng)
            # Each process flushes a state at its start, so there is always one to recover from.
            assert service.recovered.complete or not delivered
            vouched |= marked
            for _ in range(0 if last else 25):
                service.turn()
                if rng.random() < 0.2:
                    disk.write_back(rng)
            if last:
                service.run_out()
        except Stopped:
            pass
        if service is not None:
            found = [offset for offset, _ in service.delivered]
            assert len(set(found)) == len(found) and not vouched & set(found)
            now_ms = service.now_ms
            delivered |= set(found if killed or last else found[: service.synced_deliveries])
            vouched |= set(found[: service.flushed])
            marked = set(found[: service.marked])
        if killed:
            disk = disk.killed()
        elif not last:
            disk, marked = disk.power_cut(rng), set()
            # The CommitLog too loses what was not synced.
            if service is not None:
                del queue[rng.randrange(service.synced, len(queue) + 1) :]
            delivered = {offset for offset in delivered if offset <= 100 * len(queue)}
        now_ms += rng.choice((0, 5, 100)) * SECOND
    disk.note_all_written()
    assert not disk.unreserved
    assert delivered == set(range(100, 100 * len(queue) + 100, 100))


@pytest.mark.parametrize("kills", [(True,), (False,), (True, False)], ids=["kills", "power cuts", "both"])
@pytest.mark.parametrize("seed", range(cases(8, 40)))
def test_failures_lose_no_message_and_put_none_into_a_slot_twice(seed: int, kills: tuple[bool, ...]) -> None:
    accident(seed, kills)


def test_marked_deliveries_are_not_repeated_after_a_kill() -> None:
    disk = PowerCutDisk()
    service = Service(disk, [], NOW, random.Random(1))
    for _ in range(30):
        service.turn()
    assert service.delivered
    after = Service(disk.killed(), service.queue, service.now_ms, random.Random(2))
    assert after.recovered.complete and after.recovered.queue_offset == len(service.queue)
    after.run_out()
    assert sorted(offset for offset, _ in service.delivered + after.delivered) == [
        100 * number + 100 for number in range(len(service.queue))
    ]


def pending_store() -> tuple[PowerCutDisk, Service, list[int]]:
    """Return a flushed store with some delivered messages, and many pending ones in several log files, and their offsets."""
    disk = PowerCutDisk()
    service = Service(disk, [NOW + SECOND * (3 + 2 * number) for number in range(90)], NOW, random.Random(1))
    service.enter()
    service.now_ms += 20 * SECOND
    service.deliver()
    service.flush()
    return disk, service, [100 * number + 100 for number in range(90) if number > 8]


@pytest.mark.parametrize("lost", ["log", "wheel", "log file", "bytes of the log", "wheel bytes", "log and wheel"])
def test_lost_or_damaged_timer_files_are_rebuilt(lost: str) -> None:
    disk, service, pending = pending_store()
    service.timers.close()
    names = disk.listdir(LOG)
    assert len(names) == 5
    if lost.startswith("log and") or lost == "log":
        disk.delete_tree(LOG)
    if lost == "log file":
        disk.delete(f"{LOG}/{names[2]}")
    if lost in ("wheel", "log and wheel"):
        disk.delete(WHEEL)
    if lost == "bytes of the log":
        disk.map(f"{LOG}/{names[1]}", PER_FILE * 52 + 16).view[60:70] = bytes(10)
    if lost == "wheel bytes":
        disk.map(WHEEL, 400 * 32).array[:] = np.random.default_rng(1).integers(0, 255, 400 * 32)
    after = Service(disk, service.queue, service.now_ms, random.Random(2))
    assert after.recovered.complete is (lost in ("wheel", "wheel bytes"))
    assert bool(after.recovered.problem) is not after.recovered.complete
    assert sorted(offsets(joined(after.timers.pending()))) == pending
    after.run_out()
    assert sorted(offset for offset, _ in after.delivered) == pending


def test_interrupted_rebuild_begins_again() -> None:
    disk, service, pending = pending_store()
    service.timers.close()
    disk.delete_tree(LOG)
    timers = opened(disk)
    recovered = timers.recover(service.now_ms, 1 << 40, 90)
    assert (recovered.complete, recovered.queue_offset, recovered.entered_to) == (False, 90, -1)
    for queue_offset in range(9, 60):
        timers.put(service.queue[queue_offset], service.now_ms, 100 * queue_offset + 100, 90, 7)
        timers.mark(0, queue_offset + 1)
    assert timers.state is None
    timers.flush(timers.state, NOW)
    after = Service(disk.killed(), service.queue, service.now_ms, random.Random(2))
    assert not after.recovered.complete
    assert sorted(offsets(joined(after.timers.pending()))) == pending
    after.flush()
    assert opened(disk_after := after.disk).recover(service.now_ms, 1 << 40, 90).complete and disk_after.exists(LOG)


def test_units_beyond_the_end_of_the_commit_log_are_dropped() -> None:
    disk, service, _ = pending_store()
    after = Service(disk.killed(), service.queue[:50], service.now_ms, random.Random(2))
    assert not after.recovered.complete and after.recovered.queue_offset == 50
    assert sorted(offsets(joined(after.timers.pending()))) == [100 * number + 100 for number in range(9, 50)]


def test_units_that_another_broker_wrote_after_its_checkpoint_are_kept() -> None:
    disk, service, _ = pending_store()
    # The files are as 5.5.0 leaves them when it is killed: newer units in the log, an older checkpoint, and no seal.
    checkpoint = disk.map(CHECKPOINT, 4096).view
    checkpoint[24:32] = (90).to_bytes(8, "big")
    checkpoint[40:48] = service.now_ms.to_bytes(8, "big")
    checkpoint[56:64] = bytes(8)
    service.queue.append(service.now_ms + 5 * SECOND)
    service.enter()
    after = Service(disk.killed(), service.queue, service.now_ms, random.Random(2))
    assert after.recovered.queue_offset == 90 and after.recovered.entered_to == 9100
    after.queue_offset = 91
    assert sorted(offsets(joined(after.timers.pending()))) == [100 * number + 100 for number in range(9, 91)]


def test_last_unit_of_the_log_is_that_of_the_last_entered_message() -> None:
    disk = MemoryDisk()
    timers = opened(disk)
    timers.recover(NOW, 0, 0)
    for physical_offset, after_s in ((100, 90), (200, 5), (300, 10)):
        timers.put(NOW + after_s * SECOND, NOW, physical_offset, 9, physical_offset)
    timers.mark(NOW + 30 * SECOND, 3)
    timers.flush(timers.state, NOW)
    timers.roll(units_at(timers, NOW + 60 * SECOND).messages, NOW + 60 * SECOND)
    *_, (_, units) = timers._log.windows()
    last = units[-1]
    assert (last["physical_offset"], last["topic_hash"], last["magic"]) == (300, 300, 1)
    # Its slot belongs to no future time: the wheel of 5.5.0 has two weeks, of which one is in the future.
    assert last["write_time_ms"] + last["delay_ms"] == NOW + 30 * SECOND - 3 * DAY
    timers.mark(NOW + 61 * SECOND, 3)
    timers.flush(timers.state, NOW)
    del units, last
    timers.close()

    again = opened(disk)
    assert again.recover(NOW, 400, 3).entered_to == 300
    assert offsets(joined(again.pending())) == [100]
    again.roll(units_at(again, NOW + 90 * SECOND).messages, NOW + 61 * SECOND, [NOW + 90 * SECOND])
    *_, (_, units) = again._log.windows()
    assert offsets(units)[-2:] == [100, 300]


def test_messages_due_during_a_long_downtime_are_delivered_at_once() -> None:
    disk, service, pending = pending_store()
    service.timers.close()
    # The downtime is longer than the wheel reaches back; Apache's broker would begin at a later slot.
    after = Service(disk, service.queue, service.now_ms + 30 * DAY, random.Random(2))
    assert after.recovered.complete
    after.timers.put(after.now_ms + 50 * SECOND, after.now_ms, 9100, 90, 7)
    after.queue.append(after.now_ms + 50 * SECOND)
    after.queue_offset = 91
    after.deliver()
    assert sorted(offset for offset, _ in after.delivered) == pending
    after.run_out()
    assert after.delivered[-1][0] == 9100


def test_wheel_of_another_precision_is_rebuilt() -> None:
    disk = MemoryDisk()
    queue = [NOW + SECOND * number for number in range(1, 60, 7)]
    service = Service(disk, queue, NOW, random.Random(1))
    service.enter()
    service.flush()
    finer = opened(disk, precision_ms=100)
    # Its 400 slots are 40 s, and some units are due later.
    recovered = finer.recover(NOW, 1 << 40, 9)
    assert (recovered.complete, recovered.entered_to, recovered.queue_offset) == (False, -1, 9)
    finer.put_many(queue, NOW, 100 + 100 * np.arange(9), 9, 7)
    finer.mark(NOW, 9)
    expected = [100 * number + 100 for number in range(9)]
    assert sorted(offsets(joined(finer.pending()))) == expected
    assert {int(due) for units in finer.pending() for due in unit_dues(units)} == set(queue)


def test_put_without_space_raises_an_error_and_loses_nothing() -> None:
    disk, service, pending = pending_store()
    disk.capacity = disk.space_used
    with pytest.raises(OSError, match="No space left"):
        service.timers.put_many([service.now_ms + 59 * SECOND] * 50, service.now_ms, np.arange(50) + 9100, 9, 7)
    assert offsets(joined(service.timers.pending())) == pending
    with pytest.raises(OSError, match="No space left"):
        for number in range(PER_FILE + 1):
            service.timers.put(service.now_ms + 59 * SECOND, service.now_ms, 9100 + number, 9, 7)
    found = offsets(joined(service.timers.pending()))
    assert found[: len(pending)] == pending and set(found[len(pending) :]) <= set(range(9100, 9200))
    disk.note_all_written()
    assert not disk.unreserved


def test_a_message_entered_by_itself_gives_the_same_files_as_one_of_many() -> None:
    """Late and rolled ones, beyond the wheel, cancelling ones; in full files, and after a step of the clock."""
    rng = random.Random(11)
    disks = MemoryDisk(), MemoryDisk()
    single, many = map(opened, disks)
    for timers in (single, many):
        timers.recover(NOW, 10_000, 0)
        timers.mark(NOW, 0)
    now_ms = NOW
    for number in range(5 * PER_FILE + 3):
        now_ms += rng.choice((0, 1, 999, 1000, -700))
        due_ms = now_ms + rng.choice((-5 * DAY, -1, 0, 1, rng.randrange(40 * SECOND), rng.randrange(500 * SECOND), 60 * DAY))
        magic = rng.choice((1, 1, 1 | TIMER_MAGIC_DELETE))
        time_ms = single.put(due_ms, now_ms, 100 * number, 90, number - 50, magic)
        assert [time_ms] == many.put_many([due_ms], now_ms, [100 * number], [90], [number - 50], [magic]).tolist()
        if rng.random() < 0.1:
            for timers in (single, many):
                timers.mark(now_ms, number)
    files = [{path: disk.read_file(path) for path in disk.paths()} for disk in disks]
    assert files[0] == files[1] and len(files[0]) > 6

"""The mark of the delay levels: kills and power cuts lose nothing, and only deliveries in progress are repeated."""

import asyncio
import itertools
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker import wiring
from pocketmq.broker.delay.engine import BUDGET_S
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import MARK_SLOT_SIZE
from pocketmq.store.format.message import SCHEDULE_TOPIC, Message, PutStatus
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import decode_record
from pocketmq.store.message_store import MessageStore
from tests.broker import built
from tests.broker.built import InlineExecutor
from tests.broker.running import running_broker
from tests.broker.test_timer_accidents import HandLoop
from tests.broker.timed import HOST
from tests.patience import PATIENCE_S
from tests.store.power_cut_disk import PowerCutDisk, Stopped
from tests.support.amount import cases

BATCH_MAX = int(BUDGET_S / 0.000004)
"""No machine delivers more messages in one turn: each takes more than 4 us."""
MARK, OFFSETS = "/store/config/levelmark", "/store/config/delayOffset.json"
LEVELS = "1s 2s 3s 4s 5s 6s"


def delayed(body: str, level: int) -> Message:
    properties = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0"}
    return Message(
        SCHEDULE_TOPIC, level - 1, body.encode(), HOST, HOST, properties=properties,
        properties_bytes=encode_properties(properties).encode(),
    )  # fmt: skip


def bodies(store: MessageStore) -> list[str]:
    queue = store.queue("T", 0)
    units = [queue.unit_at(at) for at in range(queue.max_offset)] if queue is not None else []
    return [decode_record(view).body.decode() for unit in units if unit and (view := store.message_at(unit[0]))]


class Life:
    """One broker process; the next one starts on the disk that it leaves."""

    def __init__(self, disk: Disk, clock: VirtualClock) -> None:
        self.disk, self.loop = disk, HandLoop()
        store = {
            "mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000,
            "message_index_enable": False, "message_delay_level": LEVELS, "max_hash_slot_num": 16, "max_index_num": 50,
        }  # fmt: skip
        self.services = built.build(disk, clock, store, loop=self.loop, timer_slots=1000)
        self.store, self.turn, self.service = self.services.store, self.services.turn, self.services.schedule
        self.delivered: list[str] = []
        self.stop_after = -1
        self._put = self.store.commit_log.put
        self.store.commit_log.put = self._watched_put  # type: ignore[method-assign]
        wiring.recover(self.services)
        wiring.start(self.services)

    def _watched_put(self, message: Message) -> Any:
        result = self._put(message)
        if message.topic == "T":
            self.delivered.append(bytes(message.body).decode())
            self.stop_after -= 1
            if self.stop_after == 0:
                raise Stopped
        return result

    def put(self, body: str, level: int) -> None:
        assert self._put(delayed(body, level)).status is PutStatus.PUT_OK
        self.turn.run()

    def settle(self) -> None:
        for _ in range(5):
            while self.loop.ready:
                self.loop.run()

    def persist(self) -> None:
        """Do what a broker does each second."""
        self.store.flush_service.flush_log()
        self.services.delays.mark_in(InlineExecutor())

    def stop(self) -> None:
        wiring.stop(self.services)
        self.store.flush_service.flush_log()
        wiring.close(self.services)


@pytest.mark.parametrize("seed", range(cases(6, 25)))
def test_crash_loses_nothing_and_repeats_only_unmarked_deliveries(seed: int) -> None:
    rng = random.Random(seed)
    disk, clock = PowerCutDisk(rng=rng), VirtualClock()
    expected: list[str] = []
    numbers = itertools.count()
    durable: set[str] = set()  # bodies whose records are durable
    unsynced: list[str] = []  # delivered copies that no durable mark covers
    unknown: Counter[str] = Counter()
    for _ in range(6):
        life = Life(disk, clock)
        marked = synced = 0
        life.stop_after = rng.choice((-1, rng.randrange(1, 150)))
        try:
            for _ in range(rng.randrange(2, 12)):
                for _ in range(rng.choice((0, 3, 90))):
                    body = f"m{next(numbers)}"
                    expected.append(body)
                    life.put(body, rng.randrange(1, 7))
                life.settle()
                clock.advance(rng.choice((0, 500, 1000, 7000)))
                life.settle()
                marked = len(life.delivered)
                if rng.random() < 0.4:
                    life.persist()
                    synced, unsynced = marked, []
                    durable.update(expected)
        except Stopped:
            pass
        unsynced = unsynced + life.delivered[synced:]
        killed = rng.random() < 0.5
        if killed:
            life.store.commit_log.tail.write()  # copies in progress may be in the log, and no mark covers them
            disk = disk.killed()
            unknown.update(life.delivered[marked:])
        else:
            disk = disk.power_cut(rng)
            unknown.update(unsynced)
            unsynced = []
            expected = [body for body in expected if body in durable]
        clock = VirtualClock(clock.message_time_ms() + 10)
    life = Life(disk, clock)
    clock.advance(10_000)
    life.settle()
    life.turn.run()
    found = Counter(bodies(life.store))
    assert [body for body in expected if body not in found] == []
    assert {body: count for body, count in found.items() if count > 1 + unknown[body]} == {}


def test_mark_of_another_store_is_ignored() -> None:
    """A store that was wiped and refilled, even by another broker, has other records before the mark's offsets."""
    disk, clock = MemoryDisk(), VirtualClock()
    life = Life(disk, clock)
    for number in range(10):
        life.put(f"old {number}", 1)
    clock.advance(1000)
    life.settle()
    life.stop()
    other = MemoryDisk()
    other.make_dirs("/store/config")
    other.write_file(MARK, bytes(disk.read_file(MARK)))
    life = Life(other, VirtualClock(clock.message_time_ms()))
    life.put("odd size", 2)
    for number in range(20):
        life.put(f"new {number}", 1)
    life.stop()
    clock = VirtualClock(clock.message_time_ms())
    life = Life(other, clock)
    clock.advance(10_000)
    life.settle()
    life.turn.run()
    assert sorted(bodies(life.store)) == sorted(["odd size", *(f"new {number}" for number in range(20))])


def test_newer_progress_file_of_another_broker_is_used() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    life = Life(disk, clock)
    for number in range(10):
        life.put(f"{number}", 1)
    life.stop()
    mark = bytes(disk.read_file(MARK))
    life = Life(disk, VirtualClock(clock.message_time_ms() + 1000))
    life.settle()
    life.stop()
    disk.write_file(MARK, mark)  # the old mark, as if another broker had delivered the ten
    life = Life(disk, VirtualClock(clock.message_time_ms() + 2000))
    life.settle()
    life.turn.run()
    assert bodies(life.store) == [f"{number}" for number in range(10)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_flipped_bit_in_the_mark_neither_loses_nor_repeats_a_message(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    life = Life(disk, clock)
    for number in range(6):
        life.put(f"{number}", 1 + number // 4 * 5)
    clock.advance(1000)
    life.settle()
    life.persist()
    if is_clean:
        life.stop()
    else:
        life.service.persist()
        life.store.commit_log.tail.write()
    files = {path: bytes(disk.read_file(path)) for path in (MARK, OFFSETS)}
    image = {path: bytes(disk.read_file(path)) for path in disk._files}
    used = [at for at in range(4 * MARK_SLOT_SIZE) if any(files[MARK][at - at % 128 :][:128])]
    damages = [("bit", at * 8 + bit) for at in used for bit in range(8)][:: cases(53, 13) if is_clean else cases(67, 17)]
    damages += [("bit", at) for at in range(0, 8 * 4 * MARK_SLOT_SIZE, cases(29_989, 9973))]
    damages += [("cut", size) for size in (0, 1, 100, 4096, 5000, 4 * MARK_SLOT_SIZE - 1)] + [("gone", 0)]
    for kind, at in damages:
        disk = MemoryDisk()
        for path, data in image.items():
            disk.make_dirs(path.rpartition("/")[0])
            disk.write_file(path, data)
        mark = bytearray(files[MARK])
        if kind == "bit":
            mark[at // 8] ^= 1 << at % 8
        if kind == "gone":
            disk.delete(MARK)
        else:
            disk.write_file(MARK, bytes(mark[:at] if kind == "cut" else mark))
        caplog.clear()
        later = VirtualClock(clock.message_time_ms() + 10_000)
        life = Life(disk, later)
        life.settle()
        life.turn.run()
        assert sorted(bodies(life.store)) == [f"{number}" for number in range(6)], (kind, at)
        assert kind == "gone" or MARK in caplog.text, (kind, at)


async def test_broker_killed_repeatedly_repeats_few_level_messages(tmp_path: Path) -> None:
    store = {"store_path_root_dir": f"{tmp_path}/store", "message_delay_level": LEVELS}
    async with running_broker(disk=FileDisk(), store=store) as broker:
        for number in range(600):
            message = delayed(f"m{number}", 1 + number % 6)
            assert broker.services.store.commit_log.put(message).status is PutStatus.PUT_OK
        broker.services.turn.run()
    config = tmp_path / "broker.conf"
    config.write_text(
        f"storePathRootDir={tmp_path}/store\nmessageDelayLevel={LEVELS}\nbrokerIP1=127.0.0.1\nlistenPort=0\n"
        f"mappedFileSizeCommitLog={1 << 20}\nmaxHashSlotNum=100\nmaxIndexNum=1000\n"
    )
    rng, kills, end_s = random.Random(4), 0, time.monotonic() + 7
    while time.monotonic() < end_s or kills < 3:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "broker", "-c", str(config), stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                while b"boot success" not in (line := await process.stdout.readline()):
                    assert line, "the broker did not start"
            await asyncio.sleep(rng.choice((0, 0.02, 0.4, 1.2)))  # the kill may come at any moment
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        kills += 1
    async with running_broker(disk=FileDisk(), store=store) as broker:
        async with asyncio.timeout(PATIENCE_S):
            while len(set(bodies(broker.services.store))) < 600:
                await asyncio.sleep(0.05)
        found = Counter(bodies(broker.services.store))
    # Each kill repeats at most the batch in progress.
    assert sum(found.values()) - 600 <= BATCH_MAX * kills, (kills, sum(found.values()))
    assert max(found.values()) <= 3

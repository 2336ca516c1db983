"""Timer files with a flipped bit, truncated, emptied or deleted: pending timers are delivered once and on time, and the
damage is logged.

A sample of the bits is tested, or all of them with POCKETMQ_EXHAUSTIVE=1 in the environment.
"""

import logging
import os
import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import TIMER_LOG_UNIT_SIZE, TIMER_WHEEL_SLOT_SIZE
from pocketmq.store.timer.timer_check import problems
from tests.broker.built import InlineExecutor
from tests.broker.timed import MINUTE, SECOND, Timed
from tests.support.amount import cases

EXHAUSTIVE = os.environ.get("POCKETMQ_EXHAUSTIVE") == "1"
PER_FILE = 7
SETTINGS: dict[str, Any] = {
    "slots_total": 100, "roll_window_slots": 30, "log_file_size": TIMER_LOG_UNIT_SIZE * PER_FILE + 16
}  # fmt: skip
CHECK, MARK, WHEEL, LOG = (f"/store/{name}" for name in ("config/timercheck", "config/timermark", "timerwheel", "timerlog"))


class Stopped(NamedTuple):
    files: dict[str, bytes]
    now_ms: int
    delivered: list[str]
    pending: dict[str, int]
    """Body -> due ms."""

    def disk(self) -> MemoryDisk:
        disk = MemoryDisk()
        for path, data in self.files.items():
            disk.make_dirs(path.rpartition("/")[0])
            disk.write_file(path, data)
        return disk

    def log_paths(self) -> list[str]:
        return sorted(path for path in self.files if path.startswith(LOG))


async def stopped(*, is_clean: bool) -> Stopped:
    """Return a stopped store: four timers are delivered; the others are pending, alone or together in a slot, or rolling."""
    t = Timed(**SETTINGS)
    begin_ms = t.clock.message_time_ms()
    pending = {}
    for number in range(4):
        t.put(f"past {number}", TIMER_DELIVER_MS=begin_ms + 1500 + 10 * number)
    for number, wait_ms in enumerate((8000, 8000, 8400, 11_250, 20_000, 45_000, 70_000)):
        pending[f"{number}"] = begin_ms + wait_ms
        t.put(f"{number}", TIMER_DELIVER_MS=begin_ms + wait_ms)
    await t.advance(3 * SECOND)
    t.put("delay", TIMER_DELAY_MS=9 * SECOND)
    pending["delay"] = begin_ms + 12 * SECOND
    await t.settle()
    t.persist()
    t.put("last", TIMER_DELIVER_MS=begin_ms + 30 * SECOND)
    pending["last"] = begin_ms + 30 * SECOND
    await t.advance(1)
    assert t.bodies() == [f"past {number}" for number in range(4)]
    if is_clean:
        t.stop()
    else:
        t.delays.stop()
    files = {path: bytes(t.disk.read_file(path)) for path in t.disk._files}
    return Stopped(
        files, t.clock.message_time_ms(), t.bodies() if not is_clean else [f"past {n}" for n in range(4)], pending
    )


async def check(store: Stopped, disk: MemoryDisk, what: object, *, with_past: bool = False) -> None:
    clock = VirtualClock(store.now_ms)
    t = Timed(disk, clock, **SETTINGS)
    for due_ms in sorted(set(store.pending.values())):
        await t.advance(due_ms - 1 - clock.message_time_ms())
        await t.advance(1)
    await t.advance(MINUTE)
    arrivals = t.arrivals()[len(store.delivered) :]
    t.delays.stop()
    if with_past:
        arrivals = [arrival for arrival in arrivals if not arrival[0].startswith("past")]
    assert sorted(arrivals) == sorted(store.pending.items()), what


def used_bits(data: bytes, size: int) -> list[int]:
    """Return the bits of the non-empty pieces of `size` bytes."""
    pieces = [at for at in range(0, len(data), size) if any(data[at : at + size])]
    return [8 * at + bit for at in pieces for bit in range(8 * min(size, len(data) - at))]


def sampled(bits: list[int], count: int, rng: random.Random) -> list[int]:
    count = cases(count // 3, count)
    return bits if EXHAUSTIVE or len(bits) <= count else sorted(rng.sample(bits, count))


def flips(store: Stopped, rng: random.Random) -> Iterator[tuple[str, int, bool]]:
    """Yield (path, bit, whether the bit has a meaning)."""
    for bit in sampled(used_bits(store.files[CHECK], 8), 60, rng):
        yield CHECK, bit, True
    for bit in sampled(used_bits(store.files[MARK], 8), 60, rng):
        yield MARK, bit, True
    for bit in sampled(used_bits(store.files[WHEEL], TIMER_WHEEL_SLOT_SIZE), 30, rng):
        yield WHEEL, bit, True
    for path in store.log_paths():
        for bit in sampled(used_bits(store.files[path], TIMER_LOG_UNIT_SIZE), 40, rng):
            yield path, bit, True
    for path in (CHECK, MARK, WHEEL):
        for _ in range(500 if EXHAUSTIVE else cases(4, 12)):
            yield path, rng.randrange(8 * len(store.files[path])), False


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
async def test_flipped_bit_neither_delays_nor_repeats_nor_loses_a_timer(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = await stopped(is_clean=is_clean)
    assert problems(store.disk(), "/store") == []
    for path, bit, means in flips(store, random.Random(is_clean)):
        disk = store.disk()
        data = bytearray(store.files[path])
        data[bit // 8] ^= 1 << bit % 8
        disk.write_file(path, bytes(data))
        told = problems(disk, "/store")
        caplog.clear()
        await check(store, disk, (path, bit), with_past=not is_clean and path == MARK)
        name = path.rpartition("/")[2] if not path.startswith(LOG) else LOG
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        if is_clean or (means and path not in (WHEEL,)):
            assert any(name in line for line in warnings), (path, bit, warnings)
            assert any(name.rpartition("/")[2] in line for line in told), (path, bit, told)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
async def test_truncated_or_deleted_file_neither_delays_nor_repeats_nor_loses_a_timer(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = await stopped(is_clean=is_clean)
    for path in (CHECK, MARK, WHEEL, *store.log_paths()):
        size = len(store.files[path])
        for kept in (0, 1, size // 2, size - 1, None):
            disk = store.disk()
            disk.delete(path)
            if kept is not None:
                disk.write_file(path, store.files[path][:kept])
            caplog.clear()
            # After a kill, timers that the older timercheck does not cover may be delivered again.
            await check(store, disk, (path, kept), with_past=not is_clean and path == MARK)
            if kept is not None or path.startswith(LOG):
                name = path.rpartition("/")[2] if not path.startswith(LOG) else "timer log"
                assert name in caplog.text or LOG in caplog.text, (path, kept)
    for path in (CHECK, MARK, WHEEL):
        disk = store.disk()
        disk.write_file(path, bytes(len(store.files[path])))
        await check(store, disk, (path, "zeros"), with_past=not is_clean and path == MARK)


async def test_timers_are_rebuilt_when_all_their_files_are_deleted() -> None:
    store = await stopped(is_clean=True)
    disk = store.disk()
    for path in (CHECK, MARK, WHEEL, *store.log_paths()):
        disk.delete(path)
    # No file tells which timers were delivered.
    await check(store, disk, "all", with_past=True)


async def test_flipped_bit_in_files_of_apache_loses_no_timer(caplog: pytest.LogCaptureFixture) -> None:
    ours = await stopped(is_clean=True)
    files = dict(ours.files)
    # As 5.5.0 leaves the files: only the 56 bytes of its checkpoint, and no mark.
    check_data = bytearray(4096)
    read_time_ms = ours.now_ms - ours.now_ms % 1000
    log_end = (len(ours.log_paths()) - 1) * SETTINGS["log_file_size"]
    queue_offset = len(ours.pending) + len(ours.delivered)
    struct.pack_into(">7q", check_data, 0, read_time_ms, log_end, queue_offset, queue_offset, 0, ours.now_ms, 20)
    files[CHECK] = bytes(check_data)
    del files[MARK]
    theirs = ours._replace(files=files)
    await check(theirs, theirs.disk(), "nothing")
    rng = random.Random(7)
    damages = [(CHECK, bit) for bit in sampled(list(range(8 * 56)), 50, rng)]
    for path in theirs.log_paths():
        damages += [(path, bit) for bit in sampled(used_bits(files[path], TIMER_LOG_UNIT_SIZE), 70, rng)]
    for path, bit in damages:
        disk = theirs.disk()
        data = bytearray(files[path])
        data[bit // 8] ^= 1 << bit % 8
        disk.write_file(path, bytes(data))
        await check(theirs, disk, (path, bit), with_past=True)


async def test_deleted_first_file_of_the_timer_log_is_detected() -> None:
    """The log continues in the following files; only the content of the first one is missing."""
    t = Timed(**SETTINGS)
    now_ms = t.clock.message_time_ms()
    for number in range(3 * PER_FILE):
        t.put(f"{number}", TIMER_DELIVER_MS=now_ms + 10_000 + number)
    await t.settle()
    t.delays.mark_in(InlineExecutor())
    t.stop()
    t.disk.delete(f"{LOG}/{0:020d}")
    t = Timed(t.disk, t.clock, **SETTINGS)
    await t.advance(MINUTE)
    assert t.bodies() == [f"{number}" for number in range(3 * PER_FILE)]

"""Timer log, wheel and checkpoint, each tested separately."""

import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from pocketmq.store.disk import open_files
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import TIMER_LOG_UNIT_DTYPE, TIMER_MARK_POSITION, TIMER_MARK_STRUCT, TIMER_WHEEL_SLOT_DTYPE
from pocketmq.store.timer.timer_checkpoint import TimerCheckpoint, TimerState, checkpoint_problems
from pocketmq.store.timer.timer_log import TimerLog, Units, joined
from pocketmq.store.timer.timer_wheel import TimerSlot, TimerWheel
from tests.store.power_cut_disk import PowerCutDisk
from tests.support.memory import resident_memory

PER_FILE = 5
FILE_SIZE = PER_FILE * 52 + 16 + 30  # one more unit would fit, but not the blank behind it
NOW = 1_800_000_000_000


def units_for(times: list[int], physical_offset: int = 100) -> Units:
    units = np.zeros(len(times), TIMER_LOG_UNIT_DTYPE)
    units["size"], units["magic"], units["previous_position"], units["record_size"] = 52, 1, -1, 300
    units["write_time_ms"] = times
    units["physical_offset"] = physical_offset + np.arange(len(times))
    return units


def opened_log(disk: PowerCutDisk | MemoryDisk) -> TimerLog:
    log = TimerLog(disk, "/store/timerlog", FILE_SIZE)
    log.load()
    return log


# --- the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("portion", [1, 3, 5, 7, 23])
def test_units_are_at_their_predicted_positions_and_files_end_with_a_blank(portion: int) -> None:
    disk = MemoryDisk()
    log = opened_log(disk)
    units = units_for(list(range(NOW, NOW + 23)))
    foretold: list[int] = []
    for begin in range(0, 23, portion):
        part = units[begin : begin + portion]
        foretold += log.positions_of_next(len(part)).tolist()
        log.append(part.tobytes())
    assert foretold == [number // PER_FILE * FILE_SIZE + number % PER_FILE * 52 for number in range(23)]
    assert [bytes(log.unit_at(position) or b"") for position in foretold] == [unit.tobytes() for unit in units]
    for file_number in range(4):
        data = disk.read_file(f"/store/timerlog/{file_number * FILE_SIZE:020d}")
        assert data[PER_FILE * 52 :][:16] == struct.pack(">iqi", 46, 0, -875286124)
    assert joined(part for _, part in log.windows()).tobytes() == units.tobytes()
    assert joined(part for _, part in log.windows(foretold[7], foretold[12])).tobytes() == units[7:12].tobytes()
    again = opened_log(disk)
    assert again.valid_end(1 << 40, 1 << 60) == log.end == foretold[-1] + 52
    assert again.valid_end(100 + 7, 1 << 60) == again.valid_end(1 << 40, NOW + 7) == foretold[7]


@pytest.mark.parametrize("torn_at", range(4, 44, 4))
def test_log_ends_at_a_unit_that_is_partly_missing(torn_at: int) -> None:
    for front_is_missing in (False, True):
        disk = MemoryDisk()
        log = opened_log(disk)
        units = units_for([NOW, NOW + 1])
        units["topic_hash"], units["previous_position"][1] = 7, 0
        log.append(units.tobytes())
        array = disk.map(f"/store/timerlog/{0:020d}", FILE_SIZE).array
        array[52:][slice(0, torn_at) if front_is_missing else slice(torn_at, 52)] = 0
        # A unit that has lost only the hash of its topic is still valid.
        assert opened_log(disk).valid_end(1 << 40, 1 << 60) == (104 if torn_at == 40 and not front_is_missing else 52)


def test_file_is_deleted_if_all_units_are_read_or_their_records_deleted() -> None:
    disk = MemoryDisk()
    log = opened_log(disk)
    times = [NOW + 1000 * number for number in range(17)]
    times[2] = NOW + 7000
    log.append(units_for(times).tobytes())
    assert log.delete_unneeded(NOW + 7000, 0) == 0
    assert log.delete_unneeded(NOW + 7001, 0) == 1
    assert log.begin == FILE_SIZE
    assert log.delete_unneeded(NOW + 7001, 100 + 9) == 0
    assert log.delete_unneeded(NOW + 7001, 100 + 10) == 1
    # The last file is never deleted: it determines where the log continues.
    assert log.delete_unneeded(NOW + 10**9, 10**9) == 1
    assert len(disk.listdir("/store/timerlog")) == 1 and log.begin == 3 * FILE_SIZE


def test_starting_over_never_reuses_a_position() -> None:
    disk = PowerCutDisk()
    log = opened_log(disk)
    log.append(units_for([NOW] * 7).tobytes())
    end = log.end
    log.start_over(end)
    assert log.begin == log.end == log.positions_of_next(1)[0] == 2 * FILE_SIZE > end
    log.flush()
    assert opened_log(disk).begin == 2 * FILE_SIZE


def test_append_without_space_changes_nothing() -> None:
    disk = PowerCutDisk()
    log = opened_log(disk)
    log.append(units_for([NOW] * 4).tobytes())
    disk.capacity = disk.space_used + 4096
    end = log.end
    with pytest.raises(OSError, match="No space left"):
        log.append(units_for([NOW] * 20).tobytes())
    assert (log.end, sum(len(part) for _, part in log.windows())) == (end, 4)
    disk.capacity = None
    log.append(units_for([NOW] * 20).tobytes())
    assert sum(len(part) for _, part in log.windows()) == 24
    disk.note_all_written()
    assert not disk.unreserved


def test_little_of_a_long_log_is_resident_while_it_is_written_and_read(tmp_path: Path) -> None:
    log = TimerLog(FileDisk(), str(tmp_path / "timerlog"), 16 << 20)
    log.load()
    data = units_for([NOW] * 8192).tobytes()
    before = highest = resident_memory()
    while log.end < 64 << 20:
        log.append(data)
        highest = max(highest, open_files.resident_memory())
    seen = 0
    for _, units in log.windows():
        seen += int((units["record_size"] == 300).sum())
        highest = max(highest, open_files.resident_memory())
    assert seen >= (64 << 20) // 52 - 8192
    assert log.valid_end(1 << 62, NOW + 1) > 0
    assert max(highest, open_files.resident_memory()) < before + (24 << 20)
    log.close()


# --- the wheel ------------------------------------------------------------------------------------------------------


def add(wheel: TimerWheel, time_ms: int, position: int) -> None:
    _, numbers, slots = wheel.linked_slots(np.array([time_ms]), np.array([position]), np.ones(1, np.int64))
    wheel.set_slots(numbers, slots)


@pytest.mark.parametrize("slot_count", [200, 256, 1000])
def test_wheel_behaves_like_a_dictionary_of_slots(slot_count: int) -> None:
    rng = random.Random(5)
    wheel, model = TimerWheel(MemoryDisk(), "/store/timerwheel", slot_count, 1000), dict[int, TimerSlot]()
    wheel.clear_from(0)
    span = 1000 * slot_count
    position, begin = 0, NOW
    for _ in range(300):
        begin += 1000 * rng.randrange(30)
        times = [begin + rng.randrange(span) for _ in range(rng.choice((1, 2, 30)))]
        positions = [position + 52 * number for number in range(len(times))]
        position += 52 * len(times)
        counts = [rng.choice((1, 1, 1, -1)) for _ in times]
        previous, numbers, slots = wheel.linked_slots(np.array(times), np.array(positions), np.array(counts))
        wheel.set_slots(numbers, slots)
        for time, own, count, before in zip(times, positions, counts, previous.tolist(), strict=True):
            slot = model.get(time // 1000, TimerSlot(-1, -1, 0, 0))
            assert before == slot.last_position
            first = own if slot.first_position < 0 else slot.first_position
            model[time // 1000] = TimerSlot(first, own, slot.message_count + count, 0)
            model.pop(time // 1000 - slot_count, None)
            assert wheel.slot_at(time - span) == (-1, -1, 0, 0)
        low = begin + 1000 * rng.randrange(-100, 200)
        high = low + 1000 * rng.choice((1, 10, 150, slot_count))
        wanted = min((1000 * time for time in model if low <= 1000 * time < high), default=None)
        assert wheel.next_time_ms(low, high) == wanted
        assert wheel.slot_at(begin) == model.get(begin // 1000, (-1, -1, 0, 0))
    wheel.clear_from(begin)
    assert wheel.next_time_ms(begin, begin + span) is None


def test_wheel_reserves_space_before_it_writes() -> None:
    disk = PowerCutDisk()
    wheel = TimerWheel(disk, "/store/timerwheel", 20_000, 1000)
    times = np.array([NOW, NOW + 1000, NOW + 5_000_000, NOW + 5_100_000])
    wheel.reserve(times)
    wheel.reserve(np.array([NOW + 9_000_000]))
    assert disk.space_used == 3 * 4096
    _, numbers, slots = wheel.linked_slots(times, np.arange(4) * 52, np.ones(4, np.int64))
    wheel.set_slots(numbers, slots)
    add(wheel, NOW + 9_000_000, 208)
    disk.note_all_written()
    assert not disk.unreserved
    disk.capacity = disk.space_used
    with pytest.raises(OSError, match="No space left"):
        add(wheel, NOW + 2_500_000, 260)


def test_wheel_of_another_size_is_replaced_by_an_empty_one() -> None:
    disk = MemoryDisk()
    add(TimerWheel(disk, "/store/timerwheel", 200, 1000), NOW, 0)
    assert TimerWheel(disk, "/store/timerwheel", 300, 1000).slot_at(NOW) == (-1, -1, 0, 0)
    assert disk.size("/store/timerwheel") == 300 * TIMER_WHEEL_SLOT_DTYPE.itemsize


@pytest.mark.parametrize("used", [0, 3, 100])
def test_start_and_stop_read_only_the_pages_of_a_wheel_that_may_have_units(tmp_path: Path, used: int) -> None:
    """A start and a stop with few timers do not make the wheel's 38 MB resident; the checksum is that of the whole file."""
    disk, path, slot_count = FileDisk(), tmp_path / "timerwheel", 2 * 604_800
    rng = random.Random(used)
    times = sorted(NOW + 1000 * rng.randrange(slot_count) for _ in range(used))
    wheel = TimerWheel(disk, str(path), slot_count, 1000)
    for number, time in enumerate(times):
        add(wheel, time, 52 * number)
    assert wheel.count_from(NOW) == used
    known = zlib.crc32(path.read_bytes())
    assert wheel.sum() == known
    wheel.flush()
    wheel.close()
    before = resident_memory()
    again = TimerWheel(disk, str(path), slot_count, 1000)
    assert again.sum() == known and again.count_from(NOW) == used
    ahead = again.sum_from(NOW + 1)
    again.clear_from(NOW + 1)
    assert ahead == 0 or used
    assert again.next_time_ms(NOW + 1, NOW + 1000 * slot_count) is None
    if used < 100:
        assert resident_memory() - before < 2 << 20
    assert again.sum() == zlib.crc32(path.read_bytes())
    again.close()
    with path.open("r+b") as file:  # a byte of a page that was never used
        file.seek(30 << 20)
        file.write(b"x")
    assert TimerWheel(disk, str(path), slot_count, 1000).sum() == zlib.crc32(path.read_bytes())


# --- the checkpoint -------------------------------------------------------------------------------------------------

PATH = "/store/config/timercheck"
DURABLE, MARKED = TimerState(NOW, 520, 10, NOW - 5, 7), TimerState(NOW + 3000, 572, 11, NOW + 3000, 9)


def test_state_is_the_mark_after_a_kill_and_the_last_flush_after_a_power_cut() -> None:
    disk = PowerCutDisk()
    checkpoint = TimerCheckpoint(disk, PATH)
    assert not checkpoint.sealed and checkpoint.state[:5] == (0, 0, 0, 1, 0)
    checkpoint.flush(DURABLE, NOW)
    checkpoint.mark(MARKED)
    for seed in range(20):
        after = TimerCheckpoint(disk.power_cut(random.Random(seed)), PATH)
        assert after.sealed and after.state == DURABLE
    killed = TimerCheckpoint(disk.killed(), PATH)
    assert killed.sealed and (killed.state, killed.durable_state) == (MARKED, DURABLE)


def test_present_state_of_an_earlier_version_is_used_and_then_removed() -> None:
    disk = PowerCutDisk()
    checkpoint = TimerCheckpoint(disk, PATH)
    checkpoint.flush(DURABLE, NOW)
    mark = TIMER_MARK_STRUCT.pack(zlib.crc32(disk.boot_mark(PATH).encode()), *MARKED[:5], 0)[:-8]
    mark += (0x504D5154 << 32 | zlib.crc32(mark)).to_bytes(8, "big")
    disk.map(PATH, 4096).view[TIMER_MARK_POSITION:][: len(mark)] = mark
    disk.delete("/store/config/timermark")  # it had none
    assert TimerCheckpoint(disk.power_cut(random.Random(1)), PATH).state[:5] == DURABLE[:5]
    killed = disk.killed()
    found = TimerCheckpoint(killed, PATH)
    assert found.sealed and (found.state[:5], found.durable_state[:5]) == (MARKED[:5], DURABLE[:5])
    assert not checkpoint_problems(killed.read_file(PATH))
    found.flush(found.state, NOW + 1)
    assert not any(killed.read_range(PATH, TIMER_MARK_POSITION, len(mark)))
    assert TimerCheckpoint(killed.power_cut(random.Random(1)), PATH).state[:5] == MARKED[:5]


def test_checkpoint_of_another_broker_is_neither_sealed_nor_marked() -> None:
    disk = MemoryDisk()
    checkpoint = TimerCheckpoint(disk, PATH)
    checkpoint.flush(DURABLE, NOW)
    checkpoint.mark(MARKED)
    # 5.5.0 writes its 56 bytes, and nothing behind them.
    theirs = struct.pack(">7q", NOW + 9000, 104, 12, 12, 3, NOW, 5)
    disk.map(PATH, 4096).view[:56] = theirs
    found = TimerCheckpoint(disk, PATH)
    assert not found.sealed and found.state[:5] == (NOW + 9000, 104, 12, NOW + 9001, 0)
    found.flush(TimerState(NOW + 9000, 104, 13, 0, 0), NOW + 1)
    # Apache's master may begin at the position given by the log's last unit; its data version continues.
    assert struct.unpack(">7q", disk.read_range(PATH, 0, 56)) == (NOW + 9000, 104, 13, (1 << 63) - 1, 3, NOW + 1, 6)
    again = TimerCheckpoint(disk, PATH)
    assert again.sealed and again.state[:3] == (NOW + 9000, 104, 13)


def test_checkpoint_of_another_length_is_replaced_by_an_empty_one() -> None:
    disk = MemoryDisk()
    disk.write_file(PATH, b"\1" * 56)
    assert TimerCheckpoint(disk, PATH).state[:5] == (0, 0, 0, 1, 0)
    assert disk.size(PATH) == 4096

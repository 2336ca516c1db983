"""What a store makes of the files that a crash, or somebody's hand, has left."""

import random

import pytest
from stores import ROOT, bodies, message, open_store, small_config

from runtime.clock import VirtualClock
from store.memory_disk import MemoryDisk
from store.message_store import MessageStore
from store.recovery import RecoveryReport

FILE_SIZE = 16 << 10
COUNT = 60


def crashed_disk() -> tuple[MemoryDisk, list[bytes], list[int]]:
    """A store of some files that was never stopped; bodies and record starts of its one queue."""
    disk = MemoryDisk()
    store = open_store(disk)
    expected, starts = [], []
    for number in range(COUNT):
        body = b"%d:" % number + bytes([number]) * (number * 17 % 700)
        expected.append(body)
        starts.append(store.put_message(message("T", 0, body, KEYS=f"k{number}")).physical_offset)
        if number % 3 == 0:
            store.put_message(message("Other", number % 4, b"other"))
        store.dispatch()
    return disk, expected, starts


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    for path in disk._files:
        copy.write_file(path, disk.read_file(path))
    return copy


def reopen(disk: MemoryDisk) -> tuple[MessageStore, RecoveryReport]:
    disk._locked.clear()  # whoever held the lock is dead
    store = MessageStore(small_config(), disk, VirtualClock())
    return store, store.load()


def overwrite(disk: MemoryDisk, physical_offset: int, data: bytes) -> None:
    start = physical_offset - physical_offset % FILE_SIZE
    file = disk._file(f"{ROOT}/commitlog/{start:020}")
    position = physical_offset - start
    file.pages[position : position + len(data)] = data


@pytest.mark.parametrize("dispatched_between", [True, False])
def test_a_topic_deleted_and_made_anew_keeps_its_second_life_only(dispatched_between: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(8):
        store.put_message(message("T", 0, b"first life %d" % number))
        store.put_message(message("Other", 0, b"other %d" % number))
        if dispatched_between or number < 7:
            store.dispatch()
    assert store.drop_topics({"Other"}) == ["T"]
    expected = [b"second life %d" % number for number in range(5)]
    for number, body in enumerate(expected):
        assert store.put_message(message("T", 0, body)).queue_offset == number
    store.dispatch()
    assert bodies(store) == expected

    for _ in range(2):
        store, _ = reopen(disk)
        assert bodies(store) == expected
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 5)
        assert bodies(store, "Other") == [b"other %d" % number for number in range(8)]
    assert store.put_message(message()).queue_offset == 5


def test_nothing_is_lost_by_a_killed_process() -> None:
    disk, expected, _ = crashed_disk()
    store, report = reopen(disk)
    assert not report.clean and report.repairs == [] and report.records_dispatched == report.records_scanned
    assert bodies(store) == expected
    assert [len(store.query_message("T", f"k{n}", 64, 0, 1 << 60).views) for n in range(COUNT)] == [1] * COUNT
    assert store.put_message(message()).queue_offset == COUNT


def test_a_log_cut_anywhere_keeps_exactly_the_records_before_the_cut() -> None:
    disk, expected, starts = crashed_disk()
    rng = random.Random(1)
    for index in rng.sample(range(COUNT), 25):
        size = (starts + [starts[-1] + 900])[index + 1] - starts[index]
        for cut in {0, 1, 4, 8, 20, 36, 87, 88, 95, min(size, 1200) // 2}:
            copy = copy_of(disk)
            position = starts[index] + cut
            in_file = FILE_SIZE - position % FILE_SIZE
            overwrite(copy, position, bytes(in_file))
            for start in range(position - position % FILE_SIZE + FILE_SIZE, starts[-1] + FILE_SIZE, FILE_SIZE):
                if copy.exists(f"{ROOT}/commitlog/{start:020}"):
                    copy.delete(f"{ROOT}/commitlog/{start:020}")
            store, report = reopen(copy)
            found = bodies(store)
            assert found == expected[: len(found)] and index <= len(found) <= index + 1, (index, cut)
            assert store.max_offset("T", 0) == len(found) == store.put_message(message()).queue_offset


def test_a_flipped_byte_ends_the_log_at_its_record_or_harms_only_what_has_no_checksum() -> None:
    disk, expected, starts = crashed_disk()
    rng = random.Random(2)
    for _ in range(150):
        index = rng.randrange(COUNT)
        part = rng.choice((4, 8, 28, 84, 90))  # magic code, CRC, physical offset, body size, body
        copy = copy_of(disk)
        file = copy.read_file(f"{ROOT}/commitlog/{starts[index] // FILE_SIZE * FILE_SIZE:020}")
        position = starts[index] % FILE_SIZE + part + rng.randrange(2)
        overwrite(
            copy, starts[index] - starts[index] % FILE_SIZE + position, bytes([file[position] ^ 1 << rng.randrange(8)])
        )
        store, report = reopen(copy)
        assert bodies(store) == expected[:index], (index, part)
        assert report.end_offset == starts[index] and report.end_reason and "cut off" in str(report)


def test_stale_records_behind_the_end_are_zeroed_and_never_come_back() -> None:
    disk, expected, starts = crashed_disk()
    # The record is broken; the ones behind it in the same file are whole, and would fit on if the log grew back to them.
    index = next(n for n in range(20, COUNT) if starts[n] // FILE_SIZE == starts[n + 3] // FILE_SIZE)
    whole = disk.read_file(f"{ROOT}/commitlog/{starts[index] // FILE_SIZE * FILE_SIZE:020}")
    overwrite(disk, starts[index] + 4, bytes(4))
    store, report = reopen(disk)
    assert report.end_offset == starts[index]
    path = f"{ROOT}/commitlog/{starts[index] // FILE_SIZE * FILE_SIZE:020}"
    assert not any(disk.read_file(path)[starts[index] % FILE_SIZE :])
    # Grow back to where a stale record begins, byte for byte what was there before, and crash again.
    overwrite(disk, starts[index], whole[starts[index] % FILE_SIZE : starts[index + 1] % FILE_SIZE])
    store, report = reopen(disk)
    assert bodies(store) == expected[: index + 1]


def test_queues_and_index_that_are_lost_are_made_again_from_the_log() -> None:
    disk, expected, _ = crashed_disk()
    store, _ = reopen(disk)
    store.shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue")
    disk.delete_tree(f"{ROOT}/index")
    store, report = reopen(disk)
    assert report.clean and report.records_dispatched > COUNT
    assert bodies(store) == expected
    assert len(store.query_message("T", "k3", 64, 0, 1 << 60).views) == 1


def test_queues_that_know_more_than_the_log_are_cut() -> None:
    disk, expected, starts = crashed_disk()
    store, _ = reopen(disk)
    store.shutdown()
    overwrite(disk, starts[-3], bytes(FILE_SIZE - starts[-3] % FILE_SIZE))
    for start in range(starts[-3] - starts[-3] % FILE_SIZE + FILE_SIZE, starts[-1] + 1, FILE_SIZE):
        disk.delete(f"{ROOT}/commitlog/{start:020}")
    store, report = reopen(disk)
    assert report.clean and any("queues knew of records" in repair for repair in report.repairs)
    assert bodies(store) == expected[:-3]
    assert store.query_message("T", f"k{COUNT - 1}", 64, 0, 1 << 60).views == []
    assert len(store.query_message("T", "k5", 64, 0, 1 << 60).views) == 1


def test_a_store_without_its_log_is_empty() -> None:
    disk, _, _ = crashed_disk()
    disk.delete_tree(f"{ROOT}/commitlog")
    store, report = reopen(disk)
    assert store.max_offset("T", 0) == 0 and report.repairs == ["there is nothing in the log: all queues deleted"]
    assert store.put_message(message()).physical_offset == 0


def test_after_a_clean_stop_only_what_is_new_is_looked_at() -> None:
    disk, expected, _ = crashed_disk()
    store, _ = reopen(disk)
    store.shutdown()
    store, report = reopen(disk)
    assert report.clean and report.records_scanned == 0 and bodies(store) == expected
    assert store.put_message(message()).store_timestamp_ms >= store.clock.message_time_ms()


def test_crashes_while_recovering_do_not_matter() -> None:
    disk, expected, starts = crashed_disk()
    overwrite(disk, starts[-1] + 90, b"\xff")
    for _ in range(3):
        store, _ = reopen(disk)
        assert bodies(store) == expected[:-1]


def test_recovery_begins_at_the_file_that_the_checkpoint_vouches_for() -> None:
    disk = MemoryDisk()
    clock = VirtualClock()
    store = open_store(disk, clock, message_index_enable=False)
    for number in range(100):
        store.put_message(message("T", 0, b"%d" % number + bytes(500)))
        clock.advance(1000)
        store.dispatch()
    store.flush_queues()
    disk._locked.clear()
    store = MessageStore(store.config, disk, clock)
    report = store.load()
    assert not report.clean and report.scan_start_offset >= store.max_physical_offset - 2 * FILE_SIZE
    assert len(bodies(store)) == 100


def test_a_prepared_file_without_a_record_does_no_harm() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.put_message(message(body=bytes(FILE_SIZE // 2)))
    store.dispatch()
    store.request_sync(store.max_physical_offset)
    store.flush_service.run_once()
    assert len(disk.listdir(f"{ROOT}/commitlog")) == 2
    store, report = reopen(disk)
    assert report.log_files_deleted == 1 and len(bodies(store)) == 1


@pytest.mark.parametrize("name", ["checkpoint", "index"])
def test_broken_side_files_do_not_lose_messages(name: str) -> None:
    disk, expected, _ = crashed_disk()
    for path in [path for path in disk._files if f"/{name}" in path]:
        size = disk.size(path)
        disk.write_file(path, random.Random(3).randbytes(size))
    store, _ = reopen(disk)
    assert bodies(store) == expected

"""Retention: which files are deleted, and when."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import Fault, PowerCutDisk
from tests.store.stores import ROOT, SteppedClock, bodies, message, open_store

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000  # 12:00 UTC


def noon() -> SteppedClock:
    clock = SteppedClock()
    clock.set_ms(NOON_MS)
    return clock


def aged_store(disk: Disk, clock: SteppedClock, **changes: object) -> MessageStore:
    """Return a store with ten messages, one per hour, each of which fills a log file."""
    hour = time.localtime(NOON_MS / 1000).tm_hour
    store = open_store(disk, clock, **({"delete_when": f"{(hour + 9) % 24:02}", "file_reserved_time": 4} | changes))
    for number in range(10):
        store.commit_log.put(message("T", 0, b"%d" % number + bytes(12_000), KEYS=f"k{number}"))
        store.dispatch()
        if number < 9:
            clock.advance(HOUR_MS)
    store.flush_service.flush_log()
    return store


def delete_removed(store: MessageStore, clock: SteppedClock) -> None:
    """Run the rounds of the checkpoint thread that delete the removed files."""
    for _ in range(12):
        clock.step(0.1)
        store.checkpoint_service.run_once()


def log_files(disk: Disk, directory: str = f"{ROOT}/commitlog") -> int:
    return len(disk.listdir(directory))


def test_expired_files_and_their_units_are_deleted_at_the_delete_when_hour() -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock)
    # File 4 ends where file 5 begins, four hours ago; later files are kept.
    assert store.clean() == 5
    delete_removed(store, clock)
    assert log_files(disk) == 5
    assert store.min_physical_offset == 5 * (16 << 10)
    assert store.min_offset("T", 0) == 5 and len(bodies(store)) == 5
    assert store.reader.get_message("T", 0, 0, 32).next_begin_offset == 5
    assert store.query_message("T", "k1", 9, 0, 1 << 60).views == []
    assert store.clean() == 0


def test_queues_of_deleted_files_are_cleaned_in_steps_until_the_store_is_closed() -> None:
    """There may be tens of thousands of queues, whose requests must not wait for all of them."""
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock)
    for queue_id in range(1, 40):
        store.commit_log.put(message("T", queue_id))
    store.dispatch()
    begun: list[Iterator[None]] = []
    store.clean_in_slices(begun.append)
    assert store.clean() == 5 and store.min_offset("T", 0) == 0
    assert store.clean() == 0 and len(begun) == 1, "it is not begun twice"
    next(begun[0])
    assert store.min_offset("T", 0) == 5
    assert sum(1 for _ in begun[0]) == 39
    clock.advance(HOUR_MS)
    assert store.clean(manual=True) == 1
    (steps,) = begun[1:]
    next(steps)
    store.shutdown()
    before = disk.listdir(f"{ROOT}/consumequeue/T")
    assert list(steps) == [] and disk.listdir(f"{ROOT}/consumequeue/T") == before


def test_retention_maps_no_file_of_a_small_queue() -> None:
    clock = noon()
    store = aged_store(MemoryDisk(), clock, mapped_file_open_max=1)
    for queue_id in range(1, 9):
        store.commit_log.put(message("T", queue_id))
        store.dispatch()
    mapped: list[object] = []
    store.open_files.opened = mapped.append  # type: ignore[method-assign]
    assert store.clean() == 5 and store.min_offset("T", 0) == 5
    assert not any("consumequeue" in str(getattr(file, "path", "")) for file in mapped)


def test_at_other_hours_files_are_deleted_only_on_request() -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock, delete_when="")
    assert store.clean() == 0
    assert store.clean(manual=True) == 5
    clock.advance(HOUR_MS)
    assert store.clean() == 1, "a request holds for some rounds"


def test_young_files_and_the_last_file_are_kept() -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock, file_reserved_time=100)
    assert store.clean(manual=True) == 0
    clock.advance(400 * 24 * HOUR_MS)
    assert store.clean(manual=True) == 9
    delete_removed(store, clock)
    assert log_files(disk) == 1


@pytest.mark.parametrize("used, deleted", [(0.75, 0), (0.76, 5), (0.85, 5), (0.86, 9)])
def test_full_disk_deletes_expired_files_first_then_the_oldest(used: float, deleted: int) -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock, delete_when="")
    disk.usage = lambda path: used  # type: ignore[method-assign]
    assert store.clean() == deleted
    assert store.writeable


def test_at_most_a_batch_of_files_is_deleted_in_one_round() -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock, delete_file_batch_max=3)
    clock.advance(24 * HOUR_MS)
    assert [store.clean(manual=True) for _ in range(4)] == [3, 3, 3, 0]


def test_records_held_by_a_pull_survive_the_deletion_of_their_file(tmp_path: Path) -> None:
    clock = noon()
    store = open_store(FileDisk(), clock, root=str(tmp_path))
    for number in range(3):
        store.commit_log.put(message("T", 0, b"%d" % number + bytes(12_000)))
    store.dispatch()
    store.flush_service.flush_log()
    held = store.reader.get_message("T", 0, 0, 1)
    clock.advance(400 * 24 * HOUR_MS)
    assert store.clean(manual=True) == 2
    delete_removed(store, clock)
    assert log_files(store.disk, f"{tmp_path}/commitlog") == 1
    assert bytes(held.views[0][88:89]) == b"0"
    held.release()
    assert held.views == [] and held.count == 1
    store.shutdown()


def test_store_opens_after_its_oldest_files_were_deleted() -> None:
    disk, clock = MemoryDisk(), noon()
    store = aged_store(disk, clock)
    store.clean()
    delete_removed(store, clock)
    disk._locked.clear()
    store = open_store(disk, clock)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (5, 10)
    assert store.commit_log.put(message()).queue_offset == 10


def test_each_deletion_is_durable_before_the_next_file_is_deleted() -> None:
    disk, clock = PowerCutDisk(), noon()
    store = aged_store(disk, clock, delete_commit_log_files_interval=1000)
    store.flush_queues()
    assert store.clean() == 5 and store.min_physical_offset == 5 * (16 << 10)
    for left in (9, 8, 7):
        store.checkpoint_service.run_once()
        store.checkpoint_service.run_once()
        assert log_files(disk) == left
        clock.step(1)
    cut = disk.power_cut(random.Random(1))
    assert cut.listdir(f"{ROOT}/commitlog")[0] == f"{3 * (16 << 10):020}", "none of the deleted comes back"


def test_a_file_that_cannot_be_deleted_is_tried_again_later() -> None:
    disk, clock = PowerCutDisk(), noon()
    store = aged_store(disk, clock, redelete_hanged_file_interval=5000)
    disk.faults.append(Fault("delete", 1, OSError(16, "Device or resource busy")))
    assert store.clean() == 5
    delete_removed(store, clock)
    assert log_files(disk) == 10 and store.writeable
    clock.step(5)
    delete_removed(store, clock)
    assert log_files(disk) == 5


def test_stop_deletes_the_remaining_removed_files() -> None:
    disk, clock = PowerCutDisk(), noon()
    store = aged_store(disk, clock)
    assert store.clean() == 5
    store.shutdown()
    assert log_files(disk) == 5


def test_service_resumes_as_soon_as_a_deletion_has_made_room() -> None:
    disk, clock = PowerCutDisk(), noon()
    store = aged_store(disk, clock)
    disk.used = 0.95
    assert store.clean() == 9
    refused = store.commit_log.put(message())
    assert all(text in refused.reason for text in (f"{ROOT}/co", "95.0%", "diskSpaceWarningLevelRatio allows 90%"))
    disk.used = 0.5
    delete_removed(store, clock)
    assert store.commit_log.put(message()).status is PutStatus.PUT_OK


def test_usage_of_the_emptiest_of_several_log_disks_decides() -> None:
    disk, clock = MemoryDisk(), noon()
    usages = {"/a": 0.2, "/b": 0.95, "/c": 0.95}
    disk.usage = lambda path: usages.get(path, 0.1)  # type: ignore[method-assign]
    paths = {"store_path_commit_log": "/a,/b", "read_only_commit_log_store_paths": "/c"}
    store = aged_store(disk, clock, delete_when="", **paths)
    assert store.clean() == 0 and store.writeable
    assert (log_files(disk, "/a"), log_files(disk, "/b"), log_files(disk, "/c")) == (10, 0, 0), "full ones are left out"
    usages["/a"] = 0.95
    assert store.clean() == 9 and not store.writeable
    assert "/a is 95.0% full" in store.commit_log.put(message()).reason


def test_new_log_files_alternate_between_the_paths_and_are_found_again() -> None:
    disk, clock = MemoryDisk(), noon()
    paths = {"store_path_commit_log": "/b, /a", "read_only_commit_log_store_paths": "/b"}
    store = aged_store(disk, clock, store_path_commit_log="/b, /a")
    expected = bodies(store)
    assert disk.listdir("/a") == [f"{number * (16 << 10):020}" for number in range(0, 10, 2)] and log_files(disk, "/b") == 5
    store.shutdown()
    store = open_store(disk, clock, **paths)
    assert bodies(store) == expected
    for _ in range(4):
        store.commit_log.put(message(body=bytes(12_000)))
    assert log_files(disk, "/b") == 5 and log_files(disk, "/a") == 9


def test_unsynced_log_files_are_not_deleted() -> None:
    disk, clock = PowerCutDisk(), noon()
    store = aged_store(disk, clock)
    for _ in range(3):
        store.commit_log.put(message(body=bytes(12_000)))
    clock.advance(400 * 24 * HOUR_MS)
    assert store.clean(manual=True) == 9, "the tenth was not full when the log was synced"
    assert store.clean(manual=True) == 0
    store.flush_service.flush_log()
    assert store.clean(manual=True) == 3

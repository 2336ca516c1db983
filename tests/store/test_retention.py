"""Which files go, and when."""

import time
from pathlib import Path

import pytest
from stores import ROOT, bodies, message, open_store

from runtime.clock import VirtualClock
from store.disk import FileDisk
from store.memory_disk import MemoryDisk
from store.message_store import MessageStore

HOUR_MS = 3_600_000
NOON_MS = 1_700_049_600_000  # 12:00 UTC


def aged_store(disk: MemoryDisk, clock: VirtualClock, **changes: object) -> MessageStore:
    """Ten messages, one an hour, each filling a file of its own."""
    hour = time.localtime(NOON_MS / 1000).tm_hour
    store = open_store(disk, clock, **({"delete_when": f"{(hour + 9) % 24:02}", "file_reserved_time": 4} | changes))
    for number in range(10):
        store.put_message(message("T", 0, b"%d" % number + bytes(12_000), KEYS=f"k{number}"))
        store.dispatch()
        if number < 9:
            clock.advance(HOUR_MS)
    return store


def log_files(disk: MemoryDisk) -> int:
    return len(disk.listdir(f"{ROOT}/commitlog"))


def test_expired_files_go_at_the_hour_of_delete_when_and_the_queue_follows() -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock)
    # File 4 ends where file 5 begins, four hours ago; whatever began later stays.
    assert store.clean() == 5 and log_files(disk) == 5
    assert store.min_physical_offset == 5 * (16 << 10)
    assert store.min_offset("T", 0) == 5 and len(bodies(store)) == 5
    assert store.get_message("T", 0, 0, 32).next_begin_offset == 5
    assert store.query_message("T", "k1", 9, 0, 1 << 60).views == []
    assert store.clean() == 0


def test_at_other_hours_nothing_goes_unless_asked() -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock, delete_when="")
    assert store.clean() == 0
    assert store.clean(manual=True) == 5
    clock.advance(HOUR_MS)
    assert store.clean() == 1, "a request holds for some rounds"


def test_nothing_young_goes_and_never_the_last_file() -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock, file_reserved_time=100)
    assert store.clean(manual=True) == 0
    clock.advance(400 * 24 * HOUR_MS)
    assert store.clean(manual=True) == 9 and log_files(disk) == 1


@pytest.mark.parametrize("used, deleted", [(0.75, 0), (0.76, 5), (0.85, 5), (0.86, 9)])
def test_a_filling_disk_takes_the_expired_first_and_then_the_oldest(used: float, deleted: int) -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock, delete_when="")
    disk.usage = lambda path: used  # type: ignore[method-assign]
    assert store.clean() == deleted
    assert store.writeable


def test_at_most_a_batch_of_files_goes_in_one_round() -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock, delete_file_batch_max=3)
    clock.advance(24 * HOUR_MS)
    assert [store.clean(manual=True) for _ in range(4)] == [3, 3, 3, 0]


def test_what_a_pull_holds_survives_the_deletion_of_its_file(tmp_path: Path) -> None:
    clock = VirtualClock(NOON_MS)
    store = open_store(FileDisk(), clock, root=str(tmp_path))
    for number in range(3):
        store.put_message(message("T", 0, b"%d" % number + bytes(12_000)))
    store.dispatch()
    held = store.get_message("T", 0, 0, 1)
    clock.advance(400 * 24 * HOUR_MS)
    assert store.clean(manual=True) == 2
    assert bytes(held.views[0][88:89]) == b"0"
    held.release()
    assert held.views == [] and held.count == 1
    store.shutdown()


def test_a_store_whose_beginning_is_gone_opens_again() -> None:
    disk, clock = MemoryDisk(), VirtualClock(NOON_MS)
    store = aged_store(disk, clock)
    store.clean()
    disk._locked.clear()
    store = open_store(disk, clock)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (5, 10)
    assert store.put_message(message()).queue_offset == 10

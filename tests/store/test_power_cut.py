"""The simulated disk itself, and single cases of power cuts that a store must survive."""

import random

import pytest

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import PAGE_SIZE, SECTOR_SIZE, Fault, PowerCutDisk, Stopped
from tests.store.stores import ROOT, SteppedClock, bodies, message, small_config

EIO, ENOSPC = OSError(5, "Input/output error"), OSError(28, "No space left on device")


def opened(disk: PowerCutDisk, **changes: object) -> MessageStore:
    store = MessageStore(small_config(flush_disk_type="SYNC_FLUSH", **changes), disk, SteppedClock())
    store.load()
    return store


def acknowledged(store: MessageStore, count: int, size: int = 100) -> list[bytes]:
    """Put `count` messages, have them synced, and return their bodies."""
    flushed: list[int] = []
    store.flushed.subscribe(lambda flushed_offset, error: flushed.append(-1 if error else flushed_offset))
    expected = [b"%d:" % number + bytes(size) for number in range(count)]
    for body in expected:
        assert store.commit_log.put(message(body=body, KEYS="k")).status is PutStatus.PUT_OK
    store.dispatch()
    store.request_sync(store.max_physical_offset)
    store.flush_service.run_once()
    assert flushed == [store.max_physical_offset]
    return expected


# --- the disk -------------------------------------------------------------------------------------------------------


def written(disk: PowerCutDisk) -> None:
    """Write a file of two pages, make it and its name durable, and write it again."""
    region = disk.map("/d/file", 2 * PAGE_SIZE, create=True)
    region.reserve(0, 2 * PAGE_SIZE)
    region.array[:] = 1
    region.sync(0, 2 * PAGE_SIZE)
    disk.sync_dir("/d")
    region.array[:] = 2


def test_unsynced_sectors_are_lost_or_kept_independently() -> None:
    found = set()
    for seed in range(300):
        disk = PowerCutDisk()
        written(disk)
        data = disk.power_cut(random.Random(seed)).read_file("/d/file")
        sectors = {data[at : at + SECTOR_SIZE] for at in range(0, len(data), SECTOR_SIZE)}
        assert sectors <= {b"\1" * SECTOR_SIZE, b"\2" * SECTOR_SIZE}
        found.add(tuple(data[at] for at in range(0, len(data), SECTOR_SIZE)))
    assert (1,) * 16 in found and (2,) * 16 in found and (1,) * 8 + (2,) * 8 in found and len(found) > 50


def test_unsynced_names_and_lengths_may_be_lost() -> None:
    fates = set()
    for seed in range(200):
        disk = PowerCutDisk()
        disk.map("/d/e/file", 100, create=True)
        after = disk.power_cut(random.Random(seed))
        fates.add((after.is_dir("/d"), after.is_dir("/d/e"), after.size("/d/e/file") if after.exists("/d/e/file") else -1))
    assert fates == {(False, False, -1), (True, False, -1), (True, True, -1), (True, True, 0), (True, True, 100)}


def test_a_deleted_name_may_come_back_until_its_directory_is_synced() -> None:
    disk = PowerCutDisk({"/d/file": b"old"})
    disk.delete("/d/file")
    assert {disk.power_cut(random.Random(seed)).exists("/d/file") for seed in range(20)} == {True, False}
    disk.sync_dir("/d")
    assert not any(disk.power_cut(random.Random(seed)).exists("/d/file") for seed in range(20))


def test_power_cut_at_any_step_leaves_the_old_or_the_new_file() -> None:
    found = set()
    for changes_left in range(12):
        for seed in range(40):
            disk = PowerCutDisk({"/d/file": b"old", "/d/file.bak": b"older"})
            disk.changes_left = changes_left
            try:
                disk.replace_file("/d/file", b"new")
            except Stopped:
                found.add((disk.power_cut(random.Random(seed)).read_file("/d/file"), "cut"))
            else:
                found.add((disk.power_cut(random.Random(seed)).read_file("/d/file"), "done"))
    assert found == {(b"old", "cut"), (b"new", "cut"), (b"new", "done")}


def test_after_a_failed_sync_the_kernel_considers_the_pages_clean() -> None:
    lost = 0
    for seed in range(20):
        disk = PowerCutDisk(rng=random.Random(seed))
        written(disk)
        disk.faults.append(Fault("sync", 1, EIO))
        region = disk.map("/d/file", 2 * PAGE_SIZE)
        with pytest.raises(OSError, match="Input/output error"):
            region.sync(0, 2 * PAGE_SIZE)
        region.sync(0, 2 * PAGE_SIZE)
        lost += 1 in disk.power_cut(random.Random(seed)).read_file("/d/file")
        region.rewrite(0, 2 * PAGE_SIZE)
        region.sync(0, 2 * PAGE_SIZE)
        assert 1 not in disk.power_cut(random.Random(seed)).read_file("/d/file")
    assert lost > 10


def test_reserved_space_is_counted_and_other_writes_are_recorded() -> None:
    disk = PowerCutDisk()
    disk.capacity = 3 * PAGE_SIZE
    region = disk.map("/d/file", 8 * PAGE_SIZE, create=True)
    region.reserve(0, PAGE_SIZE + 1)
    region.reserve(0, PAGE_SIZE + 1)
    assert disk.space_used == 2 * PAGE_SIZE and disk.usage("/d") == pytest.approx(2 / 3)
    with pytest.raises(OSError, match="No space left"):
        region.reserve(2 * PAGE_SIZE, 4 * PAGE_SIZE)
    region.view[0] = 1
    disk.note_all_written()
    assert disk.unreserved == []
    region.view[5 * PAGE_SIZE] = 1
    disk.note_all_written()
    assert len(disk.unreserved) == 1 and "/d/file: page 5" in disk.unreserved[0]


# --- the store on the simulated disk --------------------------------------------------------------------------------


def test_the_flush_thread_acknowledges_what_is_synced() -> None:
    disk = PowerCutDisk()
    store = opened(disk)
    store.start()
    expected = [b"%d" % number for number in range(50)]
    for body in expected:
        store.commit_log.put(message(body=body))
    store.dispatch()
    store.request_sync(store.max_physical_offset)
    store.shutdown()
    assert bodies(opened(disk.power_cut(random.Random(1)))) == expected


def test_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    disk = PowerCutDisk()
    store = opened(disk)
    answers: list[tuple[int, OSError | None]] = []
    store.flushed.subscribe(lambda flushed_offset, error: answers.append((flushed_offset, error)))
    disk.faults.append(Fault("sync", 1, EIO))
    first = store.commit_log.put(message())
    store.request_sync(first.end_offset)
    store.flush_service.run_once()
    store.request_sync(first.end_offset)
    store.flush_service.run_once()

    assert [offset for offset, _ in answers] == [first.end_offset]
    assert isinstance(answers[0][1], OSError)
    refused = store.commit_log.put(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refused.reason and not store.writeable
    store.clean()
    assert not store.writeable, "free disk space does not make up for a failed sync"


@pytest.mark.parametrize("at_stop", [False, True])
def test_messages_of_a_new_process_after_a_failed_sync_survive_a_power_cut(at_stop: bool) -> None:
    for seed in range(20):
        disk = PowerCutDisk(rng=random.Random(seed))
        store = opened(disk)
        store.commit_log.put(message("Unacknowledged", body=bytes(range(256)) * 20))
        disk.faults.append(Fault("sync", 1, EIO))
        if at_stop:
            with pytest.raises(OSError, match="Input/output error"):
                store.shutdown()
        else:
            store.request_sync(store.max_physical_offset)
            store.flush_service.run_once()
        assert store.flush_service.error is not None
        # The kernel is the same: it considers the pages clean, and the records are still visible.
        disk = disk.killed()
        store = opened(disk)
        seen = bodies(store, "Unacknowledged")
        expected = acknowledged(store, 30)
        store = opened(disk.power_cut(random.Random(seed)))
        assert bodies(store) == expected
        assert bodies(store, "Unacknowledged") == seen, "consumers may have had it"


@pytest.mark.parametrize("name", ["checkpoint", "consumequeue/T/0", "index", "commitlog", "lock", "abort"])
def test_store_opens_if_the_length_of_a_file_was_lost(name: str) -> None:
    disk = PowerCutDisk()
    expected = acknowledged(opened(disk), 5)
    files = disk.killed().contents()
    paths = [path for path in files if path.startswith(f"{ROOT}/{name}")]
    assert paths
    for path in paths:
        if name == "commitlog":
            # The next log file, which was created and never synced; the existing ones are kept.
            path = f"{ROOT}/commitlog/{16 << 10:020}"
        store = opened(PowerCutDisk({**files, path: b""}))
        assert bodies(store) == expected
        assert len(store.query_message("T", "k", 9, 0, 1 << 60).views) == len(expected)


def test_deleted_log_files_that_come_back_leave_no_gap() -> None:
    for seed in range(60):
        disk = PowerCutDisk()
        store = opened(disk, file_reserved_time=1, delete_file_batch_max=3, delete_commit_log_files_interval=0)
        expected = acknowledged(store, 100, size=1000)
        store.clock.step(2 * 3600.0)  # type: ignore[attr-defined]
        store.commit_log.put(message(body=b"young"))
        store.request_sync(store.max_physical_offset)
        store.flush_service.run_once()
        assert store.clean(manual=True) == 3
        for _ in range(seed % 4):
            store.checkpoint_service.run_once()
        found = bodies(opened(disk.power_cut(random.Random(seed))))
        assert found[-len(expected) // 2 :] == (expected + [b"young"])[-len(expected) // 2 :]


def test_a_name_whose_sync_still_runs_is_not_taken_for_durable() -> None:
    """The flush thread fails to sync a new name; the event loop, which begins the next file, must not rely on that name."""
    disk = PowerCutDisk()
    queue = MappedFileQueue(disk, "/q", 4 * PAGE_SIZE)
    queue.writable().append(bytes(4 * PAGE_SIZE))
    queue.sync_names()
    queue.writable().append(bytes(4 * PAGE_SIZE))

    def roll_while_it_runs(path: str) -> None:
        disk.before_sync = lambda path: None
        queue.writable().append(b"x")
        disk.faults.append(Fault("sync_dir", 1, EIO))

    disk.before_sync = roll_while_it_runs
    with pytest.raises(OSError, match="Input/output"):
        queue.flush()
    row = [f"{number * 4 * PAGE_SIZE:020}" for number in range(3)]
    left = [disk.power_cut(random.Random(seed)).listdir("/q") for seed in range(50)]
    assert all(names == row[: len(names)] for names in left), "a file behind one that is gone"


def test_unsynced_records_are_truncated_even_if_retention_deleted_the_others() -> None:
    """The checkpoint covers only records that are deleted, and none of those that follow."""
    disk, clock = PowerCutDisk(), SteppedClock()
    store = MessageStore(small_config(file_reserved_time=1), disk, clock)
    store.load()
    acknowledged(store, 3)
    store.flush_queues()
    file_size = store.config.mapped_file_size_commit_log
    while store.max_physical_offset < file_size:
        assert store.commit_log.put(message(body=bytes(2000))).status is PutStatus.PUT_OK
    names, bodies_put = store.commit_log.mapped_files, [b"%d" % number + bytes(1500) for number in range(9)]
    names.sync_names()
    names.files[0].flush()
    for body in bodies_put:
        assert store.commit_log.put(message("New", body=body)).status is PutStatus.PUT_OK
    clock.step(4000)
    assert store.clean(manual=True) and store.min_physical_offset == file_size
    store.checkpoint_service.run_once()
    names.sync_names()
    for seed in range(100):
        rest = opened(disk.power_cut(random.Random(seed)))
        left = bodies(rest, "New")
        assert left == bodies_put[: len(left)], f"seed {seed}"


def test_deleted_topic_stays_deleted_after_retention_deleted_its_records() -> None:
    """The mark of the deletion may be removed with the topic's last record; then no other file may restore the topic."""
    disk, clock = PowerCutDisk(), SteppedClock()
    store = MessageStore(small_config(file_reserved_time=1), disk, clock)
    store.load()
    store.commit_log.put(message("Other"))
    acknowledged(store, 3)
    store.flush_queues()
    store.drop_topics({"Other"})
    while store.max_physical_offset <= store.config.mapped_file_size_commit_log:
        assert store.commit_log.put(message("Other", body=bytes(2000))).status is PutStatus.PUT_OK
    store.dispatch()
    store.flush_service.flush_log()
    clock.step(4000)
    assert store.clean(manual=True) and store.min_physical_offset
    store.checkpoint_service.run_once()
    store.flush_queues()
    for seed in range(50):
        rest = opened(disk.power_cut(random.Random(seed)))
        assert rest.max_offset("T", 0) == 0, f"seed {seed}"

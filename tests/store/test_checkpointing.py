"""Syncs by the checkpoint thread, and the times in the checkpoint after them."""

import pytest

from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import PowerCutDisk
from tests.store.stores import ROOT, SteppedClock, message, open_store

CHECKPOINT = f"{ROOT}/checkpoint"


def opened() -> tuple[PowerCutDisk, SteppedClock, MessageStore]:
    disk, clock = PowerCutDisk(), SteppedClock()
    return disk, clock, open_store(disk, clock, mapped_file_size_commit_log=1 << 20)


def times(disk: PowerCutDisk) -> list[int]:
    """Return the durable times of log, queues and index in the checkpoint."""
    data = disk.synced_bytes(CHECKPOINT, 0, 24)
    assert data is not None
    return [int.from_bytes(data[at : at + 8], "big") for at in (0, 8, 16)]


def run_both(store: MessageStore) -> None:
    store.flush_service.run_once()
    store.checkpoint_service.run_once()


def test_checkpoint_covers_log_queues_and_the_unfinished_index_file() -> None:
    disk, clock, store = opened()
    put_at_ms = store.commit_log.put(message(KEYS="k")).store_timestamp_ms
    store.dispatch()
    clock.step(61)
    run_both(store)
    assert times(disk) == [put_at_ms] * 3
    assert disk.synced_bytes(f"{ROOT}/consumequeue/T/0/{0:020}", 0, 12) != bytes(12)
    (index,) = disk.listdir(f"{ROOT}/index")
    assert disk.synced_bytes(f"{ROOT}/index/{index}", 0, 8) == put_at_ms.to_bytes(8, "big")


def test_checkpoint_does_not_cover_undispatched_records() -> None:
    disk, clock, store = opened()
    put_at_ms = store.commit_log.put(message()).store_timestamp_ms
    store.dispatch()
    clock.step(5)
    store.commit_log.put(message())
    clock.step(61)
    run_both(store)
    assert times(disk)[1:] == [put_at_ms] * 2


def test_between_two_checkpoints_queues_with_two_dirty_pages_are_synced() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=1 << 20)
    for number in range(410):
        store.commit_log.put(message("many", 0))
        if number < 10:
            store.commit_log.put(message("few", 0))
    store.dispatch()
    clock.step(2)
    run_both(store)
    assert disk.synced_bytes(f"{ROOT}/consumequeue/many/0/{0:020}", 8000, 8020) != bytes(20)
    assert disk.synced_bytes(f"{ROOT}/consumequeue/few/0/{0:020}", 0, 20) in (None, bytes(20))
    assert times(disk)[1] == 0


@pytest.mark.parametrize("failing", ["consumequeue", "index", "checkpoint"])
def test_after_a_failed_sync_puts_are_refused_and_the_checkpoint_stays(failing: str) -> None:
    disk, clock, store = opened()
    store.commit_log.put(message(KEYS="k"))
    store.dispatch()
    clock.step(61)

    def fail(path: str) -> None:
        if failing in path:
            raise OSError(5, "Input/output error", path)

    disk.before_sync = fail
    run_both(store)
    disk.before_sync = lambda path: None
    refused = store.commit_log.put(message())
    assert "Input/output error" in refused.reason and failing in refused.reason
    for _ in range(3):
        clock.step(61)
        run_both(store)
    assert times(disk)[1] == 0

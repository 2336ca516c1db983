"""Syncs by the checkpoint thread, and the times in the checkpoint after them."""

from random import Random

import pytest

from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import Fault, PowerCutDisk
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


def with_queues_synced_together() -> tuple[PowerCutDisk, SteppedClock, MessageStore]:
    disk, clock, store = opened()
    store.queues.together_from = 3
    for queue_id in range(3):
        store.commit_log.put(message(queue_id=queue_id))
    store.dispatch()
    clock.step(61)
    return disk, clock, store


def queues_synced(disk: PowerCutDisk) -> list[bool]:
    units = (disk.synced_bytes(f"{ROOT}/consumequeue/T/{queue_id}/{0:020}", 0, 12) for queue_id in range(3))
    return [unit not in (None, bytes(12)) for unit in units]


def test_many_queues_are_synced_by_one_sync_of_their_file_system() -> None:
    disk, clock, store = with_queues_synced_together()
    synced: list[str] = []
    disk.before_sync = synced.append
    run_both(store)
    assert queues_synced(disk) == [True] * 3 and times(disk)[1]
    clock.step(61)
    run_both(store)
    assert [path for path in synced if "consumequeue" in path] == [f"{ROOT}/consumequeue"]


class FixedChance(Random):
    """Random numbers that are all the same."""

    def __init__(self, value: float) -> None:
        self.random = lambda: value  # type: ignore[method-assign]


def fail_whole_sync(disk: PowerCutDisk, *, own_files: bool) -> None:
    disk.faults.append(Fault("sync_all", 1, OSError(5, "Input/output error")))
    disk.rng = FixedChance(0.0 if own_files else 1.0)


def test_an_error_of_another_file_on_the_file_system_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, store = with_queues_synced_together()
    fail_whole_sync(disk, own_files=False)
    run_both(store)
    assert queues_synced(disk) == [True] * 3 and times(disk)[1]
    assert "queues are synced one by one" in caplog.text and "Input/output error" in caplog.text
    assert store.commit_log.put(message()).reason == ""


def test_an_error_of_a_queue_in_the_sync_of_its_file_system_stops_the_store() -> None:
    disk, _, store = with_queues_synced_together()
    fail_whole_sync(disk, own_files=True)
    run_both(store)
    assert "Input/output error" in store.commit_log.put(message()).reason
    assert times(disk)[1] == 0

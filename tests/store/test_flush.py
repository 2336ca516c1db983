"""When files are synced. test_power_cut tests the guarantee of SYNC_FLUSH itself."""

import queue
import threading
from pathlib import Path

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.patience import PATIENCE_S
from tests.store.power_cut_disk import PowerCutDisk
from tests.store.stores import ROOT, SteppedClock, message, open_store

LOG = f"{ROOT}/commitlog/{0:020}"


def opened(disk: PowerCutDisk, clock: SteppedClock) -> MessageStore:
    return open_store(disk, clock, mapped_file_size_commit_log=1 << 20)


def test_async_flush_waits_for_four_pages_or_ten_seconds() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = opened(disk, clock)
    end = store.commit_log.put(message(body=bytes(3 * 4096))).end_offset
    store.commit_log.tail.write()
    clock.step(1)
    store.flush_service.run_once()
    assert store.flushed_offset == 0 and disk.synced_bytes(LOG, 0, 4) is None
    more = store.commit_log.put(message(body=bytes(4096))).end_offset
    store.commit_log.tail.write()
    clock.step(1)
    store.flush_service.run_once()
    assert end < store.flushed_offset == more and disk.synced_bytes(LOG, 0, 4) != bytes(4)
    last = store.commit_log.put(message()).end_offset
    store.commit_log.tail.write()
    clock.step(7)
    store.flush_service.run_once()
    assert store.flushed_offset == more
    clock.step(2)
    store.flush_service.run_once()
    assert store.flushed_offset == last


def test_one_sync_answers_all_waiting_requests_once() -> None:
    disk = PowerCutDisk()
    store = opened(disk, SteppedClock())
    answers: list[int] = []
    store.flushed.subscribe(lambda flushed_offset, error: answers.append(flushed_offset))
    for _ in range(10):
        end = store.commit_log.put(message()).end_offset
        store.request_sync(end)
    store.flush_service.run_once()
    store.flush_service.run_once()
    assert answers == [end]


def test_a_killed_process_leaves_the_time_of_the_last_sync_in_the_checkpoint() -> None:
    disk = PowerCutDisk()
    store = opened(disk, SteppedClock())
    put_at_ms = store.commit_log.put(message()).store_timestamp_ms
    store.request_sync(store.max_physical_offset)
    store.flush_service.run_once()
    assert disk.killed().read_file(f"{ROOT}/checkpoint")[:8] == put_at_ms.to_bytes(8, "big")


def test_sync_request_does_not_wait_for_queues_but_fails_after_they_failed() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = opened(disk, clock)
    answers: list[tuple[int, OSError | None]] = []
    store.flushed.subscribe(lambda *answer: answers.append(answer))
    synced: list[str] = []
    disk.before_sync = synced.append
    store.commit_log.put(message())
    store.dispatch()
    store.request_sync(store.max_physical_offset)
    clock.step(61)
    store.flush_service.run_once()
    assert answers == [(store.max_physical_offset, None)] and not any("consumequeue" in path for path in synced)

    def fail(path: str) -> None:
        if "consumequeue" in path:
            raise OSError(5, "Input/output error", path)

    disk.before_sync = fail
    store.checkpoint_service.run_once()
    disk.before_sync = lambda path: None
    store.request_sync(store.max_physical_offset)
    assert store.commit_log.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.request_sync(store.max_physical_offset + 1)
    store.flush_service.run_once()
    assert len(answers) == 2 and "consumequeue" in str(answers[1][1])


def test_next_file_is_warmed_in_small_steps_while_no_sync_is_requested() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    changes = {"flush_least_pages_when_warm_maped_file": 4, "mapped_file_size_commit_log": 1 << 20}
    store = open_store(disk, clock, warm_maped_file_enable=True, **changes)
    store.commit_log.put(message(body=bytes(600_000)))
    store.commit_log.tail.write()
    clock.step(1)
    for _ in range(100):
        store.flush_service.run_once()
    assert disk.calls["warm"] == 1, "one step at a time"
    for _ in range(100):
        clock.step(1)
        store.flush_service.run_once()
    assert disk.calls["warm"] == 64, "1 MiB in steps of 16 KiB"
    store.commit_log.put(message(body=bytes(600_000)))
    assert store.commit_log.mapped_files.files[-1].reserved == 1 << 20


def test_a_full_disk_does_not_stop_the_flush_thread() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock, warm_maped_file_enable=True, mapped_file_size_commit_log=1 << 20)
    store.commit_log.put(message(body=bytes(600_000)))
    store.commit_log.tail.write()
    disk.capacity = 1 << 20
    for _ in range(10):
        clock.step(1)
        store.flush_service.run_once()
    assert store.flush_service.error is None and store.flushed_offset == store.max_physical_offset


def test_flush_thread_answers_sync_requests_of_the_event_loop(tmp_path: Path) -> None:
    store = open_store(FileDisk(), root=str(tmp_path), flush_disk_type="SYNC_FLUSH")
    answers: queue.Queue[tuple[int, OSError | None, str]] = queue.Queue()
    store.flushed.subscribe(lambda *answer: answers.put((*answer, threading.current_thread().name)))
    store.start()
    for _ in range(50):
        wanted = store.commit_log.put(message(body=bytes(1000))).end_offset
        store.dispatch()
        store.request_sync(wanted)
    flushed_offset = 0
    while flushed_offset < wanted:
        before = flushed_offset
        flushed_offset, error, thread = answers.get(timeout=PATIENCE_S)
        assert error is None and thread == "flush" and flushed_offset >= before
    assert store.flushed_offset == wanted
    store.shutdown()

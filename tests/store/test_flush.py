"""When what is synced; the promise of SYNC_FLUSH itself is held by test_power_cut."""

import queue
import threading
from pathlib import Path

from power_cut_disk import PowerCutDisk
from stores import ROOT, SteppedClock, message, open_store

from store.disk import FileDisk
from store.message_store import MessageStore

LOG = f"{ROOT}/commitlog/{0:020}"


def opened(disk: PowerCutDisk, clock: SteppedClock) -> MessageStore:
    return open_store(disk, clock, mapped_file_size_commit_log=1 << 20)


def test_async_flush_waits_for_four_pages_or_ten_seconds() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = opened(disk, clock)
    end = store.put_message(message(body=bytes(3 * 4096))).end_offset
    clock.step(1)
    store.flush_service.run_once()
    assert store.flushed_offset == 0 and disk.synced_bytes(LOG, 0, 4) is None
    more = store.put_message(message(body=bytes(4096))).end_offset
    clock.step(1)
    store.flush_service.run_once()
    assert end < store.flushed_offset == more and disk.synced_bytes(LOG, 0, 4) != bytes(4)
    last = store.put_message(message()).end_offset
    clock.step(7)
    store.flush_service.run_once()
    assert store.flushed_offset == more
    clock.step(2)
    store.flush_service.run_once()
    assert store.flushed_offset == last


def test_one_sync_answers_a_whole_group_once() -> None:
    disk = PowerCutDisk()
    store = opened(disk, SteppedClock())
    answers: list[int] = []
    store.on_flushed = lambda flushed_offset, error: answers.append(flushed_offset)
    for _ in range(10):
        end = store.put_message(message()).end_offset
        store.request_sync(end)
    store.flush_service.run_once()
    store.flush_service.run_once()
    assert answers == [end]


def test_the_checkpoint_follows_the_queues() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = opened(disk, clock)
    put_at_ms = store.put_message(message()).store_timestamp_ms
    store.dispatch()
    assert store.checkpoint.logics_msg_timestamp_ms == 0
    clock.step(61)
    store.flush_service.run_once()
    assert store.checkpoint.logics_msg_timestamp_ms == store.checkpoint.physic_msg_timestamp_ms == put_at_ms
    assert disk.synced_bytes(f"{ROOT}/checkpoint", 8, 16) == put_at_ms.to_bytes(8, "big")
    assert disk.synced_bytes(f"{ROOT}/consumequeue/T/0/{0:020}", 0, 12) == bytes(8) + (96).to_bytes(4, "big")


def test_a_group_waits_for_one_queue_at_most() -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = opened(disk, clock)
    for queue_id in range(200):
        store.put_message(message("T", queue_id))
    store.dispatch()
    store.flush_service.flush_log()
    waiting: list[int] = []
    waited: list[int] = []
    store.on_flushed = lambda flushed_offset, error: waiting.clear()

    def slow(path: str) -> None:
        # While a queue's file is synced, a turn goes by in which somebody puts a message and waits for it.
        if "consumequeue" in path and path.endswith(f"/{0:020}"):
            waited.append(len(waiting))
            waiting.append(store.put_message(message("U")).end_offset)
            store.request_sync(waiting[-1])

    disk.before_sync = slow
    clock.step(61)
    store.flush_service.run_once()
    assert len(waited) == 200 and not any(waited) and waiting == []


def test_the_thread_answers_while_the_loop_goes_on(tmp_path: Path) -> None:
    store = open_store(FileDisk(), root=str(tmp_path), flush_disk_type="SYNC_FLUSH")
    answers: queue.Queue[tuple[int, OSError | None, str]] = queue.Queue()
    store.on_flushed = lambda *answer: answers.put((*answer, threading.current_thread().name))
    store.start()
    for _ in range(50):
        wanted = store.put_message(message(body=bytes(1000))).end_offset
        store.dispatch()
        store.request_sync(wanted)
    flushed_offset = 0
    while flushed_offset < wanted:
        before = flushed_offset
        flushed_offset, error, thread = answers.get(timeout=10)
        assert error is None and thread == "flush" and flushed_offset > before
    assert store.flushed_offset == wanted
    store.shutdown()

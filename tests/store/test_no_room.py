"""A device without space: messages are refused, nothing is lost, and service resumes by itself."""

import errno

import pytest

from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import Fault, PowerCutDisk
from tests.store.stores import ROOT, SteppedClock, bodies, message, open_store

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def opened(**changes: object) -> tuple[PowerCutDisk, SteppedClock, MessageStore]:
    disk, clock = PowerCutDisk(), SteppedClock()
    return disk, clock, open_store(disk, clock, **changes)


def without_room(disk: PowerCutDisk, path: str) -> Fault:
    fault = Fault("reserve", 1, NO_SPACE, forever=True, path=path)
    disk.faults.append(fault)
    return fault


def test_a_full_log_disk_refuses_with_the_reason_and_resumes() -> None:
    disk, clock, store = opened()
    disk.used = 0.998
    fault = without_room(disk, "commitlog")
    for _ in range(100):
        refused = store.commit_log.put(message())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert all(text in refused.reason for text in ("CommitLog", f"{ROOT}/commitlog", "99.8%", "No space left"))
    assert fault.raised == 1, "not every message asks the disk again"
    assert store.commit_log.put_batch([message(), message()]).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.faults.clear()
    clock.step(0.3)
    assert store.commit_log.put(message()).queue_offset == 0
    store.dispatch()
    assert bodies(store) == [b"body"] and disk.unreserved == []


def test_put_is_refused_while_the_next_log_file_has_no_space() -> None:
    disk, clock, store = opened()
    store.commit_log.put(message(body=bytes(12_000)))
    without_room(disk, f"{16 << 10:020}")
    assert store.commit_log.put(message(body=bytes(12_000))).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.faults.clear()
    clock.step(0.3)
    assert store.commit_log.put(message(body=bytes(12_000))).physical_offset == 16 << 10
    store.dispatch()
    assert len(bodies(store)) == 2 and disk.unreserved == []


@pytest.mark.parametrize("path", ["consumequeue/T/0", "consumequeue/U", "index"])
def test_records_without_room_in_queue_or_index_are_dispatched_later(path: str) -> None:
    disk, clock, store = opened()
    without_room(disk, path)
    for number in range(3):
        for topic in ("S", "T", "U"):
            store.commit_log.put(message(topic, 0, b"%d" % number, KEYS=f"k{number}"))
    assert store.dispatch() == []
    refused = store.commit_log.put(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and not store.writeable
    assert "queues and index" in refused.reason and "No space left" in refused.reason
    clock.step(61)
    store.flush_service.run_once()
    store.checkpoint_service.run_once()
    logics = disk.synced_bytes(f"{ROOT}/checkpoint", 8, 16)
    assert logics == bytes(8), "the checkpoint does not cover undispatched records"
    disk.faults.clear()
    clock.step(0.3)
    arrivals = store.dispatch()
    assert sorted((arrival.topic, arrival.queue_offset) for arrival in arrivals) == [("S", 3), ("T", 3), ("U", 3)]
    assert store.writeable and store.commit_log.put(message()).status is PutStatus.PUT_OK
    for topic in ("S", "T", "U"):
        assert bodies(store, topic)[:3] == [b"0", b"1", b"2"]
        assert len(store.query_message(topic, "k1", 9, 0, 1 << 60).views) == 1


def test_units_that_span_two_queue_files_are_not_appended_twice() -> None:
    disk, clock, store = opened()  # files of 20 units
    for number in range(15):
        store.commit_log.put(message(body=b"%d" % number))
    store.dispatch()
    without_room(disk, f"consumequeue/T/0/{400:020}")
    for number in range(15, 30):
        store.commit_log.put(message(body=b"%d" % number))
    for _ in range(3):
        assert store.dispatch() == [] and store.max_offset("T", 0) == 15
        clock.step(0.3)
    disk.faults.clear()
    (arrival,) = store.dispatch()
    assert arrival.queue_offset == 30 and len(arrival.tags_codes) == 15
    assert bodies(store) == [b"%d" % number for number in range(30)]


def test_log_with_only_an_empty_file_continues_at_its_offset() -> None:
    disk, clock, store = opened(file_reserved_time=1, clean_file_forcibly_enable=True)
    for _ in range(3):
        store.commit_log.put(message(body=bytes(12_000)))
    store.dispatch()
    without_room(disk, f"{3 * (16 << 10):020}")
    assert store.commit_log.put(message(body=bytes(12_000))).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.flush_queues()
    disk.used = 0.99
    assert store.clean() == 3
    store.shutdown()
    disk.used = 0.0
    disk.faults.clear()

    for _ in range(2):
        store = open_store(disk, clock)
        assert store.max_offset("T", 0) == 3 and store.max_physical_offset == 3 * (16 << 10)
        store.shutdown()
    store = open_store(disk, clock)
    assert store.commit_log.put(message(body=b"new")).physical_offset == 3 * (16 << 10)
    store.dispatch()
    assert store.min_offset("T", 0) == 3 and bodies(store) == [b"new"]


def test_stop_with_undispatched_records_loses_nothing() -> None:
    disk, clock, store = opened()
    without_room(disk, "consumequeue")
    end_offset = store.commit_log.put(message()).end_offset
    store.dispatch()
    store.shutdown()
    assert store.flushed_offset == end_offset and disk.exists(f"{ROOT}/abort")
    disk.faults.clear()
    disk.locked.clear()
    assert bodies(open_store(disk, clock)) == [b"body"]


def test_a_shortage_while_old_units_are_looked_for_keeps_no_record_from_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is room again, queues are searched for units of records that retention deleted meanwhile."""
    disk, clock, store = opened()
    without_room(disk, "consumequeue")
    store.commit_log.put(message(body=b"0"))
    assert store.dispatch() == []
    disk.faults.clear()
    clock.step(0.3)
    searches: list[int] = []

    def search(min_physical_offset: int) -> None:
        searches.append(min_physical_offset)
        if len(searches) == 1:
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(store.queues, "correct_min_offsets", search)
    assert [arrival.queue_offset for arrival in store.dispatch()] == [1]
    for number in (1, 2):
        store.commit_log.put(message(body=b"%d" % number))
        assert [arrival.queue_offset for arrival in store.dispatch()] == [number + 1]
    assert len(searches) == 2, "tried again until it worked"
    assert bodies(store) == [b"0", b"1", b"2"]

"""MessageStore: pulls, queries, start and stop. Recovery is tested in test_recovery."""

from pathlib import Path

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.message import SCHEDULE_TOPIC, GetStatus, PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.stores import ROOT, bodies, message, open_store

BIG = {"mapped_file_size_commit_log": 4 << 20, "mapped_file_size_consume_queue": 20 * 2000}


def filled(count: int, **changes: object) -> MessageStore:
    store = open_store(MemoryDisk(), **(BIG | changes))
    for number in range(count):
        store.commit_log.put(message("T", 0, b"%d" % number, TAGS="odd" if number % 2 else "even"))
    store.dispatch()
    return store


def is_odd(code: int) -> bool:
    return code == tags_code("odd")


@pytest.mark.parametrize(
    "queue_offset, status, next_offset",
    [
        (0, GetStatus.FOUND, 32),
        (70, GetStatus.FOUND, 100),
        (100, GetStatus.OFFSET_OVERFLOW_ONE, 100),
        (101, GetStatus.OFFSET_OVERFLOW_BADLY, 100),
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
    ],
)
@pytest.mark.parametrize("matches", [None, lambda code: True])
def test_pull_status_and_next_offset(queue_offset: int, status: GetStatus, next_offset: int, matches: object) -> None:
    result = filled(100).reader.get_message("T", 0, queue_offset, 32, matches)  # type: ignore[arg-type]
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (0, 100)


def test_unknown_and_empty_queues() -> None:
    store = filled(1)
    unknown = store.reader.get_message("T", 1, 0, 32)
    assert (unknown.status, unknown.next_begin_offset) == (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    store.queues.find_or_create("T", 2)
    assert store.reader.get_message("T", 2, 5, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert (store.min_offset("T", 1), store.max_offset("T", 1), store.store_timestamp_at("T", 1, 0)) == (-1, 0, -1)
    assert store.offset_by_time("T", 1, 0) == 0 and store.earliest_store_timestamp("T", 1) == -1


def test_consecutive_records_are_returned_as_one_view() -> None:
    store = open_store(MemoryDisk(), **BIG)
    for queue_id in (0, 0, 1, 0, 1, 1):
        store.commit_log.put(message("T", queue_id, bytes([queue_id])))
    store.dispatch()
    for matches in (None, lambda code: True):
        assert [len(view) // 93 for view in store.reader.get_message("T", 0, 0, 32, matches).views] == [2, 1]
        assert [len(view) // 93 for view in store.reader.get_message("T", 1, 0, 32, matches).views] == [1, 2]


@pytest.mark.parametrize("matches", [None, lambda code: True])
def test_a_pull_ends_at_count_or_bytes_but_takes_one_message_at_least(matches: object) -> None:
    store = open_store(MemoryDisk(), **BIG)
    for _ in range(40):
        store.commit_log.put(message(body=bytes(100_000 - 92)))
    store.dispatch()
    by_bytes = store.reader.get_message("T", 0, 0, 32, matches)  # type: ignore[arg-type]
    assert (by_bytes.count, by_bytes.size, by_bytes.next_begin_offset) == (2, 200_000, 2)
    by_count = store.reader.get_message("T", 0, 0, 1, matches)  # type: ignore[arg-type]
    assert (by_count.count, by_count.next_begin_offset) == (1, 1)
    store.config.max_transfer_bytes_on_message_in_memory = 1
    assert store.reader.get_message("T", 0, 0, 32, matches).count == 1  # type: ignore[arg-type]


def test_old_records_count_as_on_disk_and_fewer_are_returned_per_pull() -> None:
    store = filled(1000, access_message_in_memory_max_ratio=0)
    assert store.reader.get_message("T", 0, 0, 32).count == 8
    assert store.reader.get_message("T", 0, 0, 32, is_odd).count == 8
    assert store.reader.get_message("T", 0, 0, 32).from_disk
    assert not filled(1000).reader.get_message("T", 0, 0, 32).from_disk


def test_filtered_pull_skips_and_makes_progress() -> None:
    store = filled(2000)
    result = store.reader.get_message("T", 0, 0, 10, is_odd)
    assert (result.count, result.next_begin_offset) == (10, 21), "it ends before the next wanted message"
    nothing = store.reader.get_message("T", 0, 0, 32, lambda code: False)
    assert (nothing.status, nothing.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 800)


def test_pull_without_filter_equals_a_pull_that_filters_nothing() -> None:
    store = open_store(MemoryDisk())
    for number in range(300):
        store.commit_log.put(message("T", number * number % 3, bytes(number * 37 % 900)))
    store.dispatch()
    for queue_id in range(3):
        for queue_offset in range(store.max_offset("T", queue_id)):
            for count_max in (1, 7, 32):
                fast = store.reader.get_message("T", queue_id, queue_offset, count_max)
                slow = store.reader.get_message("T", queue_id, queue_offset, count_max, lambda code: True)
                assert b"".join(fast.views) == b"".join(slow.views)
                assert (fast.count, fast.next_begin_offset, fast.from_disk) == (
                    slow.count,
                    slow.next_begin_offset,
                    slow.from_disk,
                )


def test_dispatch_reports_each_queue_that_grew_once() -> None:
    store = open_store(MemoryDisk())
    store.commit_log.put(message("T", 0, TAGS="A"))
    store.commit_log.put(message("T", 1))
    store.commit_log.put(message("T", 0, TAGS="B"))
    arrivals = {(one.topic, one.queue_id): (one.queue_offset, one.tags_codes) for one in store.dispatch()}
    assert arrivals == {("T", 0): (2, [tags_code("A"), tags_code("B")]), ("T", 1): (1, [0])}
    assert store.dispatch() == []


def test_unit_of_a_delayed_message_contains_its_deliver_time() -> None:
    store = open_store(MemoryDisk(), VirtualClock(10_000))
    store.commit_log.put(message(SCHEDULE_TOPIC, 2, DELAY="3", TAGS="A"))
    (arrival,) = store.dispatch()
    assert arrival.tags_codes == [10_000 + 10_000]


def test_query_by_key_and_time() -> None:
    clock = VirtualClock(100_000)
    store = open_store(MemoryDisk(), clock)
    for number in range(3):
        store.commit_log.put(message("T", 0, b"%d" % number, KEYS="same other"))
        clock.advance(10_000)
    store.dispatch()
    assert len(store.query_message("T", "same", 32, 0, 1 << 60).views) == 3
    assert len(store.query_message("T", "same", 32, 110_000, 119_000).views) == 1
    found = store.query_message("T", "other", 2, 0, 1 << 60)
    assert len(found.views) == 2 and found.index_last_update_timestamp_ms == 120_000
    assert store.query_message("T", "else", 32, 0, 1 << 60).views == []


def test_without_the_index_nothing_is_found_and_nothing_fails() -> None:
    store = open_store(MemoryDisk(), message_index_enable=False)
    store.commit_log.put(message(KEYS="k"))
    store.dispatch()
    assert store.query_message("T", "k", 32, 0, 1 << 60).views == []
    store.shutdown()


def test_times_of_a_queue() -> None:
    clock = VirtualClock(1000)
    store = open_store(MemoryDisk(), clock)
    for _ in range(5):
        store.commit_log.put(message())
        clock.advance(100)
    store.dispatch()
    assert [store.store_timestamp_at("T", 0, offset) for offset in (0, 4, 5)] == [1000, 1400, -1]
    assert store.earliest_store_timestamp("T", 0) == 1000
    assert [store.offset_by_time("T", 0, ms) for ms in (0, 1200, 1201, 1300, 9999)] == [0, 2, 3, 3, 5]


def test_a_time_finds_the_first_message_of_a_batch() -> None:
    store = open_store(MemoryDisk(), VirtualClock(1000))
    for _ in range(5):
        store.commit_log.put(message())
    store.dispatch()
    assert store.offset_by_time("T", 0, 1000) == 0 and store.offset_by_time("T", 0, 1001) == 5


def test_dropped_topic_is_gone_and_begins_again_at_offset_zero() -> None:
    store = open_store(MemoryDisk())
    for topic in ("keep", "drop", SCHEDULE_TOPIC):
        store.commit_log.put(message(topic))
    store.dispatch()
    assert store.drop_topics({"keep"}) == ["drop"]
    assert store.reader.get_message("drop", 0, 0, 32).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.commit_log.put(message("drop")).queue_offset == 0
    assert store.commit_log.put(message("keep")).queue_offset == 1


def test_topic_may_be_dropped_before_its_messages_are_dispatched() -> None:
    store = open_store(MemoryDisk())
    for topic in ("keep", "drop"):
        store.commit_log.put(message(topic))
    assert store.drop_topics({"keep"}) == ["drop"]
    store.commit_log.put(message("drop", body=b"next life"))
    store.commit_log.put(message("keep"))
    store.dispatch()
    assert bodies(store, "drop") == [b"next life"] and store.max_offset("keep", 0) == 2


def test_a_second_store_on_the_same_files_is_refused(tmp_path: Path) -> None:
    store = open_store(FileDisk(), root=str(tmp_path))
    with pytest.raises(StoreError, match="in use by another broker"):
        open_store(FileDisk(), root=str(tmp_path))
    store.shutdown()
    open_store(FileDisk(), root=str(tmp_path)).shutdown()


def test_stopped_store_is_complete_after_the_next_start(tmp_path: Path) -> None:
    disk = FileDisk()
    for round_number in range(1, 4):
        store = open_store(disk, root=str(tmp_path))
        store.start()
        result = [store.commit_log.put(message("T", 0, b"%d" % number, KEYS=f"k{number}")) for number in range(100)][-1]
        assert result.status is PutStatus.PUT_OK and result.queue_offset == round_number * 100 - 1
        store.dispatch()
        assert bodies(store) == [b"%d" % number for number in range(100)] * round_number
        assert len(store.query_message("T", "k7", 64, 0, 1 << 60).views) == round_number
        store.shutdown()
        assert not disk.exists(f"{tmp_path}/abort")


def test_puts_are_refused_while_the_disk_is_too_full() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    disk.usage = lambda path: 0.91  # type: ignore[method-assign]
    store.clean()
    refused = store.commit_log.put(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and not store.writeable
    assert all(word in refused.reason for word in (f"{ROOT}/commitlog", "91.0%", "90%")) or "consumequeue" in refused.reason
    assert store.commit_log.put_batch([message()]).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.usage = lambda path: 0.9  # type: ignore[method-assign]
    store.clean()
    assert store.commit_log.put(message()).status is PutStatus.PUT_OK

"""Verdicts of filter expressions are cached for later pulls. test_queue_reader tests the delivered messages."""

import tracemalloc
from collections.abc import Sequence

import pytest

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.filter_cache import PAGE_SIZE, PAGES_MAX
from pocketmq.store.queue.record_filter import RecordFilter
from tests.store.stores import message, open_store
from tests.support.memory import traced_memory

BIG = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20 * 2000}


class Saying(RecordFilter):
    """Filter for records with a text in their properties; `asked` counts the records that it has judged."""

    is_constant = True

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = 0

    def judge(self, run: Sequence[str]) -> list[bool]:
        self.asked += len(run)
        return [self.text in entries for entries in run]


def stored(*tags: str) -> MessageStore:
    """Return a store with a message for each tag in queue T/0, each followed by a record of another topic."""
    store = open_store(MemoryDisk(), **BIG)
    put(store, *tags)
    return store


def put(store: MessageStore, *tags: str) -> None:
    for tag in tags:
        store.commit_log.put(message("T", 0, tag.encode(), TAGS=tag))
        store.commit_log.put(message("Between"))
    store.dispatch()


def wanted(store: MessageStore, record_filter: RecordFilter, start: int = 0, count_max: int = 32) -> list[int]:
    """Return the queue offsets from `start` on that pulls of at most `count_max` messages deliver."""
    found: list[int] = []
    while start < store.max_offset("T", 0):
        result = store.reader.get_message("T", 0, start, count_max, record_filter)
        for view in result.views:
            position = 0
            while position < len(view):
                found.append(int.from_bytes(view[position + 20 : position + 28], "big"))
                position += int.from_bytes(view[position : position + 4], "big")
        assert result.next_begin_offset > start
        start = result.next_begin_offset
    return found


def test_a_pull_that_was_woken_for_a_record_does_not_judge_it_again() -> None:
    store, filter_ = stored("b", "b"), Saying("a")
    assert not store.reader.any_matches("T", 0, 0, 2, filter_)
    put(store, "a")
    assert store.reader.any_matches("T", 0, 2, 3, filter_)
    assert filter_.asked == 3
    assert wanted(store, filter_) == [2]
    assert filter_.asked == 3


@pytest.mark.parametrize("count_max", [1, 5, 32, 100])
def test_readers_of_one_expression_judge_a_record_once_wherever_they_begin(count_max: int) -> None:
    tags = ["b" if number % 3 else "a" for number in range(PAGE_SIZE + 200)]
    store, filter_ = stored(*tags), Saying("a")
    every_third = list(range(0, len(tags), 3))
    assert wanted(store, filter_, 0, count_max) == every_third
    asked = filter_.asked  # a run is judged as a whole even if some of its verdicts are cached
    assert len(tags) <= asked < len(tags) + count_max
    for start in 7, 31, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 3:
        assert wanted(store, filter_, start, count_max) == [number for number in every_third if number >= start]
    assert filter_.asked == asked


def test_another_expression_has_verdicts_of_its_own() -> None:
    store, a, b = stored("a", "b", "a"), Saying("a"), Saying("b")
    assert (wanted(store, a), wanted(store, b), wanted(store, a)) == ([0, 2], [1], [0, 2])


@pytest.mark.parametrize("count_max", [1, 7, 32])
def test_cached_verdicts_do_not_affect_other_expressions(count_max: int) -> None:
    tags = [f"<{number}>" for number in range(2 * PAGE_SIZE + 10)]
    store, every = stored(*tags), list(range(len(tags)))
    assert wanted(store, Saying(""), 3) == every[3:]
    for start in 0, 1, 20, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 5:
        assert wanted(store, Saying("<"), start, count_max) == every[start:]
        assert wanted(store, Saying(f"<{start}>"), start, count_max) == [start]
        assert wanted(store, Saying("7>"), start, count_max) == [number for number in every[start:] if number % 10 == 7]


def test_memory_of_reads_with_large_properties_is_bounded() -> None:
    store, count = open_store(MemoryDisk(), mapped_file_size_commit_log=1 << 26), 1500
    for number in range(count):
        store.commit_log.put(message("T", 0, number=str(number), filler="x" * 30_000))
    store.dispatch()
    tracemalloc.start()
    assert len(wanted(store, Saying("filler"))) == count
    held = traced_memory()
    tracemalloc.stop()
    assert held < 1_000_000  # of 45 MB that were read
    assert wanted(store, Saying("\x02number\x011234\x02")) == [1234]


def test_filter_that_may_change_is_evaluated_each_time() -> None:
    store, filter_ = stored("a", "b"), Saying("a")
    filter_.is_constant = False  # type: ignore[misc]
    assert wanted(store, filter_) == [0]
    filter_.text = "b"
    assert wanted(store, filter_) == [1]


def test_verdicts_of_a_deleted_topic_are_not_used_for_its_new_records() -> None:
    store, filter_ = stored("a", "b", "a"), Saying("a")
    assert wanted(store, filter_) == [0, 2]
    store.drop_topics(set())
    put(store, "b", "a", "b")
    assert wanted(store, filter_) == [1]
    assert wanted(store, Saying("b")) == [0, 2]


def test_least_recently_used_verdicts_are_evicted() -> None:
    store, first, kept = stored("a", "b"), Saying("a"), Saying("b")
    assert (wanted(store, first), wanted(store, kept)) == ([0], [1])
    for _ in range(2 * PAGES_MAX):
        assert wanted(store, Saying("a")) == [0]
        assert wanted(store, kept) == [1]
    assert kept.asked == 2
    assert wanted(store, first) == [0]
    assert first.asked == 4

"""5.x's search by time compared with a search through all messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.time_search import Boundary
from tests.store.stores import message, open_store


def store_with(steps_ms: list[int]) -> tuple[MessageStore, list[int]]:
    store = open_store(MemoryDisk(), mapped_file_size_consume_queue=100)
    times = []
    for step_ms in steps_ms:
        store.clock.advance(step_ms)  # type: ignore[attr-defined]
        times.append(store.commit_log.put(message()).store_timestamp_ms)
    store.dispatch()
    return store, times


@given(st.lists(st.sampled_from([0, 1, 2, 1000]), max_size=20), st.integers(-2, 3), st.integers(0, 19))
def test_both_boundaries_equal_a_search_through_all_messages(steps_ms: list[int], distance_ms: int, which: int) -> None:
    store, times = store_with(steps_ms)
    asked = (times[which % len(times)] if times else 0) + distance_ms
    older = [at for at, time_ms in enumerate(times) if time_ms < asked]
    not_newer = [at for at, time_ms in enumerate(times) if time_ms <= asked]
    assert store.offset_by_time("T", 0, asked, Boundary.LOWER) == len(older)
    assert store.offset_by_time("T", 0, asked, Boundary.UPPER) == (not_newer[-1] if not_newer else 0)


@pytest.mark.parametrize("boundary", list(Boundary))
def test_search_in_an_unknown_queue_returns_0(boundary: Boundary) -> None:
    assert open_store(MemoryDisk()).offset_by_time("T", 0, 1, boundary) == 0

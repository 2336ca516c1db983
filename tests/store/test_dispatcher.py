from collections import deque
from pathlib import Path

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.message import Arrival, DispatchRequest
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.dispatcher import Dispatcher


class Store:
    """Queues and an index in a folder, with small files."""

    def __init__(self, path: Path) -> None:
        disk = FileDisk()
        self.queues = ConsumeQueueStore(disk, str(path / "consumequeue"), 190)
        self.queues.load(clean=True)
        checkpoint = StoreCheckpoint(disk, str(path / "checkpoint"))
        self.index = IndexService(disk, str(path / "index"), VirtualClock(), checkpoint, slot_count=10, index_count_max=100)
        self.dispatcher = Dispatcher(self.queues, self.index)


def record(
    number: int, topic: str = "T", queue_id: int = 0, queue_offset: int | None = None, sys_flag: int = 0
) -> DispatchRequest:
    """Return record n of the log; it has 100 bytes and tags code n."""
    queue_offset = number if queue_offset is None else queue_offset
    return DispatchRequest(
        topic, queue_id, 100 * number, 100, number, 1_700_000_000_000, queue_offset, sys_flag, None, f"U{number}"
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_each_grown_queue_is_reported_once_with_its_arrivals(store: Store) -> None:
    arrivals = store.dispatcher.dispatch(
        [
            record(0, "A", 0, 0),
            record(1, "B", 0, 0),
            record(2, "A", 0, 1),
            record(3, "A", 1, 0),
            record(4, "A", 0, 2),
        ]
    )
    assert arrivals == [
        Arrival("A", 0, 3, [0, 2, 4], 1_700_000_000_000, 300),
        Arrival("B", 0, 1, [1], 1_700_000_000_000, 100),
        Arrival("A", 1, 1, [3], 1_700_000_000_000, 100),
    ]
    queue = store.queues.get("A", 0)
    assert queue is not None and queue.unit_at(1) == (200, 100, 2)
    assert store.index.find("A", "U4", 64, 0, 1 << 62) == [400]


def test_prepared_and_rolled_back_records_reach_no_queue(store: Store) -> None:
    arrivals = store.dispatcher.dispatch([record(n, sys_flag=flag) for n, flag in enumerate((0x4, 0xC))])
    assert arrivals == []
    assert store.queues.get("T", 0) is None
    (arrival,) = store.dispatcher.dispatch([record(2, queue_offset=0, sys_flag=0x8)])
    assert arrival.tags_codes == [2]


def test_a_range_of_the_log_may_be_dispatched_twice(store: Store) -> None:
    requests = [record(n) for n in range(30)]
    store.dispatcher.dispatch(requests[:20])
    assert store.dispatcher.dispatch(requests[:20]) == []
    (arrival,) = store.dispatcher.dispatch(requests)
    assert (arrival.queue_offset, arrival.tags_codes) == (30, list(range(20, 30)))


def test_nothing_to_dispatch(store: Store) -> None:
    assert store.dispatcher.dispatch([]) == []


def test_reopened_store_has_the_same_queues(store: Store, tmp_path: Path) -> None:
    store.dispatcher.dispatch([record(n, f"T{n % 3}", n % 2, n // 6) for n in range(24)])
    store.queues.close()
    again = Store(tmp_path).queues
    assert {(queue.topic, queue.queue_id, queue.max_offset) for queue in again} == {
        (f"T{topic}", queue_id, 4) for topic in range(3) for queue_id in range(2)
    }
    assert again.max_physical_offset == 2400


def test_flush_covers_only_queues_that_grew_since_the_last_flush(store: Store) -> None:
    store.dispatcher.dispatch([record(0, "A", 0, 0), record(1, "B", 0, 0)])
    assert {queue.topic for queue in store.queues.dirty} == {"A", "B"}
    store.queues.flush(least_pages=2)
    assert {queue.topic for queue in store.queues.dirty} == {"A", "B"}
    store.queues.flush()
    assert not store.queues.dirty


def test_deleted_topics_leave_nothing(store: Store, tmp_path: Path) -> None:
    store.dispatcher.dispatch([record(0, "A", 0, 0), record(1, "B", 0, 0), record(2, "B", 7, 0)])
    store.queues.drop_topic("B")
    assert store.queues.get("B", 7) is None
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["A"]
    store.queues.flush()
    (arrival,) = store.dispatcher.dispatch([record(3, "B", 0, 0)])
    assert arrival.queue_offset == 1


def test_truncation_and_retention_reach_every_queue(store: Store) -> None:
    store.dispatcher.dispatch([record(n, "T", n % 2, n // 2) for n in range(60)])
    store.queues.truncate(5000)
    assert [queue.max_offset for queue in store.queues] == [25, 25]
    assert store.queues.max_physical_offset == 5000
    # Ten units a file: 190 bytes are rounded up to 200.
    deque(store.queues.deleting_below(2100), maxlen=0)
    assert [len(queue.opened_files) for queue in store.queues] == [2, 2]
    assert [queue.min_offset for queue in store.queues] == [11, 10]

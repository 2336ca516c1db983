"""Small stores and messages for the tests of this package."""

from pocketmq.runtime.clock import Clock, VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import Record, decode_record
from pocketmq.store.message_store import MessageStore

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
ROOT = "/store"


class SteppedClock(VirtualClock):
    """Clock whose monotonic time is also set by the test, for the intervals of the flush service."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def step(self, seconds: float) -> None:
        self.seconds += seconds
        self.advance(int(seconds * 1000))


def message(topic: str = "T", queue_id: int = 0, body: bytes = b"body", **properties: str) -> Message:
    return Message(
        topic,
        queue_id,
        body,
        HOST,
        HOST,
        born_timestamp_ms=1_600_000_000_000,
        properties=dict(properties),
        properties_bytes=encode_properties(properties).encode(),
    )


def small_config(root: str = ROOT, **changes: object) -> MessageStoreConfig:
    """Return settings with files so small that a few messages fill them."""
    settings: dict[str, object] = {
        "mapped_file_size_commit_log": 16 << 10,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 16,
        "max_index_num": 50,
    }
    return MessageStoreConfig(store_path_root_dir=root, **(settings | changes))  # type: ignore[arg-type]


def open_store(disk: Disk, clock: Clock | None = None, root: str = ROOT, **changes: object) -> MessageStore:
    """Return a loaded store without a flush thread: the tests run the flushes."""
    store = MessageStore(small_config(root, **changes), disk, clock or VirtualClock())
    store.load()
    return store


def records(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Return all records of a queue, in order, read by pulls as by a consumer."""
    found: list[Record] = []
    queue_offset = max(store.min_offset(topic, queue_id), 0)
    while queue_offset < store.max_offset(topic, queue_id):
        result = store.reader.get_message(topic, queue_id, queue_offset, 32)
        for view in result.views:
            position = 0
            while position < len(view):
                found.append(decode_record(view, position))
                position += found[-1].total_size
        assert result.next_begin_offset > queue_offset, f"pull at {queue_offset} stands still: {result.status}"
        queue_offset = result.next_begin_offset
    return found


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Return the bodies of all records of a queue, in order."""
    return [record.body for record in records(store, topic, queue_id)]

"""Stores on disk for the tests of this package: Apache's golden stores and small ones of PocketMQ."""

import json
from pathlib import Path

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.message_store import MessageStore
from pocketmq.store_tools.check.verify import Verification, Verify
from pocketmq.store_tools.files.store_files import StoreFiles
from tests.golden.golden_files import TIMER_FILES, unpack_golden

GOLDEN_STORES = ("v4_clean", "v4_kill9", "v4_torn_body", "v4_torn_props", "v5_clean", "v5_kill9")
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HOST_V6 = bytes(15) + b"\x01" + (10911).to_bytes(4, "big")
NOW_MS = 1_800_000_000_000


def unpacked(name: str, folder: Path) -> Path:
    """Return the root of an unpacked golden store, with all files of Apache's broker."""
    return unpack_golden(name, folder, (*TIMER_FILES, "rocksdbstore"))


def message(topic: str, queue_id: int, body: bytes, *, host: bytes = HOST, sys_flag: int = 0, **properties: str) -> Message:
    return Message(
        topic,
        queue_id,
        body,
        host,
        host,
        sys_flag=sys_flag,
        born_timestamp_ms=NOW_MS - 5,
        properties=dict(properties),
        properties_bytes=encode_properties(properties).encode(),
    )


def opened(root: Path, clock: VirtualClock, **changes: object) -> MessageStore:
    """Open a store whose files are so small that a few messages fill them."""
    settings: dict[str, object] = {
        "mapped_file_size_commit_log": 16 << 10,
        "mapped_file_size_consume_queue": 400,
        "max_hash_slot_num": 16,
        "max_index_num": 50,
    }
    config = MessageStoreConfig(store_path_root_dir=str(root), **(settings | changes))  # type: ignore[arg-type]
    store = MessageStore(config, FileDisk(), clock)
    store.load()
    return store


def put_many(store: MessageStore, clock: VirtualClock, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        tags = {"TAGS": f"Tag{number % 3}"} if number % 4 else {}
        keys = {"KEYS": f"key-{number} shared ünï-{number}", "UNIQ_KEY": f"U{number:06}"}
        host = HOST_V6 if number % 7 == 0 else HOST
        store.commit_log.put(message(f"Topic{number % 2}", number % 3, b"body %d " % number * 9, host=host, **keys, **tags))
        if number % 5 == 0:
            store.commit_log.put(message("SCHEDULE_TOPIC_XXXX", 2, b"later", DELAY="3", REAL_TOPIC="Topic0", REAL_QID="0"))
        clock.advance(700)
        if number % 10 == 0:
            store.dispatch()
    store.dispatch()


def write_topics(root: Path, *topics: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {topic: {"topicName": topic} for topic in topics}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def made(root: Path, count: int = 150, **changes: object) -> Path:
    """Create a cleanly stopped store with several log files, queues, index and topic table; return its root."""
    clock = VirtualClock(NOW_MS)
    store = opened(root, clock, **changes)
    put_many(store, clock, count)
    store.shutdown()
    write_topics(root, "Topic0", "Topic1", "SCHEDULE_TOPIC_XXXX")
    return root


def verified(root: Path, **options: object) -> Verification:
    return Verify(StoreFiles(str(root)), **options).run()  # type: ignore[arg-type]


def kinds(result: Verification) -> set[str]:
    return set(result.findings.counts)


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ mask,)))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)

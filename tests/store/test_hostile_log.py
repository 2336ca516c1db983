"""A slave with a log whose records name impossible queues: a hostile or damaged master's."""

import struct
from pathlib import Path

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import Message, queue_folder, topic_folder
from pocketmq.store.format.multi_dispatch import MultiDispatch
from pocketmq.store.format.record import encode_record, record_size, topic_part
from pocketmq.store.ha.log_follower import LogFollower
from pocketmq.store.message_store import MessageStore
from tests.store.stores import message, small_config

CLOCK = VirtualClock(1_700_000_000_000)
WAYS = pytest.mark.parametrize("window_size_min", [1, 1 << 30], ids=["together", "one by one"])
IMPOSSIBLE = [
    ("../../../victim", 0, 0),
    ("../../../victim/fresh", 0, 0),
    ("..", 0, 0),
    (".", 0, 0),
    ("a/b", 0, 0),
    ("n" * 256, 0, 0),
    ("N", -1, 0),
    ("N", -(1 << 31), 0),
    ("N", 1, -1),
    ("N", 1, -(1 << 63)),
    ("N", 1, (1 << 63) - 1),
    ("N", 1, 1 << 62),
]


def encoded(one: Message, physical_offset: int, queue_offset: int) -> bytes:
    magic_code, part = topic_part(one.topic.encode())
    size = record_size(one, len(part))
    return encode_record(one, magic_code, part, size, queue_offset, physical_offset, CLOCK.message_time_ms())


def opened(root: Path) -> MessageStore:
    config = small_config(str(root), broker_role="SLAVE", mapped_file_size_commit_log=64 << 10)
    store = MessageStore(config, FileDisk(), CLOCK)
    store.load()
    return store


def follower_of(store: MessageStore, window_size_min: int = 1 << 30) -> LogFollower:
    levels, end = store.delay_levels, store.max_physical_offset
    follower = LogFollower(store.commit_log, levels.tags_code, end, dispatch_window=store.dispatch_window)
    follower.window_size_min = window_size_min
    return follower


@WAYS
@pytest.mark.parametrize("with_ext", [False, True])
@pytest.mark.parametrize(("topic", "queue_id", "queue_offset"), IMPOSSIBLE)
def test_slave_keeps_records_of_impossible_queues_in_the_log_only(
    tmp_path: Path, topic: str, queue_id: int, queue_offset: int, window_size_min: int, with_ext: bool
) -> None:
    victim = tmp_path / "victim"
    (victim / "0").mkdir(parents=True)
    (victim / "0" / "precious").write_text("data")
    root = tmp_path / "a" / "store"
    root.mkdir(parents=True)
    store = opened(root)
    store.queues.ext.writes = with_ext
    log = b""
    for one, offset in ((message("T"), 0), (message(topic, queue_id), queue_offset), (message("T"), 1)):
        log += encoded(one, len(log), offset)
    follower = follower_of(store, window_size_min)
    follower.receive(struct.pack(">qi", 0, len(log)) + log)
    follower.dispatch()
    assert {one.topic for one in store.dispatch()} == {"T"}
    store.drop_topics({"T"})
    assert store.max_offset("T", 0) == 2 and store.max_physical_offset == len(log)
    _assert_untouched(tmp_path, root)
    store.shutdown()
    (root / "abort").write_bytes(b"")
    store = opened(root)
    assert store.max_offset("T", 0) == 2 and store.max_physical_offset == len(log)
    store.shutdown()
    _assert_untouched(tmp_path, root)


def _assert_untouched(folder: Path, root: Path) -> None:
    outside = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_relative_to(root))
    assert outside == ["a", "victim", "victim/0", "victim/0/precious"]
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["T"]
    assert [path.name for path in (root / "consumequeue" / "T").iterdir()] == ["0"]


def test_topic_that_waits_for_its_queue_is_not_deleted_outside_the_store(tmp_path: Path) -> None:
    victim = tmp_path / "victim" / "precious"
    victim.mkdir(parents=True)
    store = opened(tmp_path / "a" / "store")
    log = encoded(message("../../../victim"), 0, 0)
    follower_of(store).receive(struct.pack(">qi", 0, len(log)) + log)
    store.drop_topics(set())
    assert victim.is_dir()
    with pytest.raises(ValueError, match=r"topic '../../../victim' cannot be the name of a folder"):
        list(store.dropping("../../../victim"))
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        list(store.dropping(""))
    assert victim.is_dir() and (tmp_path / "a" / "store").is_dir()


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/etc", "../x", "a\0b", "x" * 256])
def test_names_of_other_folders_become_no_path(topic: str) -> None:
    with pytest.raises(ValueError, match="folder|bytes"):
        topic_folder("/store/consumequeue", topic)
    with pytest.raises(ValueError, match="folder|bytes"):
        queue_folder("/store/consumequeue", topic, 0)


def test_negative_queue_id_becomes_no_path() -> None:
    with pytest.raises(ValueError, match="queue id -1 of topic 'T' is negative"):
        queue_folder("/store/consumequeue", "T", -1)


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 30, str(1 << 62), "-1", "x", "1,2"])
def test_impossible_offsets_of_further_queues_are_ignored(text: str) -> None:
    properties = {"INNER_MULTI_DISPATCH": "Q", "INNER_MULTI_QUEUE_OFFSET": text}
    assert list(MultiDispatch(with_lmq=True, lmq_max=10).units_of(properties, 0)) == []

"""Both ends of replication without sockets: logs stay equal, whatever a peer sends."""

import random
import struct

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import Message
from pocketmq.store.ha.log_follower import FollowError, LogFollower
from pocketmq.store.ha.replica import Replica, ReplicaError
from pocketmq.store.message_store import MessageStore
from tests.support.amount import cases

FILE_SIZE = 1 << 14


def opened(disk: MemoryDisk, role: str = "ASYNC_MASTER") -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir="/s", mapped_file_size_commit_log=FILE_SIZE, broker_role=role, max_hash_slot_num=10,
        max_index_num=100,
    )  # fmt: skip
    store = MessageStore(config, disk, VirtualClock(1_700_000_000_000))
    store.load()
    return store


def message(body: bytes) -> Message:
    host = bytes(8)
    return Message("T", 0, body, born_host=host, store_host=host)


def put(store: MessageStore, rng: random.Random, count: int) -> None:
    for _ in range(count):
        store.commit_log.put(message(rng.randbytes(rng.randrange(2000))))
    store.dispatch()


def follower_of(store: MessageStore) -> LogFollower:
    levels, end = store.delay_levels, store.max_physical_offset
    return LogFollower(store.commit_log, levels.tags_code, end, dispatch_window=store.dispatch_window)


def frames_of(replica: Replica) -> bytes:
    sent = b""
    while (frame := replica.next_transfer()) is not None:
        sent += frame[0] + bytes(frame[1])
    return sent


def log_of(store: MessageStore) -> bytes:
    return b"".join(bytes(file.view[: file.wrote]) for file in store.commit_log.mapped_files.files)


@pytest.mark.parametrize("seed", range(cases(6, 30)))
def test_log_is_copied_however_the_stream_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    master, slave = opened(MemoryDisk()), opened(MemoryDisk(), "SLAVE")
    put(master, rng, 1)
    replica = Replica(master.commit_log.mapped_files, rng.choice((1, 7, 500, 32 << 10)))
    follower = follower_of(slave)
    follower.window_size_min = rng.choice((100, 1000, 1 << 20))
    assert replica.receive(follower.report())
    for _ in range(rng.randrange(1, 8)):
        sent = frames_of(replica) + replica.heartbeat()
        while sent:
            size = rng.choice((1, 5, 100, 5000))
            follower.receive(sent[:size])
            sent = sent[size:]
            if rng.random() < 0.1:
                slave.dispatch()
        assert replica.receive(follower.report()) or replica.reported_offset == follower.max_offset
        put(master, rng, rng.randrange(40))
    follower.receive(frames_of(replica))
    follower.dispatch()
    slave.dispatch()
    assert log_of(slave) == log_of(master)
    assert slave.max_offset("T", 0) == master.max_offset("T", 0) > 0
    slave.shutdown()
    master.shutdown()


@pytest.mark.parametrize("seed", range(cases(4, 20)))
def test_replication_resumes_at_the_slaves_end_after_any_interruption(seed: int) -> None:
    rng = random.Random(seed)
    master, disk = opened(MemoryDisk()), MemoryDisk()
    put(master, rng, 50)
    first = Replica(master.commit_log.mapped_files, 1000)
    first.receive(struct.pack(">q", 0))
    first.next_offset = 0
    sent = frames_of(first)
    slave = opened(disk, "SLAVE")
    follower = follower_of(slave)
    follower.receive(sent[: rng.randrange(len(sent))])
    slave.dispatch()
    if seed % 2:
        follower.cut_incomplete()
        slave.shutdown()
        slave = opened(disk, "SLAVE")
        follower = follower_of(slave)
    follower.reconnected()
    again = Replica(master.commit_log.mapped_files, 1000)
    again.receive(follower.report())
    if follower.max_offset == 0:
        again.next_offset = 0
    follower.receive(frames_of(again))
    follower.dispatch()
    slave.dispatch()
    assert log_of(slave) == log_of(master)
    assert slave.max_offset("T", 0) == 50


def test_invalid_reports_do_not_change_the_masters_log() -> None:
    rng = random.Random(1)
    master = opened(MemoryDisk())
    put(master, rng, 50)
    before, refused = log_of(master), 0
    for _ in range(10_000):
        replica = Replica(master.commit_log.mapped_files, 1 << 15)
        values = [
            rng.choice((0, rng.randrange(-9, 1 << 17), rng.getrandbits(64) - (1 << 63))) for _ in range(rng.randrange(1, 5))
        ]
        data = b"".join(struct.pack(">q", value) for value in values) + rng.randbytes(rng.randrange(12))
        try:
            while data:
                size = rng.randrange(1, 20)
                replica.receive(data[:size])
                data = data[size:]
                replica.next_transfer()
            assert 0 <= replica.reported_offset <= replica.next_offset or replica.reported_offset == -1
        except ReplicaError:
            refused += 1
    assert log_of(master) == before
    assert 1000 < refused < 10_000


def test_invalid_frames_do_not_change_the_slaves_log() -> None:
    rng = random.Random(2)
    master, slave = opened(MemoryDisk()), opened(MemoryDisk(), "SLAVE")
    put(master, rng, 20)
    follower = follower_of(slave)
    replica = Replica(master.commit_log.mapped_files, 1 << 15)
    replica.receive(follower.report())
    follower.receive(struct.pack(">qi", 0, 0))
    copy = opened(MemoryDisk(), "SLAVE")
    whole = follower_of(copy)
    replica.next_offset = 0
    whole.receive(frames_of(replica))
    copy.dispatch()
    before, refused = log_of(copy), 0
    for _ in range(10_000):
        offset = rng.choice((whole.max_offset, 0, rng.randrange(-9, 1 << 17), rng.getrandbits(64) - (1 << 63)))
        size = rng.choice((-1, 0, 1 << 30, (1 << 31) - 1)) if offset == whole.max_offset else rng.getrandbits(31)
        data = struct.pack(">qi", offset, size)
        whole.reconnected()
        try:
            whole.receive(data)
        except FollowError:
            refused += 1
    assert log_of(copy) == before
    assert refused > 5000


def test_slave_accepts_neither_a_damaged_record_nor_any_behind_it() -> None:
    master, slave = opened(MemoryDisk()), opened(MemoryDisk(), "SLAVE")
    put(master, random.Random(3), 3)
    replica = Replica(master.commit_log.mapped_files, 1 << 15)
    follower = follower_of(slave)
    replica.receive(follower.report())
    sent = bytearray(frames_of(replica))
    size = struct.unpack_from(">i", sent, 12)[0]
    sent[12 + size + 95] ^= 1  # in the second record's body
    with pytest.raises(FollowError, match=f"the record at {size} of the master's log is damaged"):
        follower.receive(bytes(sent))
    slave.dispatch()
    assert slave.max_offset("T", 0) == 1
    assert follower.checked_offset == size < follower.max_offset
    with pytest.raises(FollowError, match="damaged"):
        follower.report()
    follower.reconnected()
    with pytest.raises(FollowError, match="damaged"):
        follower.receive(struct.pack(">qi", follower.max_offset, 10))


@pytest.mark.parametrize("offset", [-FILE_SIZE, -(1 << 20), -(1 << 63), (1 << 63) - FILE_SIZE, 1, FILE_SIZE + 1])
def test_log_begins_at_no_impossible_offset(offset: int) -> None:
    disk = MemoryDisk()
    store = opened(disk, "SLAVE")
    follower = follower_of(store)
    for size in (0, 10):
        follower.reconnected()
        with pytest.raises(FollowError, match=f"the master's log begins at {offset}, where no file"):
            follower.receive(struct.pack(">qi", offset, size) + bytes(size))
    with pytest.raises(FollowError, match=f"the master's log begins at {offset}, where no file"):
        follower.begin(offset, bytes(100))
    assert not store.commit_log.mapped_files.files and not disk.listdir("/s/commitlog")

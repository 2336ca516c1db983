"""What SYNC_FLUSH promises, on a disk that forgets what was not synced.

Random lives of a small store: messages, turns, syncs, intervals, power cuts and kills, in any order. After each restart the
log must be what was put, cut off somewhere behind the last acknowledged message; queues and index must say the same.
"""

import random
from typing import NamedTuple

import pytest
from power_cut_disk import PowerCutDisk
from stores import ROOT, SteppedClock, message, records, small_config

from store.message import Message, PutStatus
from store.message_store import MessageStore

LOG_FILE_SIZE = 16 << 10
QUEUES = [("A", 0), ("A", 1), ("B", 0)]


class Put(NamedTuple):
    physical_offset: int
    end_offset: int
    stored: bytes
    queue: tuple[str, int]
    key: str


class Life:
    """One store, its disk, and everything that was ever put and not lost."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = PowerCutDisk()
        self.clock = SteppedClock()
        self.puts: list[Put] = []
        self.acknowledged_offset = 0
        self.serial = 0
        self.open()

    def open(self) -> None:
        config = small_config(mapped_file_size_commit_log=LOG_FILE_SIZE, flush_disk_type="SYNC_FLUSH")
        self.store = MessageStore(config, self.disk, self.clock)
        self.report = self.store.load()
        self.store.on_flushed = self.flushed

    def flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """An acknowledgement: the bytes of each record up to there must be on the platter."""
        assert error is None
        for put in self.puts:
            if self.acknowledged_offset < put.end_offset <= flushed_offset:
                start_offset = put.physical_offset - put.physical_offset % LOG_FILE_SIZE
                path, position = f"{ROOT}/commitlog/{start_offset:020}", put.physical_offset - start_offset
                on_platter = self.disk.synced_bytes(path, position, position + len(put.stored))
                assert on_platter == put.stored, f"{put.physical_offset} acknowledged, but not synced"
        self.acknowledged_offset = flushed_offset

    def message(self) -> Message:
        self.serial += 1
        topic, queue_id = self.rng.choice(QUEUES)
        size = self.rng.choice((0, 10, 200, 700, 2000))
        filling = bytes(size) if self.rng.random() < 0.3 else self.rng.randbytes(size)
        text = "x" * self.rng.choice((0, 5, 900))
        return message(topic, queue_id, b"%d:" % self.serial + filling, KEYS=f"k{self.serial}", NOTE=text or "-")

    def turn(self) -> None:
        """What a loop turn does: some puts, then dispatch, then the request for a sync."""
        end_offset = 0
        for _ in range(self.rng.randrange(1, 6)):
            batch = [self.message() for _ in range(self.rng.choice((1, 1, 1, 3)))]
            if len(batch) > 1:
                batch = [one for one in batch if (one.topic, one.queue_id) == (batch[0].topic, batch[0].queue_id)]
            result = self.store.put_messages(batch) if len(batch) > 1 else self.store.put_message(batch[0])
            assert result.status is PutStatus.PUT_OK, result.reason
            end_offset = result.end_offset
            for one, offset in zip(batch, result.physical_offsets or [result.physical_offset], strict=True):
                stored = self.store.message_at(offset)
                assert stored is not None
                put = Put(offset, offset + len(stored), bytes(stored), (one.topic, one.queue_id), one.properties["KEYS"])
                self.puts.append(put)
        self.store.dispatch()
        if self.rng.random() < 0.7:
            self.store.request_sync(end_offset)
        if self.rng.random() < 0.7:
            self.store.flush_service.run_once()
        self.clock.step(self.rng.choice((0.001, 0.3, 2.0, 70.0)))

    def restart(self) -> None:
        self.disk = self.disk.power_cut(self.rng) if self.rng.random() < 0.6 else self.disk.killed()
        self.open()
        self.check()

    def check(self) -> None:
        """The recovered log is what was put up to some point; queues and index have it all, and nothing else."""
        end_offset = self.store.max_physical_offset
        kept = [put for put in self.puts if put.end_offset <= end_offset]
        lost = self.puts[len(kept) :]
        assert all(put.physical_offset >= self.acknowledged_offset for put in lost), f"acknowledged but lost: {lost[0]}"
        self.puts = kept
        by_queue: dict[tuple[str, int], list[bytes]] = {queue: [] for queue in QUEUES}
        for put in kept:
            stored = self.store.message_at(put.physical_offset)
            assert stored is not None and bytes(stored) == put.stored
            by_queue[put.queue].append(put.stored)
            found = self.store.query_message(put.queue[0], put.key, 64, 0, 1 << 60).views
            assert put.stored in [bytes(view) for view in found], f"{put.key} is not in the index"
        for queue, expected in by_queue.items():
            found_records = records(self.store, *queue)
            assert [bytes(self.store.message_at(record.physical_offset) or b"") for record in found_records] == expected
            assert [record.queue_offset for record in found_records] == list(range(len(expected)))
            assert self.store.max_offset(*queue) == len(expected)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_is_acknowledged_is_in_the_synced_image() -> None:
    acknowledged = 0
    for seed in range(1000):
        life = Life(seed)
        for _ in range(6):
            life.turn()
        life.store.request_sync(life.store.max_physical_offset)
        life.store.flush_service.run_once()
        assert life.acknowledged_offset == life.store.max_physical_offset, f"seed {seed}"
        acknowledged += len(life.puts)
    assert acknowledged > 10_000


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_acknowledged_messages_survive_power_cuts_and_kills_in_order_and_nothing_is_invented() -> None:
    cut_tails = 0
    for seed in range(1000):
        life = Life(seed)
        for _ in range(5):
            for _ in range(life.rng.randrange(1, 6)):
                life.turn()
            before = len(life.puts)
            try:
                life.restart()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            cut_tails += len(life.puts) < before
    assert cut_tails > 500, "the disk never lost anything: the test would not notice a missing sync"


def test_the_flush_thread_acknowledges_what_is_synced() -> None:
    life = Life(1)
    life.store.start()
    for _ in range(20):
        life.turn()
    life.store.request_sync(life.store.max_physical_offset)
    life.store.shutdown()
    assert life.acknowledged_offset == life.puts[-1].end_offset
    life.disk = life.disk.power_cut(life.rng)
    life.open()
    assert life.report.clean
    life.check()


def test_after_a_failed_sync_nothing_is_acknowledged_any_more() -> None:
    disk = PowerCutDisk()
    answers: list[tuple[int, OSError | None]] = []
    store = MessageStore(small_config(), disk, SteppedClock())
    store.load()
    store.on_flushed = lambda flushed_offset, error: answers.append((flushed_offset, error))

    def fail(path: str) -> None:
        raise OSError(5, "Input/output error")

    disk.before_sync = fail
    first = store.put_message(message())
    store.request_sync(first.end_offset)
    store.flush_service.run_once()
    disk.before_sync = lambda path: None
    store.request_sync(first.end_offset)
    store.flush_service.run_once()

    assert [offset for offset, _ in answers] == [first.end_offset]
    assert isinstance(answers[0][1], OSError)
    refused = store.put_message(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refused.reason and not store.writeable
    store.clean()
    assert not store.writeable, "free disk space does not make up for a failed sync"

"""Random walks of a master and a slave, whose disks lose unsynced data and whose connection breaks; a seed reproduces each.

    python -m tests.store.replication_simulator --seeds 0:2000 [--flush SYNC_FLUSH|ASYNC_FLUSH] [--workers 2]

A walk has some hundred steps: puts, frames and reports that arrive in pieces, broken connections, process kills and power
cuts of either machine, and promotions, in which the slave's store becomes the master's and the former master's log is
truncated where the two diverge. A message counts as acknowledged when the master has its record and a slave has reported its
end; with SYNC_FLUSH both are synced before. The checks:

* an acknowledged message is in the current master's log, at its physical offset, after every crash and promotion.
  ASYNC_FLUSH guarantees this only for killed processes, so there are no power cuts with it;
* each time the slave has caught up, its log equals the master's byte for byte, and its queues have the same ends.
"""

import argparse
import asyncio
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.layout import REPLICA_REPORT_STRUCT
from pocketmq.store.format.message import PutStatus
from pocketmq.store.ha.log_comparison import diverged_at, is_same, offsets_in_file, tail_differs_at
from pocketmq.store.ha.log_follower import LogFollower
from pocketmq.store.ha.replica import Replica, ReplicaError
from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import PowerCutDisk
from tests.store.stores import SteppedClock, message, small_config

TOPICS = ("A", "B")


class Machine:
    """A disk, and the store that is open on it."""

    def __init__(self, walk: "Walk", is_slave: bool) -> None:
        self.walk = walk
        self.disk = PowerCutDisk(rng=walk.rng)
        self.open(is_slave)

    def open(self, is_slave: bool) -> None:
        role = "SLAVE" if is_slave else "SYNC_MASTER"
        config = small_config(flush_disk_type=self.walk.flush, broker_role=role, mapped_file_size_commit_log=8 << 10)
        self.store = MessageStore(config, self.disk, self.walk.clock)
        self.store.load()
        self.synced_offset = 0
        self.store.flushed.subscribe(self._flushed)
        levels, end = self.store.delay_levels, self.store.max_physical_offset
        self.follower = LogFollower(
            self.store.commit_log, levels.tags_code, end, config.check_crc_on_recover, self.store.dispatch_window
        )
        self.follower.window_size_min = self.walk.rng.choice((100, 1000, 1 << 20))

    def _flushed(self, offset: int, error: OSError | None) -> None:
        assert error is None
        self.synced_offset = max(self.synced_offset, offset)

    def sync(self) -> None:
        """Do what the flush thread does."""
        self.store.request_sync(self.store.max_physical_offset)
        self.store.flush_service.run_once()

    @property
    def durable_offset(self) -> int:
        """Physical offset up to which this machine has the log: synced with SYNC_FLUSH, else written."""
        return self.synced_offset if self.walk.is_sync else self.store.max_physical_offset

    def crash(self, is_slave: bool) -> None:
        rng = self.walk.rng
        self.disk = self.disk.power_cut(rng) if self.walk.is_sync and rng.random() < 0.6 else self.disk.killed()
        self.open(is_slave)

    def log(self) -> bytes:
        return b"".join(bytes(file.view[: file.wrote]) for file in self.files.files)

    @property
    def files(self) -> MappedFileQueue:
        return self.store.commit_log.mapped_files


class Walk:
    """Random walk that is determined by its seed."""

    def __init__(self, seed: int, flush: str) -> None:
        self.rng = random.Random(f"{flush} {seed}")
        self.flush, self.is_sync = flush, flush == "SYNC_FLUSH"
        self.clock = SteppedClock()
        self.master, self.slave = Machine(self, False), Machine(self, True)
        self.pending: list[tuple[int, bytes]] = []
        """End offset and bytes of the records that are not acknowledged."""
        self.acknowledged: dict[int, bytes] = {}
        """Record bytes by end offset."""
        self.replica: Replica | None = None
        self.to_slave, self.to_master = bytearray(), bytearray()
        self.serial = self.promotions = self.crashes = self.catch_ups = 0

    def run(self) -> None:
        for _ in range(self.rng.randrange(40, 160)):
            self._step()
        self._catch_up()

    def _step(self) -> None:
        kind = self.rng.random()
        if kind < 0.3:
            self._put()
        elif kind < 0.65:
            self._transfer()
        elif kind < 0.75:
            self.rng.choice((self.master, self.slave)).sync()
        elif kind < 0.8:
            self.rng.choice((self.master, self.slave)).disk.write_back(self.rng)
        elif kind < 0.86:
            self.replica = None
        elif kind < 0.93:
            self._crash()
        elif kind < 0.96:
            self._promote()
        else:
            self._catch_up()
        self._acknowledge()

    # --- steps ------------------------------------------------------------------------------------------------------

    def _put(self) -> None:
        store = self.master.store
        for _ in range(self.rng.randrange(1, 6)):
            self.serial += 1
            body = b"%d " % self.serial + bytes(self.rng.choice((5, 100, 700)))
            result = store.commit_log.put(message(self.rng.choice(TOPICS), self.rng.randrange(2), body))
            assert result.status is PutStatus.PUT_OK, result
        store.dispatch()
        known = max((end for end, _ in self.pending), default=0)
        for record_offset in self._offsets(store):
            record = self._record(store, record_offset)
            if record_offset + len(record) > known and record_offset + len(record) not in self.acknowledged:
                self.pending.append((record_offset + len(record), record))

    @staticmethod
    def _offsets(store: MessageStore) -> list[int]:
        files = store.commit_log.mapped_files
        return [offset for file in files.files[-2:] for offset in offsets_in_file(files, file.start_offset)]

    @staticmethod
    def _record(store: MessageStore, offset: int) -> bytes:
        view = store.message_at(offset)
        assert view is not None
        return bytes(view)

    def _connect(self) -> None:
        """Connect as HAClient does: compare the last record, or begin an empty log with the first one."""
        slave, master = self.slave, self.master
        self.to_slave.clear()
        self.to_master.clear()
        store = slave.store
        slave.follower.reconnected()
        if slave.files.files and store.last_record_offset >= 0:
            if self._diverged_at() is not None:
                return
        elif not slave.files.files:
            if not master.files.files:
                return  # connect later: an empty slave would begin with the master's last file, as in Apache
            self.slave.follower.begin(0, self._record(master.store, 0))
        if self.is_sync:
            slave.sync()
        self.replica = Replica(master.files, self.rng.choice((100, 1000, 32 << 10)))
        self.to_master += self.slave.follower.report()

    def _diverged_at(self) -> int | None:
        """Return the physical offset at which the slave's log diverges from its master's, or None."""
        files, master = self.slave.files, self.master
        record_at = partial(self._record_at, master.store)

        async def offsets(start: int) -> list[int]:
            return list(offsets_in_file(files, start))

        async def end() -> int:
            return master.store.max_physical_offset

        async def find() -> int | None:
            last = self.slave.store.last_record_offset
            if await is_same(files, last, record_at):
                return await tail_differs_at(files, last, record_at, end)
            return await diverged_at(files, offsets, record_at)

        return asyncio.run(find())

    @staticmethod
    async def _record_at(store: MessageStore, offset: int) -> bytes | None:
        view = store.message_at(offset)
        return None if view is None else bytes(view)

    def _transfer(self) -> None:
        """Send some frames, and deliver a part of the sent bytes of both directions."""
        if self.replica is None:
            self._connect()
        if self.replica is None:
            return
        for _ in range(self.rng.randrange(4)):
            if self.replica.next_offset >= 0 and (frame := self.replica.next_transfer()) is not None:
                self.to_slave += frame[0] + bytes(frame[1])
        for _ in range(self.rng.randrange(1, 4)):  # in one turn of the loop
            size = self.rng.randrange(len(self.to_slave) + 1)
            arrived = bytes(self.to_slave[:size])
            del self.to_slave[:size]
            self.slave.follower.receive(arrived)
        self.slave.store.dispatch()
        if self.is_sync and self.rng.random() < 0.7:
            self.slave.sync()
        self.to_master += REPLICA_REPORT_STRUCT.pack(self.slave.durable_offset)
        size = self.rng.randrange(len(self.to_master) + 1)
        arrived = bytes(self.to_master[:size])
        del self.to_master[:size]
        try:
            self.replica.receive(arrived)
        except ReplicaError:
            self.replica = None

    def _acknowledge(self) -> None:
        """Acknowledge, as AnswerGate does, the records that the master has durably and whose end a slave has reported."""
        reported = self.replica.reported_offset if self.replica is not None else -1
        durable = min(reported, self.master.durable_offset)
        self.acknowledged |= {end: record for end, record in self.pending if end <= durable}
        self.pending = [one for one in self.pending if one[0] > durable]

    def _crash(self) -> None:
        self.crashes += 1
        self.replica = None
        is_slave = self.rng.random() < 0.5
        (self.slave if is_slave else self.master).crash(is_slave)
        self._forget_lost()
        self._check()
        if not is_slave:
            self._rejoin()  # a power cut may have removed records from the master that the slave has

    def _forget_lost(self) -> None:
        """Forget messages that a new or restarted master does not have; those that it has may still be acknowledged."""
        store = self.master.store
        self.pending = [one for one in self.pending if self._has(store, *one)]

    def _has(self, store: MessageStore, end: int, record: bytes) -> bool:
        view = store.message_at(end - len(record))
        return view is not None and bytes(view) == record

    def _promote(self) -> None:
        """Crash both machines, start the slave's store as master, and let the former master rejoin as its slave."""
        self.promotions += 1
        self.replica = None
        former, successor = self.master, self.slave
        former.crash(is_slave=True)
        successor.crash(is_slave=False)
        self.master, self.slave = successor, former
        self._forget_lost()
        self._check()
        self._rejoin()

    def _rejoin(self) -> None:
        """Truncate the slave's log where it diverges from its master's, as `pocketmq store rejoin` does."""
        slave = self.slave
        if not slave.files.files or (at := self._diverged_at()) is None:
            return
        slave.store.shutdown()
        files = MessageStore(slave.store.config, slave.disk, self.clock).commit_log.mapped_files
        files.load()
        files.truncate(at)
        files.sync_names()
        files.close()
        slave.open(is_slave=True)
        assert slave.store.max_physical_offset <= at

    # --- checks -----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        lost = [end for end, record in self.acknowledged.items() if not self._has(self.master.store, end, record)]
        assert not lost, f"{len(lost)} acknowledged messages are lost, the first ends at {lost[0]}"

    def _catch_up(self) -> None:
        """Deliver everything, and check that both logs and the ends of the queues are the same."""
        self.catch_ups += 1
        self.replica = None
        self._connect()
        if not self.master.files.files:
            return
        assert self.replica is not None, "the slave's log has diverged from its master's"
        self.replica.receive(bytes(self.to_master))
        self.to_master.clear()
        while (frame := self.replica.next_transfer()) is not None:
            self.slave.follower.receive(frame[0] + bytes(frame[1]))
        self.slave.follower.dispatch()
        self.slave.store.dispatch()
        if self.is_sync:
            self.slave.sync()
            self.master.sync()
        self.replica.receive(REPLICA_REPORT_STRUCT.pack(self.slave.durable_offset))
        assert self.slave.log() == self.master.log()
        ends = [
            {(one.topic, one.queue_id): one.max_offset for one in machine.store.queues if one.max_offset}
            for machine in (self.master, self.slave)
        ]
        assert ends[0] == ends[1]
        self._acknowledge()
        self._check()


BURSTS_SIZE = 2 << 20


def cpu_s_per_mb_of_bursts(seed: int, with_ext: bool = False) -> float:
    """Let an empty slave catch up in turns of several pieces of random size; return its CPU seconds for each MB received.

    `with_ext`: with consumequeue_ext, which is written record by record. Checks that log and queues are the same.
    """
    rng = random.Random(f"bursts {seed}")
    stores = []
    for role in ("ASYNC_MASTER", "SLAVE"):
        config = small_config(
            broker_role=role, mapped_file_size_commit_log=4 << 20, mapped_file_size_consume_queue=1 << 20,
            max_hash_slot_num=10_000, max_index_num=100_000, enable_consume_queue_ext=with_ext,
        )  # fmt: skip
        stores.append(MessageStore(config, MemoryDisk(), SteppedClock()))
        stores[-1].load()
    master, slave = stores
    while master.max_physical_offset < BURSTS_SIZE:
        for _ in range(100):
            master.commit_log.put(message(rng.choice(TOPICS), rng.randrange(4), rng.randbytes(rng.randrange(200))))
        master.dispatch()
    replica = Replica(master.commit_log.mapped_files, 32 << 10)
    follower = LogFollower(
        slave.commit_log, slave.delay_levels.tags_code, 0, slave.config.check_crc_on_recover, slave.dispatch_window
    )
    replica.receive(follower.report())
    sent = bytearray()
    while (frame := replica.next_transfer()) is not None:
        sent += frame[0] + bytes(frame[1])
    at, began_s = 0, time.process_time()
    while at < len(sent):
        for _ in range(rng.randrange(1, 200)):
            size = rng.choice((rng.randrange(1, 1000), rng.randrange(1, 64 << 10), rng.randrange(64 << 10, 256 << 10)))
            follower.receive(bytes(sent[at : at + size]))
            at += size
        if rng.random() < 0.5:
            follower.dispatch()
        slave.dispatch()
    follower.dispatch()
    slave.dispatch()
    took_s = time.process_time() - began_s
    assert follower.checked_offset == slave.max_physical_offset == master.max_physical_offset
    ends = [{(one.topic, one.queue_id): one.max_offset for one in store.queues} for store in (master, slave)]
    assert ends[0] == ends[1]
    return took_s / (len(sent) / 1e6)


def walk(seed: int, flush: str) -> tuple[int, str, Walk | None]:
    """Run the walk of one seed; return the seed, the failure or "", and the walk or None."""
    one = Walk(seed, flush)
    try:
        one.run()
    except Exception as failure:  # any failure is a finding
        return seed, f"{type(failure).__name__}: {failure}", None
    return seed, "", one


def _counted(seed: int, flush: str) -> tuple[int, str, tuple[int, int, int]]:
    seed, why, one = walk(seed, flush)
    return seed, why, (one.promotions, one.crashes, len(one.acknowledged)) if one else (0, 0, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:2000", metavar="FIRST:END")
    parser.add_argument("--flush", choices=["SYNC_FLUSH", "ASYNC_FLUSH"], action="append")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    first, end = (int(number) for number in options.seeds.split(":"))
    failures = 0
    with ProcessPoolExecutor(options.workers) as pool:
        for flush in options.flush or ["SYNC_FLUSH", "ASYNC_FLUSH"]:
            totals = [0, 0, 0]
            for seed, why, counts in pool.map(partial(_counted, flush=flush), range(first, end), chunksize=20):
                totals = [total + count for total, count in zip(totals, counts, strict=True)]
                if why:
                    failures += 1
                    print(f"--seeds {seed}:{seed + 1} --flush {flush}: {why}")
            told = ("promotions", "crashes", "acknowledged messages")
            print(f"{flush}: {end - first} walks", *map("{} {}".format, totals, told), sep=", ", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

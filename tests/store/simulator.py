"""Random walks of a small store on a disk that loses unsynced data and fails; a seed reproduces each.

    python -m tests.store.simulator --seeds 0:1000 [--flush SYNC_FLUSH|ASYNC_FLUSH] [--lane] [--workers 2] [--trace]

A walk opens one store several times. Each time there are operations: puts of every kind, turns of the event loop, rounds of
the flush and checkpoint threads, clock changes, retention, deleted topics, failing calls. They end with a clean stop, a
process kill or a power cut, between two operations or before any change of the disk, also while the store is being opened.
Before the next start, derived files may be deleted or emptied. Each time the store is opened it is compared with
`model.Model`.

What is guaranteed, and checked:

* a kill loses nothing, in either flush mode;
* SYNC_FLUSH: a power cut loses nothing that `flushed` has reported as durable;
* ASYNC_FLUSH: after each round of the flush thread (every flushIntervalCommitLog) fewer than flushCommitLogLeastPages page
  ends of the log's last file are not durable, and after each thorough round (flushCommitLogThoroughInterval) none.
  So a power cut loses what was put since the last round, and of older records at most that many pages, none of them older
  than a thorough interval plus a round.
"""

import argparse
import hashlib
import json
import logging
import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from pocketmq.store.disk.disk import StoreError
from pocketmq.store.format.message import Message, PutStatus
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.message_store import MessageStore
from tests.store.lane_puts import SimulatedLane
from tests.store.model import FAR_MS, SCHEDULE_TOPIC, Model
from tests.store.power_cut_disk import PAGE_SIZE, Fault, PowerCutDisk, Stopped
from tests.store.stores import HOST, HOST_V6, ROOT, SteppedClock, small_config

TOPICS = ("A", "B", "long-" + "x" * 150, SCHEDULE_TOPIC)
# Method and errno of the faults.
FAULTS = (
    ("create", 28), ("reserve", 28), ("write_file", 28), ("replace_file", 28), ("map", 24), ("create", 5), ("sync", 5),
    ("sync_dir", 5), ("delete", 5), ("delete_tree", 5), ("sync", 28), ("sync_all", 5), ("usage", 5), ("listdir", 5),
    ("read_range", 5),
)  # fmt: skip
ERROR_TEXTS = {5: "Input/output error", 24: "Too many open files", 28: "No space left on device"}


class Walk:
    """Random walk that is determined by its seed."""

    def __init__(self, seed: int, flush_disk_type: str, *, faults: bool = True, with_lane: bool = False) -> None:
        """`with_lane`: ordinary messages are put by the compiled lane."""
        self.with_lane = with_lane
        self.in_lane = 0
        self.rng = random.Random(f"{flush_disk_type} {seed}")
        rng = self.rng
        self.is_sync = flush_disk_type == "SYNC_FLUSH"
        self.with_faults = faults and rng.random() < 0.4
        self.config = small_config(
            flush_disk_type=flush_disk_type,
            mapped_file_size_commit_log=rng.choice((8, 16, 16, 48)) << 10,
            mapped_file_size_consume_queue=rng.choice((100, 400, 4000, 12_000)),
            max_hash_slot_num=rng.choice((4, 16, 500)),
            max_index_num=rng.choice((9, 50, 1000)),
            message_index_enable=rng.random() < 0.85,
            flush_commit_log_least_pages=rng.choice((1, 2, 4)),
            file_reserved_time=1,
            mapped_file_open_max=rng.choice((0, 0, 3)),
        )
        # Whether queues are synced by one sync of the file system. Not drawn from `rng`, whose walks are known.
        self.is_together = seed % 2 == 1
        self.disk = PowerCutDisk(rng=rng)
        self.clock = SteppedClock()
        self.model = Model(self.config.mapped_file_size_commit_log)
        self.serial = 0
        self.lost = 0
        self.restarts = 0
        self.in_round = False
        self.is_harmed = False
        self.events: list[str] = []
        # Messages that were put in this turn and may not be written yet: (queue, message, physical offset, end offset).
        self.unwritten: list[tuple[tuple[str, int], Message, int, int]] = []

    def note(self, event: str) -> None:
        self.events.append(f"{len(self.events)} {event}")

    def run(self) -> None:
        self.open()
        for _ in range(self.rng.randrange(2, 6)):
            self.live()
            self.open()
        self.disk.heal()
        self.model.check(self.store)

    @property
    def digest(self) -> str:
        """Hash of all events and of every byte on the disk."""
        found = hashlib.sha256("\n".join(self.events).encode())
        for path, data in self.disk.contents().items():
            found.update(path.encode() + data)
        return found.hexdigest()

    # --- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load the store, again after each crash or failing call, and check its contents."""
        all_kept = self.all_kept = getattr(self, "all_kept", True)
        for attempt in range(10):
            self.disk.changes_left = self.rng.randrange(40) if self.rng.random() < 0.3 and attempt < 5 else None
            if self.with_faults and self.rng.random() < 0.2 and attempt < 5:
                self.add_fault()
            try:
                self.store = MessageStore(self.config, self.disk, self.clock)
                self.store.queues.together_from = 2 if self.is_together else 500
                report = self.store.load()
                break
            except Stopped:
                all_kept &= self.crash("while opening")
            except (OSError, StoreError) as error:
                assert self.is_failing, f"the store does not open: {error!r}"
                self.check_clear(str(error))
                self.note(f"refused to open: {error}")
                self.disk.heal()
        else:
            raise AssertionError("not opened after ten attempts")
        self.disk.changes_left = None
        self.lane = SimulatedLane(self.store, TOPICS[:2]) if self.with_lane else None
        self.store.flushed.subscribe(self.flushed)
        self.note(f"opened: {report}")
        self.restarts += 1
        self.disk.heal()
        self.disk.failed_syncs = 0
        assert report.end_offset == self.store.max_physical_offset and str(report.end_offset) in str(report)
        assert report.loss_window in str(report) and self.config.flush_disk_type in report.loss_window
        synced_ms = report.synced_timestamp_ms
        if synced_ms is None:
            # All that was written is present, unless an earlier start that was interrupted has already truncated the log.
            synced_ms = FAR_MS if attempt == 0 else 0
        self.lost += self.model.restarted(
            self.store,
            all_kept=all_kept,
            synced_timestamp_ms=synced_ms,
            noted=self.noted_drops(),
            is_harmed=self.is_harmed,
        )
        self.is_harmed = False
        now = self.clock.monotonic()
        self.round_due = now + self.config.flush_interval_commit_log / 1000
        self.thorough_due = now + self.config.flush_commit_log_thorough_interval / 1000

    @property
    def is_failing(self) -> bool:
        """Whether operations may fail: the disk's capacity is limited, or a fault has been raised."""
        return self.disk.capacity is not None or any(fault.raised for fault in self.disk.faults)

    @staticmethod
    def check_clear(reason: str) -> None:
        """Check that a refusal names the path and the error of the disk."""
        assert ROOT in reason or "'/'" in reason, f"which file? {reason}"
        assert "disk full" in reason or any(text in reason for text in ERROR_TEXTS.values()), f"why? {reason}"

    def crash(self, where: str) -> bool:
        """Kill the process or cut the power; return whether the page cache is kept."""
        self.unwritten.clear()
        if self.rng.random() < 0.4:
            self.note(f"killed {where}")
            self.disk = self.disk.killed()
            return True
        self.note(f"power cut {where}")
        self.disk = self.disk.power_cut(self.rng)
        return False

    # --- from a start to the next stop or crash --------------------------------------------------------------------

    def live(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.disk.changes_left = rng.randrange(80)
        end = rng.random()
        try:
            for _ in range(rng.randrange(1, 20)):
                self.step()
            if end < 0.3:
                self.stop()
                return
            self.all_kept = self.crash("between two steps")
        except Stopped:
            self.disk.stopped, self.disk.changes_left = False, None  # reading the log may map a file
            self.note_written()
            self.all_kept = self.crash("in the middle of a step")
        if rng.random() < 0.15:
            self.harm_derived_files()

    def stop(self) -> None:
        """Stop the store cleanly, and then kill the process or cut the power."""
        try:
            self.store.shutdown()
            self.all_kept = True
            self.note("stopped")
            if self.store.flush_service.error is None:
                self.model.acknowledged_offset = max(self.model.acknowledged_offset, self.model.end_offset)
        except (OSError, StoreError) as error:
            assert self.is_failing, f"no clean stop: {error!r}"
            self.check_clear(str(error))
            self.note(f"no clean stop: {error}")
        self.all_kept = self.crash("after the stop")

    def step(self) -> None:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.55:
            self.turn()
        elif kind < 0.75:
            self.clock.step(rng.choice((0.001, 0.3, 0.5, 2.0, 11.0, 70.0)))
            self.round()
        elif kind < 0.83:
            self.disk.write_back(rng)
        elif kind < 0.86:
            self.clock.set_ms(self.clock.message_time_ms() - rng.randrange(10_000))
        elif kind < 0.90:
            self.clock.step(rng.choice((60.0, 4000.0)))
            self.clean(manual=rng.random() < 0.7)
        elif kind < 0.92:
            self.drop_topic()
        elif kind < 0.96 and self.with_faults:
            self.add_fault()
        else:
            self.resume()
        self.disk.note_all_written()
        assert not self.disk.unreserved, self.disk.unreserved[0]

    def add_fault(self) -> None:
        if self.rng.random() < 0.2:
            self.disk.capacity = self.disk.space_used + self.rng.choice((0, 1, 5, 50)) * PAGE_SIZE
            self.note(f"room for {self.disk.capacity} bytes from now on")
            return
        method, number = self.rng.choice(FAULTS)
        fault = Fault(method, self.rng.randrange(1, 6), OSError(number, ERROR_TEXTS[number]), self.rng.random() < 0.3)
        self.disk.faults.append(fault)
        self.note(f"fault: {method} number {fault.nth}: {fault.error}")

    def clean(self, *, manual: bool) -> None:
        try:
            self.note(f"clean: {self.store.clean(manual)} files")
        except OSError as error:
            assert self.is_failing, f"not cleaned: {error!r}"
            self.note(f"not cleaned: {error}")
        finally:
            self.model.deleted_offset = max(self.model.deleted_offset, self.store.min_physical_offset)

    def resume(self) -> None:
        """Remove all faults, and check that nothing is lost and that puts succeed again unless a sync has failed."""
        self.disk.heal()
        self.clock.step(61.0)
        self.clean(manual=False)
        self.dispatch()
        self.round()  # a failed sync may only be known after a round of each thread
        waits = bool(self.store.commit_log.tail.undispatched)
        if not waits:
            self.model.check(self.store)
        if self.store.flush_service.error is None:
            assert not waits, f"the disk is well again, but queues and index lag: {self.store.commit_log.refusal}"
            assert self.put(may_be_too_large=False), f"the disk is well again, but: {self.store.commit_log.refusal}"
        else:
            assert self.disk.failed_syncs, f"no sync has failed, but: {self.store.commit_log.refusal}"
            assert not self.put() and not self.store.writeable, "a sync has failed, and messages are taken again"
        self.dispatch()

    def turn(self) -> None:
        """Run a turn of the event loop: some puts, dispatch, and a request for a sync, which may be served later."""
        rng = self.rng
        end_offset = max([self.put() for _ in range(rng.randrange(1, 7))])
        self.dispatch()
        if self.is_sync and end_offset and rng.random() < 0.8:
            self.store.request_sync(end_offset)
            if rng.random() < 0.8:
                self.round()

    def put(self, *, may_be_too_large: bool = True) -> int:
        """Put a message or a batch and return its end offset, or 0 if it was refused."""
        rng = self.rng
        topic, queue_id = rng.choice(TOPICS), rng.randrange(3)
        batch = [self.message(topic, queue_id) for _ in range(rng.choice((1, 1, 1, 1, 3)) if may_be_too_large else 1)]
        result = self.lane.put(batch[0]) if self.lane is not None and len(batch) == 1 else None
        if result is not None:
            self.in_lane += 1
        else:
            result = self.store.commit_log.put(batch[0]) if len(batch) == 1 else self.store.commit_log.put_batch(batch)
        if result.status is PutStatus.MESSAGE_ILLEGAL and may_be_too_large:
            assert "mappedFileSizeCommitLog" in result.reason
            return 0
        if result.status is not PutStatus.PUT_OK:
            assert self.is_failing or self.store.flush_service.error, f"{result.status}: {result.reason}"
            self.check_clear(result.reason)
            self.note(f"refused: {result.reason}")
            return 0
        offsets = result.physical_offsets or [result.physical_offset]
        for one, offset, end in zip(batch, offsets, [*offsets[1:], result.end_offset], strict=True):
            self.unwritten.append(((topic, queue_id), one, offset, end))
        if self.serial % 10 == 0:  # it is read before the turn ends
            assert self.store.message_at(offsets[0]) is not None, f"put at {offsets[0]}, but not there"
        self.note(f"put {len(batch)} into {topic[:9]} {queue_id} up to {result.end_offset}")
        return result.end_offset

    def dispatch(self) -> None:
        """End the turn: from now on everything that was put survives a kill."""
        self.store.commit_log.tail.write()
        self.note_written()
        assert not self.unwritten, f"put at {self.unwritten[0][2]}, but not there"
        self.store.dispatch()

    def note_written(self) -> None:
        """Add the messages of this turn that are already in the log to the model."""
        files = self.store.commit_log.mapped_files
        while self.unwritten and (stored := files.view(self.unwritten[0][2], 4)) is not None:
            queue, one, offset, end = self.unwritten.pop(0)
            stored = files.view(offset, end - offset)
            assert stored is not None, f"written at {offset}, but not all of it"
            self.model.put(queue, bytes(one.body), one.properties, offset, bytes(stored))
        if self.unwritten:
            self.note(f"{len(self.unwritten)} not written")

    def message(self, topic: str, queue_id: int) -> Message:
        self.serial += 1
        rng = self.rng
        properties = {"KEYS": f"k{self.serial}" + rng.choice(("", " often", f" b{self.serial}"))}
        if rng.random() < 0.5:
            properties["UNIQ_KEY"] = f"u{self.serial}"
        if rng.random() < 0.5:
            properties["TAGS"] = rng.choice(("TagA", "TagB", "AaAa", "é"))
        if topic == SCHEDULE_TOPIC:
            properties["DELAY"] = str(rng.randrange(1, 19))
        if rng.random() < 0.2:
            properties["NOTE"] = "x" * 900
        size = rng.choice((0, 10, 200, 700, 2000))
        body = bytes(size) if rng.random() < 0.3 else rng.randbytes(size)
        if rng.random() < 0.05 and self.model.puts:
            body = rng.choice(self.model.puts).stored  # a record inside a record
        hosts = (HOST,) * (20 if self.with_lane else 2) + (HOST_V6,)
        return Message(
            topic,
            queue_id,
            body,
            rng.choice(hosts),
            rng.choice(hosts),
            flag=rng.randrange(1 << 31),
            sys_flag=rng.choice((0,) * 8 + (0x4, 0x8, 0xC)),
            born_timestamp_ms=self.clock.message_time_ms(),
            properties=properties,
            properties_bytes=encode_properties(properties).encode(),
        )

    def drop_topic(self) -> None:
        topics = {topic for topic, _ in self.store.queues.queues}
        topic = self.rng.choice(TOPICS[:3])
        self.model.begin_to_drop(topic)
        try:
            dropped = self.store.drop_topics(topics - {topic})
        except OSError as error:
            assert self.is_failing, f"topic not dropped: {error!r}"
            dropped = [topic]
            self.note(f"topic dropped, though: {error}")
        noted = self.noted_drops()
        for one in dropped:
            assert one in noted or self.is_failing, f"{one} is dropped, but a power cut would make that forgotten"
            self.model.drop_topic(one, self.store, noted)
        self.note(f"dropped {dropped}")

    def noted_drops(self) -> dict[str, int]:
        """Return deleted topic -> physical offset below which its records are durably marked as deleted."""
        found = self.disk.synced_bytes(f"{ROOT}/cleanStop.json", 0, 1 << 20)
        return json.loads(found)["dropped"] if found else {}

    # --- the flush thread ------------------------------------------------------------------------------------------

    def round(self) -> None:
        """Run one round of each thread; the event loop may put more messages during a sync."""
        now, end_offset = self.clock.monotonic(), self.model.end_offset
        self.disk.before_sync = self.loop_goes_on
        self.in_round = True
        self.store.flush_service.run_once()
        checkpoint_service = getattr(self.store, "checkpoint_service", None)
        if checkpoint_service is not None:
            checkpoint_service.run_once()
        self.in_round = False
        self.disk.before_sync = lambda path: None
        if self.store.flush_service.error is not None:
            return
        if now >= self.round_due:
            self.round_due = now + self.config.flush_interval_commit_log / 1000
            on_disk = self.flushed_at_least(end_offset)
            if now >= self.thorough_due:
                self.thorough_due = now + self.config.flush_commit_log_thorough_interval / 1000
                on_disk = end_offset
            self.promise(on_disk)

    def flushed_at_least(self, end_offset: int) -> int:
        """Return up to where the log must be durable after a round that began when it ended at `end_offset`."""
        file_start = end_offset - end_offset % self.config.mapped_file_size_commit_log
        page = (end_offset - file_start) // PAGE_SIZE - self.config.flush_commit_log_least_pages + 1
        return max(file_start, file_start + page * PAGE_SIZE)

    def loop_goes_on(self, path: str) -> None:
        if self.in_round and self.rng.random() < 0.05:
            self.in_round = False
            self.put()
            self.dispatch()
            self.in_round = True

    def flushed(self, flushed_offset: int, error: OSError | None) -> None:
        if error is None:
            self.promise(flushed_offset)
        self.note(f"flushed to {flushed_offset}: {error}")

    def promise(self, flushed_offset: int) -> None:
        """Note that a power cut must not lose records that end before `flushed_offset`, and check that they are durable."""
        size = self.config.mapped_file_size_commit_log
        for put in reversed(self.model.puts):
            if put.end_offset <= self.model.acknowledged_offset:
                break
            if put.end_offset <= flushed_offset and put.physical_offset >= self.store.min_physical_offset:
                start = put.physical_offset - put.physical_offset % size
                path, position = f"{ROOT}/commitlog/{start:020}", put.physical_offset - start
                found = self.disk.synced_bytes(path, position, position + len(put.stored))
                assert found == put.stored, f"{put.physical_offset}..{put.end_offset} is not durable"
        self.model.acknowledged_offset = max(self.model.acknowledged_offset, flushed_offset)

    # --- between a crash and the next start ------------------------------------------------------------------------

    def harm_derived_files(self) -> None:
        """Delete or empty some files that are derived from the log."""
        rng, names = self.rng, self.disk.names
        folder = rng.choice(("consumequeue", "index", "checkpoint"))
        for path in sorted(path for path in names if path.startswith(f"{ROOT}/{folder}")):
            fate = rng.random()
            if fate < 0.4:
                del names[path]
                self.disk.durable_names.pop(path, None)
            elif fate < 0.5:
                names[path] = self.disk.durable_names[path] = type(names[path])(b"", is_durable=True)
            else:
                continue
            self.is_harmed = True
            self.note(f"harmed {path}")


# --- many seeds -----------------------------------------------------------------------------------------------------


def walk(seed: int, flush_disk_type: str, with_lane: bool = False) -> tuple[int, str, int, int]:
    """Run the walk of one seed; return (seed, failure or "", lost records, restarts)."""
    one = Walk(seed, flush_disk_type, with_lane=with_lane)
    try:
        one.run()
    except Exception as error:
        return seed, f"{type(error).__name__}: {error}", one.lost, one.restarts
    return seed, "", one.lost, one.restarts


def walk_all(
    seeds: range, flush_disk_type: str, workers: int, with_lane: bool = False
) -> Iterator[tuple[int, str, int, int]]:
    if workers == 1:
        yield from (walk(seed, flush_disk_type, with_lane) for seed in seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(walk, seeds, [flush_disk_type] * len(seeds), [with_lane] * len(seeds), chunksize=8)


def main() -> int:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    parser = argparse.ArgumentParser(description="random walks of a store on a disk that loses unsynced data and fails")
    parser.add_argument("--seeds", default="0:1000", help="FIRST:BEHIND_THE_LAST, or one seed")
    parser.add_argument("--flush", choices=("SYNC_FLUSH", "ASYNC_FLUSH"), help="only this flushDiskType")
    parser.add_argument("--lane", action="store_true", help="put ordinary messages by the compiled lane")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trace", action="store_true", help="print every event of the first seed")
    arguments = parser.parse_args()
    first, _, behind = arguments.seeds.partition(":")
    seeds = range(int(first), int(behind) if behind else int(first) + 1)
    modes = [arguments.flush] if arguments.flush else ["SYNC_FLUSH", "ASYNC_FLUSH"]
    logging.disable()  # errors of the simulated disk are expected
    console, failed = Console(soft_wrap=True), 0
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    for mode in modes:
        lost = restarts = 0
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(mode, total=len(seeds))
            for seed, problem, lost_now, restarts_now in walk_all(seeds, mode, arguments.workers, arguments.lane):
                lost, restarts = lost + lost_now, restarts + restarts_now
                progress.advance(task)
                if problem:
                    failed += 1
                    console.print(f"[red]seed {seed}[/red] {problem}", highlight=False)
                    lane = " --lane" if arguments.lane else ""
                    console.print(f"   again: python -m tests.store.simulator --seeds {seed} --flush {mode}{lane} --trace")
        console.print(f"{mode}: {len(seeds)} seeds, {restarts} restarts, {lost} unacknowledged records lost")
        if arguments.trace:
            trace(seeds[0], mode, arguments.lane)
    console.print(f"{failed} failed" if failed else "none failed")
    return 1 if failed else 0


def trace(seed: int, mode: str, with_lane: bool) -> None:
    one = Walk(seed, mode, with_lane=with_lane)
    try:
        one.run()
    finally:
        print("\n".join(one.events))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of text must not differ from run to run.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())

"""Model of a store's contents: the list of the records that were put, and simple code that interprets them.

It uses neither files nor numpy nor the store's data structures. The simulator compares the store with it after each restart.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record import Record, decode_record
from pocketmq.store.message_store import MessageStore
from tests.store.stores import records

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LEVEL_DELAYS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
UNQUEUED, ROLLED_BACK = 0x4, 0xC
FAR_MS = 1 << 60


class Put(NamedTuple):
    """A record in the log. `life` is how often its queue had been deleted before the record was put."""

    physical_offset: int
    stored: bytes
    record: Record
    queue: QueueKey
    properties: dict[str, str]
    life: int

    @property
    def end_offset(self) -> int:
        return self.physical_offset + len(self.stored)

    @property
    def queued(self) -> bool:
        return not self.record.sys_flag & UNQUEUED

    @property
    def keys(self) -> list[str]:
        if self.record.sys_flag & ROLLED_BACK == ROLLED_BACK:
            return []
        keys = self.properties.get("KEYS", "").split(" ") + [self.properties.get("UNIQ_KEY", "")]
        return [key for key in keys if key]

    @property
    def tags_code(self) -> int:
        if self.queue[0] == SCHEDULE_TOPIC and "DELAY" in self.properties:
            return self.record.store_timestamp_ms + 1000 * LEVEL_DELAYS_S[int(self.properties["DELAY"]) - 1]
        code = 0
        for unit in self.properties.get("TAGS", "").encode("utf-16-be")[1::2]:
            code = (31 * code + unit) & 0xFFFFFFFF
        return code - (1 << 32) if code >> 31 else code


class Model:
    """Expected contents of a store.

    Records that end at or before `acknowledged_offset` must survive a power cut, unless they were deleted since.
    """

    def __init__(self, log_file_size: int) -> None:
        self.log_file_size = log_file_size
        self.puts: list[Put] = []
        self.queue_offsets: dict[QueueKey, int] = {}
        self.lives: dict[QueueKey, int] = {}
        self.undeleted: set[QueueKey] = set()
        self.unnoted: set[QueueKey] = set()
        self.acknowledged_offset = 0
        self.deleted_offset = 0
        self.last_timestamp_ms = 0

    # --- what happened ---------------------------------------------------------------------------------------------

    def put(self, queue: QueueKey, body: bytes, properties: dict[str, str], physical_offset: int, stored: bytes) -> Put:
        """Add a stored record, after a check that it is the one that was put."""
        record = decode_record(memoryview(stored), 0)
        put = Put(physical_offset, stored, record, queue, properties, self.lives.get(queue, 0))
        assert (record.topic.decode(), record.queue_id, record.body) == (*queue, body)
        assert record.physical_offset == physical_offset and record.total_size == len(stored)
        if self.puts:
            last = self.puts[-1]
            assert last.end_offset == physical_offset or physical_offset == self._next_file(last.end_offset)
        assert record.store_timestamp_ms >= self.last_timestamp_ms, "store times go back"
        self.last_timestamp_ms = record.store_timestamp_ms
        expected = self.queue_offsets.get(queue, 0) if put.queued else 0
        assert record.queue_offset == expected, f"{queue}: queue offset {record.queue_offset}, {expected} expected"
        if put.queued:
            self.queue_offsets[queue] = expected + 1
        self.puts.append(put)
        return put

    def begin_to_drop(self, topic: str) -> None:
        """Note that the deletion of a topic begins: from now on a restart may or may not find its queues."""
        self.undeleted |= {queue for queue in self.queue_offsets if queue[0] == topic}

    def drop_topic(self, topic: str, store: MessageStore, noted: Mapping[str, int]) -> None:
        """Remove a topic's queues, except those that could not be deleted: they remain until a restart deletes them.

        `noted` maps a topic to the physical offset below which its records are durably marked as deleted. If there was no
        space for this mark, a restart may find the topic's records in the log, or its last queue offsets, and restore it.
        """
        for queue in [queue for queue in self.queue_offsets if queue[0] == topic]:
            if store.queue(*queue) is None:
                self._drop(queue, noted)

    def _drop(self, queue: QueueKey, noted: Mapping[str, int]) -> None:
        self.lives[queue] = self.lives.get(queue, 0) + 1
        self.undeleted.discard(queue)
        is_noted = noted.get(queue[0], -1) >= max((put.end_offset for put in self.puts if put.queue == queue), default=0)
        (self.unnoted.discard if is_noted else self.unnoted.add)(queue)
        del self.queue_offsets[queue]

    def _next_file(self, physical_offset: int) -> int:
        return physical_offset - physical_offset % self.log_file_size + self.log_file_size

    @property
    def end_offset(self) -> int:
        return self.puts[-1].end_offset if self.puts else 0

    # --- what must be there ----------------------------------------------------------------------------------------

    def restarted(
        self,
        store: MessageStore,
        *,
        all_kept: bool,
        synced_timestamp_ms: int,
        noted: Mapping[str, int],
        is_harmed: bool = False,
    ) -> int:
        """Check a reopened store against its guarantees, remove the lost records from the model, and return their number.

        According to the store, all records older than `synced_timestamp_ms` are present. `noted` is as in `drop_topic`.
        `is_harmed`: files were deleted or emptied, so queues whose records are all deleted may begin at 0 again.
        """
        end_offset = store.max_physical_offset
        kept = self.puts[: bisect_left(self.puts, end_offset + 1, key=lambda put: put.end_offset)]
        lost = self.puts[len(kept) :]
        for put in lost:
            what = f"{put.queue}@{put.record.queue_offset} at {put.physical_offset}..{put.end_offset}"
            # Records that retention has deleted may reappear and be lost again until their deletion is durable.
            is_deleted = put.end_offset <= self.deleted_offset
            assert is_deleted or not all_kept, f"{what} is lost, though no power was cut; the log ends at {end_offset}"
            assert is_deleted or put.record.store_timestamp_ms >= synced_timestamp_ms, (
                f"{what} is lost, though the report says that what is older than {synced_timestamp_ms} was synced"
            )
            assert is_deleted or put.end_offset > self.acknowledged_offset, (
                f"{what} is lost, but everything up to {self.acknowledged_offset} was promised; log ends at {end_offset}"
            )
        last_offset = kept[-1].end_offset if kept else 0
        assert end_offset in (last_offset, self._next_file(last_offset)) or (end_offset == 0 and not kept), (
            f"invented: the log ends at {end_offset}, the last record put before that at {last_offset}"
        )
        self.puts = kept
        self.acknowledged_offset = end_offset  # recovery has synced all of it
        self.last_timestamp_ms = kept[-1].record.store_timestamp_ms if kept else 0
        for queue in sorted(self.undeleted):
            if not store.max_offset(*queue):
                self._drop(queue, noted)
        self.check(store, may_recount=is_harmed or not all_kept)
        return len(lost)

    def check(self, store: MessageStore, *, may_recount: bool = False) -> None:
        """Check that log, queues, index and searches by time return what was put."""
        min_offset = store.min_physical_offset
        self.deleted_offset = max(self.deleted_offset, min_offset)
        there = []
        for put in self.puts:
            found = store.message_at(put.physical_offset) if put.physical_offset >= min_offset else None
            if found is not None and bytes(found) == put.stored:
                there.append(put)
            elif put.physical_offset >= max(min_offset, self.deleted_offset):
                what = "no record" if found is None else "another record"
                raise AssertionError(f"{what} at {put.physical_offset}")
        by_queue: dict[QueueKey, list[Put]] = {queue: [] for queue in self.queue_offsets}
        for put in self.puts:
            if put.queued:
                by_queue.setdefault(put.queue, [])
        for put in there:
            if put.queued:
                by_queue[put.queue].append(put)
        for queue, puts in sorted(by_queue.items()):
            self._check_queue(store, queue, puts, may_recount)
        if store.index is not None:
            self._check_index(store, there)
        files = store.commit_log.mapped_files.files
        if files:
            assert not files[-1].array[files[-1].wrote :].any(), "stale bytes stand behind the end of the log"

    def _check_queue(self, store: MessageStore, queue: QueueKey, puts: list[Put], may_recount: bool) -> None:
        life = self.lives.get(queue, 0)
        present = [put for put in puts if put.life == life]
        if puts and not present and life and (queue in self.unnoted or puts[-1].end_offset <= self.deleted_offset):
            # The queue was deleted, and it has no newer record, or these are lost. A restart may have restored it from
            # records in the log, if the deletion was not marked on the disk or retention had deleted these records.
            self._adopt_old_life(store, queue, puts)
            return
        found = records(store, *queue)
        # Deleted records that reappear may be incomplete, and damaged.
        solid = {put.record.queue_offset for put in present if put.physical_offset >= self.deleted_offset}
        came_back = {record.queue_offset for record in found} - solid
        present = [put for put in present if put.record.queue_offset in solid | came_back]
        expected = [put.record.queue_offset for put in present]
        offsets = [record.queue_offset for record in found]
        assert offsets == expected, f"{queue}: {_short(offsets)} in the queue, {_short(expected)} in the log"
        for put, record in zip(present, found, strict=True):
            assert record == put.record, f"{queue}: another record at {put.record.queue_offset}"
            consume_queue = store.queue(*queue)
            unit = consume_queue.unit_at(put.record.queue_offset) if consume_queue is not None else None
            assert unit == (put.physical_offset, len(put.stored), put.tags_code), (
                f"{queue}@{put.record.queue_offset}: {unit}"
            )
        if present:
            next_offset = expected[-1] + 1
            assert store.max_offset(*queue) == next_offset, queue
            assert store.min_offset(*queue) == expected[0] or len(solid) < len(expected), queue
            self._check_times(store, queue, present)
        else:
            next_offset = store.max_offset(*queue)
            known = self.queue_offsets.get(queue, 0)
            may_be = next_offset == known or queue in self.unnoted or (may_recount and next_offset < known)
            assert may_be, f"{queue}: the next is {next_offset}, {known} expected"
        self.queue_offsets[queue] = next_offset

    def _adopt_old_life(self, store: MessageStore, queue: QueueKey, puts: list[Put]) -> None:
        found = records(store, *queue)
        old = {(put.record.queue_offset, put.physical_offset): put for put in puts}
        for record in found:
            put = old.get((record.queue_offset, record.physical_offset))
            assert put is not None and put.record == record, f"{queue}: invented {record}"
        offsets = [record.queue_offset for record in found]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
        self.queue_offsets[queue] = store.max_offset(*queue)
        if found:
            life = old[found[-1].queue_offset, found[-1].physical_offset].life
            self.puts = [
                put._replace(life=self.lives[queue]) if put.queue == queue and put.life == life else put for put in self.puts
            ]

    def _check_times(self, store: MessageStore, queue: QueueKey, puts: list[Put]) -> None:
        times = [put.record.store_timestamp_ms for put in puts]
        first = puts[0].record.queue_offset
        middle = times[len(times) // 2]
        for asked in {times[0] - 1, times[0], middle - 1, middle, middle + 1, times[-1], times[-1] + 1}:
            right = first + sum(time < asked for time in times)
            found = store.offset_by_time(*queue, asked)
            assert found == right, f"{queue}: offset by time {asked} is {found}, right would be {right}"

    def _check_index(self, store: MessageStore, there: list[Put]) -> None:
        by_key: dict[tuple[str, str], list[Put]] = {}
        for put in there:
            for key in put.keys:
                by_key.setdefault((put.queue[0], key), []).append(put)
        for number, ((topic, key), puts) in enumerate(sorted(by_key.items())):
            # Deleted records that reappear may or may not be in the index.
            there_offsets = sorted(put.physical_offset for put in puts)[-64:]
            expected = [offset for offset in there_offsets if offset >= self.deleted_offset]
            # For half of the keys the search begins one second before the latest record, and must also find it.
            begin_ms = puts[-1].record.store_timestamp_ms - 1000 if number % 2 else 0
            views = store.query_message(topic, key, 64, begin_ms, FAR_MS).views
            offsets = sorted({int.from_bytes(view[28:36], "big") for view in views})
            what = f"index of {topic[:9]}#{key} from {begin_ms} ms on: {offsets}, expected {expected}"
            assert set(offsets) <= set(there_offsets), what
            solid = [offset for offset in offsets if offset >= self.deleted_offset]
            assert solid[-1:] == expected[-1:] and (begin_ms or solid == expected), what


def _short(offsets: list[int]) -> str:
    return str(offsets) if len(offsets) < 30 else f"{offsets[:5]}..{offsets[-5:]} ({len(offsets)})"

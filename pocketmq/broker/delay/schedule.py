"""ScheduleMessageService: delivers the messages of the levels in `messageDelayLevel`.

A delayed message waits as a record in SCHEDULE_TOPIC_XXXX, queue = level - 1, and the tags code of its queue unit is its due
time. So each level is a queue sorted by due time, of which only the head matters. The heads of all levels are in a heap, and
one timer is set for the earliest: there is no polling, nothing runs early, and levels due together are delivered in the
order of their due times. A level without messages is not in the heap; an arrival adds it.

Delivering means putting a copy into the real topic and queue. The stored property string of the copy still has DELAY,
REAL_TOPIC and REAL_QID, as Apache's has (ScheduleMessageService makes it before it removes them). The property map that the
store reads has no DELAY, and the copy goes to the store directly, so it is not delayed again.

The next queue offset of each level is saved in `config/delayOffset.json`. It is written only after the copies delivered
before it are synced: otherwise a power cut could lose the copy of a message that counts as delivered. PocketMQ's own mark
(`level_mark`) is newer: a killed process repeats at most the batch under way, a power cut the deliveries of the last second.
"""

import heapq
import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from pocketmq.broker.context import Context
from pocketmq.broker.delay.delay_cancelled import DelayCancelled
from pocketmq.broker.delay.delayed_copy import delivered_message
from pocketmq.broker.delay.level_mark import LevelMark
from pocketmq.broker.put.copy_sink import UNDER_WAY, CopySink
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.runtime.event import Event
from pocketmq.runtime.timers import Timer
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, EXT_ADDRESS_MAX, HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC, Arrival, PutResult, PutStatus
from pocketmq.store.format.record import BadRecordError

log = logging.getLogger("broker")

BATCH_MAX: Final = 64
"""Limit of messages delivered in one turn of the loop; other work runs before the next turn."""
UNITS_READ: Final = 32
RETRY_AFTER_S: Final = 0.1
FAILED_MAX: Final = 8
"""Number of messages waiting for another attempt at which no further ones are tried."""
_UNSTORABLE: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
_PUT_OK: Final = PutStatus.PUT_OK


class _Level:
    """Position in one level's queue. `units` are read ahead, starting at `next_offset`."""

    __slots__ = ("delay_ms", "is_queued", "next_offset", "queue_id", "units")

    def __init__(self, level: int, delay_ms: int | None) -> None:
        self.queue_id = level - 1
        self.delay_ms = delay_ms
        self.next_offset = 0
        self.is_queued = False
        self.units: list[tuple[int, int, int]] = []


class _Failed(NamedTuple):
    level: int
    queue_offset: int
    physical_offset: int
    due_ms: int


class ScheduleMessageService(ConfigManager):
    """Delivers messages of delay levels when they are due."""

    def __init__(
        self, context: Context, file: ConfigFile, cancelled: DelayCancelled, mark: LevelMark, sink: CopySink
    ) -> None:
        super().__init__(file, context.clock)
        self._mark = mark
        self._cancelled = cancelled
        self._steps = context.steps
        self._store = context.store
        self._timers = context.timers
        self._turn = context.turn
        self.sink = sink
        """Takes the copies; an acting master has another one."""
        self.levels = levels = context.store.delay_levels
        self._rows = {level: _Level(level, levels.delay_ms(level)) for level in range(1, levels.level_max + 1)}
        self._in_file: set[int] = set()
        self._heads: list[tuple[int, int]] = []  # (due ms, level)
        self._timer: Timer | None = None
        # Messages that could not be put, or are under way, and are tried again, independently of the others.
        self._failed: list[_Failed] = []
        self._retry_timer: Timer | None = None
        self.put_failed: Event[[]] = Event()
        """Called when the store refuses a copy."""
        self.delivered: Event[[float]] = Event()
        """Called with the seconds from a message's due time until its delivery."""
        self._is_running = self._was_started = False
        # End offset of the newest copy, and the (end offset, document) that waits until the log is synced up to there.
        self._delivered_end = 0
        self._unwritten: tuple[int, dict[str, Any]] | None = None

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Correct the offsets against the queues, and start delivering. May follow a `stop`."""
        for queue in self._store.queues:
            if queue.topic == SCHEDULE_TOPIC:
                # Also levels no longer in the table: their messages are delivered at their time.
                self._row(queue.queue_id + 1)
        self._is_running = True
        self._heads, self._failed = [], []
        self.look()
        if not self._was_started:
            self._was_started = True
            self._steps.subscribe(self._calendar_set)
            self.clock.subscribe(lambda now_ms: self.look())
        for level, row in self._rows.items():
            row.units, row.is_queued = [], False
            self._correct(level, row)
            self._queue_head(level, row)
        self._mark.write(self._next_offsets(), self._delivered_end)
        self._arm()

    def stop(self) -> None:
        """Stop delivering."""
        self._is_running = False
        for timer in (self._timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry_timer = None
        self._heads = []
        for level, next_offset in self._next_offsets().items():
            self._rows[level].next_offset = next_offset

    def look(self) -> None:
        """Check whether the calendar was set. To be called several times a second."""
        commit_log = self._store.commit_log
        self._steps.note(commit_log.max_offset, commit_log.last_store_timestamp_ms)

    def _calendar_set(self) -> None:
        """Recompute all due times."""
        if self._is_running:
            self._heads = [(self._due_ms(self._rows[level]), level) for _, level in self._heads]
            heapq.heapify(self._heads)
            self._arm()

    def _row(self, level: int) -> _Level:
        row = self._rows.get(level)
        if row is None:
            row = self._rows[level] = _Level(level, None)
        return row

    def _correct(self, level: int, row: _Level) -> None:
        queue = self._store.queue(SCHEDULE_TOPIC, row.queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        marked = self.marked_to(level)
        if marked > row.next_offset:
            log.info("delay level %d continues at offset %d: its mark file is newer than %s", level, marked, self.file.path)
            row.next_offset = marked
        if not low <= row.next_offset <= high:
            log.warning("delay level %d: offset %d is outside %d..%d; corrected", level, row.next_offset, low, high)
            row.next_offset = min(max(row.next_offset, low), high)

    # --- heads ------------------------------------------------------------------------------------------------------

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Add levels that were empty to the heap. To be called after each dispatch."""
        found = False
        for arrival in arrivals:
            if arrival.topic == SCHEDULE_TOPIC and self._is_running:
                if not found:
                    self.look()
                level = arrival.queue_id + 1
                row = self._row(level)
                if not row.is_queued:
                    self._queue_head(level, row)
                    found = True
        if found:
            self._arm()

    def _queue_head(self, level: int, row: _Level) -> None:
        """Put the level's first message into the heap, if any. Units without a record are skipped."""
        while not row.units or row.units[-1][2] == HOLE_TAGS_CODE:
            if row.units:
                row.units.pop()
                row.next_offset += 1
            else:
                self._read_ahead(row)
                if not row.units:
                    return
        row.is_queued = True
        heapq.heappush(self._heads, (self._due_ms(row), level))

    def _read_ahead(self, row: _Level) -> None:
        queue = self._store.queue(SCHEDULE_TOPIC, row.queue_id)
        if queue is None:
            return
        if row.next_offset < queue.min_offset:
            row.next_offset = queue.min_offset  # older records were deleted before their delay was over
        row.units = list(CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(queue.units(row.next_offset, UNITS_READ)))
        row.units.reverse()

    def _due_ms(self, row: _Level) -> int:
        physical_offset, _, tags_code = row.units[-1]
        if tags_code <= EXT_ADDRESS_MAX:
            tags_code = self._store.reader.tags_code(SCHEDULE_TOPIC, row.queue_id, tags_code, physical_offset)
        # By the steady clock, so changes of the calendar do not matter (Apache's check delivers at once after a step back).
        delay_ms = row.delay_ms or 0
        due_ms = tags_code + self._steps.shift_ms(physical_offset, tags_code - delay_ms)
        # If the calendar was set back while no broker ran, or the level shortened, the wait is limited to the level's delay.
        return min(due_ms, self.clock.message_time_ms() + delay_ms) if delay_ms else due_ms

    def _arm(self) -> None:
        """Set the one timer for the earliest head."""
        if not self._heads:
            return
        due_ms = self._heads[0][0]
        if self._timer is not None:
            if not self._timer.is_cancelled and self._timer.when_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer = self._timers.at_ms(due_ms, self._run)

    # --- delivery ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Deliver due messages, at most BATCH_MAX."""
        self._timer = None
        if not self._is_running:
            return
        self.look()
        heads, rows = self._heads, self._rows
        now_ms = self.clock.message_time_ms()
        delivered, failed_max = 0, self.sink.under_way_max or FAILED_MAX
        while heads and heads[0][0] <= now_ms and delivered < BATCH_MAX and len(self._failed) < failed_max:
            level = heads[0][1]
            row = rows[level]
            physical_offset = row.units[-1][0]
            cancelled_end = self._cancelled.end_of(level, row.next_offset)
            if cancelled_end is not None:
                self._delivered_end = max(self._delivered_end, cancelled_end)
            elif not self._deliver(level, physical_offset, heads[0][0], now_ms):
                self._failed.append(_Failed(level, row.next_offset, physical_offset, heads[0][0]))
            heapq.heappop(heads)
            row.units.pop()
            row.next_offset += 1
            row.is_queued = False
            self._queue_head(level, row)
            delivered += 1
        if delivered:
            self._note_delivered()
        if self._failed and self._retry_timer is None:
            self._retry_timer = self._timers.after(RETRY_AFTER_S, self._retry)
        if len(self._failed) >= failed_max:
            return  # `_retry` continues
        if delivered == BATCH_MAX:
            self._timer = self._timers.after(0, self._run)  # after all other work that is ready
        else:
            self._arm()

    def _retry(self) -> None:
        """Try the failed messages again."""
        self._retry_timer = None
        if self._is_running:
            waits, now_ms = self.sink.waits, self.clock.message_time_ms()
            self._failed = [
                failed
                for failed in self._failed
                if waits(failed.physical_offset)
                or not self._deliver(failed.level, failed.physical_offset, failed.due_ms, now_ms)
            ]
            self._note_delivered()
            if self._timer is not None:
                self._timer.cancel()
            self._run()

    def _note_delivered(self) -> None:
        self._turn.arm()
        self._store.commit_log.write()
        self._mark.write(self._next_offsets(), self._delivered_end)

    def _deliver(self, level: int, physical_offset: int, due_ms: int, now_ms: int) -> bool:
        """Put the copy; return False to try again later. A message that can never be delivered is logged and dropped."""
        file = self._store.commit_log.mapped_files.file_at(physical_offset)
        try:
            if file is None:
                raise BadRecordError("the record does not exist")
            message = delivered_message(file.view, physical_offset - file.start_offset)
        except ValueError as error:
            log.error("delay level %d: the message at physical offset %d is lost: %s", level, physical_offset, error)
            return True
        try:
            result = self.sink.put(message, physical_offset)
        except OSError as error:
            result = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if result is UNDER_WAY:
            return False
        if result.status is not _PUT_OK:
            self.put_failed()
            log.error("delay level %d: cannot deliver to %s: %s", level, message.topic, result.reason or result.status.name)
            return result.status in _UNSTORABLE
        self._delivered_end = max(self._delivered_end, result.end_offset)
        self.delivered((now_ms - due_ms) / 1000)
        return True

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done before a timer expires, and nothing is to be tried again."""
        if self._failed:
            return False
        return self._timer is None or self._timer.is_cancelled or self._timer.when_ms > 0

    # --- queries ----------------------------------------------------------------------------------------------------

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no message waiting for delivery lies in the CommitLog before `end_offset`."""
        failed = (failed.physical_offset for failed in self._failed)
        heads = (row.units[-1][0] for row in self._rows.values() if row.is_queued)
        return all(physical_offset >= end_offset for physical_offset in (*failed, *heads))

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return level -> (next queue offset, max queue offset) of levels ever used."""
        found = {}
        for level, row in self._rows.items():
            queue = self._store.queue(SCHEDULE_TOPIC, row.queue_id)
            if queue is not None:
                found[level] = (row.next_offset, queue.max_offset)
        return found

    # --- the file ---------------------------------------------------------------------------------------------------

    def persist_in(self, executor: Executor) -> None:
        """Write in `executor` the offsets whose copies are synced; newer offsets are written by a later call."""
        if self._unwritten is not None and self._unwritten[0] <= self._store.flushed_offset:
            executor.submit(self._write, self._unwritten[1])
            self._unwritten = None
        if self._delivered_end <= self._store.flushed_offset:
            executor.submit(self._write, self.encode())
            self._unwritten = None
        elif self._unwritten is None:
            self._unwritten = (self._delivered_end, self.encode())

    def mark_in(self, executor: Executor) -> None:
        """Write the mark to disk in `executor`. To be called every second."""
        self._mark.persist_in(executor)

    def close(self) -> None:
        """Complete the mark after the store has synced its log. Raises OSError."""
        self._mark.write(self._next_offsets(), self._delivered_end)
        self._mark.close()

    def _next_offsets(self) -> dict[int, int]:
        offsets = {level: row.next_offset for level, row in self._rows.items()}
        for failed in self._failed:
            offsets[failed.level] = min(offsets[failed.level], failed.queue_offset)
        return offsets

    def encode(self) -> dict[str, Any]:
        offsets = self._next_offsets()
        return {"offsetTable": {level: offset for level, offset in offsets.items() if offset or level in self._in_file}}

    def begin_at(self, level: int, next_offset: int) -> None:
        """Continue `level` at `next_offset`. To be called before `start`."""
        self._row(level).next_offset = next_offset

    def next_offset(self, level: int) -> int:
        """Return the queue offset before which everything of `level` is delivered."""
        return max(self._row(level).next_offset, self.marked_to(level))

    def marked_to(self, level: int) -> int:
        """Return the queue offset before which everything is delivered according to the mark; 0 if unknown."""
        return self._mark.delivered_to(level)

    def decode(self, document: dict[str, Any]) -> None:
        for level, next_offset in (document.get("offsetTable") or {}).items():
            self.begin_at(int(level), int(next_offset))
            self._in_file.add(int(level))

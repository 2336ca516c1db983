"""The messages of the levels in `messageDelayLevel`.

A delayed message waits as a record in SCHEDULE_TOPIC_XXXX, queue = level - 1, and the tags code of its queue unit is its due
time. So each level is a queue sorted by due time, of which only the head matters. The heads of all levels are in a heap. A
level without messages is not in the heap; an arrival adds it.

The stored property string of a copy still has DELAY, REAL_TOPIC and REAL_QID, as Apache's has (ScheduleMessageService makes
it before it removes them). The property map that the store reads has no DELAY, and the copy goes to the store directly, so
it is not delayed again.

The next queue offset of each level is saved in `config/delayOffset.json`. It is written only after the copies delivered
before it are synced: otherwise a power cut could lose the copy of a message that counts as delivered. PocketMQ's own mark
(`progress.LevelMark`) is newer.
"""

import heapq
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple

from pocketmq.broker.context import Context
from pocketmq.broker.delay.cancel import DelayCancelled
from pocketmq.broker.delay.progress import LevelMark, WriteBehindSync
from pocketmq.broker.delay.records import delivered_message, record_at
from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT, EXT_ADDRESS_MAX, HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC, Arrival, Message

log = logging.getLogger("broker")

UNITS_READ: Final = 32


class DueLevelMessage(NamedTuple):
    """A message of a level. `place_before`: physical offset of the record before it in its queue, or -1. Sorted by due
    time."""

    due_ms: int
    physical_offset: int
    level: int
    queue_offset: int
    place_before: int


class _Level:
    """Position in one level's queue. `units` are read ahead, starting at `next_offset`."""

    __slots__ = ("delay_ms", "is_queued", "next_offset", "place_before", "queue_id", "units", "waiting")

    def __init__(self, level: int, delay_ms: int | None) -> None:
        self.queue_id = level - 1
        self.delay_ms = delay_ms
        self.next_offset = 0
        self.place_before = -1  # the physical offset of the record before `next_offset`
        self.is_queued = False
        self.units: list[tuple[int, int, int]] = []
        self.waiting: dict[int, DueLevelMessage] = {}
        """Messages before `next_offset` that are to be tried again, by queue offset."""

    def skip(self) -> None:
        """Move past the first unit."""
        self.place_before = self.units.pop()[0]
        self.next_offset += 1

    @property
    def delivered_to(self) -> tuple[int, int]:
        """The queue offset before which everything is delivered, and the physical offset of the record before it."""
        if not self.waiting:
            return self.next_offset, self.place_before
        first = self.waiting[min(self.waiting)]
        return first.queue_offset, first.place_before


class LevelSource(ConfigManager):
    """The levels as a `Source`, and their progress."""

    topic: Final = SCHEDULE_TOPIC
    row: Final = ()
    loaded_to_ms: Final = FAR_MS
    load_ms: Final = FAR_MS
    is_held_up: Final = False

    def __init__(self, context: Context, file: ConfigFile, cancelled: DelayCancelled, mark: LevelMark) -> None:
        super().__init__(file, context.clock)
        self._mark = mark
        self._cancelled = cancelled
        self._steps = context.steps
        self._store, self._queues = context.store, context.store.queues
        self.levels = levels = context.store.delay_levels
        self._rows = {level: _Level(level, levels.delay_ms(level)) for level in range(1, levels.level_max + 1)}
        self._changed: set[int] = set()  # levels with progress since the last mark
        self._in_file: set[int] = set()
        self._heads: list[DueLevelMessage] = []  # a heap
        self.due_ms = FAR_MS
        self.near = self
        self.delivered_total = 0
        self.delivered: Callable[[float, int], object] = lambda lateness_s, count: None
        self._copies_end = 0  # the end of the newest copy
        self._writer = WriteBehindSync(context.store)

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Correct the offsets against the queues, and read the first messages. May follow a `stop`."""
        for queue in self._queues:
            if queue.topic == SCHEDULE_TOPIC:
                # Also levels no longer in the table: their messages are delivered at their time.
                self._row(queue.queue_id + 1)
        self._heads, self.due_ms = [], FAR_MS
        for level, row in self._rows.items():
            row.units, row.is_queued, row.waiting = [], False, {}
            self._correct(level, row)
            row.place_before = self._mark.place_before(level, row.next_offset)
            self._queue_head(level, row)
        self._changed.update(self._rows)
        self._write_mark()

    def stop(self) -> None:
        """Return to the first messages that are not delivered."""
        self._heads, self.due_ms = [], FAR_MS
        for row in self._rows.values():
            row.next_offset, row.place_before = row.delivered_to
            row.waiting = {}

    def calendar_set(self) -> None:
        self._heads = [head._replace(due_ms=self._due_ms(self._rows[head.level])) for head in self._heads]
        heapq.heapify(self._heads)
        self.due_ms = self._heads[0].due_ms if self._heads else FAR_MS

    def _row(self, level: int) -> _Level:
        row = self._rows.get(level)
        if row is None:
            row = self._rows[level] = _Level(level, None)
        return row

    def _correct(self, level: int, row: _Level) -> None:
        queue = self._queues.get(SCHEDULE_TOPIC, row.queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        marked = self.marked_to(level)
        if marked > row.next_offset:
            log.info("delay level %d continues at offset %d: its mark file is newer than %s", level, marked, self.file.path)
            row.next_offset = marked
        if not low <= row.next_offset <= high:
            log.warning("delay level %d: offset %d is outside %d..%d; corrected", level, row.next_offset, low, high)
            row.next_offset = min(max(row.next_offset, low), high)

    # --- heads ------------------------------------------------------------------------------------------------------

    def enter(self, arrivals: Sequence[Arrival], now_ms: int) -> float | None:
        for arrival in arrivals:
            level = arrival.queue_id + 1
            row = self._row(level)
            if not row.is_queued:  # it was empty
                self._queue_head(level, row)
        return None

    def load_some(self, until_ms: int, now_ms: int) -> bool:
        return False

    def pop(self) -> DueLevelMessage:
        due = heapq.heappop(self._heads)
        level = due.level
        row = self._rows[level]
        row.skip()
        row.is_queued = False
        self._changed.add(level)
        self._queue_head(level, row)
        self.due_ms = self._heads[0].due_ms if self._heads else FAR_MS
        return due

    def together(self, until_ms: int, count_max: int) -> Sequence[DueLevelMessage]:
        return ()

    def remove_first(self, count: int) -> None:
        for _ in range(count):
            self.pop()

    def copy(self, due: DueLevelMessage, now_ms: int) -> Message | None:
        cancelled_end = self._cancelled.end_of(due.level, due.queue_offset)
        if cancelled_end is not None:
            self._copies_end = max(self._copies_end, cancelled_end)
            return None
        return delivered_message(*record_at(self._store, due.physical_offset))

    def wait(self, due: DueLevelMessage) -> None:
        self._rows[due.level].waiting[due.queue_offset] = due

    def done(self, due: DueLevelMessage) -> None:
        self._rows[due.level].waiting.pop(due.queue_offset, None)
        self._changed.add(due.level)

    def _queue_head(self, level: int, row: _Level) -> None:
        """Put the level's first message into the heap, if any. Units without a record are skipped."""
        while not row.units or row.units[-1][2] == HOLE_TAGS_CODE:
            if row.units:
                row.skip()
            else:
                self._read_ahead(row)
                if not row.units:
                    return
        row.is_queued = True
        due_ms = self._due_ms(row)
        heapq.heappush(self._heads, DueLevelMessage(due_ms, row.units[-1][0], level, row.next_offset, row.place_before))
        self.due_ms = self._heads[0].due_ms

    def _read_ahead(self, row: _Level) -> None:
        queue = self._queues.get(SCHEDULE_TOPIC, row.queue_id)
        if queue is None:
            return
        if row.next_offset < queue.min_offset:
            row.next_offset = queue.min_offset  # older records were deleted before their delay was over
            row.place_before = -1
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

    # --- queries ----------------------------------------------------------------------------------------------------

    def may_remove(self, end_offset: int) -> bool:
        rows = self._rows.values()
        waiting = (due.physical_offset for row in rows for due in row.waiting.values())
        heads = (row.units[-1][0] for row in rows if row.is_queued)
        return all(physical_offset >= end_offset for physical_offset in (*waiting, *heads))

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return level -> (next queue offset, max queue offset) of levels ever used."""
        found = {}
        for level, row in self._rows.items():
            queue = self._queues.get(SCHEDULE_TOPIC, row.queue_id)
            if queue is not None:
                found[level] = (row.next_offset, queue.max_offset)
        return found

    # --- progress ---------------------------------------------------------------------------------------------------

    def mark(self, copies_end: int, now_ms: int) -> None:
        self._copies_end = max(self._copies_end, copies_end)
        self._write_mark()

    def _write_mark(self) -> None:
        if self._changed:
            self._mark.write({level: self._rows[level].delivered_to for level in self._changed}, self._copies_end)
            self._changed.clear()

    def mark_in(self, executor: Executor, now_ms: int) -> None:
        self._mark.write_in(executor)

    def close(self) -> None:
        self._writer.finish()
        self._write_mark()
        self._mark.close()

    def persist_in(self, executor: Executor) -> None:
        """Write in `executor` the offsets whose copies are synced; newer offsets are written by a later call."""
        self._writer.write_in(executor, self._copies_end, partial(self._try, self.snapshot()))

    def encode(self) -> dict[str, Any]:
        offsets = {level: row.delivered_to[0] for level, row in self._rows.items()}
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

"""Entering messages from the timer topic's queue into the timer wheel.

Each record is read once, and a unit is appended to its slot. Entering many at once is cheaper than one by one. Therefore
only the first few messages of each interval ENTER_EVERY_MS are entered as they arrive; the others are deferred until the
interval is over or there are enough of them, unless one of them may be due earlier.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from pocketmq.broker.delay.delivered_copies import WINDOW_MS
from pocketmq.broker.delay.records import TimerReader, TimerRecord
from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.broker.delay.unit_check import Mask, UnitCheck
from pocketmq.broker.delay.wheel_loader import WheelLoader
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.runtime.clock import Clock
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    HOLE_TAGS_CODE,
)
from pocketmq.store.format.layout import TIMER_MAGIC_DEFAULT as MESSAGE
from pocketmq.store.format.layout import TIMER_MAGIC_DELETE as CANCELS
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_log import Numbers
from pocketmq.store.timer.timer_store import RecoveredTimers, TimerStore

log = logging.getLogger("broker")

ENTERED_AT_ONCE: Final = 500
ENTERED_AGAIN_AT_ONCE: Final = 8192
ENTER_EVERY_MS: Final = 25
"""Interval in ms whose messages are entered together, which is cheaper for each of them."""
ENTERED_AS_THEY_COME: Final = 8
MANY: Final = 20
"""From this number of messages on, entering together is faster than one by one."""
RESIDENT_MAX: Final = 64 << 20
"""Limit of resident memory of store files while timers are entered again."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the task, bytes done and bytes in total."""


_Row = tuple[int, int, int, TimerRecord | None]
"""Queue offset, physical offset and size of a unit of the timer queue, and its record; None if that is lost."""
_LOST: Final = TimerRecord(0, 0, False, 0, 0)


class _Columns:
    """Rows as columns."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self.records = records = [row[3] or _LOST for row in rows]
        self.queue_offsets = np.array([row[0] for row in rows], np.int64)
        self.places = np.array([row[1] for row in rows], np.int64)
        self.sizes = np.array([row[2] for row in rows], np.int64)
        self.found = np.array([row[3] is not None for row in rows], np.bool_)
        self.outs_ms = np.array([record.out_ms for record in records], np.int64)
        self.dues_ms = np.array([record.due_ms for record in records], np.int64)
        self.stores_ms = np.array([record.store_timestamp_ms for record in records], np.int64)
        self.topic_hashes = np.array([record.topic_hash for record in records], np.int64)
        self.cancels = np.array([record.cancels is not None for record in records], np.bool_)


class WheelEntry:
    """Reader of the timer queue that fills the wheel.

    Units before `queue_offset` are entered. `refusal` is the reason why none can be entered at present, or None.
    """

    def __init__(
        self, store: MessageStore, timer_store: TimerStore, loader: WheelLoader, reader: TimerReader, clock: Clock
    ) -> None:
        self.queue_offset = 0
        self.refusal: str | None = None
        self._store, self._queues = store, store.queues
        self._timer_store = timer_store
        self._loader = loader
        self._reader = reader
        self._clock = clock
        # Until this monotonic time only a limited number is entered on arrival.
        self._window_end_s = 0.0
        self._window_left = 0
        self.soonest_ms = FAR_MS
        """Lower bound of TIMER_OUT_MS of messages not yet entered."""
        self.maybe_delivered: list[tuple[int, int]] = []
        """(due time, physical offset) of messages entered again that were due before the log's last record."""

    def expect(self, out_ms: int) -> None:
        """Announce that a message with this TIMER_OUT_MS will be put into the timer topic."""
        if out_ms < self.soonest_ms:
            self.soonest_ms = out_ms

    def is_put_off(self, now_ms: int) -> bool:
        """Whether messages not yet entered can wait for more to arrive."""
        if self._window_left > 0 or self._clock.monotonic() >= self._window_end_s:
            return False
        can_wait = self.soonest_ms > now_ms + ENTER_EVERY_MS
        return can_wait and self._store.max_offset(TIMER_TOPIC, 0) < self.queue_offset + ENTERED_AT_ONCE

    def enter(self, now_ms: int) -> bool:
        """Enter the next messages of the timer queue; return whether more can be entered now."""
        queue_offset, units, max_offset = self._next_units(ENTERED_AT_ONCE)
        try:
            if len(units) < MANY * CONSUME_QUEUE_UNIT_SIZE:
                self._enter_few(queue_offset, units, now_ms)
            else:
                found = _Columns(tuple(self._read(queue_offset, units)))
                self._enter_many(found, found.found, np.full(len(found.places), now_ms))
        except OSError as error:
            if self.refusal is None:
                log.error("timer messages cannot be added to the timer wheel: %s; trying again", error)
            self.refusal = f"timer messages cannot be added to the timer wheel: {error}"
            return False
        self.refusal = None
        count = len(units) // CONSUME_QUEUE_UNIT_SIZE
        self.queue_offset = queue_offset + count
        if (now_s := self._clock.monotonic()) >= self._window_end_s:
            self._window_end_s, self._window_left = now_s + ENTER_EVERY_MS / 1000, ENTERED_AS_THEY_COME
        self._window_left -= count
        if self.queue_offset < max_offset:
            return True
        self.soonest_ms = FAR_MS
        return False

    def enter_again(self, recovered: RecoveredTimers, progress: Progress | None) -> None:
        """Enter all undelivered messages again, because the files were lost or belong to another broker.

        Raises OSError if there is no space.
        """
        if recovered.entered_to >= 0:
            timer_store = self._timer_store
            written_ms = timer_store.written_ms or self._clock.message_time_ms()
            check = UnitCheck(
                timer_store.unit_parts(),
                timer_store.read_time_ms,
                written_ms,
                recovered.entered_to,
                timer_store.roll_delays_ms,
                self._store.min_physical_offset,
            )
            self._go_through(recovered, progress, check)
            problem = check.finish()
            if not problem:
                return
            self._timer_store.start_over(problem)
            recovered = recovered._replace(entered_to=-1)
        self._go_through(recovered, progress, None)

    def _go_through(self, recovered: RecoveredTimers, progress: Progress | None, check: UnitCheck | None) -> None:
        end = self._store.max_offset(TIMER_TOPIC, 0)
        due_before_ms, place_before = recovered.delivered_before
        last_ms = self._store.commit_log.last_store_timestamp_ms
        # Not if the progress is unknown or old: there could be any number of deliveries.
        from_ms = last_ms - WINDOW_MS if due_before_ms > last_ms - WINDOW_MS else last_ms
        self.maybe_delivered.clear()
        resident_max = min(RESIDENT_MAX, self._store.config.mapped_memory_resident_max)
        self.queue_offset = 0
        while (next_units := self._next_units(ENTERED_AGAIN_AT_ONCE))[1]:
            queue_offset, units, _ = next_units
            found = _Columns(tuple(self._read(queue_offset, units)))
            places, dues_ms = found.places, found.dues_ms
            if check is not None:
                check.take(places, found.sizes, found.outs_ms, found.stores_ms, found.found)
                if check.problem:
                    return
            pending = (dues_ms > due_before_ms) | ((dues_ms == due_before_ms) & (places >= place_before))
            pending |= found.queue_offsets >= recovered.queue_offset
            due = pending & found.found & (dues_ms <= last_ms) & (dues_ms > from_ms)
            self.maybe_delivered += zip(dues_ms[due].tolist(), places[due].tolist(), strict=True)
            bases = self._timer_store.roll_base(found.stores_ms, self._clock.message_time_ms())
            wanted = (pending | found.cancels) & found.found & (places > recovered.entered_to)
            self._enter_many(found, wanted, bases)
            self.queue_offset = queue_offset + len(units) // CONSUME_QUEUE_UNIT_SIZE
            self._timer_store.mark(0, self.queue_offset)
            self._store.open_files.release_memory(self._store.commit_log.mapped_files.files, resident_max)
            if progress is not None:
                progress("timers", self.queue_offset * CONSUME_QUEUE_UNIT_SIZE, end * CONSUME_QUEUE_UNIT_SIZE)

    def _next_units(self, count_max: int) -> tuple[int, memoryview, int]:
        """Return the next units of the timer queue, the queue offset of the first, and the queue's max offset."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None:
            return self.queue_offset, memoryview(b""), 0
        queue_offset = max(self.queue_offset, queue.min_offset)
        return queue_offset, queue.units(queue_offset, count_max), queue.max_offset

    def _read(self, queue_offset: int, units: memoryview) -> Iterator[_Row]:
        for number, (physical_offset, size, code) in enumerate(CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units)):
            if code != HOLE_TAGS_CODE:
                yield queue_offset + number, physical_offset, size, self._reader.read(physical_offset)

    def _enter_many(self, found: _Columns, wanted: Mask, write_times_ms: Numbers) -> None:
        """Append units of the wanted rows to their slots; rows whose slot is loaded are added to the due queue too.

        Raises OSError if there is no space; nothing is entered then.
        """
        rows = np.flatnonzero(wanted)
        times = self._timer_store.put_many(
            found.outs_ms[rows],
            write_times_ms[rows],
            found.places[rows],
            found.sizes[rows],
            found.topic_hashes[rows],
            np.where(found.cancels[rows], MESSAGE | CANCELS, MESSAGE),
        )
        for index in self._loader.added(times):
            row = int(rows[index])
            self._loader.take(found.records[row], int(found.places[row]), int(times[index]))

    def _enter_few(self, queue_offset: int, units: memoryview, now_ms: int) -> None:
        """Enter as `_enter_many` does, one by one; the queue offset moves past each entered unit."""
        for at, physical_offset, size, record in self._read(queue_offset, units):
            if record is not None:
                magic = MESSAGE if record.cancels is None else MESSAGE | CANCELS
                slot_ms = self._timer_store.put(record.out_ms, now_ms, physical_offset, size, record.topic_hash, magic)
                self._loader.take_added(record, physical_offset, slot_ms)
            self.queue_offset = at + 1

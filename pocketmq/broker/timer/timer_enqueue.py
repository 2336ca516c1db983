"""Entering messages from the timer topic's queue into the timer wheel.

Each record is read once, and a unit is appended to its slot. Entering many at once is cheaper than one by one. Therefore
only the first few messages of each interval ENTER_EVERY_MS are entered as they arrive; the others are deferred until the
interval is over or there are enough of them, unless one of them may be due earlier.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import numpy as np

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.timer.delivered_copies import WINDOW_MS
from pocketmq.broker.timer.timer_columns import MANY, Mask, TimerColumns, read_columns, topic_hash
from pocketmq.broker.timer.timer_record import TimerRecord, plain_times, read_timer_record, timer_record
from pocketmq.broker.timer.unit_check import UnitCheck
from pocketmq.broker.timer.wheel_loader import WheelLoader
from pocketmq.runtime.clock import Clock
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    HOLE_TAGS_CODE,
)
from pocketmq.store.format.layout import TIMER_MAGIC_DEFAULT as MESSAGE
from pocketmq.store.format.layout import TIMER_MAGIC_DELETE as CANCELS
from pocketmq.store.format.message import PutResult
from pocketmq.store.format.record import BadRecordError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_log import Numbers
from pocketmq.store.timer.timer_store import RecoveredTimers, TimerStore

log = logging.getLogger("broker")

ENTERED_AT_ONCE: Final = 500
ENTERED_AGAIN_AT_ONCE: Final = 8192
ENTER_EVERY_MS: Final = 25
"""Interval in ms whose messages are entered together, which is cheaper for each of them."""
ENTERED_AS_THEY_COME: Final = 8
_FAR_MS: Final = 1 << 62
_KNOWN_MAX: Final = 4096
RESIDENT_MAX: Final = 64 << 20
"""Limit of resident memory of store files while timers are entered again."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the task, bytes done and bytes in total."""


class _Rows(NamedTuple):
    """Units of the timer queue and the content of their records, one row each."""

    queue_offsets: Numbers
    physical_offsets: Numbers
    sizes: Numbers
    columns: TimerColumns


class TimerReader:
    """Reader of the timer topic's records. An unreadable record is logged and skipped."""

    def __init__(self, store: MessageStore, precision_ms: int) -> None:
        self._store = store
        self._files = store.commit_log.mapped_files
        self._precision_ms = precision_ms
        # Records by physical offset that need not be read.
        self._known: dict[int, TimerRecord] = {}

    def remember(self, properties: dict[str, str], result: PutResult) -> None:
        """Keep the content of a record from the properties with which it was put, so that the record need not be read."""
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        record = timer_record(properties, result.size, result.store_timestamp_ms, self._precision_ms)
        self._known[result.physical_offset] = record

    def read(self, physical_offset: int) -> TimerRecord | None:
        """Return the record at a physical offset; None if it is gone or not of the timer topic."""
        if (known := self._known.pop(physical_offset, None)) is not None:
            return known
        file = self._files.file_at(physical_offset)
        try:
            if file is None:
                raise BadRecordError("there is no such record")
            return read_timer_record(file.view[: file.wrote], self._precision_ms, physical_offset - file.start_offset)
        except ValueError as error:
            if physical_offset >= self._store.min_physical_offset:
                log.error("the timer message at physical offset %d is lost: %s", physical_offset, error)
            return None

    def plain_times(self, physical_offset: int, size: int) -> tuple[int, int, bool, int] | None:
        """Return `timer_record.plain_times` of the record there; None if `read` must be used."""
        file = self._files.file_at(physical_offset)
        if file is None or (position := physical_offset - file.start_offset) + size > file.wrote:
            return None
        return plain_times(file.view, position)

    def read_many(self, physical_offsets: Numbers, sizes: Numbers) -> TimerColumns:
        """Read many records of known sizes; records that cannot be read are logged as by `read`."""
        if self._known:
            known = [self._known.pop(physical_offset, None) for physical_offset in physical_offsets.tolist()]
            if None not in known:
                return TimerColumns.of(cast("list[TimerRecord]", known))
        return read_columns(self._files, physical_offsets, sizes, self.read)


class TimerEnqueue:
    """Reader of the timer queue that fills the wheel.

    Units before `queue_offset` are entered. `refusal` is the reason why none can be entered at present, or None.
    """

    def __init__(
        self, store: MessageStore, timer_store: TimerStore, loader: WheelLoader, reader: TimerReader, clock: Clock
    ) -> None:
        self.queue_offset = 0
        self.refusal: str | None = None
        self._store = store
        self._timer_store = timer_store
        self._loader = loader
        self._reader = reader
        self._clock = clock
        # Until this monotonic time only a limited number is entered on arrival.
        self._window_end_s = 0.0
        self._window_left = 0
        self.soonest_ms = _FAR_MS
        """Lower bound of TIMER_OUT_MS of messages not yet entered."""
        self.maybe_delivered: list[tuple[int, int]] = []
        """(due time, physical offset) of messages entered again that were due before the log's last record."""

    def expect(self, out_ms: int) -> None:
        """Announce that a message with this TIMER_OUT_MS will be put into the timer topic."""
        if out_ms < self.soonest_ms:
            self.soonest_ms = out_ms

    @property
    def is_put_off(self) -> bool:
        """Whether messages not yet entered can wait for more to arrive."""
        if self._window_left > 0 or self._clock.monotonic() >= self._window_end_s:
            return False
        can_wait = self.soonest_ms > self._clock.message_time_ms() + ENTER_EVERY_MS
        return can_wait and self._store.max_offset(TIMER_TOPIC, 0) < self.queue_offset + ENTERED_AT_ONCE

    def enter(self) -> bool:
        """Enter the next messages of the timer queue; return whether more can be entered now."""
        queue_offset, units = self._next_units(ENTERED_AT_ONCE)
        try:
            if len(units) < MANY * CONSUME_QUEUE_UNIT_SIZE:
                self._enter_few(queue_offset, units)
            elif (rows := self._read(queue_offset, units)) is not None:
                self._append_units(rows, rows.columns.found, np.full(len(rows.sizes), self._clock.message_time_ms()))
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
        if self.queue_offset < self._store.max_offset(TIMER_TOPIC, 0):
            return True
        self.soonest_ms = _FAR_MS
        return False

    def enter_again(self, recovered: RecoveredTimers, progress: Progress | None) -> None:
        """Enter all undelivered messages again, because the files were lost or belong to another broker.

        Raises OSError if there is no space.
        """
        if recovered.entered_to >= 0:
            timer_store = self._timer_store
            written_ms = timer_store.written_ms or self._clock.message_time_ms()
            check = UnitCheck(
                timer_store.all_units(),
                timer_store.read_time_ms,
                written_ms,
                recovered.entered_to,
                timer_store.roll_delays_ms,
            )
            self._go_through(recovered, progress, check)
            problem = check.finish(self._store.min_physical_offset)
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
            queue_offset, units = next_units
            if (rows := self._read(queue_offset, units)) is not None:
                columns, places = rows.columns, rows.physical_offsets
                if check is not None:
                    check.take(places, rows.sizes, columns.outs_ms, columns.stores_ms, columns.found)
                    if check.problem:
                        return
                pending = (columns.dues_ms > due_before_ms) | ((columns.dues_ms == due_before_ms) & (places >= place_before))
                pending |= rows.queue_offsets >= recovered.queue_offset
                due = pending & columns.found & (columns.dues_ms <= last_ms) & (columns.dues_ms > from_ms)
                self.maybe_delivered += zip(columns.dues_ms[due].tolist(), places[due].tolist(), strict=True)
                pending |= columns.cancels()
                now_ms = self._clock.message_time_ms()
                bases = self._timer_store.roll_base(columns.stores_ms, now_ms)
                self._append_units(rows, columns.found & pending & (places > recovered.entered_to), bases)
            self.queue_offset = queue_offset + len(units) // CONSUME_QUEUE_UNIT_SIZE
            self._timer_store.mark(0, self.queue_offset)
            self._store.open_files.release_memory(self._store.commit_log.mapped_files.files, resident_max)
            if progress is not None:
                progress("timers", self.queue_offset * CONSUME_QUEUE_UNIT_SIZE, end * CONSUME_QUEUE_UNIT_SIZE)

    def _next_units(self, count_max: int) -> tuple[int, memoryview]:
        """Return the next units of the timer queue and the queue offset of the first."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        if queue is None:
            return self.queue_offset, memoryview(b"")
        queue_offset = max(self.queue_offset, queue.min_offset)
        return queue_offset, queue.units(queue_offset, count_max)

    def _read(self, queue_offset: int, data: memoryview) -> _Rows | None:
        units = np.frombuffer(data, CONSUME_QUEUE_UNIT_DTYPE)
        whole = units["tags_code"] != HOLE_TAGS_CODE
        offsets, sizes = (units[name][whole].astype(np.int64) for name in ("physical_offset", "size"))
        if not len(offsets):
            return None
        return _Rows(queue_offset + np.flatnonzero(whole), offsets, sizes, self._reader.read_many(offsets, sizes))

    def _append_units(self, rows: _Rows, wanted: Mask, write_times_ms: Numbers) -> None:
        """Append units of the wanted rows to their slots; rows whose slot is loaded are added to the due queue too.

        Raises OSError if there is no space; nothing is entered then.
        """
        columns, numbers = rows.columns, np.flatnonzero(wanted)
        magics = np.where(columns.cancels(), MESSAGE | CANCELS, MESSAGE)
        times = self._timer_store.put_many(
            columns.outs_ms[numbers],
            write_times_ms[numbers],
            rows.physical_offsets[numbers],
            rows.sizes[numbers],
            columns.topic_hashes[numbers],
            magics[numbers],
        )
        near = times < self._loader.loaded_to_ms
        self._loader.take_rows(columns, numbers[near], rows.physical_offsets[numbers[near]], times[near])

    def _enter_few(self, queue_offset: int, units: memoryview) -> None:
        """Enter as `_append_units` does, one by one; the queue offset moves past each entered unit."""
        timer_store, loader, now_ms = self._timer_store, self._loader, self._clock.message_time_ms()
        for physical_offset, size, code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            if code != HOLE_TAGS_CODE and (record := self._reader.read(physical_offset)) is not None:
                magic = MESSAGE if record.cancels is None else MESSAGE | CANCELS
                slot_ms = timer_store.put(record.out_ms, now_ms, physical_offset, size, topic_hash(record.topic), magic)
                if slot_ms < loader.loaded_to_ms:
                    loader.take(record, physical_offset, slot_ms)
            queue_offset += 1
            self.queue_offset = queue_offset

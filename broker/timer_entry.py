"""From the timer topic's queue into the slots of the wheel: each record is read once, and a unit hung into its slot."""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.delivery_time import TIMER_TOPIC
from broker.slot_loader import SlotLoader
from broker.timer_record import TimerRecord, read_timer_record
from runtime.clock import Clock
from store.java_hash import java_hash
from store.layout import CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_STRUCT, HOLE_TAGS_CODE
from store.layout import TIMER_MAGIC_DEFAULT as MESSAGE
from store.layout import TIMER_MAGIC_DELETE as CANCELS
from store.message_store import MessageStore
from store.timer_store import RecoveredTimers, TimerStore

log = logging.getLogger("broker")

ENTERED_AT_ONCE: Final = 500
# From here on `put_many` is quicker.
_MANY: Final = 20

Progress = Callable[[str, int, int], None]
"""Called with what is done, bytes done and bytes to do."""


class _Row(NamedTuple):
    next_offset: int  # queue offset behind it
    physical_offset: int
    size: int
    record: TimerRecord


class TimerReader:
    """Records of the timer topic. What cannot be read is logged and left behind."""

    def __init__(self, store: MessageStore, precision_ms: int) -> None:
        self._store = store
        self._precision_ms = precision_ms

    def read(self, physical_offset: int) -> TimerRecord | None:
        """The record there; None when it is gone, or none of the timer topic."""
        view = self._store.message_at(physical_offset)
        if view is None:
            if physical_offset >= self._store.min_physical_offset:
                log.error("the timer message at %d is lost: there is no such record", physical_offset)
            return None
        try:
            return read_timer_record(view, self._precision_ms)
        except ValueError as error:
            log.error("the timer message at %d is lost: %s", physical_offset, error)
            return None


class TimerEntry:
    """`queue_offset`: what is before it is entered. `refusal` says why nothing can be, or is None."""

    def __init__(
        self, store: MessageStore, timer_store: TimerStore, loader: SlotLoader, reader: TimerReader, clock: Clock
    ) -> None:
        self.queue_offset = 0
        self.refusal: str | None = None
        self._store = store
        self._timer_store = timer_store
        self._loader = loader
        self._reader = reader
        self._clock = clock

    def enter(self) -> bool:
        """Enter some of what is next in the timer queue; whether there is more that can be entered now."""
        next_offset, rows = self._read_queue()
        try:
            self._hang(rows)
        except OSError as error:
            if self.refusal is None:
                log.error("timers cannot be entered: %s; trying again", error)
            self.refusal = f"timers cannot be entered: {error}"
            return False
        self.refusal = None
        self.queue_offset = next_offset
        return next_offset < self._store.max_offset(TIMER_TOPIC, 0)

    def enter_again(self, recovered: RecoveredTimers, progress: Progress | None) -> None:
        """The files were lost, or another broker's: go through the timer queue for what is not entered and not delivered.

        Raises OSError when there is no room.
        """
        end = self._store.max_offset(TIMER_TOPIC, 0)
        self.queue_offset = 0
        while (found := self._read_queue())[0] > self.queue_offset:
            next_offset, rows = found
            self._hang(
                [
                    row
                    for row in rows
                    if row.physical_offset > recovered.entered_to
                    and (
                        row.next_offset > recovered.queue_offset
                        or (row.record.due_ms, row.physical_offset) >= recovered.delivered_before
                        or row.record.cancels is not None
                    )
                ]
            )
            self.queue_offset = next_offset
            self._timer_store.mark(0, next_offset)
            if progress is not None:
                progress("timers", next_offset * CONSUME_QUEUE_UNIT_SIZE, end * CONSUME_QUEUE_UNIT_SIZE)

    def _read_queue(self) -> tuple[int, list[_Row]]:
        """What is next in the timer queue; the queue offset behind it."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        if queue is None:
            return self.queue_offset, []
        queue_offset = max(self.queue_offset, queue.min_offset)
        rows: list[_Row] = []
        units = queue.units(queue_offset, ENTERED_AT_ONCE)
        for physical_offset, size, code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            queue_offset += 1
            if code != HOLE_TAGS_CODE and (record := self._reader.read(physical_offset)) is not None:
                rows.append(_Row(queue_offset, physical_offset, size, record))
        return queue_offset, rows

    def _hang(self, rows: list[_Row]) -> None:
        """Hang units for the records into their slots; what belongs into one that is loaded comes into the heap too.

        Raises OSError when there is no room; the queue offset is behind those that are entered.
        """
        timer_store, loader, now_ms = self._timer_store, self._loader, self._clock.message_time_ms()
        columns = [
            (
                row.record.out_ms,
                row.physical_offset,
                row.size,
                java_hash(row.record.topic),
                MESSAGE if row.record.cancels is None else MESSAGE | CANCELS,
            )
            for row in rows
        ]
        if len(rows) < _MANY:
            for (out_ms, physical_offset, size, topic_hash, magic), row in zip(columns, rows, strict=True):
                slot_ms = timer_store.put(out_ms, now_ms, physical_offset, size, topic_hash, magic)
                self.queue_offset = row.next_offset
                if slot_ms < loader.loaded_to_ms:
                    loader.take(row.record, physical_offset, slot_ms)
            return
        outs, offsets, sizes, hashes, magics = zip(*columns, strict=True)
        times = timer_store.put_many(outs, now_ms, offsets, sizes, hashes, magics).tolist()
        for slot_ms, row in zip(times, rows, strict=True):
            if slot_ms < loader.loaded_to_ms:
                loader.take(row.record, row.physical_offset, slot_ms)

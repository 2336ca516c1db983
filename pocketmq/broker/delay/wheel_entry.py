"""Entering messages from the timer topic's queue into the timer wheel.

Each record is read once, and a unit is appended to its slot. Entering many at once is cheaper than one by one. Therefore
only the messages of the first turn of each interval ENTER_EVERY_MS are entered as they arrive; the others are deferred until
the interval is over or there are enough of them, unless one of them may be due earlier.
"""

import logging
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.broker.delay.delivered_copies import WINDOW_MS
from pocketmq.broker.delay.due_queue import NearTimer
from pocketmq.broker.delay.records import TimerReader, TimerRecord
from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.broker.delay.unit_check import UnitCheck
from pocketmq.broker.delay.wheel_loader import WheelLoader
from pocketmq.broker.due_work import RETRY_AFTER_S
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
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.timer.timer_log import Numbers
from pocketmq.store.timer.timer_store import RecoveredTimers, TimerStore

log = logging.getLogger("broker")

ENTERED_AT_ONCE: Final = 500
ENTERED_AGAIN_AT_ONCE: Final = 8192
ENTER_EVERY_MS: Final = 25
"""Interval in ms whose messages are entered together, which is cheaper for each of them."""
RESIDENT_MAX: Final = 64 << 20
"""Limit of resident memory of store files while timers are entered again."""

Mask = npt.NDArray[np.bool_]
Progress = Callable[[str, int, int], None]
"""Called with the name of the task, bytes done and bytes in total."""
_LOST: Final = TimerRecord(0, 0, False, 0, 0)


class _Columns:
    """Units of the timer queue as columns, with the fields of their records: `records`, zeros without a record."""

    def __init__(self, queue_offset: int, units: memoryview, read: Callable[[int], TimerRecord | None]) -> None:
        rows = [
            (queue_offset + number, physical_offset, size, read(physical_offset))
            for number, (physical_offset, size, code) in enumerate(CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units))
            if code != HOLE_TAGS_CODE
        ]
        self.records = records = [row[3] or _LOST for row in rows]
        numbers = [(*row[:3], row[3] is not None, *record[:5]) for row, record in zip(rows, records, strict=True)]
        columns = np.array(numbers, np.int64).reshape(-1, 9).T
        self.queue_offsets, self.places, self.sizes, found, self.outs_ms, self.dues_ms = columns[:6]
        self.stores_ms, self.topic_hashes = columns[7:]
        self.found = found != 0
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
        self._store = store
        self._queues = store.queues
        self._timer_store = timer_store
        self._loader = loader
        self._reader = reader
        self._clock = clock
        # Until this monotonic time messages may wait for more to arrive.
        self._window_end_s = 0.0
        self.soonest_ms = FAR_MS
        """Lower bound of TIMER_OUT_MS of messages not yet entered."""
        self.maybe_delivered: list[tuple[int, int]] = []
        """(due time, physical offset) of messages entered again that were due before the log's last record."""

    def expect(self, out_ms: int) -> None:
        """Announce that a message with this TIMER_OUT_MS will be put into the timer topic."""
        if out_ms < self.soonest_ms:
            self.soonest_ms = out_ms

    def enter(self, now_ms: int) -> float | None:
        """Enter the next messages of the timer queue, if they should not wait for more to arrive. Return None if nothing is
        left, else the seconds after which to go on."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is None or queue.max_offset <= self.queue_offset:
            return None
        now_s = self._clock.monotonic()
        if self._is_put_off(queue.max_offset, now_s, now_ms):
            return ENTER_EVERY_MS / 1000
        if not self._enter_some(queue, now_ms):
            return RETRY_AFTER_S
        if now_s >= self._window_end_s:
            self._window_end_s = now_s + ENTER_EVERY_MS / 1000
        if self.queue_offset < queue.max_offset:
            return 0.0
        self.soonest_ms = FAR_MS
        return None

    def _is_put_off(self, max_offset: int, now_s: float, now_ms: int) -> bool:
        """Return whether messages not yet entered can wait for more to arrive."""
        can_wait = now_s < self._window_end_s and self.soonest_ms > now_ms + ENTER_EVERY_MS
        return can_wait and max_offset < self.queue_offset + ENTERED_AT_ONCE

    def enter_all(self) -> None:
        """Enter all messages, also those that could wait."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        while queue is not None and self.queue_offset < queue.max_offset:
            if not self._enter_some(queue, self._clock.message_time_ms()):
                return
        self.soonest_ms = FAR_MS

    def _enter_some(self, queue: ConsumeQueue, now_ms: int) -> bool:
        """Enter some messages; return False if there is no room for them."""
        queue_offset = max(self.queue_offset, queue.min_offset)
        units = queue.units(queue_offset, ENTERED_AT_ONCE)
        found = _Columns(queue_offset, units, self._reader.read)
        try:
            self._enter(found, found.found, now_ms)
        except OSError as error:
            if self.refusal is None:
                log.error("timer messages cannot be added to the timer wheel: %s; trying again", error)
            self.refusal = f"timer messages cannot be added to the timer wheel: {error}"
            return False
        self.refusal = None
        self.queue_offset = queue_offset + len(units) // CONSUME_QUEUE_UNIT_SIZE
        return True

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
        queue = self._queues.get(TIMER_TOPIC, 0)
        while queue is not None and self.queue_offset < queue.max_offset:
            queue_offset = max(self.queue_offset, queue.min_offset)
            units = queue.units(queue_offset, ENTERED_AGAIN_AT_ONCE)
            found = _Columns(queue_offset, units, self._reader.read)
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
            self._enter(found, wanted, bases)
            self.queue_offset = queue_offset + len(units) // CONSUME_QUEUE_UNIT_SIZE
            self._timer_store.mark(0, self.queue_offset)
            self._store.open_files.release_memory(self._store.commit_log.mapped_files.files, resident_max)
            if progress is not None:
                progress("timers", self.queue_offset * CONSUME_QUEUE_UNIT_SIZE, end * CONSUME_QUEUE_UNIT_SIZE)

    def _enter(self, found: _Columns, wanted: Mask, write_times_ms: Numbers | int) -> None:
        """Append units of the wanted rows to their slots; rows whose slot is loaded are added to the due queue too.

        Raises OSError if there is no space; nothing is entered then.
        """
        rows = np.flatnonzero(wanted)
        times = self._timer_store.put_many(
            found.outs_ms[rows],
            write_times_ms if isinstance(write_times_ms, int) else write_times_ms[rows],
            found.places[rows],
            found.sizes[rows],
            found.topic_hashes[rows],
            np.where(found.cancels[rows], MESSAGE | CANCELS, MESSAGE),
        )
        timers: list[NearTimer] = []
        for index in np.flatnonzero(times < self._loader.loaded_to_ms).tolist():
            row = int(rows[index])
            timers += self._loader.timers_of(found.records[row], int(found.places[row]), int(times[index]))
        self._loader.entered(times, timers)

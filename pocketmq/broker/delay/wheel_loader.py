"""Loading the slots of the timer wheel into the due queue.

A slot covers a second; the exact millisecond is only in a message's record. Therefore slots are loaded shortly before their
time, some records at a time; empty ones cause no work. Units that only pass through a slot are rolled into their next one
when the slot's second is over; only then may the read time move past the slot. (An Apache broker that took over the store
earlier would find such a unit in both slots.)
"""

import logging
from collections import deque
from collections.abc import Iterator, Set
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.broker.delay.cancel import superseded_key
from pocketmq.broker.delay.due_queue import DueQueue, NearTimer
from pocketmq.broker.delay.records import TimerReader, TimerRecord
from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.runtime.clock_steps import ClockSteps
from pocketmq.store.format.layout import TIMER_MAGIC_ROLL
from pocketmq.store.timer.timer_log import Numbers, Units, unit_dues
from pocketmq.store.timer.timer_store import TimerStore

log = logging.getLogger("broker")

RECORDS_AT_ONCE: Final = 48
"""Limit of records read in one step, because sends wait for it."""
UNITS_ROLLED_AT_ONCE: Final = 8192
_NOTHING: Final = (0, 0)
_RUNS_MAX: Final = 8


class OffsetDedup:
    """Set of the physical offsets of one slot's units, 8 bytes each, until `clear`.

    Offsets mostly ascend, because messages arrived in that order; then one comparison suffices. If units of several times
    were rolled into one slot, offsets are not sorted and are searched for in a few sorted runs.
    """

    def __init__(self) -> None:
        # Each run is sorted and not empty; no offset occurs twice.
        self._runs: list[Numbers] = []

    def add(self, physical_offsets: Numbers) -> npt.NDArray[np.bool_]:
        """Add offsets; return for each whether it had not been added before."""
        is_new = np.ones(len(physical_offsets), np.bool_)
        if not len(physical_offsets):
            return is_new
        order = None
        run = physical_offsets
        if (np.diff(run) <= 0).any():
            order = np.argsort(run, kind="stable")
            run = run[order]
            is_new[order[1:]] = np.diff(run) > 0
        first, last = run[0], run[-1]
        for seen in self._runs:
            if first <= seen[-1] and last >= seen[0]:
                places = np.minimum(np.searchsorted(seen, physical_offsets), len(seen) - 1)
                is_new &= seen[places] != physical_offsets
        run = run[is_new if order is None else is_new[order]]
        if len(run):
            self._runs.append(run)
        if len(self._runs) > _RUNS_MAX:
            self._runs = [np.sort(np.concatenate(self._runs), kind="stable")]
        return is_new

    def clear(self) -> None:
        """Remove all offsets."""
        self._runs.clear()


class WheelLoader:
    """Loader of slots. Slots before `loaded_to_ms` are loaded, except that the last of them may be in progress.

    `unread_ms` is the first slot with units that is not completely loaded, FAR_MS without one. Those from `loaded_to_ms` on
    that are before it are empty, and units may still be added to them.
    """

    def __init__(
        self, timers: TimerStore, near: DueQueue, steps: ClockSteps, reader: TimerReader, precision_ms: int
    ) -> None:
        self.loaded_to_ms = self.unread_ms = 0
        self._timers = timers
        self._near = near
        self._steps = steps
        self._reader = reader
        self._precision_ms = precision_ms
        self._parts: Iterator[Units] = iter(())
        # Units of earlier slots that are still to be rolled into later ones, with their slot.
        self.unrolled: deque[tuple[int, Units]] = deque()
        # Physical offsets of records to be read.
        self._waiting: list[Numbers] = []
        self._seen = OffsetDedup()
        # Messages before this pair were delivered by an earlier process, if they lie before that physical offset.
        self._delivered_before, self._entered_to = _NOTHING, -1
        self.delivered: Set[int] = frozenset()
        """Physical offsets of messages that were delivered although their progress is not in the timer files."""

    def begin(self, delivered_before: tuple[int, int], entered_to: int) -> None:
        """Begin with the slot of the read time, into which late messages are entered."""
        self._delivered_before, self._entered_to = delivered_before, entered_to
        self._begin(self._timers.read_time_ms)

    def _begin(self, time_ms: int) -> None:
        self.unread_ms = time_ms
        self.loaded_to_ms = time_ms + self._precision_ms
        self._parts = self._timers.parts_at(time_ms)
        self._seen.clear()

    def step(self, until_ms: int, now_ms: int) -> bool:
        """Do a part of the work; return False if all slots up to that of `until_ms` are loaded. Raises OSError."""
        if self._waiting:
            slot_ms = self.loaded_to_ms - self._precision_ms
            for physical_offset in self._waiting.pop().tolist():
                self._take_at(physical_offset, slot_ms)
        elif self.unrolled and self.unrolled[0][0] + self._precision_ms <= now_ms:
            self._roll_some(now_ms)
        elif self.is_loading:
            units = next(self._parts, None)
            if units is None:
                next_ms = self._timers.next_time_ms(FAR_MS, self.loaded_to_ms)
                self.unread_ms = FAR_MS if next_ms is None else next_ms
                self._seen.clear()
            else:
                self._take_part(units)
        elif self.unread_ms < self.pass_empty(until_ms):
            self._begin(self.unread_ms)
        else:
            return False
        return True

    @property
    def is_loading(self) -> bool:
        """Whether the last slot is in progress."""
        return self.unread_ms < self.loaded_to_ms

    def finish(self, now_ms: int) -> None:
        """Load and roll everything in the slots before `loaded_to_ms`. Raises OSError."""
        while self.is_loading:
            self.step(0, now_ms)
        while self.unrolled:
            self._roll_some(now_ms)

    def pass_empty(self, until_ms: int) -> int:
        """Count the slots up to that of `until_ms` as loaded, as far as they are empty, and return its end.

        The read time may then pass them, and messages for them go to the due queue at once.
        """
        # Units may still be added to the last slot of all.
        end_ms = min(until_ms + self._precision_ms - until_ms % self._precision_ms, self._timers.last_time_ms)
        self.loaded_to_ms = max(self.loaded_to_ms, min(end_ms, self.unread_ms))
        return end_ms

    def _take_part(self, units: Units) -> None:
        # If a slot was being loaded when the process ended, units that it had rolled were rolled again.
        is_new = self._seen.add(units["physical_offset"].astype(np.int64))
        if not is_new.all():
            units = units[is_new]
        rolled = units["magic"] & TIMER_MAGIC_ROLL != 0
        if rolled.any():
            dues = unit_dues(units)
            theirs = rolled & (units["rolled_due_ms"] == 0)
            for row in np.flatnonzero(theirs).tolist():
                record = self._reader.read(int(units["physical_offset"][row]))
                # A missing record gets the time of this slot, where it is found to be missing.
                dues[row] = self.loaded_to_ms if record is None else record.out_ms
            units["rolled_due_ms"] = np.where(rolled, dues, units["rolled_due_ms"])
            rolled &= dues >= self.loaded_to_ms
            if rolled.any():
                self.unrolled.append((self.loaded_to_ms - self._precision_ms, units[rolled]))
            units = units[~rolled]
        offsets, starts = units["physical_offset"].astype(np.int64), range(0, len(units), RECORDS_AT_ONCE)
        self._waiting = [offsets[start : start + RECORDS_AT_ONCE] for start in reversed(starts)]

    def _roll_some(self, now_ms: int) -> None:
        slot_ms, units = self.unrolled[0]
        part = units[:UNITS_ROLLED_AT_ONCE]
        # Units that cannot be rolled now for lack of space remain.
        times = self._timers.roll(part, self._timers.roll_base(np.full(len(part), slot_ms), now_ms))
        self.unrolled.popleft()
        if len(part) < len(units):
            self.unrolled.appendleft((slot_ms, units[len(part) :]))
        # A slot that is already loaded: only after a large step back of the calendar.
        for row in self.added(times):
            self._take_at(int(part["physical_offset"][row]), int(times[row]))
        self.pass_empty(now_ms)  # so that the read time moves past the slot

    def _take_at(self, physical_offset: int, slot_ms: int) -> None:
        record = self._reader.read(physical_offset)
        # Cancelling messages are applied again: the messages that they cancel may not be delivered yet.
        if record is not None and (record.cancels is not None or not self._is_delivered(record.due_ms, physical_offset)):
            self.take(record, physical_offset, slot_ms)

    def _is_delivered(self, due_ms: int, physical_offset: int) -> bool:
        return physical_offset <= self._entered_to and (due_ms, physical_offset) < self._delivered_before

    def added(self, times_ms: Numbers) -> list[int]:
        """Note that units were added to the slots of these times; return the rows of those that are to be taken at once."""
        is_near = times_ms < self.loaded_to_ms
        self.unread_ms = min(self.unread_ms, int(times_ms.min(initial=FAR_MS, where=~is_near)))
        near: list[int] = np.flatnonzero(is_near).tolist()
        return near

    def take_added(self, record: TimerRecord, physical_offset: int, slot_ms: int) -> None:
        """Note that a unit was added to a slot, and take its message if the slot is loaded."""
        if slot_ms < self.loaded_to_ms:
            self.take(record, physical_offset, slot_ms)
        elif slot_ms < self.unread_ms:
            self.unread_ms = slot_ms

    def take(self, record: TimerRecord, physical_offset: int, slot_ms: int) -> None:
        """Add a message to the due queue, or apply its cancellation. Its slot is loaded or being loaded."""
        near, out_ms = self._near, record.out_ms
        if record.cancels is not None:
            near.cancel(out_ms, record.cancels)
            return
        if record.copy_of is not None:
            key = superseded_key(record.copy_of)
            if key in near.cancelled.get(out_ms, ()):
                return  # a second copy
            near.cancel(out_ms, key)
        if physical_offset in self.delivered:
            return
        due_ms, difference = record.due_ms, None
        if record.is_relative:
            difference = self._steps.difference_at(physical_offset, record.store_timestamp_ms)
            due_ms += self._steps.difference - difference
        near.push(NearTimer(due_ms, physical_offset, record.due_ms, slot_ms, out_ms, difference, record.topic_hash))

"""TimerStore: wheel, log and checkpoint of the timers, which record the messages to be delivered in each second.

The CommitLog is authoritative; these files are a cache that saves reading it again. At any moment all messages of the timer
topic's queue before `queue_offset` are *entered* (put into a slot), and slots before `read_time_ms` are done.

Recovery returns to the last such state known to be on disk (`TimerState`): the log is cut at its `log_end`, and the wheel is
rebuilt from the log regardless of its contents. It therefore does not matter which of their pages a power cut left old, new
or torn. Later messages are entered, rolled and delivered again from the same state, and nothing is in a slot twice. If the
files do not match the checkpoint, the log starts over, and the caller enters everything again.

A message due beyond the *roll window* is put into an earlier slot (5.5.0's rule), with the ROLL bit. When that slot is due,
5.5.0 writes the message to the CommitLog again; here only the unit goes to its next slot, with its due time, without reading
the CommitLog. A late unit goes into the slot that is being read.

5.5.0 treats all messages of the timer queue before that of the log's last unit as entered. That unit must therefore not be a
rolled one, so rolled units are followed by a *pointer*: a unit of the message that was entered last, in a slot long past.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import (
    TIMER_LOG_UNIT_DTYPE,
    TIMER_LOG_UNIT_SIZE,
    TIMER_LOG_UNIT_STRUCT,
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
)
from pocketmq.store.timer.timer_checkpoint import TimerCheckpoint, TimerState
from pocketmq.store.timer.timer_log import Numbers, TimerLog, UnitPart, Units, unit_dues, unit_times
from pocketmq.store.timer.timer_wheel import TimerWheel

log = logging.getLogger("store")

# As in Apache's TimerMessageStore: one week in both directions; the last minute of it is not used.
SLOTS_TOTAL: Final = 7 * 86_400
_BLANK_SLOTS: Final = 60
# Nearby units of a slot are read at once if at most this many other units are between them.
_OTHERS_READ: Final = 4096
# Units examined for one part of a slot. More cost disproportionately, because of page faults of the copies.
_UNITS_IN_PART: Final = 1024
# Age of the slot for pointers: it is never read and not shared with a future time, as slots older than a week are.
_POINTER_SLOTS: Final = 3 * 86_400
# Larger values are not a unit's delay; they result from a changed clock or a broker that was stopped for weeks.
_DELAY_MAX: Final = 2**31 - 1


class RecoveredTimers(NamedTuple):
    """Messages that the caller must enter again after recovery.

    If `complete`: those of the timer queue from `queue_offset` on. Otherwise: those beyond physical offset `entered_to`, but
    before `queue_offset` only those whose (due time, physical offset) is not less than `delivered_before`; the others were
    delivered. The caller must then `mark` and `flush` before it delivers or rolls any slot.
    """

    queue_offset: int
    complete: bool
    entered_to: int  # -1: nothing was entered
    delivered_before: tuple[int, int]
    problem: str  # why not complete, or empty


class TimerStore:
    """Timer files of a store. Times are epoch ms. Only `flush` may be called by another thread."""

    def __init__(
        self,
        disk: Disk,
        store_path: Callable[[str], str],
        *,
        log_file_size: int = 100 << 20,
        precision_ms: int = 1000,
        roll_window_slots: int = 172_800,
        slots_total: int = SLOTS_TOTAL,
        open_files: OpenFiles | None = None,
    ) -> None:
        """Open or create the files; `store_path` returns the path of a file of the store. `recover` must follow. Raises
        OSError."""
        if not 2 <= roll_window_slots <= slots_total - _BLANK_SLOTS:
            roll_window_slots = slots_total - _BLANK_SLOTS
        self._slots_total = slots_total
        # TimerMessageStore.doEnqueue: a rest of less than a third of the window gets no roll of its own.
        self._window_ms = roll_window_slots * precision_ms
        self._half_ms = roll_window_slots // 2 * precision_ms
        self._third_ms = roll_window_slots // 3 * precision_ms
        self._precision_ms = precision_ms
        self._checkpoint = TimerCheckpoint(disk, store_path("config/timercheck"))
        self.adopt = self._checkpoint.adopt
        self._wheel = TimerWheel(disk, store_path("timerwheel"), 2 * slots_total, precision_ms)
        self._log = TimerLog(disk, store_path("timerlog"), log_file_size, open_files)
        self.read_time_ms = 0
        self.queue_offset = 0
        # Earliest due time of the messages that were late for the slot that is being read; at least the read time without.
        self._late_due_ms = 0
        # State at the last mark, which `flush` makes durable. None while units are being entered again.
        self.state: TimerState | None = None
        # No state before this queue offset is marked, because messages before it are being entered again.
        self._whole_from = 0
        # (physical offset, record size, topic hash) of the message that was entered last.
        self._newest = (-1, 0, 0)

    # --- recovery ---------------------------------------------------------------------------------------------------

    def recover(self, now_ms: int, max_physical_offset: int, max_queue_offset: int) -> RecoveredTimers:
        """Return to the last known state. The two offsets are the ends of CommitLog and timer queue. Raises OSError."""
        state, sealed, written_ms = self._checkpoint.state, self._checkpoint.sealed, self._checkpoint.written_ms
        for found in self._checkpoint.problems:
            log.warning("%s: the missing state is taken from timermark, or from the CommitLog", found)
        if written_ms is not None and state.read_time_ms > written_ms:
            log.warning("timercheck: the read time %d is later than its write time %d", state.read_time_ms, written_ms)
            state = TimerState(written_ms, state.log_end, state.queue_offset, written_ms + 1)
        queue_offset = min(state.queue_offset, max_queue_offset)
        oldest_ms = self._slot_ms(now_ms) - (self._slots_total - _BLANK_SLOTS) * self._precision_ms
        self.read_time_ms = max(self._slot_ms(state.read_time_ms), oldest_ms)
        self._late_due_ms = state.delivered_before_ms
        problem = self._recover_log(state, sealed, max_physical_offset)
        if problem:
            log.warning("timers are rebuilt from the CommitLog: %s", problem)
        complete = sealed and not problem
        if not sealed:
            problem = problem or "timercheck has no valid seal: it is missing, damaged or from another broker"
        self._whole_from = queue_offset
        self.queue_offset = queue_offset if complete else 0
        entered_to = self._recover_wheel(state.read_time_ms, is_ours=complete)
        self._log.release_memory()
        self._wheel.release_memory()
        return RecoveredTimers(queue_offset, complete, entered_to, state.delivered_before, problem)

    def _recover_log(self, state: TimerState, sealed: bool, max_physical_offset: int) -> str:
        try:
            self._log.load(state.log_end if sealed else None)
        except StoreError as error:
            problem = str(error)
        else:
            begin = self._log.begin
            end = self._log.valid_end(max_physical_offset, self.read_time_ms + self._wheel.span_ms)
            if begin <= state.log_end <= end and (state.log_begin < 0 or begin <= state.log_begin):
                # Units that another broker wrote after its checkpoint are recorded nowhere else.
                self._log.truncate(state.log_end if sealed else end)
                problem = self._checkpoint.adopted or self._log.check_sums(state.file_sums, state.log_sum)
                if not problem:
                    self._log.sync_from(self._checkpoint.durable_state.log_end)
                    return ""
            else:
                problem = f"{self._log.directory} is valid in [{begin}, {end}), but log_end in timercheck is {state.log_end}"
        self._log.start_over(state.log_end)
        return problem

    def start_over(self, problem: str) -> None:
        """Discard the recovered state because the log is not trustworthy; everything is entered again. Raises OSError."""
        log.warning("timers are rebuilt from the CommitLog: %s", problem)
        self._log.start_over(self._log.end)
        self._wheel.clear_from(self.read_time_ms)
        self._newest = (-1, 0, 0)

    @property
    def written_ms(self) -> int | None:
        """Time at which another broker last wrote timercheck, if one did."""
        return self._checkpoint.written_ms

    @property
    def roll_delays_ms(self) -> tuple[int, int]:
        """The two possible times that a rolled message waits in one slot."""
        return self._half_ms, self._window_ms

    def unit_parts(self) -> list[UnitPart]:
        """Return all units in parts."""
        return self._log.unit_parts()

    def _recover_wheel(self, read_time_ms: int, *, is_ours: bool) -> int:
        """Rebuild the wheel's slots from the log. Return the highest physical offset in it, or -1."""
        known_sum, from_ms = self._checkpoint.wheel_sum if is_ours else -1, self.read_time_ms
        is_damaged = known_sum != -1 and known_sum != self._wheel.sum()
        before = self._wheel.sum_from(from_ms)
        self._wheel.clear_from(self.read_time_ms)
        overdue: list[Units] = []
        mended = 0
        for position, units in self._log.windows():
            self._note_newest(units)
            times = unit_times(units)
            # Messages due before the wheel's first slot, which Apache loses, go into that slot.
            behind = (times < self.read_time_ms) & (times >= self._slot_ms(read_time_ms))
            if behind.any():
                overdue.append(units[behind])
            ahead = np.flatnonzero(times >= self.read_time_ms)
            if len(ahead):
                times = times[ahead]
                positions = position + TIMER_LOG_UNIT_SIZE * ahead
                previous, numbers, slots = self._wheel.linked_slots(times, positions, _counts(units["magic"][ahead]))
                if not is_ours:
                    mended += self._mend_chains(units, ahead, previous)
                self._wheel.set_slots(numbers, slots)
        if is_ours and (is_damaged or before != self._wheel.sum_from(from_ms)):
            log.warning("%s does not match the timer log: rebuilt", self._wheel.path)
        if mended:
            log.warning("%s: %d wrong links to the previous unit of a slot are repaired", self._log.directory, mended)
            self._log.check_sums(b"", -1)
            self._log.sync_from(0)
        for units in overdue:
            times = np.full(len(units), self.read_time_ms)
            # A unit that Apache rolled has no due time: it is that of its record.
            self._append(
                times,
                units["rolled_due_ms"].astype(np.int64),
                units["write_time_ms"].astype(np.int64),
                units["magic"],
                units,
            )
        return self._newest[0]

    def _mend_chains(self, units: Units, rows: Numbers, previous: Numbers) -> int:
        """Repair the links of units, which have no checksum, to the previous unit of their slot. Return their number."""
        found = units["previous_position"][rows].astype(np.int64)
        wrong = (found != previous) & ((previous >= 0) | (found >= self._log.begin))
        units["previous_position"][rows[wrong]] = previous[wrong]
        return int(np.count_nonzero(wrong))

    def _note_newest(self, units: Units) -> None:
        newest = units[int(units["physical_offset"].argmax())]
        if int(newest["physical_offset"]) > self._newest[0]:
            self._newest = int(newest["physical_offset"]), int(newest["record_size"]), int(newest["topic_hash"])

    # --- entering ---------------------------------------------------------------------------------------------------

    def put(
        self, due_ms: int, write_time_ms: int, physical_offset: int, record_size: int, topic_hash: int, magic: int = 1
    ) -> int:
        """Enter one message as `put_many` does, without arrays, and return the time of its slot. Raises OSError."""
        write_time_ms -= write_time_ms % self._precision_ms
        ahead_ms, time_ms, last_time_ms = due_ms - write_time_ms, due_ms, self.last_time_ms
        is_rolled = ahead_ms >= self._window_ms
        if is_rolled:
            is_near = ahead_ms - self._window_ms < self._third_ms
            time_ms = write_time_ms + (self._half_ms if is_near else self._window_ms)
        time_ms = max(time_ms, self.read_time_ms)
        if time_ms > last_time_ms:
            time_ms, is_rolled = last_time_ms, True
        self._late_due_ms = min(self._late_due_ms, due_ms)
        if is_rolled:
            magic |= TIMER_MAGIC_ROLL
        if abs(time_ms - write_time_ms) > _DELAY_MAX:
            write_time_ms = time_ms
        position = self._log.position_of_next
        previous, slot = self._wheel.linked_slot(time_ms, position, -1 if magic & TIMER_MAGIC_DELETE else 1)
        unit = (
            TIMER_LOG_UNIT_SIZE, previous, magic, write_time_ms, time_ms - write_time_ms, physical_offset, record_size,
            topic_hash, due_ms if magic & TIMER_MAGIC_ROLL else 0,
        )  # fmt: skip
        self._log.append(TIMER_LOG_UNIT_STRUCT.pack(*unit))
        self._wheel.set_slot(time_ms, slot)
        if physical_offset > self._newest[0]:
            self._newest = physical_offset, record_size, topic_hash
        return time_ms

    def put_many(
        self,
        dues_ms: npt.ArrayLike,
        write_time_ms: int | Numbers,
        physical_offsets: npt.ArrayLike,
        record_sizes: npt.ArrayLike,
        topic_hashes: npt.ArrayLike,
        magics: npt.ArrayLike = TIMER_MAGIC_DEFAULT,
    ) -> Numbers:
        """Enter messages in the order of the timer queue. Return the times of their slots.

        `dues_ms` is TIMER_OUT_MS; `write_time_ms` is now, or a `roll_base`; `magics` has TIMER_MAGIC_DELETE for those that
        cancel others. Raises OSError if the disk is full; nothing is entered then.
        """
        dues = np.asarray(dues_ms, np.int64)
        units = np.zeros(len(dues), TIMER_LOG_UNIT_DTYPE)
        units["physical_offset"] = physical_offsets
        units["record_size"] = record_sizes
        units["topic_hash"] = topic_hashes
        times = self._put(dues, write_time_ms, np.broadcast_to(np.asarray(magics, np.int64), dues.shape), units)
        if len(units):
            self._note_newest(units)
        return times

    def roll(self, units: Units, write_time_ms: int | Numbers, dues_ms: npt.ArrayLike | None = None) -> Numbers:
        """Enter rolled units of a slot into their next slots. `dues_ms` is required for those that Apache rolled.

        Must be called before their own slot is marked as read. Raises like `put_many`.
        """
        assert self._checkpoint.sealed, "an earlier state would find the units in both slots"
        assert dues_ms is not None or units["rolled_due_ms"].all(), "a unit that Apache rolled has no due time"
        dues = unit_dues(units) if dues_ms is None else np.asarray(dues_ms, np.int64)
        times = self._put(dues, write_time_ms, units["magic"] & ~TIMER_MAGIC_ROLL, units)
        self._append_pointer()
        return times

    def _append_pointer(self) -> None:
        long_past_ms = self.read_time_ms - _POINTER_SLOTS * self._precision_ms
        if self._newest[0] < 0 or long_past_ms <= 0:
            return
        pointer = TIMER_LOG_UNIT_STRUCT.pack(
            TIMER_LOG_UNIT_SIZE, -1, TIMER_MAGIC_DEFAULT, long_past_ms, 0, *self._newest, 0
        )  # fmt: skip
        self._log.append(pointer)

    def roll_base(self, time_ms: Numbers, now_ms: int) -> Numbers:
        """Return for each of `time_ms` the latest time up to now that is a whole number of roll windows later.

        Rolling relative to now would put messages of different times, if rolled or entered again together, into one slot.
        """
        base: Numbers = time_ms + np.maximum(now_ms - time_ms, 0) // self._window_ms * self._window_ms
        return base

    def _put(self, dues: Numbers, write_time_ms: int | Numbers, magics: npt.NDArray[Any], units: Units) -> Numbers:
        if not len(dues):
            return dues
        write_times = np.broadcast_to(np.asarray(write_time_ms, np.int64), dues.shape)
        write_times = write_times - write_times % self._precision_ms
        ahead = dues - write_times
        rolled = ahead >= self._window_ms
        steps = np.where(ahead - self._window_ms < self._third_ms, self._half_ms, self._window_ms)
        times = np.maximum(np.where(rolled, write_times + steps, dues), self.read_time_ms)
        rolled |= times > self.last_time_ms
        times = np.minimum(times, self.last_time_ms)
        self._late_due_ms = min(self._late_due_ms, int(dues.min()))
        magics = np.where(rolled, magics | TIMER_MAGIC_ROLL, magics)
        self._append(times, dues, write_times, magics, units)
        return times

    def _append(self, times: Numbers, dues: Numbers, write_times: Numbers, magics: npt.NDArray[Any], records: Units) -> None:
        """Append units for the records of other units, and add them to the slots of `times`."""
        write_times = np.where(np.abs(times - write_times) > _DELAY_MAX, times, write_times)
        positions = self._log.positions_of_next(len(times))
        previous, numbers, slots = self._wheel.linked_slots(times, positions, _counts(magics))
        units = np.empty(len(times), TIMER_LOG_UNIT_DTYPE)
        for name in ("physical_offset", "record_size", "topic_hash"):
            units[name] = records[name]
        units["size"] = TIMER_LOG_UNIT_SIZE
        units["previous_position"] = previous
        units["magic"] = magics
        units["write_time_ms"] = write_times
        units["delay_ms"] = times - write_times
        units["rolled_due_ms"] = np.where(magics & TIMER_MAGIC_ROLL, dues, 0)
        self._log.append(units.tobytes())
        self._wheel.set_slots(numbers, slots)

    # --- what is due ------------------------------------------------------------------------------------------------

    def next_time_ms(self, before_ms: int, from_ms: int = 0) -> int | None:
        """Return the first time in [from_ms, before_ms), but not before the read time, whose slot has units."""
        begin_ms = max(self.read_time_ms, from_ms)
        return self._wheel.next_time_ms(begin_ms, min(before_ms, self.read_time_ms + self._wheel.span_ms))

    def count_at(self, time_ms: int) -> int:
        """Return the number of messages in the slot of a time, minus cancelling units."""
        return self._wheel.slot_at(time_ms).message_count

    def count_from(self, begin_ms: int) -> int:
        """Return the number of messages in the slots of all times from `begin_ms` on, minus cancelling units."""
        return self._wheel.count_from(begin_ms)

    def parts_at(self, time_ms: int) -> Iterator[Units]:
        """Yield copies of up to a thousand of the units now in the slot of a time, oldest first.

        Between two parts units may be entered or rolled, also into this slot.
        """
        slot = self._wheel.slot_at(time_ms)
        if slot.first_position < 0:
            return iter(())
        unit_count = (slot.last_position - slot.first_position) // TIMER_LOG_UNIT_SIZE
        if unit_count > max(_OTHERS_READ, 8 * slot.message_count):
            return iter((self._chain(slot.last_position, time_ms),))
        return self._parts_between(slot.first_position, slot.last_position + TIMER_LOG_UNIT_SIZE, time_ms)

    def _parts_between(self, position: int, end: int, time_ms: int) -> Iterator[Units]:
        # Each window is looked up again, because files may have been added or deleted.
        at_once = _UNITS_IN_PART * TIMER_LOG_UNIT_SIZE
        while (window := next(self._log.windows(position, min(end, position + at_once)), None)) is not None:
            start, units = window
            position = start + len(units) * TIMER_LOG_UNIT_SIZE
            found = units[unit_times(units) // self._precision_ms == time_ms // self._precision_ms]
            del window, units
            yield found

    def _chain(self, position: int, time_ms: int) -> Units:
        slot_ms = self._slot_ms(time_ms)
        found: list[bytes] = []
        end = position + 1
        # A chain that turns around or leaves its slot is damage, and reading ends there.
        while 0 <= position < end and (unit := self._log.unit_at(position)) is not None:
            _, previous, _, write_time_ms, delay_ms, *_ = TIMER_LOG_UNIT_STRUCT.unpack(unit)
            if self._slot_ms(write_time_ms + delay_ms) != slot_ms:
                break
            found.append(bytes(unit))
            end, position = position, previous
        return np.frombuffer(bytearray().join(reversed(found)), TIMER_LOG_UNIT_DTYPE)

    # --- pending units ----------------------------------------------------------------------------------------------

    def pending(
        self, below_physical_offset: int | None = None, from_ms: int = 0, from_physical_offset: int = 0
    ) -> Iterator[Units]:
        """Yield copies of all units in future slots, or in those from `from_ms` on, in parts and in log order.

        Only units whose record is in the range of physical offsets are included.
        """
        from_ms = max(from_ms, self.read_time_ms)
        for _, units in self._log.windows(times_from=from_ms):
            wanted = (unit_times(units) >= from_ms) & (units["physical_offset"] >= from_physical_offset)
            if below_physical_offset is not None:
                wanted &= units["physical_offset"] < below_physical_offset
            if wanted.any():
                yield units[wanted]
        self._log.release_memory()

    def pending_parts(self, from_ms: int, from_physical_offset: int) -> Iterator[Units]:
        """Yield what `pending` yields, in small parts. A unit that moves in between is seen twice or not at all."""
        for units in self._log.parts(max(from_ms, self.read_time_ms)):
            earliest_ms = max(from_ms, self.read_time_ms)
            yield units[(unit_times(units) >= earliest_ms) & (units["physical_offset"] >= from_physical_offset)]

    # --- progress ----------------------------------------------------------------------------------------------------

    def mark(self, read_time_ms: int, queue_offset: int, delivered_before: tuple[int, int] | None = None) -> None:
        """Record the progress: all slots before `read_time_ms`, and the timer queue before `queue_offset`, are done.

        `delivered_before` is a due time and physical offset: enqueued messages before it are done too. After a kill the next
        process continues from here. The read time never decreases.
        """
        if (read_time_ms := self._slot_ms(read_time_ms)) > self.read_time_ms:
            self.read_time_ms = self._late_due_ms = read_time_ms
        self.queue_offset = queue_offset
        if queue_offset >= self._whole_from:
            before = delivered_before or (min(self._late_due_ms, self.read_time_ms), 0)
            timer_log, log_begin = self._log, max(self._checkpoint.durable_state.log_begin, self._log.begin)
            sums = timer_log.last_sum, timer_log.file_sums
            state = TimerState(self.read_time_ms, timer_log.end, queue_offset, *before, log_begin, *sums)
            if state != self.state:
                self.state = state
                self._checkpoint.mark(state)

    def flush(self, state: TimerState | None, now_ms: int) -> None:
        """Make everything durable, then the checkpoint. Any thread, but not concurrently. Raises OSError.

        `state` is the attribute as read in the loop. After reading it and before this call, the caller must have synced the
        CommitLog, with the messages that were entered and the copies of those that were delivered.
        """
        self._log.flush()
        self._wheel.flush()
        if state is not None:
            self._checkpoint.flush(state, now_ms)

    def clean(self, min_physical_offset: int) -> int:
        """Delete the log files not needed even after a power cut. Return the number of files. Raises OSError."""
        read_time_ms = self._checkpoint.durable_state.read_time_ms if self._checkpoint.sealed else 0
        read_time_ms = min(read_time_ms, self.read_time_ms)
        needed_from = self._log.needed_from(read_time_ms, min_physical_offset)
        if needed_from <= self._log.begin:
            return 0
        if self._checkpoint.sealed:
            self._checkpoint.begin_log_at(needed_from)
        if self.state is not None:
            self.state = self.state._replace(log_begin=needed_from)
            self._checkpoint.mark(self.state)
        return self._log.delete_unneeded(read_time_ms, min_physical_offset)

    def seal(self) -> None:
        """Record a clean stop, after a `flush` of the present state. Raises OSError."""
        if self.state is not None and self._checkpoint.sealed:
            self._checkpoint.seal(self.state, self._wheel.sum())

    def close(self) -> None:
        """Unmap the files without flushing them."""
        self._log.close()
        self._wheel.close()
        self._checkpoint.close()

    @property
    def last_time_ms(self) -> int:
        """Last usable slot time. Later slots belong to times that may not be done; units due later wait in this slot."""
        return self.read_time_ms + self._wheel.span_ms - _BLANK_SLOTS * self._precision_ms

    def _slot_ms(self, time_ms: int) -> int:
        return time_ms - time_ms % self._precision_ms


def _counts(magics: npt.NDArray[Any]) -> Numbers:
    """Return what units with these magics add to the counts of their slots."""
    counts: Numbers = np.where(magics & TIMER_MAGIC_DELETE, -1, 1).astype(np.int64)
    return counts

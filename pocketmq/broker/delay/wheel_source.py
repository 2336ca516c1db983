"""The messages of the timer topic, which are due at any millisecond.

Path of a message: it is put into the timer topic (`delivery_time`). At the end of the turn, or a little later if many
arrive, it is *entered* (`wheel_entry`): its record is read once and a unit is appended to the slot of its second
(`timer_store`). Shortly before that second, the slot is *loaded* (`wheel_loader`) into a queue by exact due time
(`due_queue`); messages of the next seconds go there at once.

The message itself is in the CommitLog, so nothing is lost. After each batch, a mark in the page cache records how far
entering and delivering have come: a killed process repeats at most the batch under way. Once a second the mark is written
to disk, after everything that it refers to; a power cut repeats the deliveries since then.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.delay.cancel import cancel_key, keys_of
from pocketmq.broker.delay.carry_forward import CarryForward
from pocketmq.broker.delay.delivered_copies import delivered_of
from pocketmq.broker.delay.due_queue import DueQueue, NearTimer
from pocketmq.broker.delay.progress import WriteBehindSync
from pocketmq.broker.delay.records import TimerReader, due_copy, properties_at, record_at
from pocketmq.broker.delay.sources import FAR_MS, LOADED_AHEAD_MS
from pocketmq.broker.delay.wheel_entry import ENTER_EVERY_MS, Progress, WheelEntry
from pocketmq.broker.delay.wheel_loader import WheelLoader
from pocketmq.broker.delay.wheel_pending import WheelPending
from pocketmq.broker.due_work import RETRY_AFTER_S
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.delivery_time import TIMER_OUT_MS
from pocketmq.store.format.message import Arrival, Message
from pocketmq.store.timer.timer_checkpoint import TimerState
from pocketmq.store.timer.timer_store import TimerStore

log = logging.getLogger("broker")

# Interval of writes while nothing but time has changed.
_IDLE_WRITE_MS: Final = 60_000


def roll_window_slots(asked_slots: int, precision_ms: int) -> int:
    """Return the number of slots of the roll window if timerRollWindowSlot is `asked_slots`.

    A unit is rolled by at least a third of the window (`timer_store`). That must be beyond the slots loaded when its own
    slot is over: a unit rolled again after a kill is recognized as a duplicate when its next slot is loaded, but not in a
    slot already loaded; and a unit that cancels another one would come too late there.
    """
    return max(asked_slots, 3 * (2 + -(-LOADED_AHEAD_MS // precision_ms)))


class WheelSource:
    """The timer wheel as a `Source`. Runs on the event loop only, except for writing its files to disk."""

    topic: Final = TIMER_TOPIC

    def __init__(self, context: Context, timer_store: TimerStore) -> None:
        store, config = context.store, context.store.config
        self._store = store
        self._timer_store = timer_store
        self._steps = steps = context.steps
        self._clock = context.clock
        self._look_at_clocks = context.look_at_clocks
        self._precision_ms = precision_ms = config.timer_precision_ms
        self._stop_enter = config.timer_stop_enqueue
        self._stop_deliver = config.timer_stop_dequeue
        self._near = near = DueQueue()
        self.near = DueQueue() if self._stop_deliver else near
        self.pop, self.wait, self.done = near.pop, near.wait, near.done
        self.remove_first = near.remove_first
        reader = TimerReader(store, precision_ms)
        self.remember = reader.remember
        self.adopt = timer_store.adopt
        self._loader = WheelLoader(timer_store, near, steps, reader, precision_ms)
        self._entry = WheelEntry(store, timer_store, self._loader, reader, self._clock)
        self.expect = self._entry.expect
        self._forward = CarryForward(context, timer_store, near, self._loader, self.expect)
        self.waiting = WheelPending(
            timer_store, near, self._loader, reader, self._clock, self._begin_offset, self._enter_all
        )
        """The pending messages."""
        # Messages before this due time and physical offset are delivered, unless they are in the due queue. Only grows.
        self._delivered_before = (0, 0)
        self._is_running = False
        self._writer = WriteBehindSync(store)
        self._write_failed = False
        # End of the log and state without times at the last write, and its time.
        self._written: tuple[int, TimerState] | None = None
        self._written_ms = 0
        self._roll_refusal: str | None = None
        self.delivered_total = 0
        self.delivered: Callable[[float, int], object] = lambda lateness_s, count: None

    @property
    def refusal(self) -> str | None:
        """The reason why timer messages are refused at present, or None."""
        return self._entry.refusal or self._roll_refusal or self._forward.refusal

    # --- start and stop ---------------------------------------------------------------------------------------------

    def recover(self, progress: Progress | None = None) -> None:
        """Restore the state of the last process, and enter the messages after it. Raises OSError, also for lack of space."""
        store, timer_store = self._store, self._timer_store
        self._look_at_clocks()
        now_ms = self._clock.message_time_ms()
        recovered = timer_store.recover(now_ms, store.max_physical_offset, store.max_offset(TIMER_TOPIC, 0))
        self._entry.queue_offset = recovered.queue_offset
        before = recovered.delivered_before
        self._delivered_before = before
        if not recovered.complete:
            self._entry.enter_again(recovered, progress)
            self._loader.delivered = delivered_of(store, self._entry.maybe_delivered)
            # This must be on disk before any unit is rolled.
            timer_store.mark(0, self._entry.queue_offset)
            timer_store.flush(timer_store.state, now_ms)
        self._loader.begin(before, recovered.entered_to if recovered.complete else -1)
        while self._loader.step(max(now_ms, before[0]), now_ms):
            pass
        while self._has_new and self._entry.enter(self._clock.message_time_ms()):
            pass
        if self.refusal is not None:
            raise OSError(self.refusal)
        self._store.commit_log.tail.write()
        self.mark(0, self._clock.message_time_ms())
        if not recovered.complete:
            # From now on the files record what is delivered.
            timer_store.flush(timer_store.state, now_ms)

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> None:
        self._is_running = False
        self._near.put_back()

    def close(self) -> None:
        """Write the final state if the store has synced its log, and unmap the files. Raises OSError."""
        self._writer.finish()
        state = self._timer_store.state
        if not self._write_failed and self._store.flushed_offset >= self._store.max_physical_offset:
            self._timer_store.flush(state, self._clock.message_time_ms())
            self._timer_store.seal()
        self._timer_store.close()

    # --- entering ---------------------------------------------------------------------------------------------------

    def enter(self, arrivals: Sequence[Arrival], now_ms: int) -> float | None:
        if self._stop_enter or not (arrivals or self._has_new):
            return None
        if self._entry.is_put_off(now_ms):
            return ENTER_EVERY_MS / 1000
        if self._entry.enter(now_ms):
            return 0.0
        return None if self._entry.refusal is None else RETRY_AFTER_S

    @property
    def _has_new(self) -> bool:
        return not self._stop_enter and self.not_entered > 0

    def _enter_all(self) -> None:
        """Enter deferred messages, for requests that list pending messages."""
        while self._is_running and self._has_new and self._entry.enter(self._clock.message_time_ms()):
            pass

    @property
    def not_entered(self) -> int:
        """Number of messages of the timer topic that are not in the wheel yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self._entry.queue_offset, 0)

    # --- what is due ------------------------------------------------------------------------------------------------

    @property
    def loaded_to_ms(self) -> int:
        return self._loader.unread_ms - self._steps.ahead_ms

    @property
    def load_ms(self) -> int:
        # While deliveries are stopped, due messages would fill the memory.
        if self._stop_deliver and self._near.due_ms <= self._clock.message_time_ms():
            return FAR_MS
        if self._roll_refusal is not None:
            return 0
        loader, ahead_ms = self._loader, LOADED_AHEAD_MS + self._steps.ahead_ms
        load_ms = loader.unread_ms - ahead_ms if loader.unread_ms < FAR_MS else FAR_MS
        return min(load_ms, loader.unrolled[0][0] + self._precision_ms) if loader.unrolled else load_ms

    @property
    def is_held_up(self) -> bool:
        """Also while loaded messages must be delivered before more can be loaded: only after weeks without a delivery."""
        return self._roll_refusal is not None or self._loader.loaded_to_ms >= self._timer_store.last_time_ms

    @property
    def delivered_to_ms(self) -> int:
        """The time up to which all messages that are due and dispatched have been put."""
        waits_from_ms = min(self.loaded_to_ms, self._near.first_ms)
        if self.not_entered:
            waits_from_ms = min(waits_from_ms, self._entry.soonest_ms + 1)  # messages not entered are due from then on
        return waits_from_ms - 1

    def calendar_set(self) -> None:
        self._near.set_difference(self._steps.difference)

    def load_some(self, until_ms: int, now_ms: int) -> bool:
        try:
            is_loaded = self._loader.step(until_ms, now_ms)
        except OSError as error:
            if self._roll_refusal is None:
                log.error("timer messages cannot be rolled: %s; trying again", error)
            self._roll_refusal = f"timer messages cannot be rolled: {error}"
            return False
        self._roll_refusal = None
        return is_loaded

    def together(self, until_ms: int, count_max: int) -> Sequence[NearTimer]:
        near = self._near
        timers, cancelled = near.first(until_ms, count_max), near.cancelled
        # Without cancelled ones, whose keys are in the records.
        return () if cancelled and not cancelled.keys().isdisjoint(timer.out_ms for timer in timers) else timers

    def copy(self, due: NearTimer, now_ms: int) -> Message | None:
        view, position = record_at(self._store, due.physical_offset)
        cancelled = self._near.cancelled.get(due.out_ms)
        if cancelled and not cancelled.isdisjoint(keys_of(properties_at(view, position), due.physical_offset)):
            return None
        return due_copy(view, position, now_ms, self._precision_ms)

    def cancel_near(self, properties: dict[str, str]) -> None:
        """Apply a cancelling message that was just put with these properties, without waiting for the end of the turn."""
        out_ms, key = int(properties[TIMER_OUT_MS]), cancel_key(properties)
        if key is not None and out_ms < self._loader.loaded_to_ms:
            self._near.cancel(out_ms, key)

    # --- progress ---------------------------------------------------------------------------------------------------

    def mark(self, copies_end: int, now_ms: int) -> None:
        loader, near = self._loader, self._near
        # At most up to now: messages that arrive later are due later.
        self._delivered_before = max(self._delivered_before, (min(loader.unread_ms, now_ms) + 1, 0))
        floor, oldest_ms = near.left
        before = min(self._delivered_before, floor or self._delivered_before)
        read_time_ms = min(loader.loaded_to_ms - self._precision_ms, now_ms)
        if oldest_ms is not None:
            read_time_ms = min(read_time_ms, oldest_ms)
        if loader.unrolled:
            read_time_ms = min(read_time_ms, loader.unrolled[0][0])
        self._timer_store.mark(read_time_ms, self._entry.queue_offset, before)
        if near.cancelled:
            near.forget_cancelled(self._timer_store.read_time_ms)

    def mark_in(self, executor: Executor, now_ms: int) -> None:
        if self._is_running:
            self._loader.pass_empty(now_ms + LOADED_AHEAD_MS + self._steps.ahead_ms)
            self.mark(0, now_ms)
        if self._write_failed or self._writer.is_writing:
            return
        try:
            self._timer_store.clean(self._store.min_physical_offset)
        except OSError as error:
            log.warning("a file of the timer log cannot be deleted: %s; trying again", error)
        state, end_offset = self._timer_store.state, self._store.max_physical_offset
        if state is None:
            return
        done = end_offset, state._replace(read_time_ms=0, delivered_before_ms=0, delivered_before_offset=0)
        # If only time has passed, a start makes up for it. Writes of an idle broker would wear out a flash card.
        if done != self._written or abs(now_ms - self._written_ms) >= _IDLE_WRITE_MS:
            self._writer.write_in(executor, end_offset, partial(self._write, state, done))

    def _write(self, state: TimerState, done: tuple[int, TimerState]) -> None:
        now_ms = self._clock.message_time_ms()
        try:
            self._timer_store.flush(state, now_ms)
            self._written, self._written_ms = done, now_ms
        except OSError as error:
            # Data written since the last sync may be lost, and the kernel reports such an error only once.
            self._write_failed = True
            log.error("timer files cannot be synced: %s; after a crash, timers are rebuilt from the CommitLog", error)

    # --- queries ----------------------------------------------------------------------------------------------------

    def count_at(self, out_ms: int) -> int:
        """Return the number of units in the slot of a TIMER_OUT_MS."""
        self._enter_all()
        return self._timer_store.count_at(out_ms)

    def count(self) -> int:
        """Return the number of pending messages, including those not entered yet. Cheap enough for frequent calls."""
        return self.not_entered + self.waiting.count()

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no pending record lies before `end_offset`; if one does, start carrying forward in later turns."""
        self._enter_all()
        return not self._is_running or self._forward.may_remove(end_offset)

    def _begin_offset(self) -> int:
        return max(self._store.min_physical_offset, self._forward.carried_to)

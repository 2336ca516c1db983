"""TimerMessageService: delivers messages of the timer topic at the millisecond at which they are due.

Path of a message: it is put into the timer topic (`delivery_time`). At the end of the turn, or a little later if many
arrive, it is *entered* (`timer_enqueue`): its record is read once and a unit is appended to the slot of its second
(`timer_store`). Shortly before that second, the slot is *loaded* (`wheel_loader`) into a queue by exact due time
(`due_queue`); messages of the next seconds go there at once. From there they are *delivered*: copies are put into the real
topics in the order of the due times, for a limited time per turn, so that sends and pulls are not delayed.

Guarantees: the message itself is in the CommitLog, so nothing is lost. After each batch, a mark in the page cache records
how far entering and delivering have come: a killed process repeats at most the batch under way. Once a second the mark is
written to disk, after everything that it refers to; a power cut repeats the deliveries since then.

No message is delivered early. An absolute time follows the calendar; a delay is measured by the steady clock, however the
calendar was set (`clock_steps`).
"""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.delay.delayed_copy import due_copy
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.copy_sink import UNDER_WAY, CopySink
from pocketmq.broker.put.delivery_time import TIMER_OUT_MS
from pocketmq.broker.timer.copy_forward import CopyForward
from pocketmq.broker.timer.delivered_copies import delivered_of
from pocketmq.broker.timer.due_queue import DueQueue, NearTimer
from pocketmq.broker.timer.pending_timers import PendingTimer, PendingTimers
from pocketmq.broker.timer.timer_enqueue import ENTER_EVERY_MS, Progress, TimerEnqueue, TimerReader
from pocketmq.broker.timer.timer_record import cancel_key, read_timer_record
from pocketmq.broker.timer.wheel_loader import WheelLoader
from pocketmq.runtime.event import Event
from pocketmq.runtime.timers import Timer
from pocketmq.store.format.message import Arrival, PutResult, PutStatus
from pocketmq.store.format.record import BadRecordError
from pocketmq.store.timer.timer_checkpoint import TimerState
from pocketmq.store.timer.timer_log import Numbers
from pocketmq.store.timer.timer_store import TimerStore

log = logging.getLogger("broker")

LOADED_AHEAD_MS: Final = 2000
LOAD_PAUSE_MS: Final = 1
"""Pause between two steps of loading a slot that is not due soon, so that sends do not wait for the whole slot."""
BUDGET_S: Final = 0.0003
"""Time that one turn of the loop spends on delivery. A longer one delivers bursts sooner but delays sends."""
RETRY_AFTER_MS: Final = 100
FAILED_MAX: Final = 8
"""After so many failed puts in a row no other put is tried for RETRY_AFTER_MS."""
FAR_BYTES, FAR_MAX = 1 << 20, 100
"""Number of deliveries of records this far from the previous one after which the resident memory is checked."""
_PUT_OK: Final = PutStatus.PUT_OK
_UNSTORABLE: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


def roll_window_slots(asked_slots: int, precision_ms: int) -> int:
    """Return the number of slots of the roll window if timerRollWindowSlot is `asked_slots`.

    A unit is rolled by at least a third of the window (`timer_store`). That must be beyond the slots loaded when its own
    slot is over: a unit rolled again after a kill is recognized as a duplicate when its next slot is loaded, but not in a
    slot already loaded; and a unit that cancels another one would come too late there.
    """
    return max(asked_slots, 3 * (2 + -(-LOADED_AHEAD_MS // precision_ms)))


class TimerMessageService:
    """Runs on the event loop only, except for writing the mark to disk."""

    def __init__(self, context: Context, timer_store: TimerStore, sink: CopySink) -> None:
        """`sink` takes the copies."""
        store, config = context.store, context.store.config
        self._store = store
        self._timer_store = timer_store
        self._sink = sink
        self._failed_max = self._sink.under_way_max or FAILED_MAX
        self._steps = steps = context.steps
        self._timers = context.timers
        self._clock = context.clock
        self._turn = context.turn
        self._precision_ms = precision_ms = config.timer_precision_ms
        self._stop_enter = config.timer_stop_enqueue
        self._stop_deliver = config.timer_stop_dequeue
        self._near = DueQueue()
        reader = TimerReader(store, precision_ms)
        self.remember = reader.remember
        self.adopt = timer_store.adopt
        self._loader = WheelLoader(timer_store, self._near, steps, reader, precision_ms)
        self._entry = TimerEnqueue(store, timer_store, self._loader, reader, self._clock)
        self._carry = CopyForward(context, timer_store, self._near, self._loader, self._entry.expect)
        self._list = PendingTimers(timer_store, self._near, self._loader, reader, self._clock, self._begin_offset)
        # Messages before this due time and physical offset are delivered, unless they are in the due queue. Only grows.
        self._done = (0, 0)
        self._timer: Timer | None = None
        # Timer of deferred entering.
        self._enter_timer: Timer | None = None
        self._is_running = False
        # State to be written to disk once the log is synced up to that offset.
        self._unwritten: tuple[int, TimerState] | None = None
        self._writing: Future[None] | None = None
        self._write_failed = False
        self._failed_in_a_row = 0
        self._failure = ""
        self._roll_refusal: str | None = None
        self.delivered_total = 0
        self._read_at = self._far_count = 0
        self.put_failed: Event[[]] = Event()
        """Called when the store refuses a copy."""
        self.delivered: Event[[float]] = Event()
        """Called with the seconds from a message's due time until its delivery."""

    @property
    def refusal(self) -> str | None:
        """The reason why timer messages are refused at present, or None."""
        return self._entry.refusal or self._roll_refusal or self._carry.refusal

    # --- start and stop ---------------------------------------------------------------------------------------------

    def recover(self, progress: Progress | None = None) -> None:
        """Restore the state of the last process, and enter the messages after it. Raises OSError, also for lack of space."""
        store, timer_store = self._store, self._timer_store
        self._look()
        now_ms = self._clock.message_time_ms()
        recovered = timer_store.recover(now_ms, store.max_physical_offset, store.max_offset(TIMER_TOPIC, 0))
        self._entry.queue_offset = recovered.queue_offset
        before = recovered.delivered_before
        self._done = before
        if not recovered.complete:
            self._entry.enter_again(recovered, progress)
            self._loader.delivered = delivered_of(store, self._entry.maybe_delivered)
            # This must be on disk before any unit is rolled.
            timer_store.mark(0, self._entry.queue_offset)
            timer_store.flush(timer_store.state, now_ms)
        self._loader.begin(before, recovered.entered_to if recovered.complete else -1)
        while self._loader.step(max(now_ms, before[0]), now_ms):
            pass
        while self._enter():
            pass
        if self.refusal is not None:
            raise OSError(self.refusal)
        self._mark()
        if not recovered.complete:
            # From now on the files record what is delivered.
            timer_store.flush(timer_store.state, now_ms)

    def start(self) -> None:
        """Start delivering."""
        self._is_running = True
        self._steps.subscribe(self._calendar_set)
        self._clock.subscribe(lambda now_ms: self._look())
        self._run()

    def stop(self) -> None:
        """Stop delivering."""
        self._is_running = False
        for timer in (self._timer, self._enter_timer):
            if timer is not None:
                timer.cancel()
        self._enter_timer = None

    def close(self) -> None:
        """Write the final state if the store has synced its log, and unmap the files. Raises OSError."""
        if self._writing is not None:
            self._writing.exception()
        state = self._timer_store.state
        if not self._write_failed and self._store.flushed_offset >= self._store.max_physical_offset:
            self._timer_store.flush(state, self._clock.message_time_ms())
            self._timer_store.seal()
        self._timer_store.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done before a timer expires."""
        return self._enter_timer is None and self._timer is not None and self._timer.when_ms > 0

    @property
    def delivered_to_ms(self) -> int:
        """The time up to which all messages that are due and dispatched have been put."""
        loader, near_ms = self._loader, self._near.due_ms
        waits_from_ms = loader.unread_ms - self._steps.ahead_ms
        if self._entry.queue_offset < self._store.max_offset(TIMER_TOPIC, 0):
            waits_from_ms = min(waits_from_ms, self._entry.soonest_ms + 1)  # messages not entered are due from then on
        return (waits_from_ms if near_ms is None else min(waits_from_ms, near_ms)) - 1

    # --- entering ---------------------------------------------------------------------------------------------------

    def expect(self, out_ms: int) -> None:
        """Announce that a message with this TIMER_OUT_MS will be put into the timer topic."""
        self._entry.expect(out_ms)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Enter new units of the timer queue, now or soon. To be called after each dispatch."""
        if not self._is_running or all(arrival.topic != TIMER_TOPIC for arrival in arrivals):
            return
        if not self._entry.is_put_off:
            self._enter_now()
        elif self._enter_timer is None:
            self._enter_timer = self._timers.after(ENTER_EVERY_MS / 1000, self._enter_now)

    def _enter_now(self) -> None:
        if self._enter_timer is not None:
            self._enter_timer.cancel()
            self._enter_timer = None
        if self._is_running:
            self._look()
            more = self._enter()
            self._mark()
            self._arm(at_once=more)

    def _enter(self) -> bool:
        return not self._stop_enter and self._entry.enter()

    def _enter_all(self) -> None:
        """Enter deferred messages, for requests that list pending messages."""
        while self._enter_timer is not None and self._enter():
            pass

    # --- delivery ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        commit_log = self._store.commit_log
        self._steps.note(commit_log.max_offset, commit_log.last_store_timestamp_ms)

    def _calendar_set(self) -> None:
        self._near.set_difference(self._steps.difference)
        self._arm(at_once=True)

    def _run(self) -> None:
        """Load and deliver for a limited time."""
        self._timer = None
        if not self._is_running:
            return
        try:
            self._look()
            enters = not self._entry.is_put_off and self._enter()
            more = self._go_on()
            self._mark()
            self._near.forget_cancelled(self._timer_store.read_time_ms)
            self._release_memory()
            if self._failed_in_a_row < self._failed_max:
                has_time = more and not enters and self._has_time
                self._arm(at_once=enters or (more and not has_time), has_time=has_time)
        finally:
            if self._timer is None:
                self._failed_in_a_row = 0
                self._timer = self._timers.after(RETRY_AFTER_MS / 1000, self._run)

    def _release_memory(self) -> None:
        # Messages that waited for long are spread over all files: the kernel maps neighbouring pages too, so that one
        # message makes up to 256 KiB resident, and thousands may be read before the checkpoint thread releases memory.
        if self._far_count >= FAR_MAX:
            self._far_count = 0
            self._store.checkpoint_service.look_at_memory()

    def _go_on(self) -> bool:
        """Deliver due messages and load the next slots; return whether work is left because the time was used up."""
        clock, near = self._clock, self._near
        now_ms, end_s = clock.message_time_ms(), clock.monotonic() + BUDGET_S
        until_ms = now_ms + LOADED_AHEAD_MS + self._steps.ahead_ms
        count = 0
        try:
            while self._failed_in_a_row < self._failed_max and (due := self._due_or_loaded(now_ms, until_ms)) is not None:
                if due:
                    timer = near.pop()
                    try:
                        self._deliver(timer, now_ms)
                    except BaseException:
                        near.put_back(timer, now_ms + RETRY_AFTER_MS)
                        raise
                    count += 1
                if (not due or count & 7 == 0) and clock.monotonic() >= end_s:
                    return True
            self._roll_refusal = None
        except OSError as error:
            if self._roll_refusal is None:
                log.error("timer messages cannot be rolled: %s; trying again", error)
            self._roll_refusal = f"timer messages cannot be rolled: {error}"
        finally:
            if count:
                self._turn.arm()
        return False

    def _due_or_loaded(self, now_ms: int, until_ms: int) -> bool | None:
        """Return True if a message is due, False if a part of a slot was loaded, None if nothing is to be done now."""
        due_ms, loader = self._near.due_ms, self._loader
        is_due = False
        if due_ms is not None and due_ms <= now_ms:
            if self._stop_deliver:
                return None
            # Slots not fully loaded may hold messages that are due before this one.
            if due_ms <= loader.unread_ms - self._steps.ahead_ms:
                return True
            is_due = True
        if loader.step(until_ms, now_ms):
            return False
        return True if is_due else None

    def _deliver(self, timer: NearTimer, now_ms: int) -> None:
        """Put the copy, or schedule another attempt. A message that can never be delivered is logged and dropped."""
        physical_offset = timer.physical_offset
        if not -FAR_BYTES < physical_offset - self._read_at < FAR_BYTES:
            self._far_count += 1
        self._read_at = physical_offset
        if self._sink.under_way_max and self._sink.waits(physical_offset):
            self._near.put_back(timer, now_ms + RETRY_AFTER_MS)
            return
        file = self._store.commit_log.mapped_files.file_at(physical_offset)
        try:
            if file is None:
                raise BadRecordError("the record does not exist")
            view, position = file.view, physical_offset - file.start_offset
            cancelled = self._near.cancelled_at(timer.out_ms)
            if cancelled:
                record = read_timer_record(view, self._precision_ms, position)
                if not cancelled.isdisjoint(record.keys(physical_offset)):
                    return
            message = due_copy(view, position, now_ms, self._precision_ms)
        except ValueError as error:
            log.error("the timer message at physical offset %d is lost: %s", physical_offset, error)
            return
        try:
            result = self._sink.put(message, physical_offset)
        except OSError as error:
            result = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if result.status is _PUT_OK:
            self._failed_in_a_row, self._failure = 0, ""
            self.delivered_total += 1
            # A delay that had to be put back counts from its last attempt, as its due time moves with the calendar.
            self.delivered((now_ms - (timer.due_ms if timer.difference is not None else timer.nominal_ms)) / 1000)
            return
        if result is UNDER_WAY:
            self._near.put_back(timer, now_ms + RETRY_AFTER_MS)
            return
        self.put_failed()
        reason = f"a timer message cannot be delivered to {message.topic}: {result.reason or result.status.name}"
        if result.status in _UNSTORABLE:
            log.error("%s; it is lost", reason)
            return
        self._failed_in_a_row += 1
        if reason != self._failure:
            self._failure = reason
            log.error("%s; trying again", reason)
        self._near.put_back(timer, now_ms + RETRY_AFTER_MS)

    @property
    def _has_time(self) -> bool:
        """Whether nothing is due, and the slot being loaded is not due soon."""
        now_ms, due_ms, loading_ms = self._clock.message_time_ms(), self._near.due_ms, self._loader.loading_ms
        if loading_ms is None or (due_ms is not None and due_ms <= now_ms):
            return False
        return loading_ms - self._steps.ahead_ms > now_ms + LOADED_AHEAD_MS // 2

    def _arm(self, *, at_once: bool = False, has_time: bool = False) -> None:
        """Set the one timer for the next event. `has_time`: loading continues after a pause."""
        if not self._is_running:
            return
        if at_once or self.refusal is not None:
            when_ms = 0
        else:
            due_ms = self._near.due_ms
            load_ms = self._loader.loaded_to_ms - LOADED_AHEAD_MS - self._steps.ahead_ms
            if has_time:
                load_ms = self._clock.message_time_ms() + LOAD_PAUSE_MS
            when_ms = load_ms if due_ms is None or self._stop_deliver else min(due_ms, load_ms)
        if self._timer is not None:
            if not self._timer.is_cancelled and self._timer.when_ms <= when_ms:
                return
            self._timer.cancel()
        if self.refusal is not None or (not at_once and self._loader.is_held_up):
            self._timer = self._timers.after(RETRY_AFTER_MS / 1000, self._run)
        elif at_once:
            self._timer = self._timers.after(0, self._run)  # after all other work that is ready
        else:
            self._timer = self._timers.at_ms(when_ms, self._run)

    # --- progress ---------------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Record how far messages are entered and delivered."""
        loader, now_ms = self._loader, self._clock.message_time_ms()
        loaded_to_ms = loader.loaded_to_ms - (0 if loader.loading_ms is None else self._precision_ms)
        # At most up to now: messages that arrive later are due later.
        self._done = max(self._done, (min(loaded_to_ms, now_ms) + 1, 0))
        before = min(self._done, self._near.floor or self._done)
        read_time_ms = min(loaded_to_ms, loader.loaded_to_ms - self._precision_ms, now_ms)
        for oldest_ms in (self._near.oldest_slot_ms, loader.unrolled_ms):
            if oldest_ms is not None:
                read_time_ms = min(read_time_ms, oldest_ms)
        self._store.commit_log.write()
        self._timer_store.mark(read_time_ms, self._entry.queue_offset, before)

    def persist_in(self, executor: Executor) -> None:
        """Write the mark to disk in `executor` if everything that it refers to is synced. To be called every second."""
        if self._write_failed or (self._writing is not None and not self._writing.done()):
            return
        try:
            self._timer_store.clean(self._store.min_physical_offset)
        except OSError as error:
            log.warning("a file of the timer log cannot be deleted: %s; trying again", error)
        self._steps.forget(self._store.min_physical_offset)
        state = self._timer_store.state
        if self._unwritten is None and state is not None:
            self._unwritten = self._store.max_physical_offset, state
        if self._unwritten is None:
            return
        end_offset, state = self._unwritten
        if end_offset <= self._store.flushed_offset:
            self._writing = executor.submit(self._write, state)
            self._unwritten = None
        else:
            # A log that is synced at intervals leaves a few pages unsynced for ten seconds.
            self._store.request_sync(end_offset)

    def _write(self, state: TimerState) -> None:
        try:
            self._timer_store.flush(state, self._clock.message_time_ms())
        except OSError as error:
            # Data written since the last sync may be lost, and the kernel reports such an error only once.
            self._write_failed = True
            log.error("timer files cannot be synced: %s; after a crash, timers are rebuilt from the CommitLog", error)

    # --- queries and cancelling -------------------------------------------------------------------------------------

    def count_at(self, out_ms: int) -> int:
        """Return the number of units in the slot of a TIMER_OUT_MS."""
        self._enter_all()
        return self._timer_store.count_at(out_ms)

    def cancel_near(self, properties: dict[str, str]) -> None:
        """Apply a cancelling message that was just put with these properties, without waiting for the end of the turn."""
        out_ms, key = int(properties[TIMER_OUT_MS]), cancel_key(properties)
        if key is not None and out_ms < self._loader.loaded_to_ms:
            self._near.cancel(out_ms, key)

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no pending record lies before `end_offset`; if one does, start copying in later turns."""
        self._enter_all()
        return not self._is_running or self._carry.may_remove(end_offset)

    def pending(self, begin_ms: int = 0, end_ms: int = 1 << 62, topic: str | None = None) -> Iterator[PendingTimer]:
        """Yield the messages with out_ms in [begin_ms, end_ms), by out_ms and then arrival.

        With `topic`, only messages of it or of a topic with the same hash code. Cancelled messages are left out. No message
        may be entered or delivered before the last one is read.
        """
        self._enter_all()
        return self._list.pending(begin_ms, end_ms, topic)

    def _begin_offset(self) -> int:
        return max(self._store.min_physical_offset, self._carry.carried_to)

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        """Return (messages, cancelling units) by hour of the due time (epoch ms of its beginning), ascending.

        Cancelled messages are counted until their slot is loaded.
        """
        self._enter_all()
        return self._list.counts_by_hour()

    def parts(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield due times and hash codes of the topics of pending messages, in parts, between which the loop may run."""
        return self._list.parts()

    def count(self) -> int:
        """Return the number of pending messages, including those not entered yet. Cheap enough for frequent calls."""
        return self.not_entered + self._list.count()

    @property
    def not_entered(self) -> int:
        """Number of messages of the timer topic that are not in the wheel yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self._entry.queue_offset, 0)

    def counts_by_topic_hash(self) -> dict[int, int]:
        """Return the number of pending messages by Java's hash code of the topic, counted as in `counts_by_hour`."""
        self._enter_all()
        return self._list.counts_by_topic_hash()

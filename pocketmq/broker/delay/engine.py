"""Delivery of delayed messages at the millisecond at which they are due, from all sources, in the order of their due times.

Delivering means putting a copy into the real topic and queue. A turn is limited in time, so that sends and pulls are not
delayed. Afterwards each source records its progress: a killed process repeats at most the batch under way.

A copy that is refused, or still being sent to another broker, is tried again, independently of the messages after it. While
too many are waiting for that, no others are tried.

No message is delivered early. An absolute time follows the calendar; a delay is measured by the steady clock, however the
calendar was set (`clock_steps`).
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from pocketmq.broker.context import Context
from pocketmq.broker.delay.sources import FAR_MS, LOADED_AHEAD_MS, Due, Source
from pocketmq.broker.due_work import RETRY_AFTER_S, DueWork
from pocketmq.broker.put.copy_sink import UNDER_WAY, CopySink
from pocketmq.runtime.event import Event
from pocketmq.store.format.message import Arrival, PutResult, PutStatus

log = logging.getLogger("broker")

LOAD_PAUSE_MS: Final = 1
"""Pause between two turns that load messages which are not due soon, so that sends do not wait for all of them."""
BUDGET_S: Final = 0.0005
"""Time that one turn of the loop spends on delivery. A longer one delivers bursts sooner but delays sends."""
TIMED_EVERY: Final = 8
"""Number of deliveries between two readings of the clock."""
TOGETHER_MIN, TOGETHER_MAX = 16, 48
"""Numbers of messages due at once that are delivered together."""
REFUSED_MAX: Final = 8
"""Number of refused messages waiting for another attempt at which no further ones are tried."""
FAR_BYTES, FAR_MAX = 1 << 20, 100
"""Number of deliveries of records this far from the previous one after which the resident memory is checked."""
_PUT_OK: Final = PutStatus.PUT_OK
_UNSTORABLE: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class DelayEngine:
    """Delivers the messages of some sources. Runs on the event loop only."""

    def __init__(self, context: Context, sink: CopySink, sources: Sequence[Source[Any]]) -> None:
        self.sink = sink
        """Takes the copies; an acting master has another one."""
        self.sources = sources
        self._context = context
        self._tail = context.store.commit_log.tail
        self._clock = context.clock
        self._turn = context.turn
        self._work = DueWork(context, self._go_on, BUDGET_S, "delayed messages cannot be delivered")
        context.steps.subscribe(self._calendar_set)
        # Messages to be tried again from a monotonic time on.
        self._waiting: deque[tuple[float, Source[Any], Due]] = deque()
        self._copies_end = 0
        self._behind: set[Source[Any]] = set()  # sources with new messages that are not taken in
        self._touched: set[Source[Any]] = set()  # sources with deliveries or progress in this turn
        self._failure = ""
        self._read_at = self._far_count = 0
        self.put_failed: Event[[]] = Event()
        """Called when a copy is refused."""

    def start(self) -> None:
        """Start delivering. May follow a `stop`."""
        self._context.look_at_clocks()
        for source in self.sources:
            source.start()
        self._behind.update(self.sources)
        self._work.start()

    def stop(self) -> None:
        """Stop delivering."""
        self._work.stop()
        self._waiting.clear()
        self._behind.clear()
        for source in self.sources:
            source.stop()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done before a later message time."""
        return self._work.is_idle

    def may_remove(self, end_offset: int) -> bool:
        """Return whether no record before physical offset `end_offset` is still needed."""
        return all(source.may_remove(end_offset) for source in self.sources)

    def mark_in(self, executor: Executor) -> None:
        """Write the progress to disk in `executor`. To be called every second, also to notice changes of the calendar."""
        now_ms = self._context.look_at_clocks()
        self._context.steps.forget(self._context.store.min_physical_offset)
        self._tail.write()  # copies before the progress
        for source in self.sources:
            source.mark_in(executor, now_ms)

    def _calendar_set(self) -> None:
        for source in self.sources:
            source.calendar_set()

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Take in new messages, now or soon. To be called after each dispatch, when all records are written."""
        for source in self.sources if self._work.is_running else ():
            own = [arrival for arrival in arrivals if arrival.topic == source.topic]
            if own:
                now_ms = self._context.look_at_clocks()
                if not self._enter(source, own, now_ms):
                    source.mark(self._copies_end, now_ms)
                    self._begin_at(min(source.near.due_ms, source.load_ms))

    def _enter(self, source: Source[Any], arrivals: Sequence[Arrival], now_ms: int) -> float | None:
        """Take in new messages; return the seconds after which more should be taken in, or None."""
        wait_s = source.enter(arrivals, now_ms)
        self._touched.add(source)
        if wait_s is None:
            self._behind.discard(source)
        else:
            self._behind.add(source)
            self._work.after(wait_s)
        return wait_s

    # --- a turn -----------------------------------------------------------------------------------------------------

    def _go_on(self, end_s: float, now_ms: int) -> None:
        """Deliver what is due, load what is due soon, and determine the next turn."""
        self._touched.clear()
        enters = 0.0 in [self._enter(source, (), now_ms) for source in tuple(self._behind)]
        load_ms = None if self._try_again(now_ms, end_s) else self._take(now_ms, end_s)
        if self._tail.unwritten:
            self._tail.write()
        for source in self._touched:
            source.mark(self._copies_end, now_ms)
        self._release_memory()
        if self._waiting:
            self._work.after(max(self._waiting[0][0] - self._clock.monotonic(), 0))
        if load_ms is None:
            now_ms = self._clock.message_time_ms()
            if not enters and self._has_time(now_ms):
                self._work.at_ms(now_ms + LOAD_PAUSE_MS)
            else:
                self._work.after(0)
        elif load_ms <= now_ms and any(source.is_held_up for source in self.sources):
            self._work.after(RETRY_AFTER_S)
        else:
            self._begin_at(load_ms)

    def _begin_at(self, when_ms: int) -> None:
        if when_ms < FAR_MS:
            self._work.at_ms(when_ms)

    def _release_memory(self) -> None:
        # Messages that waited for long are spread over all files: the kernel maps neighbouring pages too, so that one
        # message makes up to 256 KiB resident, and thousands may be read before the checkpoint thread releases memory.
        if self._far_count >= FAR_MAX:
            self._far_count = 0
            self._context.store.checkpoint_service.look_at_memory()

    def _has_time(self, now_ms: int) -> bool:
        """Return whether nothing is due, and what is left to be loaded is not due soon."""
        return all(
            source.near.due_ms > now_ms and source.loaded_to_ms > now_ms + LOADED_AHEAD_MS // 2 for source in self.sources
        )

    def _try_again(self, now_ms: int, end_s: float) -> bool:
        """Try the messages that have waited long enough; return whether the time was used up."""
        now_s = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            _, source, due = self._waiting.popleft()
            self._touched.add(source)
            source.done(due)
            self._turn.arm()
            self._deliver(source, due, now_ms)
            if self._clock.monotonic() >= end_s:
                return True
        return False

    def _take(self, now_ms: int, end_s: float) -> int | None:
        """Deliver due messages and load the next ones. Return when more are to be loaded; None if the time was used up."""
        until_ms, waiting = now_ms + LOADED_AHEAD_MS + self._context.steps.ahead_ms, self._waiting
        waiting_max = self.sink.under_way_max or REFUSED_MAX
        may_go_together = self.sink.put_together is not None
        while len(waiting) < waiting_max:
            source, due_ms, next_ms = self._first()
            loaded_to_ms = source.loaded_to_ms if due_ms <= now_ms else 0
            # Messages that are not loaded yet may be due before this one.
            if due_ms > loaded_to_ms:
                load_ms = self._load(until_ms, now_ms)
                if load_ms is None:
                    if self._clock.monotonic() >= end_s:
                        return None
                    continue
                if due_ms > now_ms:
                    self._begin_at(due_ms)
                    return load_ms
                next_ms = due_ms
            else:
                next_ms = min(next_ms, loaded_to_ms, now_ms)
            self._turn.arm()
            self._touched.add(source)
            may_go_together = may_go_together and self._deliver_together(source, next_ms, now_ms)
            if not may_go_together:
                for _ in range(TIMED_EVERY):
                    self._deliver(source, source.pop(), now_ms)
                    if source.near.due_ms > next_ms or len(waiting) >= waiting_max:
                        break
            if self._clock.monotonic() >= end_s:
                return None
        return FAR_MS

    def _load(self, until_ms: int, now_ms: int) -> int | None:
        """Load a part of what is due by `until_ms`; return None if it was one, else when the next one is to be loaded."""
        next_ms = FAR_MS
        for source in self.sources:
            load_ms = source.load_ms
            if load_ms <= now_ms:
                self._touched.add(source)
                if source.load_some(until_ms, now_ms):
                    return None
                load_ms = source.load_ms
            next_ms = min(next_ms, load_ms)
        return next_ms

    def _first(self) -> tuple[Source[Any], int, int]:
        """Return the source whose first message is due before those of the others, its due time, and the time until which
        its other messages are due before them too."""
        found, found_ms, next_ms = self.sources[0], FAR_MS, FAR_MS
        for source in self.sources:
            due_ms = source.near.due_ms
            if due_ms < found_ms:
                found, found_ms, next_ms = source, due_ms, found_ms
            elif due_ms < next_ms:
                next_ms = due_ms
        return found, found_ms, next_ms

    # --- messages ---------------------------------------------------------------------------------------------------

    def _deliver_together(self, source: Source[Any], until_ms: int, now_ms: int) -> bool:
        """Deliver several messages due by `until_ms` together, if the sink can; return whether it did."""
        put_together = self.sink.put_together
        if put_together is None or len(source.near.row) < TOGETHER_MIN:
            return False
        dues = source.together(until_ms, TOGETHER_MAX)
        if len(dues) < TOGETHER_MIN:
            return False
        physical_offsets = [due.physical_offset for due in dues]
        count = put_together(physical_offsets, now_ms)
        if not count:
            return False
        self._copies_end = self._tail.end_offset
        source.remove_first(count)
        source.delivered_total += count
        self._note_reads(physical_offsets[:count])
        for due_ms, alike in Counter([due.due_ms for due in dues[:count]]).items():
            source.delivered((now_ms - due_ms) / 1000, alike)
        return True

    def _note_reads(self, physical_offsets: Sequence[int]) -> None:
        for physical_offset in physical_offsets:
            if not -FAR_BYTES < physical_offset - self._read_at < FAR_BYTES:
                self._far_count += 1
            self._read_at = physical_offset

    def _deliver(self, source: Source[Any], due: Due, now_ms: int) -> None:
        """Put the copy, or let the message wait. One that can never be delivered is logged and dropped."""
        sink, physical_offset = self.sink, due.physical_offset
        if sink.under_way_max and sink.waits(physical_offset):
            self._wait(source, due)
            return
        self._note_reads((physical_offset,))
        try:
            message = source.copy(due, now_ms)
        except ValueError as error:
            log.error("the delayed message at physical offset %d is lost: %s", physical_offset, error)
            return
        except BaseException:
            self._wait(source, due)
            raise
        if message is None:
            return
        try:
            result = sink.put(message, physical_offset)
        except OSError as error:
            result = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        except BaseException:
            self._wait(source, due)
            raise
        if result.status is _PUT_OK:
            self._failure = ""
            if result.end_offset > self._copies_end:
                self._copies_end = result.end_offset
            source.delivered_total += 1
            source.delivered((now_ms - due.due_ms) / 1000, 1)
        elif result is UNDER_WAY or not self._is_unstorable(message.topic, result):
            self._wait(source, due)

    def _wait(self, source: Source[Any], due: Due) -> None:
        """Try a message again later."""
        source.wait(due)
        self._waiting.append((self._clock.monotonic() + RETRY_AFTER_S, source, due))

    def _is_unstorable(self, topic: str, result: PutResult) -> bool:
        self.put_failed()
        reason = f"a delayed message cannot be delivered to {topic}: {result.reason or result.status.name}"
        if result.status in _UNSTORABLE:
            log.error("%s; it is lost", reason)
            return True
        if reason != self._failure:
            self._failure = reason
            log.error("%s; trying again", reason)
        return False

"""PullRequestHoldService: pulls that wait for messages (Apache has the same name).

A pull that found nothing is held under its queue. The arrivals of a loop turn wake the held pulls of the grown queues once,
if a new unit passes the pull's tag filter or a new record its record filter. Other pulls of a grown queue are answered after
5 s at most, so that the consumer learns its next offset. A woken pull is served again and answered with any result: it is
never held twice, so no client waits longer than it asked for.

Many pulls of one queue, and those with a record filter, are checked in slices. Each round begins with one pull of each
connection; the arrivals during a round are merged into one arrival for the next round.

Waking a pull costs a write, a read and two runs of the handler, for one message as for ten. Therefore, when many pulls are
woken, each queue is served once per period (`PERIOD_S`), which collects messages and raises the throughput.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pocketmq.broker.polling.held_requests import TIMEOUT_MAX_S, UNREAD_S, HeldRequest, HeldRequests, HoldLimits, served
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.format.message import Arrival
from pocketmq.store.queue.queue_reader import Matches
from pocketmq.store.queue.record_filter import NotCompiled, RecordFilter

log = logging.getLogger("broker")

CHECK_S: Final = 5.0
"""Delay after which a pull is answered, as in Apache, if its queue grew by unwanted messages only: its offset advances."""
PERIOD_S: Final = 0.004
"""Length of the periods in which woken pulls are counted."""
WOKEN_AT_ONCE: Final = 5
"""After this many in a period (a rate of 1,250 a second), queues already served in it wait for the next period."""

WOKEN_WITHOUT_SLICES: Final = 16
"""Up to this many pulls of a queue are checked at once, unless one has a record filter; more are checked in slices."""
TAGS_CODES_MAX: Final = 4096
"""Units of merged arrivals beyond which all pulls of the queue are woken without filtering."""

Serve = Callable[[], Response]
AnyMatches = Callable[[str, int, int, int, RecordFilter], bool]
"""MessageStore.any_matches: whether any record in a range of a queue passes a filter."""


@dataclass(eq=False, slots=True)
class PullHold(HeldRequest):
    """One held pull. Its place is its queue: topic and queue id."""

    queue_offset: int
    matches: Matches | RecordFilter | None
    serve: Serve


class PullRequestHoldService(HeldRequests[PullHold]):
    """The held pulls by queue."""

    def __init__(self, timers: Timers, slices: WorkSlices, any_matches: AnyMatches, limits: HoldLimits) -> None:
        super().__init__(timers, slices, limits)
        self._any_matches = any_matches
        self._arrivals: list[Arrival] = []
        # Queues whose pulls are being checked in slices -> arrivals since the round began.
        self._rounds: dict[tuple[str, int], _Growth | None] = {}
        # Of the present period: queues with woken pulls, number of woken pulls, arrivals postponed to the next period.
        self._period_end_s = 0.0
        self._woken: set[tuple[str, int]] = set()
        self._woken_count = 0
        self._postponed: list[Arrival] = []

    def hold(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        matches: Matches | RecordFilter | None,
        timeout_s: float,
        channel: Channel,
        serve: Serve,
        size: int = 0,
    ) -> Deferred | None:
        """Hold a pull of `size` bytes until a unit at or after `queue_offset` passes `matches`, or for `timeout_s`; then
        answer with `serve()`.

        Return None when a limit is reached: the caller must answer at once.
        """
        if not self._has_room(channel, size):
            return None
        now = self._timers.clock.monotonic()
        deadline_s, places = now + min(timeout_s, TIMEOUT_MAX_S), ((topic, queue_id),)
        return self._keep(PullHold(channel, deadline_s, size, places, queue_offset, matches, serve), now)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Record grown queues; their pulls are woken in the turn's WAKE phase."""
        if self.places:
            self._arrivals += arrivals

    def wake(self) -> None:
        """Serve the held pulls of the queues that grew. Runs in the turn's WAKE phase."""
        if not self._arrivals:
            return  # no queue of a held pull
        arrivals, self._arrivals = self._arrivals, []
        now = self._timers.clock.monotonic()
        if now >= self._period_end_s and not self._postponed:
            self._begin_period(now)
        for arrival in arrivals:
            key = (arrival.topic, arrival.queue_id)
            if self._woken_count < WOKEN_AT_ONCE or key not in self._woken:
                self._wake_queue(arrival)
            elif key in self.places:
                if not self._postponed:
                    self._timers.after(self._period_end_s - now, self._next_period)
                self._postponed.append(arrival)

    def _begin_period(self, now: float) -> None:
        self._period_end_s = now + PERIOD_S
        self._woken.clear()
        self._woken_count = 0

    def _next_period(self) -> None:
        arrivals, self._postponed = self._postponed, []
        self._begin_period(self._timers.clock.monotonic())
        for arrival in arrivals:
            self._wake_queue(arrival)

    def _wake_queue(self, arrival: Arrival) -> None:
        key = (arrival.topic, arrival.queue_id)
        queue = self.places.get(key)
        if queue is None:
            return
        growth = _Growth(key, arrival.queue_offset, arrival.tags_codes)
        if key in self._rounds:
            self._rounds[key] = growth.merged_with(self._rounds[key])
        elif len(queue) > WOKEN_WITHOUT_SLICES or any(isinstance(hold.matches, RecordFilter) for hold in queue):
            self._rounds[key] = None
            self._slices.start(self._round(growth))
        else:
            for hold in tuple(queue):
                self._check(hold, growth)

    def _round(self, growth: "_Growth | None") -> Iterator[None]:
        """Check all pulls of a queue, then again for the arrivals during the round."""
        assert growth is not None
        key = growth.key
        try:
            while growth is not None:
                for hold in _in_turn(self.places.get(key, ())):
                    self._check(hold, growth)
                    yield
                growth, self._rounds[key] = self._rounds[key], None
        finally:
            del self._rounds[key]

    def _check(self, hold: PullHold, growth: "_Growth") -> None:
        """Answer a pull if any new message passes its filter."""
        if not hold.is_held or hold.queue_offset >= growth.end_offset:
            return
        if not hold.channel.is_writable:
            self._check_soon(hold, UNREAD_S)
        elif self._is_wanted(growth, hold.matches):
            self._end(hold)
            self._woken.add(growth.key)
            self._woken_count += 1
        else:
            self._check_soon(hold, CHECK_S)

    def _is_wanted(self, growth: "_Growth", matches: Matches | RecordFilter | None) -> bool:
        codes = growth.tags_codes
        if matches is None or codes is None:
            return True
        try:
            if isinstance(matches, RecordFilter):
                (topic, queue_id), end = growth.key, growth.end_offset
                return self._any_matches(topic, queue_id, end - len(codes), end, matches)
            return any(map(matches, codes))
        except NotCompiled:
            return True
        except Exception:
            log.exception("the filter of a pull of %s failed; the pull is answered", growth.key)
            return True

    def wake_all(self, topic: str) -> None:
        """Serve every held pull of a topic, after the topic was deleted or lost its read permission."""
        holds = [hold for queue, holds in self.places.items() if queue[0] == topic for hold in holds]  # type: ignore[index]
        if holds:
            self._slices.start(self._ending(holds))

    def _last_answer(self, held: PullHold) -> Response:
        return served(held.serve, *held.places)

    def _check_soon(self, hold: PullHold, seconds: float) -> None:
        deadline_s = self._timers.clock.monotonic() + seconds
        if hold.deadline_s > deadline_s:
            self._move(hold, deadline_s)


class _Growth(NamedTuple):
    """Growth of a queue: the new units end before `end_offset`; `tags_codes` is None if there are too many."""

    key: tuple[str, int]
    end_offset: int
    tags_codes: list[int] | None

    def merged_with(self, before: "_Growth | None") -> "_Growth":
        """Return this growth merged with the preceding one."""
        if before is None:
            return self
        codes = None
        if before.tags_codes is not None and self.tags_codes is not None:
            codes = before.tags_codes + self.tags_codes
        return self._replace(tags_codes=codes if codes is None or len(codes) <= TAGS_CODES_MAX else None)


def _in_turn(holds: Iterable[PullHold]) -> list[PullHold]:
    """Return one pull of each connection first, then the others, so that a connection with many delays no other."""
    first: dict[Channel, PullHold] = {}
    others = []
    for hold in holds:
        if first.setdefault(hold.channel, hold) is not hold:
            others.append(hold)
    return [*first.values(), *others]

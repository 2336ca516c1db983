"""Pulls that wait for messages (Apache: PullRequestHoldService).

A pull that found nothing is held by its queue. Arrivals of a turn wake the held pulls of the queues that grew, once, and
only where a new unit passes the pull's tag filter, or a new record its record filter; others stay for 5 s at most, to be
told how far to step. A woken pull is served again and answers whatever it gets: it is never held twice, so no client waits
longer than it said.

Time here is liveness. One timer serves all: it is set for the earliest deadline, and looks at all holds when it fires, at
most every 0.1 s (10,000 holds take 1 ms). The alternative, a timer a pull, costs 1.5 us a pull and as much to cancel.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from remoting.codes import ResponseCode
from remoting.command import Response
from remoting.dispatch import Deferred, RemotingError
from remoting.server import Channel
from runtime.timers import Timer, Timers
from store.message import Arrival
from store.queue_reader import Matches
from store.record_filter import RecordFilter

log = logging.getLogger("broker")

HOLDS_MAX: Final = 100_000
"""Pulls held at once; further ones are answered at once (Apache: pullThreadPoolQueueCapacity)."""
CHECK_S: Final = 5.0
"""A pull whose queue grew by what it does not want is answered this much later: the consumer moves on (Apache's checker)."""
TIMEOUT_MAX_S: Final = 3600.0
"""No pull is held longer, whatever it asks for."""
SCAN_MIN_S: Final = 0.1
"""Deadlines are looked at no more often than this, so an answer may come this much late."""

Serve = Callable[[], Response]
AnyMatches = Callable[[str, int, int, int, RecordFilter], bool]
"""MessageStore.any_matches: whether one of some records of a queue is wanted."""


class PullHold:
    """One held pull."""

    __slots__ = ("channel", "deadline_s", "deferred", "key", "matches", "queue_offset", "serve")

    def __init__(
        self,
        key: tuple[str, int],
        queue_offset: int,
        matches: Matches | RecordFilter | None,
        serve: Serve,
        channel: Channel,
        deadline_s: float,
    ) -> None:
        self.key = key
        self.queue_offset = queue_offset
        self.matches = matches
        self.serve = serve
        self.channel = channel
        self.deadline_s = deadline_s
        self.deferred = Deferred()


class PullRequestHoldService:
    """The held pulls by queue and by connection."""

    def __init__(self, timers: Timers, any_matches: AnyMatches) -> None:
        self._timers = timers
        self._any_matches = any_matches
        # Dicts for sets: they keep the order of arrival, so the pull that waited longest is answered first.
        self._queues: dict[tuple[str, int], dict[PullHold, None]] = {}
        self._channels: dict[Channel, set[PullHold]] = {}
        self._arrivals: list[Arrival] = []
        self._timer: Timer | None = None
        self._timer_due_s = float("inf")
        self.count = 0
        self.is_stopped = False
        """Whether the broker stops: pulls are to be refused."""

    def hold(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        matches: Matches | RecordFilter | None,
        timeout_s: float,
        channel: Channel,
        serve: Serve,
    ) -> Deferred | None:
        """Keep a pull until a unit beyond `queue_offset` passes `matches`, or for `timeout_s`; then answer `serve()`.

        None when too many are held already: the caller answers at once.
        """
        if self.count >= HOLDS_MAX:
            return None
        now = self._timers.clock.monotonic()
        hold = PullHold((topic, queue_id), queue_offset, matches, serve, channel, now + min(timeout_s, TIMEOUT_MAX_S))
        queue = self._queues.get(hold.key)
        if queue is None:
            queue = self._queues[hold.key] = {}
        queue[hold] = None
        held = self._channels.get(channel)
        if held is None:
            held = self._channels[channel] = set()
            if not channel.attachments.get("holds"):
                channel.attachments["holds"] = True
                channel.on_close(self.channel_closed)
        held.add(hold)
        self.count += 1
        if hold.deadline_s < self._timer_due_s:
            self._arm(hold.deadline_s, now)
        return hold.deferred

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Queues grew; their pulls wake in the turn's WAKE phase."""
        if self._queues:
            self._arrivals += arrivals

    def wake(self) -> None:
        """Serve the held pulls for which something came. To be run in the turn's WAKE phase."""
        if not self._arrivals:
            return
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            queue = self._queues.get((arrival.topic, arrival.queue_id))
            if queue is None:
                continue
            for hold in [hold for hold in queue if hold.queue_offset < arrival.queue_offset]:
                if hold.matches is None or self._is_wanted(arrival, hold.matches):
                    self._serve(hold)
                else:
                    self._check_soon(hold)

    def _is_wanted(self, arrival: Arrival, matches: Matches | RecordFilter) -> bool:
        if isinstance(matches, RecordFilter):
            end = arrival.queue_offset
            start = end - len(arrival.tags_codes)
            return self._any_matches(arrival.topic, arrival.queue_id, start, end, matches)
        return any(map(matches, arrival.tags_codes))

    def wake_all(self, topic: str) -> None:
        """Serve every held pull of a topic: it went away, or its permission did."""
        for key in [key for key in self._queues if key[0] == topic]:
            for hold in list(self._queues.get(key, ())):
                self._serve(hold)

    def stop(self) -> int:
        """Serve every held pull and refuse further ones; returns how many were held.

        Java 4.9 and Go do not notice a closed connection: a pull that is never answered costs them its time-out, 30 s.
        """
        self.is_stopped = True
        holds = [hold for queue in self._queues.values() for hold in queue]
        for hold in holds:
            self._serve(hold)
        if self._timer is not None:
            self._timer.cancel()
        return len(holds)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pulls of a connection that is gone."""
        for hold in list(self._channels.get(channel, ())):
            self._remove(hold)

    def _serve(self, hold: PullHold) -> None:
        self._remove(hold)
        try:
            response = hold.serve()
        except RemotingError as error:
            response = Response(error.code, remark=error.remark)
        except Exception as error:
            log.exception("a held pull of %s failed", hold.key)
            response = Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        hold.deferred.complete(response)

    def _check_soon(self, hold: PullHold) -> None:
        now = self._timers.clock.monotonic()
        if hold.deadline_s > now + CHECK_S:
            hold.deadline_s = now + CHECK_S
            if hold.deadline_s < self._timer_due_s:
                self._arm(hold.deadline_s, now)

    def _remove(self, hold: PullHold) -> None:
        self.count -= 1
        queue = self._queues[hold.key]
        del queue[hold]
        if not queue:
            del self._queues[hold.key]
        held = self._channels[hold.channel]
        held.discard(hold)
        if not held:
            del self._channels[hold.channel]

    def _arm(self, due_s: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._timers.after(max(due_s - now, 0.0), self._expire)

    def _expire(self) -> None:
        now = self._timers.clock.monotonic()
        holds = [hold for queue in self._queues.values() for hold in queue]
        for hold in holds:
            if hold.deadline_s <= now:
                self._serve(hold)
        self._timer, self._timer_due_s = None, float("inf")
        left = [hold.deadline_s for queue in self._queues.values() for hold in queue]
        if left:
            self._arm(max(min(left), now + SCAN_MIN_S), now)

"""Pops that wait for messages (Apache: PopLongPollingService).

A pop that found nothing waits under its topic and under the retry topics that feed it. When one of these grows, the pops of
each group that wait there are tried in the order in which they came, until one finds nothing: what came is taken. A pop that
nobody served in its time is answered POLLING_TIMEOUT. Time here is liveness.
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

log = logging.getLogger("broker")

WAITING_MAX: Final = 100_000
"""Pops that wait, in all (maxPopPollingSize)."""
WAITING_PER_QUEUE_MAX: Final = 1024
"""Of one group at one queue of one topic (popPollingSize)."""
TIMEOUT_MAX_S: Final = 3600.0
EARLY_S: Final = 0.05
"""So much before its time is over a pop is answered, as in Apache."""
SCAN_MIN_S: Final = 0.05

PollKey = tuple[str, str, int]
"""Topic, group, queue id; -1 is any queue."""


class Poll:
    """One pop that waits, or one question whether there is something to pop."""

    __slots__ = ("channel", "deadline_s", "deferred", "empty", "key", "serve", "topics")

    def __init__(
        self,
        key: PollKey,
        topics: tuple[str, ...],
        serve: Callable[[], Response | None],
        empty: Callable[[], Response],
        channel: Channel,
        deadline_s: float,
    ) -> None:
        self.key = key
        self.topics = topics
        self.serve = serve
        self.empty = empty
        self.channel = channel
        self.deadline_s = deadline_s
        self.deferred = Deferred()


class PopLongPollingService:
    """The pops that wait, by topic and group."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        # Topic -> group -> polls in the order in which they came.
        self._waiting: dict[str, dict[str, dict[Poll, None]]] = {}
        self._counts: dict[PollKey, int] = {}
        self._channels: dict[Channel, set[Poll]] = {}
        self._grown: dict[tuple[str, int], None] = {}
        self._timer: Timer | None = None
        self._timer_due_s = float("inf")
        self.count = 0
        self.is_stopped = False

    def wait(
        self,
        key: PollKey,
        topics: tuple[str, ...],
        serve: Callable[[], Response | None],
        empty: Callable[[], Response],
        timeout_s: float,
        channel: Channel,
    ) -> Deferred | None:
        """Try `serve` again whenever one of `topics` grows, until it has an answer; after `timeout_s` answer `empty()`.

        None when too many wait already.
        """
        if self.count >= WAITING_MAX or self._counts.get(key, 0) >= WAITING_PER_QUEUE_MAX:
            return None
        now = self._timers.clock.monotonic()
        poll = Poll(key, topics, serve, empty, channel, now + min(max(timeout_s - EARLY_S, 0.0), TIMEOUT_MAX_S))
        for topic in topics:
            self._waiting.setdefault(topic, {}).setdefault(key[1], {})[poll] = None
        self._counts[key] = self._counts.get(key, 0) + 1
        held = self._channels.get(channel)
        if held is None:
            held = self._channels[channel] = set()
            if not channel.attachments.get("polls"):
                channel.attachments["polls"] = True
                channel.on_close(self.channel_closed)
        held.add(poll)
        self.count += 1
        if poll.deadline_s < self._timer_due_s:
            self._arm(poll.deadline_s, now)
        return poll.deferred

    def waiting_at(self, key: PollKey) -> int:
        """How many pops of a group wait at a queue."""
        return self._counts.get(key, 0)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Queues grew; who waits there is served in the turn's WAKE phase."""
        if self._waiting:
            for arrival in arrivals:
                if arrival.topic in self._waiting:
                    self._grown[arrival.topic, arrival.queue_id] = None

    def look_at(self, topic: str, queue_id: int) -> None:
        """There may be something in a queue again, for who waits there."""
        self._grown[topic, queue_id] = None

    def wake(self) -> None:
        """Serve who waits at what grew. To be run in the turn's WAKE phase."""
        grown, self._grown = self._grown, {}
        for topic, queue_id in grown:
            for polls in tuple(self._waiting.get(topic, {}).values()):
                for poll in tuple(polls):
                    is_wanted = topic != poll.key[0] or poll.key[2] in (-1, queue_id)
                    if is_wanted and not self._serve(poll):
                        break

    def _serve(self, poll: Poll) -> bool:
        """Answer a pop if there is something for it; whether there was."""
        try:
            response = poll.serve()
        except RemotingError as error:
            response = Response(error.code, remark=error.remark)
        except Exception as error:
            log.exception("a pop that waited at %s failed", poll.key)
            response = Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if response is None:
            return False
        self._remove(poll)
        poll.deferred.complete(response)
        return True

    def stop(self) -> None:
        """Answer all who wait, and let nobody wait any more."""
        self.is_stopped = True
        for poll in self._all():
            self._time_over(poll)
        if self._timer is not None:
            self._timer.cancel()

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pops of a connection that is gone: nobody would have the messages."""
        for poll in tuple(self._channels.get(channel, ())):
            self._remove(poll)

    def _all(self) -> list[Poll]:
        return [poll for polls in self._channels.values() for poll in polls]

    def _time_over(self, poll: Poll) -> None:
        self._remove(poll)
        poll.deferred.complete(poll.empty())

    def _remove(self, poll: Poll) -> None:
        self.count -= 1
        for topic in poll.topics:
            groups = self._waiting[topic]
            polls = groups[poll.key[1]]
            del polls[poll]
            if not polls:
                del groups[poll.key[1]]
                if not groups:
                    del self._waiting[topic]
        left = self._counts[poll.key] - 1
        if left:
            self._counts[poll.key] = left
        else:
            del self._counts[poll.key]
        held = self._channels[poll.channel]
        held.discard(poll)
        if not held:
            del self._channels[poll.channel]

    def _arm(self, due_s: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._timers.after(max(due_s - now, 0.0), self._expire)

    def _expire(self) -> None:
        now = self._timers.clock.monotonic()
        for poll in self._all():
            if poll.deadline_s <= now:
                self._time_over(poll)
        self._timer, self._timer_due_s = None, float("inf")
        if left := [poll.deadline_s for poll in self._all()]:
            self._arm(max(min(left), now + SCAN_MIN_S), now)

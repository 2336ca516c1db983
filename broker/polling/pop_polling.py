"""Pops that wait for messages, and questions whether there are some (Apache: PopLongPollingService).

A pop that found nothing waits under its topic and under the retry topics that feed it. When one of these grows, the pops of
each group that wait there are tried in the order in which they came, until one finds nothing: what came is taken. A pop that
nobody served in its time is answered POLLING_TIMEOUT. A question takes nothing: as in Apache, each message is told to the
newest of a group that wait at its queue and to the newest of those that wait at any queue.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pocketmq.broker.polling.held_requests import TIMEOUT_MAX_S, HeldRequest, HeldRequests, HoldLimits, served
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.remoting.server import Channel
from pocketmq.runtime.timers import Timers
from pocketmq.store.format.message import Arrival

WAITING_PER_QUEUE_MAX: Final = 1024
"""Of one group at one queue of one topic (popPollingSize)."""
EARLY_S: Final = 0.05
"""So much before its time is over a pop is answered, as in Apache."""

PollKey = tuple[str, str, int]
"""Topic, group, queue id; -1 is any queue."""


class Poll(HeldRequest):
    """One pop that waits, or one question whether there is something to pop."""

    __slots__ = ("empty", "key", "serve", "topics")

    def __init__(
        self,
        key: PollKey,
        topics: tuple[str, ...],
        serve: Callable[[], Response | None],
        empty: Callable[[], Response],
        channel: Channel,
        deadline_s: float,
        size: int,
    ) -> None:
        super().__init__(channel, deadline_s, size)
        self.key = key
        self.topics = topics
        self.serve = serve
        self.empty = empty

    @property
    def may_be_served(self) -> bool:
        """Whether it still waits, and its peer reads what it is sent: what a pop takes others do not get."""
        return self.is_held and self.channel.is_writable

    def waits_at(self, topic: str, queue_id: int) -> bool:
        """Whether it is fed by a queue of one of its topics: by any of a retry topic."""
        return topic != self.key[0] or self.key[2] in (-1, queue_id)


class PopLongPollingService(HeldRequests[Poll]):
    """The pops that wait, by topic and group."""

    def __init__(self, timers: Timers, limits: HoldLimits = HoldLimits()) -> None:  # noqa: B008
        super().__init__(timers, limits)
        # Topic -> group -> polls in the order in which they came.
        self._waiting: dict[str, dict[str, dict[Poll, None]]] = {}
        self._counts: dict[PollKey, int] = {}
        # How many messages came.
        self._grown: dict[tuple[str, int], int] = {}
        # Queues for which pops are tried in slices -> how many messages came meanwhile.
        self._rounds: dict[tuple[str, int], int] = {}

    def wait(
        self,
        key: PollKey,
        topics: tuple[str, ...],
        serve: Callable[[], Response | None],
        empty: Callable[[], Response],
        timeout_s: float,
        channel: Channel,
        size: int = 0,
    ) -> Deferred | None:
        """Try `serve` again whenever one of `topics` grows, until it has an answer; after `timeout_s` answer `empty()`.

        None when too many wait already.
        """
        if self._counts.get(key, 0) >= WAITING_PER_QUEUE_MAX or not self._has_room(channel, size):
            return None
        now = self._timers.clock.monotonic()
        poll = Poll(key, topics, serve, empty, channel, now + min(max(timeout_s - EARLY_S, 0.0), TIMEOUT_MAX_S), size)
        for topic in topics:
            self._waiting.setdefault(topic, {}).setdefault(key[1], {})[poll] = None
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._keep(poll, now)

    def waiting_at(self, key: PollKey) -> int:
        """How many pops of a group wait at a queue."""
        return self._counts.get(key, 0)

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Queues grew; who waits there is served in the turn's WAKE phase."""
        if self._waiting:
            for arrival in arrivals:
                if arrival.topic in self._waiting:
                    queue = arrival.topic, arrival.queue_id
                    self._grown[queue] = self._grown.get(queue, 0) + len(arrival.tags_codes)

    def look_at(self, topic: str, queue_id: int) -> None:
        """There may be something in a queue again, for who waits there."""
        self._grown.setdefault((topic, queue_id), 1)

    def wake(self) -> None:
        """Serve who waits at what grew. To be run in the turn's WAKE phase."""
        grown, self._grown = self._grown, {}
        for place, count in grown.items():
            if place in self._rounds:
                self._rounds[place] += count
            else:
                self._slices.start(self._round(place, count))

    def _round(self, place: tuple[str, int], count: int) -> Iterator[None]:
        """Try the pops of each group that wait at a queue, and again for what came meanwhile."""
        topic = place[0]
        self._rounds[place] = 0
        try:
            while count:
                for group in tuple(self._waiting.get(topic, ())):
                    polls = self._waiting.get(topic, {}).get(group, ())
                    yield from self._wake(tuple(polls), topic, place[1], count)
                    yield  # also where no peer of the group reads
                count, self._rounds[place] = self._rounds[place], 0
        finally:
            del self._rounds[place]

    def _wake(self, polls: tuple[Poll, ...], topic: str, queue_id: int, count: int) -> Iterator[None]:
        """Serve those of one group that wait at a queue to which `count` messages came."""
        for poll in polls:
            if poll.waits_at(topic, queue_id) and poll.may_be_served:
                is_served = self._serve(poll)
                yield
                if not is_served:
                    break

    def wake_all(self, topic: str) -> None:
        """Serve every pop of a topic: it went away."""
        polls = [poll for same_group in self._waiting.get(topic, {}).values() for poll in same_group]
        if polls:
            self._slices.start(self._serving(polls))

    def _serving(self, polls: list[Poll]) -> Iterator[None]:
        for poll in polls:
            if poll.is_held:
                self._serve(poll)
            yield

    def _serve(self, poll: Poll) -> bool:
        """Answer a pop if there is something for it; whether there was."""
        response = served(poll.serve, poll.key)
        if response is None:
            return False
        if poll.is_held:
            self._remove(poll)
            self._answer(poll, response)
        return True

    def _last_answer(self, held: Poll) -> Response:
        return served(held.empty, held.key)

    def _unlist(self, held: Poll) -> None:
        for topic in held.topics:
            groups = self._waiting[topic]
            polls = groups[held.key[1]]
            del polls[held]
            if not polls:
                del groups[held.key[1]]
                if not groups:
                    del self._waiting[topic]
        self._counts[held.key] -= 1
        if not self._counts[held.key]:
            del self._counts[held.key]


class NotificationLongPollingService(PopLongPollingService):
    """The questions that wait."""

    def _wake(self, polls: tuple[Poll, ...], topic: str, queue_id: int, count: int) -> Iterator[None]:
        left: dict[int, int] = {}  # by the queue at which they wait
        for poll in reversed(polls):
            place = poll.key[2]
            if poll.waits_at(topic, queue_id) and poll.may_be_served and left.setdefault(place, count):
                left[place] = left[place] - 1 if self._serve(poll) else 0
                yield

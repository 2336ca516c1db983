"""PopLongPollingService: pops and NOTIFICATION requests that wait for messages (Apache has the same name).

A pop that found nothing waits under its topic and the retry topics that feed it. When one of these topics grows, the waiting
pops of each group are tried in order of arrival until one finds nothing. A pop not served in its time is answered
POLLING_TIMEOUT.

A NOTIFICATION request asks whether there are messages and takes none. As in Apache, each new message answers two requests of
a group: the newest that waits at its queue and the newest that waits at any queue.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.polling.held_requests import TIMEOUT_MAX_S, HeldRequest, HeldRequests, HoldLimits, served
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.format.message import Arrival

WAITING_PER_QUEUE_MAX: Final = 1024
"""Maximum number of waiting pops of a group at one queue of a topic (popPollingSize)."""
EARLY_S: Final = 0.05
"""A pop is answered this long before its time is over, as in Apache."""

PollKey = tuple[str, str, int]
"""Topic, group, queue id (-1: any queue)."""


@dataclass(eq=False, slots=True)
class Poll(HeldRequest):
    """One waiting pop or NOTIFICATION request. Its place is its key; `waiting` has it by topic and group."""

    key: PollKey
    topics: tuple[str, ...]
    serve: Callable[[], Response | None]
    empty: Callable[[], Response]

    @property
    def may_be_served(self) -> bool:
        """Whether it still waits and its peer reads: a peer that does not read would keep the messages from all others."""
        return self.is_held and self.channel.is_writable

    def waits_at(self, topic: str, queue_id: int) -> bool:
        """Whether messages of that queue answer this poll; of a retry topic those of every queue do."""
        return topic != self.key[0] or self.key[2] in (-1, queue_id)


class PopLongPollingService(HeldRequests[Poll]):
    """The waiting pops by topic and group."""

    def __init__(self, timers: Timers, slices: WorkSlices, limits: HoldLimits) -> None:
        super().__init__(timers, slices, limits)
        self.waiting: dict[str, dict[str, dict[Poll, None]]] = {}
        """Topic -> group -> polls in order of arrival."""
        self.grown: dict[tuple[str, int], int] = {}
        """(topic, queue id) -> number of messages that arrived in this turn, for `wake`."""
        # Queues for which polls are being tried in slices -> number of messages that arrived since the round began.
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
        """Call `serve` whenever one of `topics` grows, until it returns an answer; after `timeout_s` answer `empty()`.

        Return None when a limit is reached.
        """
        if self.waiting_at(key) >= WAITING_PER_QUEUE_MAX or not self._has_room(channel, size):
            return None
        now = self._timers.clock.monotonic()
        deadline_s = now + min(max(timeout_s - EARLY_S, 0.0), TIMEOUT_MAX_S)
        poll = Poll(channel, deadline_s, size, (key,), key, topics, serve, empty)
        for topic in topics:
            self.waiting.setdefault(topic, {}).setdefault(key[1], {})[poll] = None
        return self._keep(poll, now)

    def waiting_at(self, key: PollKey) -> int:
        """Return the number of polls of a group that wait at a queue."""
        return len(self.places.get(key, ()))

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Record grown queues; polls that wait there are served in the turn's WAKE phase."""
        for arrival in arrivals:
            if arrival.topic in self.waiting:
                queue = arrival.topic, arrival.queue_id
                self.grown[queue] = self.grown.get(queue, 0) + len(arrival.tags_codes)

    def look_at(self, topic: str, queue_id: int) -> None:
        """Have the polls that wait at a queue tried again, because it may have messages to pop again."""
        self.grown.setdefault((topic, queue_id), 1)

    def wake(self) -> None:
        """Serve the polls that wait at grown queues. Runs in the turn's WAKE phase."""
        grown, self.grown = self.grown, {}
        for place, count in grown.items():
            if place in self._rounds:
                self._rounds[place] += count
            else:
                self._rounds[place] = 0
                self._slices.start(self._round(place, count))

    def _round(self, place: tuple[str, int], count: int) -> Iterator[None]:
        """Try the waiting polls of each group at a queue, then again for the arrivals during the round."""
        topic = place[0]
        try:
            while count:
                for group in tuple(self.waiting.get(topic, ())):
                    polls = self.waiting.get(topic, {}).get(group, ())
                    yield from self._wake(tuple(polls), topic, place[1], count)
                    yield  # also when no poll of the group was tried
                count, self._rounds[place] = self._rounds[place], 0
        finally:
            del self._rounds[place]

    def _wake(self, polls: tuple[Poll, ...], topic: str, queue_id: int, count: int) -> Iterator[None]:
        """Serve the polls of one group that wait at a queue with `count` new messages."""
        for poll in polls:
            if poll.waits_at(topic, queue_id) and poll.may_be_served:
                is_served = self._serve(poll)
                yield
                if not is_served:
                    break

    def wake_all(self, topic: str) -> None:
        """Serve every poll of a topic, after it was deleted."""
        polls = [poll for same_group in self.waiting.get(topic, {}).values() for poll in same_group]
        if polls:
            self._slices.start(self._serving(polls))

    def _serving(self, polls: list[Poll]) -> Iterator[None]:
        for poll in polls:
            if poll.is_held:
                self._serve(poll)
            yield

    def _serve(self, poll: Poll) -> bool:
        """Answer a poll if `serve` has an answer; return whether it had."""
        response = served(poll.serve, poll.key)
        if response is None:
            return False
        if poll.is_held:
            self._remove(poll)
            self._answer(poll, response)
        return True

    def _last_answer(self, held: Poll) -> Response:
        return served(held.empty, held.key)

    def _remove(self, held: Poll) -> None:
        super()._remove(held)
        for topic in held.topics:
            groups = self.waiting[topic]
            polls = groups[held.key[1]]
            del polls[held]
            if not polls:
                del groups[held.key[1]]
                if not groups:
                    del self.waiting[topic]


class NotificationLongPollingService(PopLongPollingService):
    """The waiting NOTIFICATION requests."""

    def _wake(self, polls: tuple[Poll, ...], topic: str, queue_id: int, count: int) -> Iterator[None]:
        left: dict[int, int] = {}  # waited-for queue id (-1: any) -> messages not announced yet
        for poll in reversed(polls):
            place = poll.key[2]
            if poll.waits_at(topic, queue_id) and poll.may_be_served and left.setdefault(place, count):
                left[place] = left[place] - 1 if self._serve(poll) else 0
                yield

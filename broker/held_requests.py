"""Requests that are held until something comes, a time is over, or their connection closes: pulls and pops.

Time here is liveness. One timer serves all: it is set for the earliest deadline, and looks at all that is held when it
fires, at most every 0.1 s (10,000 take 1 ms). The alternative, a timer a request, costs 1.5 us and as much to cancel.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from remoting.codes import ResponseCode
from remoting.command import Response
from remoting.dispatch import Deferred, RemotingError
from remoting.server import Channel
from runtime.timers import Timer, Timers

log = logging.getLogger("broker")

HELD_MAX: Final = 100_000
"""Held at once of a kind; further ones are answered at once (Apache: pullThreadPoolQueueCapacity, maxPopPollingSize)."""
TIMEOUT_MAX_S: Final = 3600.0
"""Nothing is held longer, whatever it asks for."""
SCAN_MIN_S: Final = 0.1
"""Deadlines are looked at no more often than this, so an answer may come this much late."""

R = TypeVar("R", bound=Response | None)


class HeldRequest:
    """One request; `deadline_s` is monotonic."""

    __slots__ = ("channel", "deadline_s", "deferred")

    def __init__(self, channel: Channel, deadline_s: float) -> None:
        self.channel = channel
        self.deadline_s = deadline_s
        self.deferred = Deferred()


H = TypeVar("H", bound=HeldRequest)


class HeldRequests(ABC, Generic[H]):
    """What is held of one kind, by connection. A subclass knows by what else."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._channels: dict[Channel, set[H]] = {}
        self._timer: Timer | None = None
        self._timer_due_s = float("inf")
        self.count = 0
        self.is_stopped = False
        """Whether the broker stops: such requests are to be refused."""

    @property
    def is_full(self) -> bool:
        return self.count >= HELD_MAX

    @abstractmethod
    def _listed(self) -> list[H]:
        """All that is held, in the order in which it is answered when its time is over."""

    @abstractmethod
    def _unlist(self, held: H) -> None:
        """Forget a request."""

    @abstractmethod
    def _time_over(self, held: H) -> None:
        """Remove a request, and answer it."""

    def _keep(self, held: H, now: float) -> Deferred:
        channel = held.channel
        same_channel = self._channels.get(channel)
        if same_channel is None:
            same_channel = self._channels[channel] = set()
            if (kind := type(self).__name__) not in channel.attachments:
                channel.attachments[kind] = True
                channel.on_close(self.channel_closed)
        same_channel.add(held)
        self.count += 1
        if held.deadline_s < self._timer_due_s:
            self._arm(held.deadline_s, now)
        return held.deferred

    def _remove(self, held: H) -> None:
        self.count -= 1
        self._unlist(held)
        same_channel = self._channels[held.channel]
        same_channel.discard(held)
        if not same_channel:
            del self._channels[held.channel]

    def channel_closed(self, channel: Channel) -> None:
        """Forget the requests of a connection that is gone."""
        for held in tuple(self._channels.get(channel, ())):
            self._remove(held)

    def stop(self) -> int:
        """Answer all that is held and refuse further ones; returns how many there were.

        Java 4.9 and Go do not notice a closed connection: a request that is never answered costs them its time-out, 30 s.
        """
        self.is_stopped = True
        listed = self._listed()
        for held in listed:
            self._time_over(held)
        if self._timer is not None:
            self._timer.cancel()
        return len(listed)

    def _arm(self, due_s: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._timers.after(max(due_s - now, 0.0), self._expire)

    def _expire(self) -> None:
        now = self._timers.clock.monotonic()
        for held in self._listed():
            if held.deadline_s <= now:
                self._time_over(held)
        self._timer, self._timer_due_s = None, float("inf")
        if left := [held.deadline_s for held in self._listed()]:
            self._arm(max(min(left), now + SCAN_MIN_S), now)


def served(serve: Callable[[], R], what: object) -> R | Response:
    """What `serve` answers, or what its error says; `what` was held is told of an error that nobody foresaw."""
    try:
        return serve()
    except RemotingError as error:
        return Response(error.code, remark=error.remark)
    except Exception as error:
        log.exception("what was held of %s failed", what)
        return Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

"""HeldRequests: base of pulls and pops that are held until a message arrives, their time is over or the connection closes.

Deadlines are monotonic. One timer serves all requests: it is set for the earliest deadline and fires at most every 0.1 s.
One timer per request would be more expensive.

The number and size of held requests are limited. A request beyond a limit is answered at once, and its connection is not
read from for a second, because the client would otherwise repeat the request without a pause. When the total is reached, the
connection with the most held requests has some of them answered early.
"""

import heapq
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from pocketmq.remoting.channel import Channel
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred, RemotingError
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.work_slices import PIECES_MIN, WorkSlices

log = logging.getLogger("broker")

TIMEOUT_MAX_S: Final = 3600.0
"""Maximum time for which a request is held, whatever it asks for."""
SUSPEND_S: Final = 1.0
"""Time for which a connection over its limit is not read from."""
UNREAD_S: Final = 0.25
"""Delay before another attempt to answer a request whose peer does not read its answers."""
BUCKET_S: Final = 0.1
_EVICTED_AT_ONCE: Final = 128
_LARGEST_COUNT: Final = 64

R = TypeVar("R", bound=Response | None)


class HoldLimits(NamedTuple):
    """Limits: requests in total and per connection, and their bytes in total."""

    count_max: int = 100_000
    per_connection_max: int = 4_096
    bytes_max: int = 64 << 20


@dataclass(eq=False, slots=True)
class HeldRequest:
    """One held request of `size` bytes; `deadline_s` is monotonic. `places` are the keys under which it is listed."""

    channel: Channel
    deadline_s: float
    size: int
    places: Collection[Hashable]
    deferred: Deferred = field(default_factory=Deferred, init=False)
    bucket: int | None = field(default=None, init=False)
    is_held: bool = field(default=False, init=False)


H = TypeVar("H", bound=HeldRequest)


class HeldRequests(ABC, Generic[H]):
    """Held requests of one kind, by connection and by the places that a subclass gives them."""

    def __init__(self, timers: Timers, slices: WorkSlices, limits: HoldLimits) -> None:
        self._timers = timers
        self._limits = limits
        self._channels: dict[Channel, dict[H, None]] = {}
        self.places: dict[Hashable, dict[H, None]] = {}
        """The held requests by place. Dicts used as ordered sets: the request that has waited longest is answered first."""
        self._largest: list[Channel] = []
        self._wheel: DeadlineWheel[H] = DeadlineWheel()
        self._slices = slices
        self._timer: Timer | None = None
        self._timer_due_s = float("inf")
        self._refused = RefusalLog(log, now=timers.clock.monotonic)
        self.count = 0
        self.size = 0
        self.is_stopped = False
        """True while the broker stops: callers must refuse such requests."""

    @abstractmethod
    def _last_answer(self, held: H) -> Response:
        """Return the answer to a request whose time is over."""

    # --- holding ----------------------------------------------------------------------------------------------------

    def _has_room(self, channel: Channel, size: int) -> bool:
        """Return whether one more request may be held. If not, stop reading from its connection for a while."""
        limits, same_channel = self._limits, self._channels.get(channel)
        if same_channel is not None and len(same_channel) >= limits.per_connection_max:
            self._refuse(channel, f"it has {limits.per_connection_max} requests held (maxHeldRequestsPerConnection)")
            return False
        if self.count < limits.count_max and self.size + size <= limits.bytes_max:
            return True
        return not channel.is_suspended and self._make_room(channel, size)

    def _make_room(self, channel: Channel, size: int) -> bool:
        limits = self._limits
        what = f"{self.count} requests of {self.size} bytes are held (maxHeldRequests, maxHeldRequestBytes)"
        largest = self._next_largest()
        if largest is None or self._weight(largest) <= self._weight(channel) + 1:
            self._refuse(channel, what)
            return False
        self._refuse(largest, what)
        count = min((self._weight(largest) + 1) // 2, _EVICTED_AT_ONCE)
        for held in tuple(islice(self._channels[largest], count)):
            if held.is_held:
                self._end(held)
        return self.count < limits.count_max and self.size + size <= limits.bytes_max

    def _next_largest(self) -> Channel | None:
        """Return one of the connections with the most held requests; a scan of all connections serves many calls."""
        while self._largest:
            channel = self._largest.pop()
            if channel in self._channels:
                return channel
        self._largest = heapq.nlargest(_LARGEST_COUNT, self._channels, key=self._weight)[::-1]
        return self._largest.pop() if self._largest else None

    def _weight(self, channel: Channel) -> int:
        return len(self._channels.get(channel, ()))

    def _refuse(self, channel: Channel, why: str) -> None:
        if not channel.is_suspended:
            self._refused.refused(None, f"{type(self).__name__}: not reading from {channel} for {SUSPEND_S:g} s: {why}")
            channel.suspend_reading(SUSPEND_S)

    def _keep(self, held: H, now: float) -> Deferred:
        channel = held.channel
        same_channel = self._channels.get(channel)
        if same_channel is None:
            same_channel = self._channels[channel] = {}
            if (kind := type(self).__name__) not in channel.attachments:
                channel.attachments[kind] = True
                channel.on_close(self.channel_closed)
        same_channel[held] = None
        for place in held.places:
            self.places.setdefault(place, {})[held] = None
        held.is_held = True
        self._wheel.add(held)
        self.count += 1
        self.size += held.size
        if held.deadline_s < self._timer_due_s:
            self._arm(held.deadline_s, now)
        return held.deferred

    def _remove(self, held: H) -> None:
        held.is_held = False
        self.count -= 1
        self.size -= held.size
        self._wheel.discard(held)
        for place in held.places:
            self._leave(held, place)
        same_channel = self._channels[held.channel]
        del same_channel[held]
        if not same_channel:
            del self._channels[held.channel]

    def _leave(self, held: H, place: Hashable) -> None:
        """Remove a request from one place."""
        same_place = self.places[place]
        del same_place[held]
        if not same_place:
            del self.places[place]

    def _move(self, held: H, deadline_s: float) -> None:
        """Give a request another deadline."""
        self._wheel.discard(held)
        held.deadline_s = deadline_s
        self._wheel.add(held)
        if deadline_s < self._timer_due_s:
            self._arm(deadline_s, self._timers.clock.monotonic())

    # --- answering --------------------------------------------------------------------------------------------------

    def _answer(self, held: H, response: Response) -> None:
        """Answer a removed request. If the answer cannot be sent, only its own connection is closed."""
        try:
            held.deferred.complete(response)
        except Exception:
            log.exception("dropping %s: the answer to its held request cannot be sent", held.channel)
            held.channel.abort()

    def _end(self, held: H) -> None:
        self._remove(held)
        self._answer(held, self._last_answer(held))

    def channel_closed(self, channel: Channel) -> None:
        """Drop the requests of a closed connection."""
        for held in tuple(self._channels.get(channel, ())):
            self._remove(held)

    def stop(self) -> int:
        """Answer all held requests and refuse further ones; return their number.

        Java 4.9 and Go do not notice a closed connection: without an answer they wait for their timeout, 30 s.
        """
        self.is_stopped = True
        listed = [held for same_channel in self._channels.values() for held in same_channel]
        for held in listed:
            if held.is_held:
                self._end(held)
        if self._timer is not None:
            self._timer.cancel()
        return len(listed)

    # --- time -------------------------------------------------------------------------------------------------------

    def _arm(self, due_s: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._timers.after(max(due_s - now, 0.0), self._expire)

    def _expire(self) -> None:
        now = self._timers.clock.monotonic()
        self._timer, self._timer_due_s = None, float("inf")
        try:
            due = self._wheel.pop_due(now)
            # A few do not wait for each other, since one with a costly filter takes as long as a slice.
            for ended in [[held] for held in due] if len(due) <= PIECES_MIN else [due]:
                self._slices.start(self._ending(ended))
        finally:
            if (next_s := self._wheel.next_due_s()) is not None and next_s < self._timer_due_s:
                self._arm(max(next_s, now + BUCKET_S), now)

    def _ending(self, due: Iterable[H]) -> Iterator[None]:
        for held in due:
            if held.is_held:
                if held.channel.is_writable:
                    self._end(held)
                else:
                    self._move(held, self._timers.clock.monotonic() + UNREAD_S)
            yield


def served(serve: Callable[[], R], what: object) -> R | Response:
    """Return the answer of `serve`, or an error response. An unexpected exception is logged with `what`."""
    try:
        return serve()
    except RemotingError as error:
        return Response(error.code, remark=error.remark)
    except Exception as error:
        log.exception("a held request of %s failed", what)
        return Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


class DeadlineWheel(Generic[H]):
    """Requests by deadline, in buckets of a tenth of a second; the cost per request is independent of their number.

    The deadline of a request must not change while it is in the wheel, which sets its `bucket` (None: in no bucket).
    """

    def __init__(self) -> None:
        # An emptied bucket stays as None until its time, so that its index is in the heap only once.
        self._buckets: dict[int, dict[H, None] | None] = {}
        self._heap: list[int] = []

    def add(self, item: H) -> None:
        index = item.bucket = int(item.deadline_s / BUCKET_S)
        bucket = self._buckets.get(index)
        if bucket is None:
            if index not in self._buckets:
                heapq.heappush(self._heap, index)
            bucket = self._buckets[index] = {}
        bucket[item] = None

    def discard(self, item: H) -> None:
        """Remove an item; do nothing when it is in no bucket."""
        index, item.bucket = item.bucket, None
        if index is None:
            return
        bucket = self._buckets[index]
        assert bucket is not None
        del bucket[item]
        if not bucket:
            self._buckets[index] = None

    def pop_due(self, now: float) -> list[H]:
        """Remove and return the due items, ordered by bucket."""
        due: list[H] = []
        last = int(now / BUCKET_S)
        while self._heap and self._heap[0] <= last:
            index = self._heap[0]
            bucket = self._buckets[index]
            if bucket is not None:
                found = [item for item in bucket if item.deadline_s <= now]
                due += found
                for item in found:
                    self.discard(item)
            if self._buckets[index] is not None:
                break  # the bucket of the present moment has items that are not due yet
            heapq.heappop(self._heap)
            del self._buckets[index]
        return due

    def next_due_s(self) -> float | None:
        """Return the earliest deadline, or None when the wheel is empty."""
        while self._heap:
            bucket = self._buckets[self._heap[0]]
            if bucket is not None:
                return min(item.deadline_s for item in bucket)
            del self._buckets[heapq.heappop(self._heap)]
        return None

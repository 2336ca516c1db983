"""How many topics and consumer groups may come into being in a time.

Each stays until an administrator deletes it: a row, files, its part of every registration. A total alone would let a peer
use all of it up at once. So beside the total there is a rate, of all clients together, with room for a burst.

The first message of a queue makes its files, which takes the loop as long as hundreds of sends. No client is refused for
that: a connection that fills many new queues rests between them.
"""

from typing import Final

from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.server import Channel
from pocketmq.runtime.clock import Clock

BURST_S: Final = 20
"""So many seconds' creations may come at once, after as long without any."""

QUEUES_AT_ONCE: Final = 3
"""So many new queues in `REST_S` are filled before connections rest."""
REST_S: Final = 0.008


class CreationRate:
    """A token bucket: `take` uses tokens up, they come back with time."""

    def __init__(self, clock: Clock, refusals: LimitRefusals, key: str, per_second: int, what: str) -> None:
        """`key` is the config key, `per_second` its value; 0: no limit. `what` is created, in the plural."""
        self._clock = clock
        self._refusals = refusals
        self._key, self._what = key, what
        self._per_second = per_second
        self._burst = float(per_second * BURST_S)
        self._tokens = self._burst
        self._seen_s = clock.monotonic()

    def take(self, count: int = 1) -> None:
        """Count `count` creations. Raises RemotingError when so many are too many for now.

        More than a burst are taken when the bucket is full, so that a long list can be created at all; the next ones wait
        the longer.
        """
        if not self._per_second or not count:
            return
        now_s = self._clock.monotonic()
        self._tokens = min(self._tokens + (now_s - self._seen_s) * self._per_second, self._burst)
        self._seen_s = now_s
        if self._tokens < min(count, self._burst):
            self._refusals.refuse(
                f"{self._key}={self._per_second}: {int(self._burst)} {self._what} can be created at once and then "
                f"{self._per_second} a second; try again",
                ResponseCode.SYSTEM_BUSY,
            )
        self._tokens -= count


class QueuePace:
    """Gives others their turn between the first messages of new queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = float("-inf")
        self._count = 0

    def opened(self, channel: Channel) -> None:
        """A message of `channel` is the first of its queue."""
        now_s = self._clock.monotonic()
        if now_s - self._began_s > REST_S:
            self._began_s, self._count = now_s, 0
        self._count += 1
        if self._count >= QUEUES_AT_ONCE:
            channel.rest(REST_S)

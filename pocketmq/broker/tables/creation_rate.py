"""Rate limits for the creation of topics, consumer groups and queues.

A topic or group stays until an administrator deletes it, and costs a table row, files and a part of every registration. With
a limit on the total alone one peer could use all of it up at once. Therefore the creations of all clients together are
also limited by rate, with room for a burst.

The first message of a queue creates its files, which blocks the event loop as long as hundreds of sends. Clients are not
refused for that: a connection that fills many new queues is paused between them.
"""

from typing import Final

from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.codes import ResponseCode
from pocketmq.runtime.clock import Clock

BURST_S: Final = 100
"""The burst holds the creations of this many seconds; it refills in the same time."""

QUEUES_AT_ONCE: Final = 3
"""Number of new queues within `THROTTLE_S` after which a connection that fills another one is paused."""
THROTTLE_S: Final = 0.008


class CreationRate:
    """A token bucket."""

    def __init__(self, clock: Clock, refusals: LimitRefusals, key: str, per_second: int, what: str) -> None:
        """`key` is the config key, `per_second` its value (0: no limit), `what` the plural of what is created."""
        self._clock = clock
        self._refusals = refusals
        self._key, self._what = key, what
        self._per_second = per_second
        self._burst = float(per_second * BURST_S)
        self._tokens = self._burst
        self._seen_s = clock.monotonic()

    def take(self, count: int = 1) -> None:
        """Take `count` tokens. Raises RemotingError when there are not enough.

        A full bucket allows even more creations than it has tokens, so that a long list can be created at all; the bucket
        then goes below zero.
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
    """Pauses connections that fill many new queues, so that others are served in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = float("-inf")
        self._count = 0

    def opened(self, channel: Channel) -> None:
        """Count the first message of a queue, sent by `channel`."""
        now_s = self._clock.monotonic()
        if now_s - self._began_s > THROTTLE_S:
            self._began_s, self._count = now_s, 0
        self._count += 1
        if self._count >= QUEUES_AT_ONCE:
            channel.throttle(THROTTLE_S)

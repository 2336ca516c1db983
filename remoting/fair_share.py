"""The share of the loop's time that costly connections get.

A connection whose requests took long is *heavy*. It is served for a short while, then others are, and all heavy connections
together wait as long as the last of them took. So they have half of the loop's time at most, and no more than one request of
theirs lies between two looks at the others. A connection stops being heavy once what it asks for takes little time again.
"""

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from pocketmq.runtime.timers import Timers

if TYPE_CHECKING:
    from pocketmq.remoting.server import Channel

SERVED_S: Final = 0.01
"""So long one connection is served before others are."""
WAIT_MAX_S: Final = 0.25


class FairShare:
    """The heavy connections of a server that wait for their next while."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Channel] = deque()
        self._free_s = 0.0

    @property
    def is_free(self) -> bool:
        """Whether a heavy connection may be served now."""
        return not self._waiting and monotonic() >= self._free_s

    def spent(self, seconds: float) -> None:
        """A connection was served for so long."""
        self._free_s = monotonic() + min(seconds, WAIT_MAX_S)

    def wait(self, channel: "Channel") -> None:
        """Have `channel.serve_left` called when it is its turn."""
        if not self._waiting:
            self._timers.after(max(self._free_s - monotonic(), 0.0), self._next)
        self._waiting.append(channel)

    def _next(self) -> None:
        channel = self._waiting[0]
        try:
            channel.serve_left()
        finally:
            self._waiting.popleft()
            if self._waiting:
                self._timers.after(max(self._free_s - monotonic(), 0.0), self._next)

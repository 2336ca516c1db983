"""Limit on the event loop's time spent on connections with expensive requests.

A connection whose requests take long is *heavy*. Heavy connections are served one at a time, each for a short while; after
each, all of them pause for as long as it took. So together they get at most half of the loop's time, and at most one of
their requests delays the other connections. A connection is no longer heavy once its requests take little time.
"""

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from pocketmq.runtime.timers import Timers

if TYPE_CHECKING:
    from pocketmq.remoting.server import Channel

SERVED_S: Final = 0.01
"""Time for which one connection is served before the others."""
WAIT_MAX_S: Final = 0.25


class FairShare:
    """Queue of the heavy connections of a server."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: deque[Channel] = deque()
        self._free_s = 0.0

    @property
    def is_free(self) -> bool:
        """Whether a heavy connection may be served now."""
        return not self._waiting and monotonic() >= self._free_s

    def spent(self, seconds: float) -> None:
        """Account the time for which a heavy connection was served."""
        self._free_s = monotonic() + min(seconds, WAIT_MAX_S)

    def wait(self, channel: "Channel") -> None:
        """Call `channel.serve_left` when it is its turn."""
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

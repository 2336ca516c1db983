"""Limit on the event loop's time spent on connections with expensive requests.

A connection is *costly* if very many of its requests came in one read, if its last requests took long, or while many bytes
of its answers are unread. All costly connections together get a fixed share of each loop turn, a few requests at a time. The
remaining requests wait for the next turn, and the connection is not read until they are served. Other connections are served
at once, so that their requests wait for at most one share, however many costly connections there are. Many requests of one
read are charged to the share; when twice as much is used up, they wait too. If a single request exceeds the share, costly
connections pause for as long as it took: together they get at most half of the loop's time.

Among waiting connections, the one with the fewest unread bytes comes first: peers that read their answers are served before
peers that only send requests.

Time is CPU time of the loop's thread, so that the load of other processes is not charged to a connection. Reading that clock
is a system call; for a short time, in which other processes can hardly have run, the monotonic clock is taken instead.
"""

import fcntl
import heapq
import itertools
import struct
import termios
from time import monotonic, thread_time
from typing import Any, Final, Protocol

from pocketmq.runtime.timers import Timers

TURN_S: Final = 0.004
"""Time for all costly connections in one turn of the loop."""
STEP_S: Final = 0.001
"""Time for one connection before the next one is chosen."""
COSTLY_S: Final = 0.01
"""A connection is costly once the requests of one read took longer, until they take less again."""
MANY_REQUESTS: Final = 8
"""Number of requests in one read above which their time is charged to the share of costly connections."""
SERVED_AT_ONCE: Final = 16
"""Number of requests served in one step, after which unsent answers are measured; a read with more is served as costly."""
UNREAD_SIZE: Final = 256 * 1024
"""A connection with more unread bytes of answers is costly."""
UNREAD_KNOWN_S: Final = 0.004
"""Time for which a number of unread bytes is used before the kernel is asked again."""
WAIT_MAX_S: Final = 0.25
SHORT_S: Final = 0.001
"""A shorter time by the monotonic clock counts as CPU time."""
_INT: Final = struct.Struct("i")


def unread_in_kernel(descriptor: int) -> int:
    """Return the number of bytes written to a socket that its peer has not taken yet; 0 if the socket is closed."""
    try:
        (size,) = _INT.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INT.size)))
    except OSError:
        return 0
    return int(size)


class Unread:
    """Bytes of one connection that its peer has not received, measured at most every UNREAD_KNOWN_S."""

    __slots__ = ("_known_until_s", "_size", "size_max")

    def __init__(self) -> None:
        self._size = self.size_max = 0
        """`size_max`: bytes that can be unread at most: those of the last measurement and all that was written since."""
        self._known_until_s = 0.0

    def measured(self, transport: Any) -> int:
        """Return the bytes that were unread a moment ago, in the transport and in the kernel."""
        if (now_s := monotonic()) >= self._known_until_s:
            socket = transport.get_extra_info("socket")  # None: the peer is in this process
            in_kernel = 0 if socket is None else unread_in_kernel(socket.fileno())
            self._size = self.size_max = int(transport.get_write_buffer_size()) + in_kernel
            self._known_until_s = now_s + UNREAD_KNOWN_S
        return self._size


class Connection(Protocol):
    """The part of a connection that the share needs."""

    is_costly: bool

    @property
    def unread_bytes(self) -> int:
        """Bytes that the peer has not received."""

    def has_unread(self, size: int) -> bool:
        """Return whether more than `size` bytes are unread."""

    def serve_some(self, end_s: float) -> bool:
        """Serve what waits until `end_s`; return whether more can be served now."""

    def has_waited(self) -> None:
        """End the wait for the share."""


class FairShare:
    """Costly connections of a server or client, and what remains of their share of this loop turn."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: list[tuple[int, int, Connection]] = []
        """A heap: unread bytes, order of joining, connection."""
        self._order = itertools.count()
        self._left_s = TURN_S
        self._is_turn_armed = False
        self._charged_until_s = thread_time()
        """CPU time of the thread up to which it has been charged or was spent on something else."""

    def serve(self, channel: Connection) -> bool:
        """Serve a costly connection as long as the share lasts; return False when the rest must wait for later turns."""
        if not self._waiting and self._left_s > 0 and not self._serve_some(channel, self._left_s):
            return True
        self._wait(channel)
        return False

    def _wait(self, channel: Connection) -> None:
        heapq.heappush(self._waiting, (channel.unread_bytes, next(self._order), channel))

    def _serve_some(self, channel: Connection, seconds_max: float) -> bool:
        """Serve a connection for a time, and charge it; return whether more can be served now."""
        began_s = monotonic()
        end_s = began_s + seconds_max
        try:
            while channel.serve_some(end_s):
                if monotonic() > end_s:
                    return True
            return False
        finally:
            seconds = self.charge(monotonic() - began_s)
            channel.is_costly = seconds > COSTLY_S or channel.has_unread(UNREAD_SIZE)

    @property
    def has_time_for_many(self) -> bool:
        """Whether many requests of one read can be served now: no connection waits, and the share is not used up twice."""
        return self._left_s > -TURN_S and not self._waiting

    def charge(self, seconds: float) -> float:
        """Subtract the time spent on a connection from the share of this turn; return it as CPU time."""
        if seconds > SHORT_S:
            cpu_s = thread_time()
            seconds, self._charged_until_s = min(seconds, cpu_s - self._charged_until_s), cpu_s
        self._left_s -= seconds
        if not self._is_turn_armed:
            self._is_turn_armed = True
            self._timers.after(0.0, self._next_turn)
        return seconds

    def _next_turn(self) -> None:
        self._charged_until_s = thread_time()
        if self._left_s < -TURN_S:
            wait_s, self._left_s = min(TURN_S - self._left_s, WAIT_MAX_S), 0.0
            self._timers.after(wait_s, self._next_turn)
            return
        self._left_s = TURN_S
        self._is_turn_armed = False
        while self._waiting and self._left_s > 0:
            _, _, channel = heapq.heappop(self._waiting)
            if self._serve_some(channel, min(self._left_s, STEP_S)):
                self._wait(channel)
            else:
                channel.has_waited()

"""State shared by the connections of one server or client: limits, reaper, and one write per connection and turn."""

import logging
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING, Final, Protocol

from pocketmq.errors import MQError
from pocketmq.remoting.command import Buffer
from pocketmq.remoting.fair_share import FairShare
from pocketmq.remoting.frame import FrameError
from pocketmq.remoting.layout import FRAME_SIZE_MAX, HEADER_SIZE_MAX
from pocketmq.remoting.limits import ConnectionLimits, PinnedBytes
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.turn import Phase, Turn

if TYPE_CHECKING:
    from pocketmq.remoting.channel import Channel

log = logging.getLogger("remoting")

Lane = Callable[["Channel", bytes, int, list[Buffer]], int]
"""Serves the first requests of a connection's bytes from a position on, appends the answers, returns the bytes served."""


class Sockets(Protocol):
    """Plain connections that are not read and written by the event loop's transports."""

    def connect(self, accepted: socket, channel: "Channel") -> None:
        """Read and write an accepted connection, which `channel` serves. Raises OSError."""

    def send(self) -> None:
        """Send the answers that are not those of channels."""

    def note_reads(self) -> None:
        """Tell the channels when they last received data that they were not given."""

    def close(self) -> None:
        """Watch the connections no longer. They are closed already."""


IDLE_S: Final = 120.0
"""A connection silent for this long in both directions is closed (Apache: serverChannelMaxIdleTimeSeconds)."""
WRITE_BUFFER_MAX: Final = 1024 * 1024
"""Unsent bytes of one connection above which reading from it is paused."""
EXCESS_CHECK_S: Final = 0.1
"""Minimum time between two summations of all unread answers."""


class ChannelClosed(MQError, ConnectionError):
    """The connection closed before the answer came."""


class NeverHeard(ChannelClosed):
    """The peer closed the connection without having sent anything."""


class NotReading(MQError, ConnectionError):
    """The peer does not read, or has too many unanswered requests; nothing more is sent to it."""


class Channels:
    """Connections of one server or client: those that are open and those that have data to write."""

    def __init__(
        self,
        turn: Turn,
        timers: Timers,
        idle_s: float = IDLE_S,
        limits: ConnectionLimits | None = None,
        *,
        is_server: bool = False,
        frame_size_max: int = FRAME_SIZE_MAX,
    ) -> None:
        """`is_server`: peers must send first, and
        requests to peers that do not read are dropped. `frame_size_max`: limit of a frame that is read."""
        self.turn = turn
        self.timers, self.clock = timers, timers.clock
        self.limits = limits = limits or ConnectionLimits()
        self.is_server = is_server
        self.share = FairShare(timers)
        self.frame_size_max = frame_size_max
        self.header_size_max = limits.max_header_bytes if is_server else HEADER_SIZE_MAX
        self.open: set[Channel] = set()
        self.unwritten: list[Channel] = []
        self.lane: Lane | None = None
        """Function that serves the first requests of a read before they are split into frames; None without a lane."""
        self.sockets: Sockets | None = None
        """Reads and writes the plain connections of a server; None: the event loop does."""
        self._writing = turn.add(Phase.REPLY, self.write, self.unwritten, is_always_due=False)
        self.idle_s = idle_s
        slow_s = limits.slow_connection_seconds
        rate = limits.min_connection_bytes_per_second
        self._unfinished: PinnedBytes[Channel] = PinnedBytes(
            limits.max_unfinished_frame_bytes, rate, slow_s, is_draining=False
        )
        self._unsent: PinnedBytes[Channel] = PinnedBytes(limits.max_unsent_bytes, rate, slow_s, is_draining=True)
        self._excess_timer: Timer | None = None
        self._dropped = RefusalLog(log, now=timers.clock.monotonic)
        self._foreign = RefusalLog(log, now=timers.clock.monotonic)
        self._reaper = timers.every(min(10.0, idle_s / 4, slow_s / 3), self._reap)

    def use(self, sockets: Sockets) -> None:
        """Let plain connections be read and written by `sockets`."""
        self.sockets = sockets
        self._writing.set_due(True)

    def write(self) -> None:
        """Write the pending data of all channels."""
        channels = tuple(self.unwritten)
        self.unwritten.clear()
        for channel in channels:
            try:
                channel.write()
            except Exception:  # a failed channel must not hold back the answers of other channels
                log.exception("dropping %s: its answers cannot be written", channel)
                channel.abort()
        if self.sockets is not None:
            self.sockets.send()

    def frame_grew(self, channel: "Channel", size: int, *, is_new: bool) -> None:
        """Report that `channel` holds `size` bytes of an unfinished frame; `is_new`: a different frame than before."""
        if not size:
            self._unfinished.forget(channel)
            return
        now = self.timers.clock.monotonic()
        self._unfinished.update(channel, size, now, is_new=is_new)
        if self._unfinished.is_too_much:
            limit = self.limits.max_unfinished_frame_bytes
            self._drop(
                self._unfinished, now, f"unfinished frames of all connections exceed {limit} bytes (maxUnfinishedFrameBytes)"
            )

    def broken(self, channel: "Channel", error: FrameError) -> None:
        """Log an invalid frame of `channel`; at a limited rate if it is of another protocol, as from port scanners."""
        self.frame_grew(channel, 0, is_new=False)
        if error.foreign is None:
            log.warning("closing %s: %s", channel, error)
        else:
            self._foreign.refused(error.foreign.reason, f"closing {channel}: {error}")

    def stopped_reading(self, channel: "Channel") -> None:
        """Report that `channel` does not read its answers, which are kept in memory."""
        self._unsent.update(channel, channel.unsent_bytes, self.timers.clock.monotonic(), is_new=True)
        # One answer alone may be several times WRITE_BUFFER_MAX.
        if len(self._unsent) * WRITE_BUFFER_MAX > self.limits.max_unsent_bytes // 4 and self._excess_timer is None:
            self._excess_timer = self.timers.after(EXCESS_CHECK_S, self._check_unsent)

    def reads_again(self, channel: "Channel") -> None:
        """Report that the answers to `channel` have been sent."""
        self._unsent.forget(channel)

    def forget(self, channel: "Channel") -> None:
        """Remove a connection that has ended."""
        self.open.discard(channel)
        self._unfinished.forget(channel)
        self._unsent.forget(channel)

    def _check_unsent(self) -> None:
        self._excess_timer = None
        now = self.timers.clock.monotonic()
        for channel in self._unsent.connections():
            self._unsent.update(channel, channel.unsent_bytes, now)
        limit = self.limits.max_unsent_bytes
        self._drop(self._unsent, now, f"unread answers of all connections exceed {limit} bytes (maxUnsentBytes)")

    def _drop(self, pinned: "PinnedBytes[Channel]", now: float, why: str) -> None:
        for channel in pinned.excess(now):
            self.drop(channel, why)

    def drop(self, channel: "Channel", why: str) -> None:
        """Close a connection at once, and log the reason."""
        self._dropped.refused(None, f"dropping {channel}: {why}")
        self._unfinished.forget(channel)
        self._unsent.forget(channel)
        channel.abort()

    def _reap(self) -> None:
        now = self.timers.clock.monotonic()
        limits = self.limits
        slow_s, rate = limits.slow_connection_seconds, limits.min_connection_bytes_per_second
        self._check_unsent()
        pace = f"{rate} bytes a second for {slow_s} s (minConnectionBytesPerSecond, slowConnectionSeconds)"
        for channel in self._unfinished.too_slow(now):
            self.drop(channel, f"it sends its unfinished frame slower than {pace}")
        for channel in self._unsent.too_slow(now):
            self.drop(channel, f"it reads its answers slower than {pace}")
        if self.sockets is not None:
            self.sockets.note_reads()
        oldest, oldest_silent = now - self.idle_s, now - slow_s
        for channel in list(self.open):
            if channel.closing_s < oldest_silent:
                self.drop(channel, f"it did not read its remaining answers within {slow_s} s of the close")
            elif channel.last_active < oldest:
                if not channel.is_closing:
                    log.info("closing %s: idle for %.0f s", channel, self.idle_s)
                    channel.close()
            elif self.is_server and not channel.is_heard and channel.made_at < oldest_silent:
                self.drop(channel, f"it sent nothing for {slow_s} s (slowConnectionSeconds)")

    def close(self) -> None:
        """Write pending data and close every connection."""
        self._reaper.cancel()
        if self._excess_timer is not None:
            self._excess_timer.cancel()
        self.turn.run()
        for channel in list(self.open):
            channel.close()

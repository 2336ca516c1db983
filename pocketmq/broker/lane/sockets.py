"""LaneSockets: plain connections whose sockets the compiled lane reads and writes, in place of the event loop's transports.

The loop watches one descriptor, which is readable while a socket is ready. The lane then reads each ready socket once, and
serves the ordinary sends of those whose channels are caught up. All else that is read goes to the channel, as a transport of
the event loop passes it on. The lane's own answers are sent at the end of the turn, after everything that they promise.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from socket import socket
from typing import Any, Final

from pocketmq.remoting.channel import LARGE_ANSWER_SIZE, Channel
from pocketmq.remoting.channels import WRITE_BUFFER_MAX
from pocketmq.remoting.command import Buffer
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.turn import Turn

log = logging.getLogger("remoting")

_NO_TOKEN: Final = (1 << 64) - 1
_LOW_SHARE: Final = 4
"""Part of the limit of unsent bytes down to which a peer must read before it is read again."""

Found = tuple[int, bytes | int | None, int, int]
"""A ready socket that needs the Python path (`_lane.Found`): token, data or error, bytes of answers, bytes before."""
ServeReady = Callable[[Any, float], Found | None]


class LaneSockets:
    """Sockets in the compiled lane, with their channels."""

    def __init__(self, serve_ready: ServeReady, sockets_class: Any, turn: Turn, clock: Clock) -> None:
        """`serve_ready` serves ready sockets, at a monotonic time, up to one for which something else must be done.
        `sockets_class`: `Sockets` of the compiled module."""
        self._serve_ready, self._turn, self._monotonic = serve_ready, turn, clock.monotonic
        self.lane = sockets_class(LARGE_ANSWER_SIZE)
        self._by_token: dict[int, LaneTransport] = {}
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.lane.fileno(), self._ready)

    def connect(self, accepted: socket, channel: Channel) -> None:
        """Read and write an accepted connection, which `channel` serves. Raises OSError."""
        token = self.lane.add(accepted.fileno())
        transport = self._by_token[token] = LaneTransport(self, token, accepted, channel)
        channel.connection_made(transport)
        try:
            self.lane.start(token, channel.host_bytes)
        except OSError as error:
            transport.end(error)

    def _ready(self) -> None:
        """Serve the sockets that are ready."""
        serve_ready, turn, lane = self._serve_ready, self._turn, self.lane
        turn.arm()
        now_s = self._monotonic()
        lane.wait(now_s)
        while lane.has_ready:
            found = serve_ready(lane, now_s)
            if found is not None:
                self._take(*found)
                turn.arm()
                now_s = self._monotonic()

    def _take(self, token: int, value: bytes | int | None, answered: int, answered_before: int) -> None:
        """Do what the lane has left to Python (`_lane.Found`)."""
        transport = self._by_token[token]
        if isinstance(value, int):
            transport.sent(value)
            return
        channel = transport.channel
        try:
            channel.unread.size_max += answered_before
            if answered >= LARGE_ANSWER_SIZE:
                channel.end_large_turn()
            if value == b"":
                transport.close()
            elif value and not transport.is_closing():
                channel.data_received(value)
            transport.look()
        except Exception as error:
            log.exception("closing %s: what it sent cannot be served", channel)
            transport.end(error)

    def send(self) -> None:
        """Send the answers of the lane."""
        for token, unsent in self.lane.send():
            if (transport := self._by_token.get(token)) is not None:  # not dropped because of one before
                transport.sent(unsent)

    def note_reads(self) -> None:
        """Tell the channels when they last received data that they were not given."""
        for token, read_s in self.lane.note_reads():
            self._by_token[token].channel.last_active = read_s

    def forget(self, token: int) -> None:
        """Watch a socket no longer, before it is closed."""
        transport, read_s = self._by_token.pop(token), self.lane.remove(token)
        if read_s is not None:
            transport.channel.last_active = read_s

    def close(self) -> None:
        """Watch no sockets any more."""
        for token in list(self._by_token):
            self._by_token[token].abort()
        self.loop.remove_reader(self.lane.fileno())


class LaneTransport:
    """Transport of one connection: the methods that `Channel` uses, with the effects of the event loop's transports."""

    __slots__ = ("_high", "_is_closing", "_is_direct", "_is_full", "_sockets", "_socket", "_token", "channel")

    def __init__(self, sockets: LaneSockets, token: int, connected: socket, channel: Channel) -> None:
        self._sockets, self._token, self._socket, self.channel = sockets, token, connected, channel
        self._high = WRITE_BUFFER_MAX
        self._is_closing = self._is_full = False
        self._is_direct = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self._socket
        if name == "peername":
            try:
                return self._socket.getpeername()
            except OSError:  # gone already
                return default
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BUFFER_MAX if high is None else high

    def get_write_buffer_size(self) -> int:
        size: int = self._sockets.lane.unsent(self._token)
        return size

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._sockets.lane.read(self._token, False)

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._sockets.lane.read(self._token, True)

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if not self._is_closing:
            self.sent(self._sockets.lane.write(self._token, list_of_data))

    def sent(self, unsent: int) -> None:
        """Note the bytes that are not sent, or an error's number below zero."""
        if unsent < 0:
            self.end(OSError(-unsent, os.strerror(-unsent)))
        elif not self._is_full and unsent > self._high:
            self._is_full = True
            self.channel.pause_writing()
        elif self._is_full and unsent <= self._high // _LOW_SHARE:
            self._is_full = False
            self.channel.resume_writing()
        if self._is_closing and unsent == 0:
            self.end(None)

    def look(self) -> None:
        """Let the lane see the next bytes before the channel if the channel is caught up."""
        if self._is_direct != self.channel.is_caught_up:
            self._is_direct = not self._is_direct
            self._sockets.lane.set_direct(self._token, self._is_direct)

    def close(self) -> None:
        """Read no more, and close once everything is sent."""
        if not self._is_closing:
            self._sockets.lane.read(self._token, False)
            unsent = self._sockets.lane.write(self._token, ())
            self._is_closing = True
            self.sent(unsent)

    def abort(self) -> None:
        """Close at once; what is not sent is lost."""
        self.end(None)

    def end(self, error: Exception | None) -> None:
        """Forget the socket, and tell the channel in the next turn, as it may be in the middle of something."""
        if self._token != _NO_TOKEN:
            self._is_closing = True
            self._sockets.forget(self._token)
            self._token = _NO_TOKEN
            self._sockets.loop.call_soon(self._ended, error)

    def _ended(self, error: Exception | None) -> None:
        try:
            self.channel.connection_lost(error)
        finally:
            self._socket.close()

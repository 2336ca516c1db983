"""The socket shell: connections, listeners, idle reaper.

`Channel` is one connection of a server or of a client. It cuts frames, serves them at once through its dispatcher and
leaves the answers in `_out`; the turn's REPLY phase writes each channel's answers with one call. A peer that does not read
(full socket buffer) or that holds too many unanswered requests is not read from until it does.
"""

import asyncio
import contextlib
import ipaddress
import logging
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from remoting.command import Body, Buffer, RemotingCommand, Response, encode_request
from remoting.dispatch import Dispatcher, Route
from remoting.frame import FrameBuffer, FrameError
from remoting.header import CommandHeader
from remoting.signature import Credentials
from remoting.tls import ServerTls
from remoting.tls_listener import BACKLOG, TlsListener
from runtime.timers import Timers
from runtime.turn import Phase, Turn

log = logging.getLogger("remoting")

IDLE_S: Final = 120.0
"""A connection silent for this long in both directions is closed (Apache: serverChannelMaxIdleTimeSeconds)."""
DEFERRED_MAX: Final = 4096
"""Unanswered requests of one connection above which it is not read from."""
WRITE_BUFFER_MAX: Final = 4 * 1024 * 1024
"""Unsent bytes of one connection above which it is not read from."""
JOIN_MAX: Final = 64 * 1024
"""Answers up to this size are joined into one buffer; larger ones (pulled views) go out as they are, uncopied."""


LARGE_ANSWER_SIZE: Final = 16 * 1024
"""A body of this size is not kept back until all other connections were read."""
CLOSE_MAX_S: Final = 1.0
"""How long a closing server waits for answers to leave."""
OPAQUE_FIRST: Final = 1 << 30
"""Our own requests are counted from here: a peer that knows its answers by opaque alone, without a look at the response
flag, counts from 0 and must not take a notification for an answer."""


class ChannelClosed(ConnectionError):
    """The connection closed before the answer came."""


class NeverHeard(ChannelClosed):
    """The peer closed the connection and had sent nothing at all."""


class Channels:
    """What the connections of one server or client share: which are open, which have something to write."""

    def __init__(self, turn: Turn, timers: Timers, idle_s: float = IDLE_S, credentials: Credentials | None = None) -> None:
        """`credentials`: who signs our own requests; None signs none."""
        self.turn = turn
        self.timers = timers
        self.credentials = credentials
        self.open: set[Channel] = set()
        self.unwritten: list[Channel] = []
        turn.add(Phase.REPLY, self.write)
        self.idle_s = idle_s
        self._reaper = timers.every(min(10.0, idle_s / 4), self._reap)

    def write(self) -> None:
        """Write what every channel has gathered."""
        if self.unwritten:
            channels, self.unwritten = self.unwritten, []
            for channel in channels:
                channel.write()

    def _reap(self) -> None:
        oldest = self.timers.clock.monotonic() - self.idle_s
        for channel in [c for c in self.open if c.last_active < oldest]:
            log.info("closing %s: idle for %.0f s", channel, self.idle_s)
            channel.close()

    def close(self) -> None:
        """Write what is left and close every connection."""
        self._reaper.cancel()
        self.turn.run()
        for channel in list(self.open):
            channel.close()


class Channel(asyncio.Protocol):
    """One connection. `attachments` is for whoever must remember something about it."""

    def __init__(self, channels: Channels, dispatcher: Dispatcher) -> None:
        self._channels = channels
        self._serve = dispatcher.serve
        self._frames = FrameBuffer()
        self._out: list[Buffer] = []
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = OPAQUE_FIRST
        self._deferred_count = 0
        self._is_paused = False
        self._is_closed_by_us = False
        self._on_close: list[Callable[[Channel], None]] = []
        self._transport: Any = None
        self.is_open = False
        self.last_active = self._made_at = 0.0
        self.remote_host = ""
        self.remote_port = 0
        self.remote_address = ""
        self.host_bytes = b"\0" * 8
        self.attachments: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Channel {self.remote_address}>"

    # What asyncio calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        peer = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.remote_host, self.remote_port = plain_host(peer[0]), peer[1]
        self.remote_address = f"{self.remote_host}:{self.remote_port}"
        self.host_bytes = pack_host(self.remote_host, self.remote_port)
        self.last_active = self._made_at = self._channels.timers.clock.monotonic()
        self.is_open = True
        self._channels.open.add(self)

    def data_received(self, data: bytes) -> None:
        channels = self._channels
        channels.turn.arm()
        self.last_active = channels.timers.clock.monotonic()
        out = self._out
        was_empty = not out
        try:
            for frame in self._frames.feed(data):
                self._serve(self, frame, out)
        except FrameError as error:
            log.warning("closing %s: %s", self, error)
            channels.turn.run()  # what was served before may be answered once it is done
            self.close()
            return
        if was_empty and out:
            channels.unwritten.append(self)
            if len(out[-1]) >= LARGE_ANSWER_SIZE:
                # The turn ends here: the peer can read while other connections are served. Without it pulls go in convoys,
                # all served, then all read (measured: a third fewer pulls a second).
                channels.turn.run()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._channels.open.discard(self)
        self._out.clear()
        is_heard = self.last_active != self._made_at
        closed = ChannelClosed if is_heard or self._is_closed_by_us else NeverHeard
        because = f": {exc}" if exc else ""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(closed(f"connection to {self.remote_address} closed{because}"))
        self._waiting.clear()
        for callback in self._on_close:
            callback(self)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self.is_open and self._deferred_count < DEFERRED_MAX:
            self._transport.resume_reading()

    # What the dispatcher and Deferred call

    def respond(self, response: Response, opaque: int, serialize_type: int) -> None:
        """Answer a request that was deferred."""
        if self.is_open:
            if not self._out:
                self._channels.unwritten.append(self)
            response.encode_into(self._out, opaque, serialize_type)
            self._channels.turn.arm()

    def deferred_added(self) -> None:
        self._deferred_count += 1
        if self._deferred_count == DEFERRED_MAX and self.is_open:
            self._transport.pause_reading()

    def deferred_removed(self) -> None:
        self._deferred_count -= 1
        if self._deferred_count == DEFERRED_MAX - 1 and self.is_open and not self._is_paused:
            self._transport.resume_reading()

    def response_received(self, command: RemotingCommand) -> None:
        """The answer to a request of ours; one that nobody waits for any more is dropped."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    # What everybody else calls

    @property
    def is_writable(self) -> bool:
        """Whether the peer takes what it is sent; else it lies in memory."""
        return self.is_open and not self._is_paused

    def on_close(self, callback: Callable[["Channel"], None]) -> None:
        """Have `callback(channel)` run when the connection is gone."""
        self._on_close.append(callback)

    def invoke_oneway(self, code: int, header: CommandHeader | None = None, body: Body = b"") -> None:
        """Send a request that wants no answer."""
        credentials = self._channels.credentials
        self._request(encode_request(code, header, body, self._next_opaque(), oneway=True, credentials=credentials))

    def invoke(
        self, code: int, header: CommandHeader | None = None, body: Body = b"", timeout_s: float = 3.0
    ) -> "asyncio.Future[RemotingCommand]":
        """Send a request. The future ends with its answer, TimeoutError or ChannelClosed.

        Raises TypeError or ValueError when the request cannot be encoded; nothing of it is kept or sent then.
        """
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            future.set_exception(ChannelClosed(f"connection to {self.remote_address} is closed"))
            return future
        opaque = self._next_opaque()
        request = encode_request(code, header, body, opaque, credentials=self._channels.credentials)
        self._waiting[opaque] = future
        self._request(request)
        timer = self._channels.timers.after(timeout_s, lambda: self._expire(opaque, code, timeout_s))
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def close(self) -> None:
        """Close after what is already handed to the transport has left."""
        if self._transport is not None and not self._transport.is_closing():
            self._is_closed_by_us = True
            self.write()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what has not left is lost."""
        if self._transport is not None:
            self._transport.abort()

    def write(self) -> None:
        """Hand what has been gathered to the transport, in one call."""
        out = self._out
        if not out:
            return
        self._out = []
        if self._transport.is_closing():
            return
        if len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) <= JOIN_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def _request(self, buffers: Iterable[Buffer]) -> None:
        if self.is_open:
            if not self._out:
                self._channels.unwritten.append(self)
            self._out.extend(buffers)
            self._channels.turn.arm()

    def _next_opaque(self) -> int:
        self._opaque = OPAQUE_FIRST | (self._opaque + 1) & (OPAQUE_FIRST - 1)
        return self._opaque

    def _expire(self, opaque: int, code: int, timeout_s: float) -> None:
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(TimeoutError(f"no answer from {self.remote_address} to code {code} within {timeout_s:g} s"))


def plain_host(host: str) -> str:
    """An IPv4 address in its own form also where it arrived over an IPv6 socket (`::ffff:a.b.c.d`)."""
    mapped = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(mapped, ipaddress.IPv6Address) and mapped.ipv4_mapped is not None:
        return str(mapped.ipv4_mapped)
    return str(mapped)


def pack_host(host: str, port: int) -> bytes:
    """Address (4 or 16 bytes) and port (i32), as message records and offsetMsgIds hold them."""
    return ipaddress.ip_address(host).packed + struct.pack(">i", port)


class _Listener(Protocol):
    def close(self) -> None: ...


class RemotingServer:
    """Listens on one or more ports; each port may refuse some codes (the VIP port does not serve pulls)."""

    def __init__(
        self,
        services: Any,
        table: dict[int, Route],
        turn: Turn,
        timers: Timers,
        idle_s: float = IDLE_S,
        tls: ServerTls | None = None,
    ) -> None:
        self._services = services
        self._table = table
        self.channels = Channels(turn, timers, idle_s)
        self._tls = tls
        self._listeners: list[_Listener] = []

    async def listen(self, host: str, port: int, refused: frozenset[int] = frozenset()) -> int:
        """Listen on `host` and `port` (0: the kernel chooses). Returns the port. Raises OSError when it is taken."""
        dispatcher = Dispatcher(self._services, self._table, refused)

        def make() -> Channel:
            return Channel(self.channels, dispatcher)

        if self._tls is not None:
            tls_listener = TlsListener(make, self._tls, self.channels.timers, self.channels.idle_s)
            self._listeners.append(tls_listener)
            return await tls_listener.listen(host, port)
        listener = await asyncio.get_running_loop().create_server(make, host, port, backlog=BACKLOG)
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, send what is ready, close all connections.

        Waits until what was written has left, but not for long for a peer that does not read.
        """
        for listener in self._listeners:
            listener.close()
        left, all_gone = set(self.channels.open), asyncio.Event()

        def gone(channel: Channel) -> None:
            left.discard(channel)
            if not left:
                all_gone.set()

        for channel in left:
            channel.on_close(gone)
        self.channels.close()
        if left:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_gone.wait(), CLOSE_MAX_S)
        for channel in tuple(left):
            log.info("dropping %s: it does not read", channel)
            channel.abort()
        await asyncio.sleep(0)

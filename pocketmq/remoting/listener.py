"""Listeners: accept plain or TLS connections up to a limit, and resume after the process has run out of descriptors.

A connection that has sent no byte, or has not completed its TLS handshake, makes room for a new one at the limit.

An accepted connection waits as a plain socket until its first byte has arrived, so that thousands of silent connections take
little memory. The byte is peeked at and stays in the socket. Clients of the protocol speak first.

The event loop's own servers are not used, because uvloop's closes permanently when a connection cannot be accepted.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.tls import ServerTls, send_alert
from pocketmq.runtime.admission import Admission
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.timers import Timer, Timers

log = logging.getLogger("remoting")

BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 64
"""Maximum number of connections accepted before existing ones are served."""
FULL_PAUSE_S: Final = 1.0
"""Pause in accepting after the process has run out of descriptors."""
HANDSHAKE: Final = b"\x16"
"""First byte that a TLS client sends."""
HANDSHAKE_MAX_S: Final = 10.0
_LOST: Final = (errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.EPROTO)
"""Errors of `accept` when no connection is waiting, or it has gone."""


class Connection(asyncio.Protocol):
    """Protocol of a connection, as far as a listener uses it."""

    is_open: bool
    """Whether it is connected."""

    def on_close(self, callback: Callable[..., None]) -> None:
        """Call `callback(connection)` when the connection has ended."""


Connect = Callable[[socket.socket, Any], None]
"""Connects an accepted socket with its protocol."""


class Listener:
    """Listening sockets of one port. `make` creates the protocol of a connection.

    With TLS the port serves plain connections, too, distinguished by their first byte: 0x16 begins a TLS handshake and
    cannot begin a frame, because the frame would have 350 MB. A plain connection becomes a `Channel` as on any other port,
    without overhead.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        timers: Timers,
        admission: Admission,
        silent_s: float | None = None,
        tls: ServerTls | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`silent_s`: maximum time to wait for the first byte of a connection, needed for TLS; None: it is not waited for.
        `connect` gives a plain connection its protocol; None: the event loop does."""
        self._make, self._tls, self._connect_plain = make, tls, connect
        self._timers = timers
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._silent_s = silent_s
        # Connections without a first byte, in the order of their acceptance -> monotonic time at which each is closed.
        self._silent: dict[socket.socket, float] = {}
        self._silent_timer: Timer | None = None
        self._connecting: dict[asyncio.Task[Connection], socket.socket] = {}
        self._dropped = RefusalLog(log, now=timers.clock.monotonic)
        self._failed = RefusalLog(log, level=logging.ERROR, now=timers.clock.monotonic)

    async def listen(self, host: str, port: int) -> int:
        """Listen on every address of `host`. Returns the port. Raises OSError."""
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
                listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
                self._listening.append(listening)
                listening.setblocking(False)
                self._loop.add_reader(listening, self._accept, listening)
        except OSError:
            self.close()
            raise
        return int(self._listening[0].getsockname()[1])

    def close(self) -> None:
        """Stop accepting, and drop connections that are not yet channels."""
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        for silent in list(self._silent):
            self._drop(silent)
        for task in self._connecting:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except OSError as error:
                if error.errno not in _LOST:
                    self._pause(listening, error)
                return
            if not self._admission.has_room(peer_of(accepted)):
                accepted.close()
                continue
            try:
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # gone already
                accepted.close()
                continue
            self._admission.count += 1
            self._accepted(accepted)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Stop accepting for a while; new connections wait in the backlog until there are descriptors again."""
        self._failed.refused(None, f"cannot accept connections, trying again every {FULL_PAUSE_S:g} s: {error}")
        self._loop.remove_reader(listening)
        self._timers.after(FULL_PAUSE_S, lambda: self._go_on(listening))

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _accepted(self, accepted: socket.socket) -> None:
        """Wait for the first byte of an accepted connection."""
        if self._silent_s is None:
            self._heard(accepted, b"")
            return
        self._silent[accepted] = self._timers.clock.monotonic() + self._silent_s
        self._admission.is_stranger(accepted, peer_of(accepted), partial(self._drop, accepted))
        self._loop.add_reader(accepted, self._first_byte, accepted)
        if self._silent_timer is None:
            self._silent_timer = self._timers.after(self._silent_s, self._drop_silent)

    def _first_byte(self, accepted: socket.socket) -> None:
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(accepted)
            return
        self._loop.remove_reader(accepted)
        del self._silent[accepted]
        self._admission.has_spoken(accepted)
        self._heard(accepted, first)

    def _heard(self, accepted: socket.socket, first: bytes) -> None:
        """Create the channel of a connection; `first` is its first byte, if it was waited for."""
        tls, context = self._tls, None
        if tls is not None and first == HANDSHAKE:
            context = tls.certificates.context
        elif tls is not None and tls.is_enforced:
            log.warning("closing %s: it does not use TLS, but %s", peer_of(accepted), tls.reason)
            accepted.close()
            self._left()
            return
        self._start(accepted, context)

    def _drop_silent(self) -> None:
        """Close the connections that have been silent for too long."""
        self._silent_timer = None
        now_s = self._timers.clock.monotonic()
        for silent in [silent for silent, due_s in self._silent.items() if due_s <= now_s]:
            text = f"dropping {peer_of(silent)}: it sent nothing for {self._silent_s:g} s (slowConnectionSeconds)"
            self._dropped.refused(None, text)
            self._drop(silent)
        if self._silent:
            self._silent_timer = self._timers.after(next(iter(self._silent.values())) - now_s, self._drop_silent)

    def _drop(self, silent: socket.socket) -> None:
        self._loop.remove_reader(silent)
        del self._silent[silent]
        self._admission.has_spoken(silent)
        silent.close()
        self._left()

    def _start(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        task = asyncio.ensure_future(self._connect(accepted, context))
        self._connecting[task] = accepted
        if context is not None:
            self._admission.is_stranger(task, peer_of(accepted), task.cancel)
        task.add_done_callback(self._connected)

    def _connected(self, task: "asyncio.Task[Connection]") -> None:
        accepted = self._connecting.pop(task)
        self._admission.has_spoken(task)
        if task.cancelled():
            accepted.close()
            self._left()
        elif (made := task.result()).is_open:
            made.on_close(self._left)
        else:
            self._left()

    def _left(self, _: object = None) -> None:
        self._admission.count -= 1

    async def _connect(self, accepted: socket.socket, context: ssl.SSLContext | None) -> Connection:
        peer, connection = peer_of(accepted), self._make()
        try:
            await self._make_channel(connection, accepted, context)
        except OSError as error:  # includes ssl.SSLError and TimeoutError
            kind, why = "connection" if context is None else "TLS connection", str(error) or "the peer has disconnected"
            log.warning("closing %s: the %s cannot be established: %s", peer, kind, why)
            accepted.close()
        except Exception:
            log.exception("closing %s", peer)
            accepted.close()
        return connection

    async def _make_channel(self, made: Connection, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        if context is None and self._connect_plain is not None:
            self._connect_plain(accepted, made)
            return
        if context is None:
            await self._loop.connect_accepted_socket(lambda: made, accepted)
            return
        # A duplicate for the alert, because the loop closes the socket before it reports a failed handshake.
        with accepted.dup() as kept:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: made, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_MAX_S
                )
            except ssl.SSLError as error:
                send_alert(kept, error)
                raise


def admission_of(limits: ConnectionLimits, timers: Timers, descriptors_kept: int) -> Admission:
    """Return the limit on the connections of a server for clients. `descriptors_kept`: see `connection_count_max`."""
    count_max = limits.connection_count_max(descriptors_kept)
    return Admission(log, count_max, "maxConnections, RLIMIT_NOFILE", timers.clock.monotonic)


def peer_of(accepted: socket.socket) -> str:
    """Return the address of the peer for log lines."""
    try:
        return "{}:{}".format(*accepted.getpeername()[:2])
    except OSError:
        return "a peer that has disconnected"

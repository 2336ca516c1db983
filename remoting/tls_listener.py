"""A port that takes TLS and plain connections, told apart by their first byte.

A connection that was accepted waits, outside any protocol, until its first byte is there; that byte is looked at and left
in the socket. 0x16 begins a TLS handshake and cannot begin a frame, whose length it would make 350 MB. Then the socket
becomes a `Channel` as on any other port: what is sent plain costs nothing more from there on.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from remoting.tls import ServerTls
from remoting.tls_alert import send_alert
from runtime.timers import Timer, Timers

log = logging.getLogger("remoting")

BACKLOG: Final = 1024
HANDSHAKE: Final = b"\x16"
HANDSHAKE_MAX_S: Final = 10.0
FULL_PAUSE_S: Final = 1.0
"""How long nothing is accepted after the process ran out of descriptors."""


class TlsListener:
    """Listens like asyncio's servers; `make` makes the protocol of a connection."""

    def __init__(self, make: Callable[[], asyncio.Protocol], tls: ServerTls, timers: Timers, idle_s: float) -> None:
        """`idle_s`: how long a connection may keep us waiting for its first byte."""
        self._make = make
        self._tls = tls
        self._timers = timers
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._waiting: dict[socket.socket, Timer] = {}
        self._connecting: set[asyncio.Task[None]] = set()

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
        """Accept no more, and forget what is not a channel yet."""
        for listening in self._listening:
            self._loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        for waiting in list(self._waiting):
            self._drop(waiting)
        for task in self._connecting:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted: %s", error)
                self._loop.remove_reader(listening)
                self._timers.after(FULL_PAUSE_S, lambda: self._go_on(listening))
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._waiting[accepted] = self._timers.after(self._idle_s, partial(self._drop, accepted))
            self._loop.add_reader(accepted, self._first_byte, accepted)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _first_byte(self, accepted: socket.socket) -> None:
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        is_tls = first == HANDSHAKE
        if first and self._tls.is_enforced and not is_tls:
            log.warning("closing %s: it speaks no TLS, and tls.server.mode is enforcing", _peer(accepted))
        if not first or (self._tls.is_enforced and not is_tls):
            self._drop(accepted)
            return
        self._loop.remove_reader(accepted)
        self._waiting.pop(accepted).cancel()
        task = asyncio.ensure_future(self._connect(accepted, self._tls.certificates.context if is_tls else None))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _drop(self, accepted: socket.socket) -> None:
        self._loop.remove_reader(accepted)
        self._waiting.pop(accepted).cancel()
        accepted.close()

    async def _connect(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        peer = _peer(accepted)
        try:
            if context is None:
                await self._loop.connect_accepted_socket(self._make, accepted)
            else:
                await self._shake_hands(accepted, context)
        except OSError as error:  # ssl.SSLError and TimeoutError are such
            kind, why = "connection" if context is None else "TLS connection", str(error) or "it has gone"
            log.warning("closing %s: no %s: %s", peer, kind, why)
            accepted.close()

    async def _shake_hands(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        # The loop closes the socket before it tells that a handshake failed.
        with accepted.dup() as kept:
            try:
                await self._loop.connect_accepted_socket(
                    self._make, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_MAX_S
                )
            except ssl.SSLError as error:
                send_alert(kept, error)
                raise


def _peer(accepted: socket.socket) -> str:
    try:
        return "{}:{}".format(*accepted.getpeername()[:2])
    except OSError:
        return "a connection that is gone"

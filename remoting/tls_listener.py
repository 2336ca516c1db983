"""Listener for TLS and plain connections on the same port, distinguished by their first byte.

An accepted connection waits until its first byte has arrived; the byte is peeked at and stays in the socket. 0x16 begins a
TLS handshake and cannot begin a frame, because the frame would have 350 MB. Then the socket becomes a `Channel` as on any
other port, so that plain connections have no overhead.
"""

import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from pocketmq.remoting.listener import Admission, Connection, Listener, peer_of
from pocketmq.remoting.tls import ServerTls, send_alert
from pocketmq.runtime.timers import Timer, Timers

log = logging.getLogger("remoting")

HANDSHAKE: Final = b"\x16"
HANDSHAKE_MAX_S: Final = 10.0


class TlsListener(Listener):
    """A listener that waits for the first byte of each connection."""

    def __init__(
        self, make: Callable[[], Connection], timers: Timers, admission: Admission, tls: ServerTls, silent_s: float
    ) -> None:
        """`silent_s`: maximum time to wait for the first byte of a connection."""
        super().__init__(make, timers, admission)
        self._tls = tls
        self._silent_s = silent_s
        self._waiting: dict[socket.socket, Timer] = {}

    def close(self) -> None:
        super().close()
        for waiting in list(self._waiting):
            self._drop(waiting)

    def _accepted(self, accepted: socket.socket) -> None:
        self._waiting[accepted] = self._timers.after(self._silent_s, partial(self._give_up, accepted))
        self._loop.add_reader(accepted, self._first_byte, accepted)

    def _first_byte(self, accepted: socket.socket) -> None:
        try:
            first = accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        is_tls = first == HANDSHAKE
        if first and self._tls.is_enforced and not is_tls:
            log.warning("closing %s: it does not use TLS, but %s", peer_of(accepted), self._tls.reason)
        if not first or (self._tls.is_enforced and not is_tls):
            self._drop(accepted)
            return
        self._loop.remove_reader(accepted)
        self._waiting.pop(accepted).cancel()
        self._start(accepted, self._tls.certificates.context if is_tls else None)

    def _give_up(self, accepted: socket.socket) -> None:
        log.info("closing %s: it sent nothing for %g s", peer_of(accepted), self._silent_s)
        self._drop(accepted)

    def _drop(self, accepted: socket.socket) -> None:
        self._loop.remove_reader(accepted)
        self._waiting.pop(accepted).cancel()
        accepted.close()
        self._left()

    async def _make_channel(self, made: Connection, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        if context is None:
            await super()._make_channel(made, accepted, None)
            return
        # The loop closes the socket before it reports a failed handshake.
        with accepted.dup() as kept:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: made, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE_MAX_S
                )
            except ssl.SSLError as error:
                send_alert(kept, error)
                raise

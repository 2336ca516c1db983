"""Listener for TLS and plain connections on the same port, distinguished by their first byte.

0x16 begins a TLS handshake and cannot begin a frame, because the frame would have 350 MB. A plain connection becomes a
`Channel` as on any other port, without overhead.
"""

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from pocketmq.remoting.listener import Admission, Connection, Listener, peer_of
from pocketmq.remoting.tls import ServerTls, send_alert
from pocketmq.runtime.timers import Timers

log = logging.getLogger("remoting")

HANDSHAKE: Final = b"\x16"
HANDSHAKE_MAX_S: Final = 10.0


class TlsListener(Listener):
    """A listener with certificates."""

    def __init__(
        self, make: Callable[[], Connection], timers: Timers, admission: Admission, silent_s: float, tls: ServerTls
    ) -> None:
        super().__init__(make, timers, admission, silent_s)
        self._tls = tls

    def _heard(self, accepted: socket.socket, first: bytes) -> None:
        is_tls = first == HANDSHAKE
        if self._tls.is_enforced and not is_tls:
            log.warning("closing %s: it does not use TLS, but %s", peer_of(accepted), self._tls.reason)
            accepted.close()
            self._left()
            return
        self._start(accepted, self._tls.certificates.context if is_tls else None)

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

"""The alert by which TLS tells the other side why a handshake failed.

Neither asyncio nor uvloop sends it: they end the connection, and the alert is lost with the buffer in which it waits. Here a
failed handshake carries it in its error, and whoever kept the socket sends it.
"""

import socket
import ssl
from contextlib import suppress
from typing import Any, Final

_UNREAD_MAX: Final = 1 << 16


class _AlertingObject(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.alert = self.outgoing.read()  # type: ignore[attr-defined]
            raise


class AlertingContext(ssl.SSLContext):
    """A context whose failed handshakes raise errors that `send_alert` can make use of."""

    sslobject_class = _AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As SSLContext's; the object knows where it writes to."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(wrapped, _AlertingObject)
        wrapped.outgoing = outgoing
        return wrapped


def send_alert(connection: socket.socket, error: ssl.SSLError) -> None:
    """Tell the other side of a connection that does not block why its handshake failed, as far as that goes."""
    with suppress(OSError):
        connection.send(getattr(error, "alert", b""))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(_UNREAD_MAX)  # a close with something unread would take the alert back

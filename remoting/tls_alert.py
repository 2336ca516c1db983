"""Sending of the TLS alert that tells the peer why a handshake failed.

Neither asyncio nor uvloop sends it: they close the connection and lose the alert, which is still in a buffer. Here the
exception of a failed handshake carries the alert, and the listener sends it over a duplicate of the socket.
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
    """SSL context whose failed handshakes raise errors that carry the alert for `send_alert`."""

    sslobject_class = _AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Like SSLContext.wrap_bio; the object keeps its outgoing buffer."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(wrapped, _AlertingObject)
        wrapped.outgoing = outgoing
        return wrapped


def send_alert(connection: socket.socket, error: ssl.SSLError) -> None:
    """Send the alert of a failed handshake over a non-blocking socket, if possible."""
    with suppress(OSError):
        connection.send(getattr(error, "alert", b""))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(_UNREAD_MAX)  # closing with unread data would reset the connection and drop the alert

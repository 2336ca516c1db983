"""Peers that speak another protocol: HTTP clients, and TLS clients at a port without a certificate.

Their first bytes, read as the length of a frame, would mean hundreds of megabytes. They get an answer in their own protocol,
and the log names that protocol.
"""

from typing import Final, NamedTuple

_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TEXT: Final = (
    b"This port serves clients of RocketMQ's remoting protocol, not HTTP. Metrics and health are at the port that the key "
    b"metricsPort sets.\n"
)
_HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_TEXT), _TEXT)
)
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x28"
"""Fatal alert handshake_failure."""


class Foreign(NamedTuple):
    """Another protocol."""

    reason: str
    answer: bytes = b""
    """Answer that its clients understand."""


_HTTP_CLIENT: Final = Foreign("it speaks HTTP, but this port serves RocketMQ clients (HTTP: see metricsPort)", _HTTP_ANSWER)
_HTTP_SERVER: Final = Foreign("it speaks HTTP, so it is not a RocketMQ server")
_TLS_CLIENT: Final = Foreign(
    "it starts a TLS handshake, but this server has no certificate (tls.server.certPath)", _TLS_ALERT
)


def foreign_protocol(data: bytes, start: int) -> Foreign | None:
    """Return the protocol of the bytes from `start` on, which do not begin a frame; None if it is unknown."""
    first = data[start : start + 4]
    if first in _METHODS:
        return _HTTP_CLIENT
    if first == b"HTTP":
        return _HTTP_SERVER
    return _TLS_CLIENT if first.startswith(b"\x16\x03") else None

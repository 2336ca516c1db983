"""TLS settings, and the SSL contexts made from them.

The keys are Apache's system properties. They are read from the server's config file and from the file named by
`tls.config.file`, whose values take precedence. Certificates are reloaded for new connections when their files change;
after a failed reload the previous ones stay in use. TLS 1.2 and later, no renegotiation. Names in certificates are not
compared with host names, as in Apache's clients and servers.
"""

import logging
import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pocketmq.runtime import properties_file
from pocketmq.runtime.config import ConfigError, items_of, plan_update, setting
from pocketmq.runtime.error_text import system_reason
from pocketmq.runtime.lifecycle import StartError

log = logging.getLogger("remoting")

TLS_FILES_S: Final = 1.0
"""Interval between checks for changed certificate files."""
_UNREAD_MAX: Final = 1 << 16
"""Maximum number of unread bytes dropped before a refused connection is closed."""


class TlsMode(Enum):
    """Connections that a server accepts: plain only; TLS and plain on the same port; TLS only."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether clients are asked for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass
class TlsConfig:
    """TLS settings with Apache's keys and defaults, except that the test mode is off."""

    mode: TlsMode = setting(TlsMode.PERMISSIVE, key="tls.server.mode")
    """PERMISSIVE without a certificate has the effect of DISABLED."""
    config_file: str | None = setting(None, key="tls.config.file")
    test_mode_enable: bool = setting(False, key="tls.test.mode.enable")
    """Generate a self-signed certificate, and trust any certificate. Needs the command openssl."""
    server_need_client_auth: ClientAuth = setting(ClientAuth.NONE, key="tls.server.need.client.auth")
    server_key_path: str | None = setting(None, key="tls.server.keyPath")
    server_key_password: str | None = setting(None, key="tls.server.keyPassword", secret=True)
    server_cert_path: str | None = setting(None, key="tls.server.certPath")
    server_auth_client: bool = setting(False, key="tls.server.authClient")
    """Whether client certificates are verified, as `server_need_client_auth` says."""
    server_trust_cert_path: str | None = setting(None, key="tls.server.trustCertPath")
    """Certificate authorities of clients. None: those of the machine."""
    client_key_path: str | None = setting(None, key="tls.client.keyPath")
    client_key_password: str | None = setting(None, key="tls.client.keyPassword", secret=True)
    client_cert_path: str | None = setting(None, key="tls.client.certPath")
    client_auth_server: bool = setting(False, key="tls.client.authServer")
    """Whether the certificates of servers are verified."""
    client_trust_cert_path: str | None = setting(None, key="tls.client.trustCertPath")

    def read_config_file(self) -> None:
        """Set the values of the file `tls.config.file`. Raises StartError."""
        if self.config_file is None:
            return
        own = {"tls.server.mode", "tls.config.file"}
        try:
            properties = properties_file.load(Path(self.config_file))
            known = {key: value for key, value in properties.items() if key in items_of(TlsConfig) and key not in own}
            plan_update([self], known, set(known)).apply()
        except (OSError, ValueError) as error:
            text = "; ".join(error.problems) if isinstance(error, ConfigError) else _error_text(error)
            raise StartError(f"tls.config.file={self.config_file}: {text}") from error


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
    """SSL context whose failed handshakes raise errors that contain the TLS alert for `send_alert`.

    The alert tells the peer why the handshake failed. asyncio and uvloop close the connection while the alert is
    still in a buffer, and lose it.
    """

    sslobject_class = _AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Like SSLContext.wrap_bio; the object keeps its outgoing buffer."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(wrapped, _AlertingObject)
        wrapped.outgoing = outgoing
        return wrapped


def send_alert(connection: socket.socket, error: ssl.SSLError) -> None:
    """Send the alert of a failed handshake, if possible, over a non-blocking duplicate of the connection's socket."""
    with suppress(OSError):
        connection.send(getattr(error, "alert", b""))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(_UNREAD_MAX)  # closing with unread data would reset the connection and drop the alert


class ReloadingContext:
    """SSL context made from files; `context` is the latest that could be loaded."""

    def __init__(self, make: Callable[[], ssl.SSLContext], *paths: str | None) -> None:
        """`make` creates the context; its exceptions are passed on."""
        self._make = make
        self._paths = [path for path in paths if path]
        self._seen = self._stamp()
        self.context = make()

    def reload(self) -> None:
        """Create the context again if a file has changed."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self.context = self._make()
        except (StartError, OSError) as error:
            log.error("certificates cannot be reloaded, the previous ones stay in use: %s", error)
        else:
            log.info("certificates reloaded: %s", ", ".join(self._paths))

    def _stamp(self) -> list[tuple[int, int, int] | None]:
        rows: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                state = os.stat(path)
            except OSError:
                rows.append(None)
            else:
                rows.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return rows


@dataclass(frozen=True)
class ServerTls:
    """TLS settings of a listener."""

    is_enforced: bool
    certificates: ReloadingContext
    reason: str = "tls.server.mode is enforcing"
    """Why plain connections are refused, for the log."""


def server_tls(config: TlsConfig, alpn: Sequence[str] = ()) -> ServerTls | None:
    """Return the TLS settings of a server, None for plain connections. Raises StartError with the invalid key.

    `alpn`: the protocols above TLS that it offers.
    """
    has_certificate = config.test_mode_enable or config.server_cert_path is not None
    if config.mode is TlsMode.DISABLED or (config.mode is TlsMode.PERMISSIVE and not has_certificate):
        return None
    if not has_certificate:
        raise StartError("tls.server.mode=enforcing: tls.server.certPath and tls.server.keyPath must name a certificate")
    if config.server_need_client_auth is ClientAuth.REQUIRE and not config.server_auth_client:
        raise StartError(
            "tls.server.need.client.auth=require: certificates are verified only with tls.server.authClient=true"
        )
    paths = config.server_cert_path, config.server_key_path, config.server_trust_cert_path
    return ServerTls(config.mode is TlsMode.ENFORCING, ReloadingContext(lambda: _server_context(config, alpn), *paths))


def client_tls(config: TlsConfig) -> ReloadingContext:
    """Return the context for connections to servers. Raises StartError with the invalid key."""
    paths = config.client_cert_path, config.client_key_path, config.client_trust_cert_path
    return ReloadingContext(lambda: _client_context(config), *paths)


def _server_context(config: TlsConfig, alpn: Sequence[str]) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if config.test_mode_enable:
        _load_test_certificate(context)
        return context
    _load_certificate(context, "server", config.server_cert_path, config.server_key_path, config.server_key_password)
    if config.server_auth_client and config.server_need_client_auth is not ClientAuth.NONE:
        is_needed = config.server_need_client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_needed else ssl.CERT_OPTIONAL
        _load_trusted(context, "server", config.server_trust_cert_path, ssl.Purpose.CLIENT_AUTH)
    return context


def _client_context(config: TlsConfig) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    is_checked = config.client_auth_server and not config.test_mode_enable
    context.verify_mode = ssl.CERT_REQUIRED if is_checked else ssl.CERT_NONE
    if is_checked:
        _load_trusted(context, "client", config.client_trust_cert_path, ssl.Purpose.SERVER_AUTH)
    if config.client_cert_path is not None:
        _load_certificate(context, "client", config.client_cert_path, config.client_key_path, config.client_key_password)
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = AlertingContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _load_certificate(
    context: ssl.SSLContext, side: str, cert_path: str | None, key_path: str | None, password: str | None
) -> None:
    assert cert_path is not None
    try:
        context.load_cert_chain(cert_path, key_path, password or "")  # None would prompt at the terminal
    except (OSError, ValueError) as error:
        key = f"tls.{side}.keyPath={key_path}" if key_path else f"tls.{side}.keyPath is not set"
        raise StartError(f"tls.{side}.certPath={cert_path}, {key}: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    # OpenSSL's errors are OSErrors too, with a text of their own.
    return system_reason(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else str(error)


def _load_trusted(context: ssl.SSLContext, side: str, path: str | None, purpose: ssl.Purpose) -> None:
    if path is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise StartError(f"tls.{side}.trustCertPath={path}: {_error_text(error)}") from error


def _load_test_certificate(context: ssl.SSLContext) -> None:
    import tempfile  # imported here, because few servers make a certificate and the module stays in memory

    with tempfile.TemporaryDirectory() as folder:
        key, cert = f"{folder}/key.pem", f"{folder}/cert.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-keyout", key, "-out", cert, "-days", "365", "-subj", "/CN=localhost"]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=20)
        except (OSError, subprocess.SubprocessError) as error:
            raise StartError(f"tls.test.mode.enable=true needs the command openssl: {error}") from error
        _load_certificate(context, "server", cert, key, None)

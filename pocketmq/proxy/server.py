"""GrpcServer: the port of the front."""

import errno
import logging
import socket
import ssl
from pathlib import Path
from typing import Final

import grpc

from pocketmq.proxy.calls.routing import advertised_address
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.front import Front
from pocketmq.proxy.port_splitter import PortSplitter
from pocketmq.proxy.service import handlers
from pocketmq.remoting.tls import ClientAuth, TlsConfig, TlsMode, temporary_certificate
from pocketmq.runtime.lifecycle import StartError, listening

log = logging.getLogger("proxy")

CONNECTIONS_A_CLIENT: Final = 2
"""Connections above so many for each of grpcMaxClients are closed at once; official clients have one to an endpoint."""
STOP_S: Final = 1.0
"""Time in which running calls may end when the server stops."""


class GrpcServer:
    """Serves a front on one port; `port` is set by `start`."""

    def __init__(self, front: Front, config: GrpcConfig, tls: TlsConfig | None = None) -> None:
        self.front = front
        self.port = 0
        self._config, self._tls = config, tls
        self._server: grpc.aio.Server | None = None
        self._splitter: PortSplitter | None = None

    async def start(self, host: str) -> int:
        """Listen and return the port. Raises StartError."""
        config = self._config
        if config.grpc_advertise:
            try:
                advertised_address(config.grpc_advertise)
            except ValueError as error:
                raise StartError(str(error)) from None
        server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", config.grpc_max_streams_per_connection),
                ("grpc.max_receive_message_length", config.grpc_max_inbound_message_size),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", config.grpc_max_metadata_size),
                ("grpc.absolute_max_metadata_size", config.grpc_max_metadata_size),
                ("grpc.max_allowed_incoming_connections", CONNECTIONS_A_CLIENT * config.grpc_max_clients),
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
                ("grpc.server_handshake_timeout_ms", 10_000),
            ),
            maximum_concurrent_rpcs=config.grpc_max_calls,
        )
        server.add_generic_rpc_handlers((handlers(self.front),))
        self._server = server
        port, credentials = config.grpc_server_port or 0, _credentials(self._tls)
        with listening(host, port, "grpcServerPort"):
            if credentials is not None and self._tls is not None and self._tls.mode is TlsMode.PERMISSIVE:
                inner = _add(server, "127.0.0.1", 0), _add(server, "127.0.0.1", 0, credentials)
                self._splitter = PortSplitter(*inner, self.front.peers)
                self.port = await self._splitter.listen(host, port)
            else:
                self.port = _add(server, host, port, credentials)
        await server.start()
        self.front.start()
        return self.port

    async def stop(self) -> None:
        """Refuse new calls, end the running ones and forget all clients."""
        if self._splitter is not None:
            self._splitter.close()
        if self._server is not None:
            await self._server.stop(STOP_S)
        await self.front.stop()


def _add(server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
    """Open a port. Raises OSError if it is taken."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:  # gRPC does not say why it fails
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return int(
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
    except RuntimeError as error:
        raise OSError(errno.EADDRINUSE, "the port cannot be opened") from error


def _credentials(tls: TlsConfig | None) -> grpc.ServerCredentials | None:
    """Return the certificates for TLS connections; None if there are only plain ones. Raises StartError."""
    if tls is None or tls.mode is TlsMode.DISABLED:
        return None
    if not (tls.server_cert_path or tls.test_mode_enable or tls.mode is TlsMode.ENFORCING):
        return None
    if tls.test_mode_enable:
        with temporary_certificate() as (cert, key):
            return grpc.ssl_server_credentials([(Path(key).read_bytes(), Path(cert).read_bytes())])
    if tls.server_key_password:
        raise StartError("tls.server.keyPassword: the gRPC port needs a key without a password")
    is_asked = tls.server_auth_client and tls.server_need_client_auth is not ClientAuth.NONE

    def read() -> grpc.ServerCertificateConfiguration:
        pair = Path(tls.server_key_path or "").read_bytes(), Path(tls.server_cert_path or "").read_bytes()
        trusted = Path(tls.server_trust_cert_path).read_bytes() if is_asked and tls.server_trust_cert_path else None
        return grpc.ssl_server_certificate_configuration([pair], trusted)

    def read_again() -> grpc.ServerCertificateConfiguration | None:
        try:
            return read()
        except OSError as error:
            log.warning("the certificate of the gRPC port cannot be read again: %s", error)
            return None

    try:
        first = read()
        # gRPC would say of a file without a certificate, or with another key, that the port cannot be opened.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.server_cert_path or "", tls.server_key_path)
    except OSError as error:
        raise StartError(f"the certificate of the gRPC port cannot be read: {error}") from error
    requires = is_asked and tls.server_need_client_auth is ClientAuth.REQUIRE
    return grpc.dynamic_ssl_server_credentials(first, read_again, requires)

"""GrpcServer: the port of the front."""

from typing import Final

from pocketmq.proxy.calls.routing import advertised_address
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.front import Front
from pocketmq.proxy.http2.port import CallLimits, Http2Port
from pocketmq.proxy.service import rpcs
from pocketmq.remoting.fair_share import FairShare
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.remoting.tls import TlsConfig, server_tls
from pocketmq.runtime.lifecycle import StartError, listening
from pocketmq.runtime.timers import Timers

CONNECTIONS_A_CLIENT: Final = 2
"""Connections above so many for each of grpcMaxClients are closed at once; official clients have one to an endpoint."""
STOP_S: Final = 1.0
"""Time in which running calls may end when the server stops."""
ALPN: Final = ("h2",)


class GrpcServer:
    """Serves a front on one port; `port` is set by `start`."""

    def __init__(
        self,
        front: Front,
        config: GrpcConfig,
        tls: TlsConfig,
        timers: Timers,
        share: FairShare,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """`share`: the part of the loop's time for costly connections, those of other ports included."""
        self.front = front
        self.port = 0
        self._config, self._tls, self._timers = config, tls, timers
        self._share, self._limits = share, limits or ConnectionLimits()
        self._http2: Http2Port | None = None

    async def start(self, host: str) -> int:
        """Listen and return the port. Raises StartError."""
        config = self._config
        if config.grpc_advertise:
            try:
                advertised_address(config.grpc_advertise)
            except ValueError as error:
                raise StartError(str(error)) from None
        limits = CallLimits(
            config.grpc_max_streams_per_connection,
            config.grpc_max_calls,
            config.grpc_max_metadata_size,
            config.grpc_max_inbound_message_size,
            CONNECTIONS_A_CLIENT * config.grpc_max_clients,
        )
        tls = server_tls(self._tls, ALPN)
        http2 = Http2Port(rpcs(self.front), limits, self._timers, self._share, self._limits, tls)
        port = config.grpc_server_port or 0
        with listening(host, port, "grpcServerPort"):
            self.port = await http2.listen(host, port)
        self._http2 = http2
        self.front.start()
        return self.port

    @property
    def call_count(self) -> int:
        """Number of calls at present."""
        return 0 if self._http2 is None else self._http2.call_count

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return 0 if self._http2 is None else len(self._http2.open)

    async def stop(self) -> None:
        """Refuse new calls, end the running ones and forget all clients."""
        if self._http2 is not None:
            await self._http2.close(STOP_S)
        await self.front.stop()

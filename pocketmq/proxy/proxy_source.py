"""ProxySource: the metrics that `mqproxy` exports to Prometheus."""

from collections.abc import Generator, Iterable
from typing import Final

from pocketmq.metrics.family import Declared, Family, Node
from pocketmq.proxy.cluster_proxy import ClusterProxy

CLIENTS: Final = Declared("pocketmq_grpc_clients", "gauge", "Clients by their ids, with and without a telemetry stream.")
CALLS: Final = Declared("pocketmq_grpc_calls", "gauge", "Calls at present, held receives and telemetry streams included.")
CONNECTIONS: Final = Declared("pocketmq_connections", "gauge", "Open connections of clients.")


class ProxySource:
    """Metrics of a proxy that is started, which is always ready."""

    def __init__(self, proxy: ClusterProxy) -> None:
        self._server = proxy.server
        self._node: Node = ("", "proxy", f"{proxy.config.bind_address}:{proxy.port}")

    def problems(self) -> list[str]:
        """Return none: whether brokers answer is told to each call."""
        return []

    def collecting(self) -> Generator[None, None, list[Family]]:
        """Return the current figures, in one piece because they are few."""
        server, node = self._server, self._node
        yield
        return [
            CLIENTS.single(node, server.front.client_count),
            CALLS.single(node, server.call_count),
            CONNECTIONS.single(node, server.connection_count),
        ]

    def families(self, collected: list[Family]) -> Iterable[Family]:
        """Return what was collected."""
        return collected

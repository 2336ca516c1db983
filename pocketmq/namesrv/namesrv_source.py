"""NamesrvSource: the metrics that a name server exports to Prometheus."""

from collections.abc import Generator, Iterable
from typing import Final

from pocketmq.metrics.family import Declared, Family, Node
from pocketmq.namesrv.namesrv import NameServer

BROKERS: Final = Declared("pocketmq_namesrv_brokers", "gauge", "Registered brokers by their cluster.", ("broker_cluster",))
TOPICS: Final = Declared("pocketmq_namesrv_topics", "gauge", "Topics with a route.")
ROWS: Final = Declared("pocketmq_namesrv_route_rows", "gauge", "Rows of the route table: one for each topic of each broker.")
CONNECTIONS: Final = Declared("pocketmq_connections", "gauge", "Open connections of clients.")


class NamesrvSource:
    """Metrics of a name server that is started, which is always ready."""

    def __init__(self, namesrv: NameServer) -> None:
        self._namesrv = namesrv
        self._node: Node = ("", "nameserver", f"{namesrv.config.bind_address}:{namesrv.port}")

    def problems(self) -> list[str]:
        """Return none: a started name server can serve every request."""
        return []

    def collecting(self) -> Generator[None, None, list[Family]]:
        """Return the current figures, in one piece because they are few."""
        routes = self._namesrv.routes
        yield
        return [
            BROKERS.of(self._node, [((cluster,), count) for cluster, count in routes.brokers_by_cluster().items()]),
            TOPICS.single(self._node, len(routes.topics())),
            ROWS.single(self._node, routes.row_count),
            CONNECTIONS.single(self._node, self._namesrv.connection_count),
        ]

    def families(self, collected: list[Family]) -> Iterable[Family]:
        """Return what was collected."""
        return collected

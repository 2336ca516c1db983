"""Metrics of the process itself, by the collectors of prometheus_client: CPU, memory, descriptors, garbage collection."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import Metric


class ProcessFamilies:
    """The collectors, in a registry of their own: the global one belongs to the program that embeds a server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def collect(self) -> Iterable[Metric]:
        """Return the present figures."""
        return self._registry.collect()

"""Functions that read the metrics of running servers from a live `/metrics` page."""

import asyncio
import contextlib
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pocketmq.broker.metrics.broker_source import BrokerSource
from pocketmq.metrics.config import MetricsConfig
from pocketmq.metrics.monitored import Monitored
from pocketmq.namesrv.namesrv_source import NamesrvSource
from tests.patience import PATIENCE_S

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class _Started:
    """Service that does nothing, because the tests start and stop the servers themselves."""

    async def start(self):
        pass

    async def stop(self):
        pass


@contextlib.asynccontextmanager
async def monitored(*, namesrv=None, broker=None):
    """Serve the metrics of running servers on a free port; yield the `Monitored` service."""
    sources = [] if namesrv is None else [NamesrvSource(namesrv)]
    sources += [] if broker is None else [BrokerSource(broker)]
    service = Monitored(_Started(), MetricsConfig(metrics_port=0), lambda _: sources)
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


async def text_of(service, accept=OPEN_METRICS):
    """Return the text of a page whose figures are collected anew."""
    service._page._next_s = float("-inf")

    def read():
        request = urllib.request.Request(f"{service.url}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    return await asyncio.to_thread(read)


def families_of(text):
    """Return family name (with _total for a counter) -> family, as read by the strict parser."""
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert name not in found
        found[name] = family
    return found


def value_of(families, name, sample_name=None, **labels):
    """Return the value of the only sample with these labels; its further labels are ignored."""
    samples = [
        sample.value
        for sample in families[name].samples
        if sample.name == (sample_name or name) and labels.items() <= sample.labels.items()
    ]
    assert len(samples) == 1, (name, labels, families[name].samples)
    return samples[0]

"""Families as text: Prometheus's format, or OpenMetrics if the request accepts it, both written by prometheus_client.

Written in chunks, so that the caller can pause in between: the thread that writes keeps the event loop of the process from
running, as Python runs one thread at a time. A chunk that has not changed since it was last written is not written again.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any, Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from pocketmq.metrics.family import Buckets, Family, Row

ROWS_PER_CHUNK: Final = 40
_END: Final = b"# EOF\n"
"""Last line of an OpenMetrics page."""


class Exposition:
    """Format negotiated with a client by its Accept header."""

    def __init__(self, accept: str) -> None:
        encode: Callable[[Any], bytes]
        encode, self.content_type = choose_encoder(accept)
        self._encode = encode
        self._written: dict[tuple[str, int], tuple[list[Row], bytes]] = {}
        self.end = _END if self.content_type.startswith("application/openmetrics-text") else b""

    def metric(self, metric: Metric) -> bytes:
        """Return the text of a metric of prometheus_client."""
        return self._encode(_One(metric)).removesuffix(self.end)

    def chunks(self, family: Family) -> Iterator[bytes]:
        """Yield the text of a family in pieces, its HELP and TYPE first; nothing without rows."""
        left = iter(family.rows)
        for number in count():
            rows = list(islice(left, ROWS_PER_CHUNK))
            if not rows:
                return
            known = self._written.get((family.name, number))
            if known is None or known[0] != rows:
                text = self.metric(_metric(family, rows))
                known = self._written[family.name, number] = rows, text if number == 0 else _without_heading(text)
            yield known[1]


class _One:
    """Collector of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _without_heading(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))


def _metric(family: Family, rows: Iterable[Row]) -> Metric:
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.help, family.kind)
    for values, value in rows:
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(value, Buckets):
            _add_buckets(metric, name, labels, value)
        else:
            metric.add_sample(family.name, labels, value)
    return metric


def _bound_text(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _add_buckets(metric: Metric, name: str, labels: dict[str, str], value: Buckets) -> None:
    below = 0
    for bound, counted in zip((*value.bounds, float("inf")), value.counts, strict=True):
        below += counted
        metric.add_sample(f"{name}_bucket", {**labels, "le": _bound_text(bound)}, below)
    metric.add_sample(f"{name}_count", labels, below)
    metric.add_sample(f"{name}_sum", labels, value.sum)

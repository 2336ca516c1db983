"""Families as text: Prometheus's format, or OpenMetrics if the request accepts it.

prometheus_client chooses the format and writes headings and its own metrics. Lines of samples, the same in both formats, are
written here, because most of each line never changes: its name and labels are cached until the rows change.

Written in chunks, so that the caller can pause in between: the thread that writes keeps the event loop of the process from
running, as Python runs one thread at a time. A chunk that has not changed since it was last written is not written again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from pocketmq.metrics.family import Buckets, Family, Row

ROWS_PER_CHUNK: Final = 40
_END: Final = b"# EOF\n"
"""Last line of an OpenMetrics page."""
_PLAIN_MAX: Final = 1_000_000
"""Whole numbers below this are written without an exponent."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass
class _Chunk:
    """Rows as they were last written."""

    rows: list[Row]
    starts: list[list[str]]
    """The beginnings of the lines of each row."""
    text: bytes


class Exposition:
    """Format negotiated with a client by its Accept header."""

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self._written: dict[tuple[str, int], _Chunk] = {}
        self._headings: dict[str, bytes] = {}
        self.end = _END if self.content_type.startswith("application/openmetrics-text") else b""

    def encoded(self, registry: Any) -> bytes:
        """Return the text of the metrics that a registry of prometheus_client collects."""
        return self._encode(registry).removesuffix(self.end)

    def chunks(self, family: Family) -> Iterator[bytes]:
        """Yield the text of a family in pieces, its HELP and TYPE first; nothing without rows."""
        left = iter(family.rows)
        for number in count():
            rows = list(islice(left, ROWS_PER_CHUNK))
            if not rows:
                return
            known = self._written.get((family.name, number))
            if known is None or known.rows != rows:
                starts = _starts(family, rows, known)
                text = "".join(map(_lines, starts, (value for _, value in rows))).encode()
                known = self._written[family.name, number] = _Chunk(rows, starts, text)
            yield known.text if number else self._heading(family) + known.text

    def _heading(self, family: Family) -> bytes:
        text = self._headings.get(family.name)
        if text is None:
            name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
            heading = Metric(name, family.help, family.kind)
            text = self._headings[family.name] = self.encoded(SimpleNamespace(collect=lambda: [heading]))
        return text


@cache
def process_registry() -> CollectorRegistry:
    """Return the metrics of the process itself: CPU, memory, descriptors, garbage collection.

    They have a registry of their own: the global one belongs to the program that embeds a server.
    """
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def _starts(family: Family, rows: Sequence[Row], known: _Chunk | None) -> list[list[str]]:
    """Return the beginnings of the lines of `rows`; those of rows with the same labels are taken from `known`."""
    found = []
    for number, (values, value) in enumerate(rows):
        if known is not None and number < len(known.rows):
            known_values, known_value = known.rows[number]
            if values == known_values and _bounds(value) == _bounds(known_value):
                found.append(known.starts[number])
                continue
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(value, Buckets):
            texts = map(_number, (*value.bounds, float("inf")))
            starts = [_start(f"{family.name}_bucket", {**labels, "le": text}) for text in texts]
            found.append([*starts, _start(f"{family.name}_count", labels), _start(f"{family.name}_sum", labels)])
        else:
            found.append([_start(family.name, labels)])
    return found


def _bounds(value: "float | Buckets") -> Sequence[float] | None:
    return value.bounds if isinstance(value, Buckets) else None


def _start(name: str, labels: dict[str, str]) -> str:
    """Return a line up to its value. Labels are sorted by name, as prometheus_client does."""
    pairs = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{pairs}}} " if pairs else f"{name} "


def _lines(starts: Sequence[str], value: "float | Buckets") -> str:
    if not isinstance(value, Buckets):
        return f"{starts[0]}{_number(value)}\n"
    below, lines = 0, []
    for start, counted in zip(starts, value.counts, strict=False):
        below += counted
        lines.append(f"{start}{_number(below)}\n")
    return f"{''.join(lines)}{starts[-2]}{_number(below)}\n{starts[-1]}{_number(value.sum)}\n"


def _number(value: float) -> str:
    return f"{value}.0" if type(value) is int and -_PLAIN_MAX < value < _PLAIN_MAX else str(floatToGoString(value))  # type: ignore[no-untyped-call]

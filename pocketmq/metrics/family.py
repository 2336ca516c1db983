"""Metric families of a server, and the interface of their source.

Families are plain values, made without the library that writes them, which is loaded at the first scrape.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

OTHER: Final = "(other)"
"""Value of a label under which all rows beyond a limit are summed up. No topic and no group can have this name."""


class Buckets(NamedTuple):
    """Value of a histogram: upper bounds, counts (one more than bounds), and the sum of what was counted."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


Row = tuple[tuple[str, ...], "float | Buckets"]
"""Values of the labels, in their order, and the value."""


class Family(NamedTuple):
    """A metric with its rows. The name of a counter ends with `_total`."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...]
    rows: Iterable[Row]


def plain(name: str, kind: Literal["gauge", "counter", "histogram"], text: str, value: "float | Buckets") -> Family:
    """Return the family of a metric without labels."""
    return Family(name, kind, text, (), [((), value)])


NODE_LABELS: Final = ("cluster", "node_type", "node_id")
"""Labels of every metric of a server, as in RocketMQ 5."""
Node = tuple[str, str, str]
"""Values of NODE_LABELS."""


class Declared(NamedTuple):
    """Declaration of a metric of a server."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def of(self, node: Node, rows: Iterable[Row]) -> Family:
        """Return the family of a server. The rows have no values of the labels of its node."""
        return Family(
            self.name, self.kind, self.help, NODE_LABELS + self.labels, [(node + values, value) for values, value in rows]
        )

    def single(self, node: Node, value: "float | Buckets") -> Family:
        """Return the family of a metric without further labels."""
        return self.of(node, [((), value)])


class Source(Protocol):
    """A server that has metrics."""

    def problems(self) -> list[str]:
        """Return the reasons why it is not ready to serve; called on its event loop."""

    def collecting(self) -> Generator[None, None, Any]:
        """Copy figures in small pieces, on the event loop of the server, and return them."""

    def families(self, collected: Any) -> Iterable[Family]:
        """Return the families of what `collecting` returned; called by the thread of the HTTP server."""

"""Attributes of topics and consumer groups, as set by 5.x's tools: `+name=value` sets one, `-name` deletes it."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MESSAGE_TYPE: Final = "message.type"
PRIORITY: Final = "PRIORITY"
"""Type of topics whose highest queue is popped first."""
PRIORITY_FACTOR: Final = "priority.factor"
"""Number of a group's pops out of 100 that take the highest priority first."""
QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
"""Type of queues whose units are batches (see store.queue.consume_queue_store)."""


class _Kind(NamedTuple):
    """The attributes that this broker supports: values, ranges of numbers, and names that can be set only at creation."""

    values: dict[str, tuple[str, ...]]
    ranges: dict[str, tuple[int, int]]
    fixed: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.values, *self.ranges)


TOPIC: Final = _Kind(
    {
        QUEUE_TYPE: ("SimpleCQ",),
        "cleanup.policy": ("DELETE",),
        MESSAGE_TYPE: ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", PRIORITY, "MIXED"),
    },
    {"reserve.time": (-1, (1 << 63) - 1)},
    (QUEUE_TYPE, "cleanup.policy"),
)
"""5.5.0 also has BatchCQ, COMPACTION, and the message type LITE."""
GROUP: Final = _Kind({}, {PRIORITY_FACTOR: (0, 100)})
"""5.5.0 also has attributes of lite topics, which mean that the group consumes these."""


def split_changes(text: str) -> list[tuple[str, str]]:
    """Return (sign and name, value) of changes separated by commas. Raises ValueError for one without a sign, or a value."""
    changes = []
    for change in text.split(","):
        name, equals, value = change.partition("=")
        if (change[:1], equals) not in (("+", "="), ("-", "")):
            raise ValueError(f"attribute {change!r}: expected +name=value or -name")
        changes.append((name, value))
    return changes


def changed(kind: _Kind, present: Mapping[str, str], changes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the attributes after applying changes. Raises ValueError naming the attribute and its allowed values."""
    attributes = dict(present)
    for signed, value in changes:
        sign, name = signed[:1], signed[1:]
        if sign not in ("+", "-"):
            raise ValueError(f"attribute {signed!r}: expected +name or -name")
        if name not in kind.names:
            raise ValueError(f"attribute {name!r}: expected one of {', '.join(kind.names)}")
        if sign == "-" and (name in kind.fixed or name not in attributes):
            raise ValueError(f"attribute {name} {'cannot be deleted' if name in kind.fixed else 'is not set'}")
        if sign == "-":
            del attributes[name]
            continue
        _check(kind, name, value)
        if name in kind.fixed and attributes.get(name, value) != value:
            raise ValueError(f"attribute {name}={value}: the present value {attributes[name]} cannot be changed")
        attributes[name] = value
    return attributes


def _check(kind: _Kind, name: str, value: str) -> None:
    if name in kind.values:
        if value not in kind.values[name]:
            raise ValueError(f"attribute {name}={value}: this broker supports only {', '.join(kind.values[name])}")
        return
    low, high = kind.ranges[name]
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(value) <= high):
        limits = f"{low} or more" if high > 1 << 31 else f"{low} to {high}"
        raise ValueError(f"attribute {name}={value}: expected a number, {limits}")


def priority_factor(attributes: Mapping[str, str] | None) -> int:
    """Return PRIORITY_FACTOR of a group; the default is 100. A value that another broker stored may be no number."""
    value = (attributes or {}).get(PRIORITY_FACTOR, "")
    return min(int(value), 100) if value.isascii() and value.isdigit() and len(value) < 19 else 100

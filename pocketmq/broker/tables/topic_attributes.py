"""Topic attributes as set by 5.x's tools: `+name=value` sets one, `-name` deletes it; changes are separated by commas."""

from collections.abc import Mapping
from typing import Final

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
"""Type of queues whose units are batches (see store.queue.consume_queue_store)."""
_RESERVE_TIME: Final = "reserve.time"
_VALUES: Final = {
    QUEUE_TYPE: ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
"""Supported values. 5.5.0 also has BatchCQ, COMPACTION, and the message types PRIORITY and LITE."""
_FIXED: Final = (QUEUE_TYPE, "cleanup.policy")
"""Attributes that can be set only when the topic is created."""


def changed(present: Mapping[str, str], text: str) -> dict[str, str]:
    """Return the attributes after applying `text`. Raises ValueError naming the attribute and its allowed values."""
    attributes = dict(present)
    for change in text.split(","):
        sign, (name, equals, value) = change[:1], change[1:].partition("=")
        if (sign, equals) not in (("+", "="), ("-", "")):
            raise ValueError(f"attribute {change!r}: expected +name=value or -name")
        if name not in _VALUES and name != _RESERVE_TIME:
            raise ValueError(f"attribute {name!r}: expected one of {', '.join((*_VALUES, _RESERVE_TIME))}")
        if sign == "-" and (name in _FIXED or name not in attributes):
            raise ValueError(f"attribute {name} {'cannot be deleted' if name in _FIXED else 'is not set'}")
        if sign == "-":
            del attributes[name]
            continue
        _check(name, value)
        if name in _FIXED and attributes.get(name, value) != value:
            raise ValueError(f"attribute {name}={value}: the present value {attributes[name]} cannot be changed")
        attributes[name] = value
    return attributes


def _check(name: str, value: str) -> None:
    if name == _RESERVE_TIME:
        if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit() or int(value) < -1:
            raise ValueError(f"attribute {name}={value}: expected a number, -1 or more")
    elif value not in _VALUES[name]:
        raise ValueError(f"attribute {name}={value}: this broker supports only {', '.join(_VALUES[name])}")

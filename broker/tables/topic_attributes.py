"""Attributes of topics, which 5.x's tools set: `+name=value` sets one, `-name` takes it away; several apart by commas."""

from collections.abc import Mapping
from typing import Final

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUE: Final = "BatchCQ"
"""Queues whose units are batches (see store.consume_queue_store)."""
_RESERVE_TIME: Final = "reserve.time"
_VALUES: Final = {
    QUEUE_TYPE: ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
"""What is served. Of 5.5.0's there are also batch queues, COMPACTION, and messages of type PRIORITY and LITE."""
_FIXED: Final = (QUEUE_TYPE, "cleanup.policy")
"""They are said when a topic is made, or never."""


def changed(present: Mapping[str, str], text: str) -> dict[str, str]:
    """The attributes after the change that `text` says. Raises ValueError naming the attribute and what it may be."""
    attributes = dict(present)
    for change in text.split(","):
        sign, (name, equals, value) = change[:1], change[1:].partition("=")
        if (sign, equals) not in (("+", "="), ("-", "")):
            raise ValueError(f"attribute {change!r}: expected +name=value or -name")
        if name not in _VALUES and name != _RESERVE_TIME:
            raise ValueError(f"attribute {name!r}: expected one of {', '.join((*_VALUES, _RESERVE_TIME))}")
        if sign == "-" and (name in _FIXED or name not in attributes):
            raise ValueError(f"attribute {name}: it {'cannot be taken away' if name in _FIXED else 'is not there'}")
        if sign == "-":
            del attributes[name]
            continue
        _check(name, value)
        if name in _FIXED and attributes.get(name, value) != value:
            raise ValueError(f"attribute {name}={value}: it is {attributes[name]}, and cannot be changed")
        attributes[name] = value
    return attributes


def _check(name: str, value: str) -> None:
    if name == _RESERVE_TIME:
        if not value.removeprefix("-").isascii() or not value.removeprefix("-").isdigit() or int(value) < -1:
            raise ValueError(f"attribute {name}={value}: expected a number, -1 or more")
    elif value not in _VALUES[name]:
        raise ValueError(f"attribute {name}={value}: this broker serves {', '.join(_VALUES[name])} only")

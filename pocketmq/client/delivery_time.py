"""The delivery time of a message: `delay` from now on, or `deliver_at` a time, as properties that brokers act on."""

from datetime import datetime, timedelta
from typing import Any, Final

TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMED: Final = frozenset((TIMER_DELAY_MS, TIMER_DELIVER_MS, "TIMER_DELAY_SEC"))
"""Properties that ask for an arbitrary delivery time."""


def delivery_properties(delay: Any, deliver_at: Any) -> dict[str, str]:
    """Return the property for `delay` (seconds, timedelta) or `deliver_at` (epoch seconds, datetime); none without them.

    Raises TypeError or ValueError.
    """
    if delay is not None and deliver_at is not None:
        raise ValueError("delay and deliver_at cannot be combined: a message has one delivery time")
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else _number("delay", delay, "timedelta")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"delay {delay!r} is not 0 or more seconds")
        return {TIMER_DELAY_MS: str(round(seconds * 1000))} if seconds else {}
    if deliver_at is not None:
        is_time = isinstance(deliver_at, datetime)
        seconds = deliver_at.timestamp() if is_time else _number("deliver_at", deliver_at, "datetime")
        if not 0 < seconds < float("inf"):
            raise ValueError(f"deliver_at {deliver_at!r} is no time in seconds since 1970")
        return {TIMER_DELIVER_MS: str(round(seconds * 1000))}
    return {}


def _number(name: str, value: Any, kind: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds or a {kind}, not {type(value).__name__}")
    return float(value)

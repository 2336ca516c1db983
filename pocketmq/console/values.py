"""Values as pages show them: filters of the templates."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float | None) -> str:
    """Return a number with separators for thousands; a dash if it is not known."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")


def size(value: float | None) -> str:
    """Return bytes in the largest unit of which it is at least one."""
    if value is None:
        return "–"
    unit = 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def percent(value: float | None) -> str:
    """Return a ratio in percent; a dash if it is negative, as brokers report an unknown one."""
    return "–" if value is None or value < 0 else f"{value:.1%}"


def moment(ms: int | None) -> Markup | str:
    """Return a time, given in ms since 1970, as an element with the console's local time; a dash for 0."""
    if not ms or ms < 0:
        return "–"
    try:
        local = datetime.fromtimestamp(ms / 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(ms)
    shown = local.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{}</time>').format(local.isoformat(timespec="milliseconds"), shown)


def zone() -> str:
    """Return the name of the time zone in which times are shown."""
    return time.strftime("%Z (UTC%z)")


def from_input(text: str) -> int:
    """Return the time of an input of type datetime-local in ms since 1970. Raises ValueError."""
    given = datetime.fromisoformat(text)
    return int((given if given.tzinfo else given.astimezone()).timestamp() * 1000)


FILTERS: Final[dict[str, Callable[..., Any]]] = {"number": number, "size": size, "percent": percent, "moment": moment}

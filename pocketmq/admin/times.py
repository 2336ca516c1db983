"""Times as options: epoch milliseconds, `yyyy-MM-dd#HH:mm:ss:SSS` in local time, or `now`."""

from datetime import datetime
from typing import Final, NamedTuple

from pocketmq.runtime.command_line.option_types import Checked

NOW_MS: Final = -1
"""Stands for the end of a queue in requests."""
_FORM: Final = "%Y-%m-%d#%H:%M:%S:%f"


class Time(NamedTuple):
    """A time as it was given, and as epoch milliseconds; -1 for `now`."""

    text: str
    ms: int


def time_of(text: str) -> Time:
    """Parse a time. Raises ValueError."""
    text = text.strip()
    if text == "now":
        return Time(text, NOW_MS)
    try:
        return Time(text, int(text))
    except ValueError:
        pass
    try:
        return Time(text, int(datetime.strptime(text, _FORM).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ValueError("expected milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS") from None


TIME: Final = Checked("<arg>", time_of)
TIME_MS: Final = Checked("<arg>", lambda text: time_of(text).ms)

"""Durations on command lines: `30m`, `1h30m`, `250ms`, `400d`."""

import re
from typing import Final

from pocketmq.runtime.command_line.option_types import Checked

_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)", re.ASCII)


FORMS: Final = "a duration such as 250ms, 10s, 30m, 1h30m or 400d"


def parse_duration_ms(text: str) -> int:
    """Return the ms of a duration such as `30m`, `1h30m`, `250ms`, `400d`. Raises ValueError that lists valid forms."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r}: expected {FORMS}")
    return sum(int(number) * _UNIT_MS[unit] for number, unit in parts)


DURATION: Final = Checked("DURATION", parse_duration_ms, FORMS)

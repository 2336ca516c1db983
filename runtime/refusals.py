"""Log lines about refusals that may last: the first at once, then one a minute with the number of those in between."""

import logging
from typing import Final

from runtime.clock import Clock

REPEAT_S: Final = 60.0


class Refusals:
    """One kind of refusal. `told(text)` for each of them logs a line at once or counts it for the next line."""

    def __init__(self, log: logging.Logger, clock: Clock, level: int = logging.WARNING) -> None:
        self._log = log
        self._clock = clock
        self._level = level
        self._told_s = float("-inf")
        self._untold = 0

    def told(self, text: str) -> None:
        """One more refusal; `text` says what and why."""
        now = self._clock.monotonic()
        if now < self._told_s + REPEAT_S:
            self._untold += 1
            return
        more = f" ({self._untold} more since the last such line)" if self._untold else ""
        self._told_s, self._untold = now, 0
        self._log.log(self._level, "%s%s", text, more)

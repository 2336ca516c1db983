"""Log lines of refusals that last: the first at once, the same again each minute with their number."""

import logging
import time
from collections.abc import Hashable
from typing import Final

AGAIN_S: Final = 60.0
REASONS_MAX: Final = 256
"""Reasons that are counted apart; peers may think of more."""


class RefusalLog:
    """Says each reason once, and from then on once a minute how often it came since."""

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._said: dict[Hashable, tuple[float, int]] = {}

    def say(self, reason: Hashable, text: str) -> None:
        """Count one refusal for `reason`; `text` is logged now or not at all."""
        now_s = time.monotonic()
        if reason not in self._said and len(self._said) >= REASONS_MAX:
            self._said = {each: row for each, row in self._said.items() if now_s < row[0] + AGAIN_S}
            if len(self._said) >= REASONS_MAX:
                reason = None
        said_s, count = self._said.get(reason, (-AGAIN_S, 0))
        if now_s < said_s + AGAIN_S:
            self._said[reason] = said_s, count + 1
            return
        self._log.log(self._level, "%s%s", text, f" ({count} more since this was last said)" if count else "")
        self._said[reason] = now_s, 0

    def forget(self, reason: Hashable) -> None:
        """It is over: the next refusal for `reason` is said at once."""
        self._said.pop(reason, None)

"""One line for what happens again and again: at once when it begins, then each minute with how often it did."""

import logging
import threading
from dataclasses import dataclass
from typing import Final

from runtime.clock import Clock

log = logging.getLogger("store")

_TOLD_EACH_S: Final = 60.0


@dataclass
class _Spell:
    """A cause that holds, or was over a short time ago, and how often it was met since the last line."""

    reason: str
    began_s: float
    told_s: float
    untold: int = 0
    count: int = 1
    is_over: bool = False
    # When it was said that it is over; at the latest then it had been said that it holds.
    over_told_s: float | None = None


class RefusalLog:
    """Any thread may call anything; `what` begins each line."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._what = what
        self._clock = clock
        self._spells: dict[str, _Spell] = {}
        self._lock = threading.Lock()

    def refused(self, cause: str, reason: str) -> None:
        """Something was refused for `cause`; `reason` says so to people and may change while the cause is the same."""
        now = self._clock.monotonic()
        with self._lock:
            spell = self._spells.get(cause)
            is_new = spell is None or (spell.is_over and now - spell.told_s >= _TOLD_EACH_S)
            if spell is None or is_new:
                self._spells[cause] = _Spell(reason, now, now)
            else:
                spell.reason, spell.is_over = reason, False
                spell.untold += 1
                spell.count += 1
        if is_new:
            log.warning("%s: %s", self._what, reason)
        else:
            self.tell()

    def over(self, cause: str) -> None:
        """The cause is gone. One that comes and goes is not told of each time."""
        if cause not in self._spells:
            return
        now = self._clock.monotonic()
        with self._lock:
            spell = self._spells.get(cause)
            if spell is None or spell.is_over:
                return
            spell.is_over = True
            if spell.over_told_s is not None and now - spell.over_told_s < _TOLD_EACH_S:
                return
            spell.over_told_s, spell.untold = now, 0
        log.warning("over: %s: %s (%d times in %.0f s)", self._what, spell.reason, spell.count, now - spell.began_s)

    def tell(self) -> None:
        """Write the lines that are due."""
        if not self._spells:
            return
        now, lines = self._clock.monotonic(), []
        with self._lock:
            for cause, spell in tuple(self._spells.items()):
                if now - spell.told_s < _TOLD_EACH_S:
                    continue
                if spell.untold:
                    lines.append((spell.untold, now - spell.told_s, spell.reason))
                    spell.told_s, spell.untold = now, 0
                elif spell.is_over:
                    del self._spells[cause]
        for count, seconds, reason in lines:
            log.warning("%s: %d times in the last %.0f s: %s", self._what, count, seconds, reason)

"""Rate-limited logging of refusals: the first is logged at once, then one line a minute has the number of repetitions.

Peers can provoke refusals at any rate: the log must not grow with their number, but an operator must see that they happen.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

REPEAT_S: Final = 60.0
CAUSES_MAX: Final = 256
"""Maximum number of causes counted separately, because peers may invent more; all further causes are counted as one."""


@dataclass
class _Spell:
    """Period during which a cause lasts, kept for up to a minute after its end; counts its refusals since the last line."""

    reason: str
    began_s: float
    logged_s: float
    unlogged: int = 0
    count: int = 1
    is_over: bool = False
    # When the last "over" line was written; it reported all refusals before it.
    over_logged_s: float | None = None


class RefusalLog:
    """Log of refusals, counted by cause. All methods may be called from any thread."""

    def __init__(
        self,
        log: logging.Logger,
        what: str = "",
        *,
        level: int = logging.WARNING,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what` begins each line, followed by a colon."""
        self._log = log
        self._prefix = f"{what}: " if what else ""
        self._level = level
        self._now = now
        self._spells: dict[Hashable, _Spell] = {}
        self._lock = threading.Lock()

    def refused(self, cause: Hashable, reason: str) -> None:
        """Count one refusal. `reason` is its text, which may change while the cause is the same."""
        now = self._now()
        with self._lock:
            cause = self._cause_kept(cause, now)
            spell = self._spells.get(cause)
            is_new = spell is None or (spell.is_over and now - spell.logged_s >= REPEAT_S)
            if spell is None or is_new:
                self._spells[cause] = _Spell(reason, now, now)
            else:
                spell.reason, spell.is_over = reason, False
                spell.unlogged += 1
                spell.count += 1
        if is_new:
            self._write(reason)
        elif spell is not None and now - spell.logged_s >= REPEAT_S:
            self.write_due()

    def over(self, cause: Hashable) -> None:
        """Report that the cause has ended. A cause that recurs is logged once a minute only."""
        if cause not in self._spells:
            return
        now = self._now()
        with self._lock:
            spell = self._spells.get(cause)
            if spell is None or spell.is_over:
                return
            spell.is_over = True
            if spell.over_logged_s is not None and now - spell.over_logged_s < REPEAT_S:
                return
            spell.over_logged_s, spell.unlogged = now, 0
        self._log.log(
            self._level, "resolved: %s%s (%d times in %.0f s)", self._prefix, spell.reason, spell.count, now - spell.began_s
        )

    def write_due(self) -> None:
        """Write the due lines of the last minute. Called periodically by owners that have a timer, and by `refused`."""
        if not self._spells:
            return
        now, due = self._now(), []
        with self._lock:
            for cause, spell in tuple(self._spells.items()):
                if now - spell.logged_s < REPEAT_S:
                    continue
                if spell.unlogged:
                    due.append((spell.reason, spell.unlogged, now - spell.logged_s))
                    spell.logged_s, spell.unlogged = now, 0
                elif spell.is_over:
                    del self._spells[cause]
        for reason, count, seconds in due:
            self._write(reason, f" ({count} times in the last {seconds:.0f} s)")

    def _write(self, reason: str, count: str = "") -> None:
        self._log.log(self._level, "%s%s%s", self._prefix, reason, count)

    def _cause_kept(self, cause: Hashable, now: float) -> Hashable:
        """Return `cause`, or None when there are too many causes to count it separately."""
        if cause in self._spells or len(self._spells) < CAUSES_MAX:
            return cause
        self._spells = {each: spell for each, spell in self._spells.items() if now - spell.logged_s < REPEAT_S}
        return cause if len(self._spells) < CAUSES_MAX else None

"""The end of a loop turn, in a fixed order.

The first event of a turn arms the `Turn`; it then runs after all connections that were ready have been read, and before
the loop waits again. So one dispatch, one flush request, one wake-up a queue and one write a connection serve everything
that the turn brought, and no reply leaves before the work that it promises.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Final

log = logging.getLogger("runtime")

_NEVER: Final = float("inf")


class Phase(IntEnum):
    """What comes when at the end of a turn."""

    DISPATCH = 0
    FLUSH = 1
    WAKE = 2
    REPLY = 3


class Turn:
    """Runs the functions added, by phase and then in the order added, once for each turn in which it was armed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rows: list[tuple[Phase, Callable[[], None]]] = []
        self._steps: tuple[Callable[[], None], ...] = ()
        self.began_s = _NEVER
        """Monotonic; between turns, never: what is read from a connection now has waited since then, or longer."""

    def add(self, phase: Phase, step: Callable[[], None]) -> None:
        """Have `step` run in `phase`."""
        self._rows.append((phase, step))
        self._rows.sort(key=lambda row: row[0])
        self._steps = tuple(step for _, step in self._rows)

    def arm(self) -> None:
        """Something happened: run at the end of this turn."""
        if self.began_s == _NEVER:
            self.began_s = time.monotonic()
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run all steps now. A step that fails does not keep the later ones from running."""
        self.began_s = _NEVER
        for step in self._steps:
            try:
                step()
            except Exception:
                log.exception("a step at the end of the turn failed")

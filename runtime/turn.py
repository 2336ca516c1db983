"""The end of a loop turn, in a fixed order.

The first event of a turn arms the `Turn`; it then runs after all connections that were ready have been read, and before
the loop waits again. So one dispatch, one flush request, one wake-up a queue and one write a connection serve everything
that the turn brought, and no reply leaves before the work that it promises.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum

log = logging.getLogger("runtime")


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
        self._is_armed = False

    def add(self, phase: Phase, step: Callable[[], None]) -> None:
        """Have `step` run in `phase`."""
        self._rows.append((phase, step))
        self._rows.sort(key=lambda row: row[0])
        self._steps = tuple(step for _, step in self._rows)

    def arm(self) -> None:
        """Something happened: run at the end of this turn."""
        if not self._is_armed:
            self._is_armed = True
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run all steps now. A step that fails does not keep the later ones from running."""
        self._is_armed = False
        for step in self._steps:
            try:
                step()
            except Exception:
                log.exception("a step at the end of the turn failed")

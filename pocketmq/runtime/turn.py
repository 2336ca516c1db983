"""Steps run at the end of each turn of the event loop, in a fixed order.

The first request of a turn arms the `Turn`, which then runs after all ready connections have been read and before the loop
waits again. So one dispatch, one flush request, one wake-up per queue and one write per connection serve all requests of the
turn, and no reply is sent before the work that it confirms.
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
    """Order of the steps at the end of a turn."""

    DISPATCH = 0
    FLUSH = 1
    WAKE = 2
    REPLY = 3


class Turn:
    """Runner of the registered steps, by phase and order of registration, once per turn in which it was armed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rows: list[tuple[Phase, Callable[[], None]]] = []
        self._steps: tuple[Callable[[], None], ...] = ()
        self.began_s = _NEVER
        """Monotonic time of arming; infinity between turns. Data read from a connection has waited at least since then."""
        self.ending_since_s = _NEVER
        """For steps: `began_s` of the turn that they end; infinity if it was not armed."""

    def add(self, phase: Phase, step: Callable[[], None]) -> None:
        """Register `step` for `phase`."""
        self._rows.append((phase, step))
        self._rows.sort(key=lambda row: row[0])
        self._steps = tuple(step for _, step in self._rows)

    def arm(self) -> None:
        """Run the steps at the end of this turn."""
        if self.began_s == _NEVER:
            self.began_s = time.monotonic()
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run all steps now. A failed step is logged and does not prevent the later ones."""
        self.ending_since_s, self.began_s = self.began_s, _NEVER
        for step in self._steps:
            try:
                step()
            except Exception:
                log.exception("a step at the end of an event loop iteration failed")

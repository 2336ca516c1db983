"""Steps run at the end of each turn of the event loop, in a fixed order.

The first request of a turn arms the `Turn`, which then runs after all ready connections have been read and before the loop
waits again. So one dispatch, one flush request, one wake-up per queue and one write per connection serve all requests of the
turn, and no reply is sent before the work that it confirms.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sized
from enum import IntEnum
from typing import Final

log = logging.getLogger("runtime")

NEVER: Final = float("inf")


class Phase(IntEnum):
    """Order of the steps at the end of a turn."""

    DISPATCH = 0
    FLUSH = 1
    WAKE = 2
    REPLY = 3


class Step:
    """One step. It runs in the turns at whose end it `is_due` or something is `pending`.

    Unless it is to run in each turn, its owner sets `is_due`.
    """

    __slots__ = ("is_always_due", "is_due", "pending", "phase", "run")

    def __init__(self, phase: Phase, run: Callable[[], None], pending: Sized, *, is_always_due: bool) -> None:
        self.phase = phase
        self.run = run
        self.pending = pending
        self.is_due = self.is_always_due = is_always_due

    def set_due(self, is_always_due: bool) -> None:
        """Run in each turn from now on, or in none unless something is pending."""
        self.is_due = self.is_always_due = is_always_due


class Turn:
    """Runner of the registered steps, by phase and order of registration, once per turn in which it was armed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._steps: list[Step] = []
        self.began_s = NEVER
        """Monotonic time of arming; infinity between turns. Data read from a connection has waited at least since then."""
        self.ending_since_s = NEVER
        """For steps: `began_s` of the turn that they end; infinity if it was not armed."""

    def add(self, phase: Phase, run: Callable[[], None], pending: Sized = (), *, is_always_due: bool = True) -> Step:
        """Register a step for `phase`, for each turn or only for those in which its owner sets `is_due`, and those in which
        `pending` is not empty."""
        step = Step(phase, run, pending, is_always_due=is_always_due)
        self._steps = sorted([*self._steps, step], key=lambda one: one.phase)
        return step

    def arm(self) -> None:
        """Run the steps at the end of this turn."""
        if self.began_s == NEVER:
            self.began_s = time.monotonic()
            self._loop.call_soon(self.run)

    def run(self) -> None:
        """Run all steps now. A failed step is logged and does not prevent the later ones."""
        self.ending_since_s, self.began_s = self.began_s, NEVER
        for step in self._steps:
            if not (step.is_due or step.pending):
                continue
            step.is_due = step.is_always_due
            try:
                step.run()
            except Exception:
                log.exception("a step at the end of an event loop iteration failed")

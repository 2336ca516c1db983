"""Work that is due at times: delivery of delayed messages, checks of transactions, revival of popped messages.

A part does such work in turns of the event loop, each limited to a budget, so that requests do not wait for it. Before a
turn ends, the part says when its next one begins. There are two timers, and a turn begins when the first of them expires:
one for a message time, as messages are due then, and one that counts seconds, for another turn soon and for another attempt
after a failure.
"""

import logging
from collections.abc import Callable
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.timers import Timer

log = logging.getLogger("broker")

RETRY_AFTER_S: Final = 0.1
"""Interval between attempts of work that failed."""


class DueWork:
    """Timers of one part's work."""

    def __init__(self, context: Context, work: Callable[[float, int], None], budget_s: float, problem: str) -> None:
        """`work` is called with the monotonic time at which its turn should end, and the message time. It calls `at_ms` or
        `after` for the next.

        If it raises OSError or RemotingError, `problem` and the reason are logged, once for repetitions, and it is called
        again.
        """
        self.is_running = False
        self._context = context
        self._timers = context.timers
        self._monotonic = context.clock.monotonic
        self._work = work
        self._budget_s = budget_s
        self._problem = problem
        self._failure = ""
        self._at: Timer | None = None
        self._after: Timer | None = None
        self._after_s = 0.0  # the monotonic time of `_after`
        context.steps.subscribe(self.look)

    def start(self) -> None:
        """Begin with a turn. May follow a `stop`."""
        self.is_running = True
        self._cancel()
        self._run()

    def stop(self) -> None:
        """Begin no further turn."""
        self.is_running = False
        self._cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no turn begins before a later message time."""
        return self._after is None and (self._at is None or self._at.when_ms > self._context.clock.message_time_ms())

    @property
    def is_waiting(self) -> bool:
        """Whether a turn is to come."""
        return self._at is not None or self._after is not None

    def at_ms(self, when_ms: int) -> None:
        """Begin a turn at a message time, if none begins earlier."""
        if self.is_running and (self._at is None or when_ms < self._at.when_ms):
            if self._at is not None:
                self._at.cancel()
            self._at = self._timers.at_ms(when_ms, self._run)

    def after(self, seconds: float) -> None:
        """Begin a turn after some seconds, 0: after all other work that is ready, if none begins earlier."""
        when_s = self._monotonic() + seconds
        if self.is_running and (self._after is None or when_s < self._after_s):
            if self._after is not None:
                self._after.cancel()
            self._after, self._after_s = self._timers.after(seconds, self._run), when_s

    def look(self) -> None:
        """Begin a turn soon, as there may be more to do; but not before another attempt of work that failed."""
        if self._after is None:
            self.after(0)

    def _cancel(self) -> None:
        for timer in (self._at, self._after):
            if timer is not None:
                timer.cancel()
        self._at = self._after = None

    def _run(self) -> None:
        if self._at is not None and self._after is not None:
            self._cancel()  # the other timer
        self._at = self._after = None
        if not self.is_running:
            return
        now_ms = self._context.look_at_clocks()
        is_done = False
        try:
            self._work(self._monotonic() + self._budget_s, now_ms)
            is_done, self._failure = True, ""
        except (OSError, RemotingError) as error:
            reason = error.remark if isinstance(error, RemotingError) else str(error)
            if reason != self._failure:
                self._failure = reason
                log.error("%s: %s; trying again", self._problem, reason)
        finally:
            if not is_done:
                self.after(RETRY_AFTER_S)

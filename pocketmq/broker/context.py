"""The parts that almost every other part of a broker needs."""

import asyncio
from dataclasses import dataclass

from pocketmq.broker.config import BrokerConfig
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.clock_steps import ClockSteps
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from pocketmq.runtime.work_slices import WorkSlices
from pocketmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class Context:
    """Passed to the constructors of parts, so that these list only the dependencies particular to them.

    The putter is not in it: it depends on the timer service, which is made from this context.
    """

    config: BrokerConfig
    store: MessageStore
    clock: Clock
    timers: Timers
    slices: WorkSlices
    """Runs all long work of the event loop, so that its parts share one budget."""
    turn: Turn
    loop: asyncio.AbstractEventLoop
    steps: ClockSteps
    store_host: bytes
    """The advertised address as it is stored in records."""

    def look_at_clocks(self) -> int:
        """Check whether the calendar was set (`ClockSteps.note`), and return the message time."""
        commit_log = self.store.commit_log
        return self.steps.note(commit_log.tail.end_offset, commit_log.last_store_timestamp_ms)

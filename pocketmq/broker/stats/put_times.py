"""PutTimes: how long it took to store messages, measured once per turn of the event loop.

All messages of a turn count with the time from the turn's begin, which is when the first of them was read, until their
records are written together; with SYNC_FLUSH until these are synced, at a SYNC_MASTER until a slave has them. So the time
counted for a message is never too short: it includes the wait for the other messages of its turn.
"""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

from pocketmq.broker.stats.measurements import Measurements
from pocketmq.runtime.turn import Turn

WAITING_MAX: Final = 10_000
"""Maximum number of turns whose records are waited for; further ones are added to the last of them."""


class PutTimes:
    """Adds to `measured.put_time`. As it runs at the end of each turn, it does as little as it can."""

    __slots__ = ("_add", "_count_max", "_measured", "_turn", "_waited_for", "_waiting")

    def __init__(self, measured: Measurements, turn: Turn, waited_for: Callable[[], int | None] | None) -> None:
        """`waited_for` returns the end offset for which the records of this turn wait, None if they do not."""
        self._measured = measured
        self._add = measured.put_time.add
        self._turn = turn
        self._count_max = 0
        self._waited_for = waited_for
        self._waiting: deque[tuple[int, float, int]] = deque()  # end offset, begin of the turn, messages

    def turn_ended(self, count: int) -> None:
        """Count the messages of the turn that ends, whose records are written."""
        if count > self._count_max:
            self._count_max = self._measured.dispatched_max = count
        # A turn that was not armed began at infinity, which counts as no time.
        if self._waited_for is None:
            self._add(monotonic() - self._turn.ending_since_s, count)
        else:
            self._wait(self._waited_for(), count)

    def _wait(self, end_offset: int | None, count: int) -> None:
        began_s = self._turn.ending_since_s
        if end_offset is None:
            self._add(monotonic() - began_s, count)
            return
        if len(self._waiting) >= WAITING_MAX:
            _, began_s, others = self._waiting.pop()
            count += others
        self._waiting.append((end_offset, began_s, count))

    def reached(self, offset: float) -> None:
        """Count the messages before `offset`, which are now synced or replicated as required."""
        waiting, now_s = self._waiting, monotonic()
        while waiting and waiting[0][0] <= offset:
            _, began_s, count = waiting.popleft()
            self._add(now_s - began_s, count)

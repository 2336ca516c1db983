"""Priority queue of the timer messages that are due soon.

Many messages that come together, such as those of a slot, are a *run*: a sorted array of 56 bytes a message. The first of
each run is in a heap, together with the messages that came one by one.

The *nominal* due time is the one given by the message or its store time. If the calendar was set in between, a delay is due
at another time of the present calendar (`clock_steps`), and the queue is ordered by that. Progress is recorded in nominal
times, the only ones known after a restart: the *floor* is a pair (nominal due time, physical offset) below which nothing is
left.
"""

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.store.timer.timer_log import Numbers

ABSOLUTE: Final = -1 << 62
"""The `difference` of a message that is no delay."""
_RUN_MIN: Final = 64
"""Number of messages from which a sorted array is better than the heap."""
_READ_AHEAD: Final = 256
_FEW: Final = 1000


class NearTimer(NamedTuple):
    """A message waiting for its due time. Times in epoch ms. Sorted by due time, then by arrival."""

    due_ms: int
    physical_offset: int
    nominal_ms: int
    slot_ms: int
    """The slot whose chain holds the unit."""
    out_ms: int
    difference: int
    """For a delay: the difference of calendar and steady clock under which it was stored."""
    topic_hash: int
    """Java's hash code of the real topic."""


DUE, OFFSET, NOMINAL, SLOT, OUT, DIFFERENCE, TOPIC_HASH = range(len(NearTimer._fields))
"""Columns of the rows of messages."""


class _Run:
    """Rows sorted by due time and arrival."""

    def __init__(self, rows: Numbers) -> None:
        self._rows = rows
        self._ahead: list[NearTimer] = []
        self._read = 0
        self.is_mixed = bool((np.diff(_lows(rows)) < 0).any())
        """Whether the calendar was set, and not all messages are due in the order of their nominal due times."""

    def next(self) -> NearTimer | None:
        """Remove and return the first message; None at the end."""
        if not self._ahead:
            part = self._rows[self._read : self._read + _READ_AHEAD]
            self._ahead = [NearTimer(*row) for row in part[::-1].tolist()]
            self._read += len(part)
        return self._ahead.pop() if self._ahead else None

    @property
    def left(self) -> Numbers:
        """The rows that are not in the heap yet."""
        return self._rows[self._read - len(self._ahead) :]


def _lows(rows: Numbers) -> Numbers:
    return np.minimum(rows[:, DUE], rows[:, NOMINAL])


class DueQueue:
    """Messages by due time, and the keys that cancel some. Keys are compared at delivery, when the record is read anyway."""

    def __init__(self) -> None:
        self.due_ms = FAR_MS
        """The earliest due time; FAR_MS without a message."""
        self.cancelled: dict[int, set[str]] = {}
        """Cancelled keys by TIMER_OUT_MS."""
        # (message, number of the entry, run from which it is)
        self._heap: list[tuple[NearTimer, int, _Run | None]] = []
        self._entries = 0
        self._runs: list[_Run] = []
        # Messages that were removed but are still to be delivered.
        self._waiting: set[NearTimer] = set()
        self._slot_counts: Counter[int] = Counter()
        self._is_shifted = False  # whether there may be messages that are due later than nominally

    def __len__(self) -> int:
        return self._slot_counts.total()

    def rows(self) -> Numbers:
        """Return all messages as rows, in no order."""
        singles = [*(entry[0] for entry in self._heap), *self._waiting]
        runs = [run.left for run in self._runs]
        return np.concatenate([np.array(singles, np.int64).reshape(-1, len(NearTimer._fields)), *runs])

    def count_at(self, slot_ms: int) -> int:
        """Return the number of messages of one slot."""
        return self._slot_counts[slot_ms]

    # --- in ---------------------------------------------------------------------------------------------------------

    def push(self, timers: Sequence[NearTimer]) -> None:
        """Add messages."""
        if len(timers) >= _RUN_MIN:
            self.push_rows(np.array(timers, np.int64))
            return
        for timer in timers:
            self._push(timer, None)
            self._slot_counts[timer.slot_ms] += 1
            self._is_shifted |= timer.due_ms > timer.nominal_ms
        self._look()

    def push_rows(self, rows: Numbers) -> None:
        """Add messages that are given as rows."""
        if not len(rows):
            return
        slots, counts = np.unique(rows[:, SLOT], return_counts=True)
        self._slot_counts.update(dict(zip(slots.tolist(), counts.tolist(), strict=True)))
        self._is_shifted |= bool((rows[:, DUE] > rows[:, NOMINAL]).any())
        run = _Run(rows[np.lexsort((rows[:, OFFSET], rows[:, DUE]))])
        self._runs = [*(run for run in self._runs if len(run.left)), run]
        self._push(run.next(), run)
        self._look()

    def _push(self, timer: NearTimer | None, run: _Run | None) -> None:
        if timer is not None:
            self._entries += 1
            heapq.heappush(self._heap, (timer, self._entries, run))

    def _look(self) -> None:
        self.due_ms = self._heap[0][0].due_ms if self._heap else FAR_MS

    def cancel(self, out_ms: int, key: str) -> None:
        """Cancel the messages with this TIMER_OUT_MS and key, including those still to be added."""
        self.cancelled.setdefault(out_ms, set()).add(key)

    def set_difference(self, difference: int) -> None:
        """Recompute all due times after the calendar was set."""
        waiting, self._waiting = self._waiting, set()
        rows = self.rows()
        nominal, before = rows[:, NOMINAL], rows[:, DIFFERENCE]
        rows[:, DUE] = np.where(before == ABSOLUTE, nominal, nominal + difference - before)
        self._heap, self._runs, self._is_shifted = [], [], False
        self._slot_counts = Counter(timer.slot_ms for timer in waiting)
        self._waiting = waiting
        self.push_rows(rows)
        self._look()

    # --- out --------------------------------------------------------------------------------------------------------

    @property
    def first_ms(self) -> int:
        """The earliest due time, also of messages that wait for another attempt; FAR_MS without a message."""
        return min((self.due_ms, *(timer.due_ms for timer in self._waiting)))

    def take(self, until_ms: int, count_max: int) -> list[NearTimer]:
        """Remove and return the first messages that are due by `until_ms`."""
        taken: list[NearTimer] = []
        while self.due_ms <= until_ms and len(taken) < count_max:
            following: NearTimer | None
            following, _, run = heapq.heappop(self._heap)
            while following is not None and len(taken) < count_max and following.due_ms <= until_ms:
                if self._heap and self._heap[0][0] < following:
                    break
                self._count_out(following)
                taken.append(following)
                following = run.next() if run is not None else None
            self._push(following, run)
            self._look()
        return taken

    def _count_out(self, timer: NearTimer) -> None:
        self._slot_counts[timer.slot_ms] -= 1
        if not self._slot_counts[timer.slot_ms]:
            del self._slot_counts[timer.slot_ms]

    def wait(self, timer: NearTimer) -> None:
        """Note that a removed message is still to be delivered."""
        if timer not in self._waiting:
            self._waiting.add(timer)
            self._slot_counts[timer.slot_ms] += 1

    def done(self, timer: NearTimer) -> None:
        """Note that a message that waited need not be delivered any more."""
        if timer in self._waiting:
            self._waiting.remove(timer)
            self._count_out(timer)

    def put_back(self) -> None:
        """Add the messages again that wait for another attempt."""
        for timer in tuple(self._waiting):
            self.done(timer)
            self.push((timer,))

    # --- progress ---------------------------------------------------------------------------------------------------

    def progress(self) -> tuple[tuple[int, int], int] | None:
        """Return the floor of the remaining messages and their earliest slot; None without a message."""
        if not self._slot_counts:
            self._is_shifted = False
            return None
        firsts = (*(entry[0] for entry in (self._heap if self._is_shifted else self._heap[:1])), *self._waiting)
        floors = [(min(timer.due_ms, timer.nominal_ms), timer.physical_offset) for timer in firsts]
        for rows in [run.left for run in self._runs if run.is_mixed]:
            if len(rows):
                lows = _lows(rows)
                floors.append((int(lows.min()), int(rows[lows == lows.min(), OFFSET].min())))
        return min(floors), min(self._slot_counts)

    def forget_cancelled(self, before_ms: int) -> None:
        """Forget cancelled keys of finished slots; slots from `before_ms` on are not finished."""
        if len(self) < _FEW:
            before_ms = int(self.rows()[:, OUT].min(initial=before_ms))
            for out_ms in [one for one in self.cancelled if one < before_ms]:
                del self.cancelled[out_ms]

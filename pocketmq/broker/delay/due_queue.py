"""Priority queue of the timer messages that are due soon.

Messages that arrive in the order of their due times are kept in a deque, the others in a heap. A deque is much faster for a
burst of messages that are due at the same instant.

The *nominal* due time is the one given by the message or its store time. If the calendar was set in between, a delay is due
at another time of the present calendar (`clock_steps`), and the queue is ordered by that. Progress is recorded in nominal
times, the only ones known after a restart: the *floor* is a pair (nominal due time, physical offset) below which nothing is
left.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from pocketmq.broker.delay.sources import FAR_MS

_FEW: Final = 1000


class NearTimer(NamedTuple):
    """A message waiting for its due time. Times in epoch ms. Sorted by due time, then by arrival."""

    due_ms: int
    physical_offset: int
    nominal_ms: int
    slot_ms: int
    """The slot whose chain holds the unit."""
    out_ms: int
    difference: int | None
    """For a delay: the difference of calendar and steady clock under which it was stored."""
    topic_hash: int
    """Java's hash code of the real topic."""


class DueQueue:
    """Messages by due time, and the keys that cancel some. Keys are compared at delivery, when the record is read anyway."""

    def __init__(self) -> None:
        self.row: deque[NearTimer] = deque()
        """Those that came in the order of their due times."""
        self._heap: list[NearTimer] = []
        # Messages due later than nominally, as a heap of (nominal due time, physical offset), and those already removed.
        self._held: list[tuple[int, int]] = []
        self._released: set[tuple[int, int]] = set()
        # Messages that were removed but are still to be delivered.
        self._waiting: set[NearTimer] = set()
        self._slot_counts: dict[int, int] = defaultdict(int)
        self._slots: list[int] = []
        self.due_ms = FAR_MS
        """The earliest due time; FAR_MS without a message."""
        self.cancelled: dict[int, set[str]] = {}
        """Cancelled keys by TIMER_OUT_MS."""

    def __len__(self) -> int:
        return len(self.row) + len(self._heap) + len(self._waiting)

    def __iter__(self) -> Iterator[NearTimer]:
        return chain(self.row, self._heap, self._waiting)

    def count_at(self, slot_ms: int) -> int:
        """Return the number of messages of one slot."""
        return self._slot_counts.get(slot_ms, 0)

    # --- in ---------------------------------------------------------------------------------------------------------

    def push(self, timer: NearTimer) -> None:
        """Add a message."""
        row = self.row
        if not row or row[-1] < timer:
            row.append(timer)
        else:
            heapq.heappush(self._heap, timer)
        if timer.due_ms < self.due_ms:
            self.due_ms = timer.due_ms
        if timer.due_ms > timer.nominal_ms:
            pair = (timer.nominal_ms, timer.physical_offset)
            if pair in self._released:
                self._released.discard(pair)
            else:
                heapq.heappush(self._held, pair)
        self._count_in(timer.slot_ms)

    def _count_in(self, slot_ms: int) -> None:
        if slot_ms not in self._slot_counts:
            heapq.heappush(self._slots, slot_ms)
        self._slot_counts[slot_ms] += 1

    def cancel(self, out_ms: int, key: str) -> None:
        """Cancel the messages with this TIMER_OUT_MS and key, including those still to be added."""
        self.cancelled.setdefault(out_ms, set()).add(key)

    def set_difference(self, difference: int) -> None:
        """Recompute all due times after the calendar was set."""
        timers = sorted(chain(self.row, self._heap))
        self.row.clear()
        self._heap, self._held, self.due_ms = [], [], FAR_MS
        self._released.clear()
        self._slot_counts.clear()
        self._slots.clear()
        for timer in timers:
            due_ms = timer.nominal_ms if timer.difference is None else timer.nominal_ms + difference - timer.difference
            self.push(timer._replace(due_ms=due_ms))
        for timer in self._waiting:
            self._count_in(timer.slot_ms)

    # --- out --------------------------------------------------------------------------------------------------------

    @property
    def first_ms(self) -> int:
        """The earliest due time, also of messages that wait for another attempt; FAR_MS without a message."""
        return min((self.due_ms, *(timer.due_ms for timer in self._waiting)))

    def first(self, until_ms: int, count_max: int) -> list[NearTimer]:
        """Return the first messages due by `until_ms`, at most `count_max`, in their order; perhaps not all."""
        row, heap, moved = self.row, self._heap, list[NearTimer]()
        while heap and heap[0].due_ms <= until_ms and len(moved) < count_max and not (row and row[0] < heap[0]):
            moved.append(heapq.heappop(heap))
        row.extendleft(reversed(moved))
        found = islice(row, count_max)
        return [timer for timer in found if timer.due_ms <= until_ms and not (heap and heap[0] < timer)]

    def pop(self) -> NearTimer:
        """Remove and return the first message."""
        row, heap = self.row, self._heap
        if heap and not (row and row[0] < heap[0]):
            row.appendleft(heapq.heappop(heap))
        timer = row[0]
        self.remove_first(1)
        return timer

    def remove_first(self, count: int) -> None:
        """Remove the first messages, which are in the row: those that `first` returned."""
        row, heap, slot_counts = self.row, self._heap, self._slot_counts
        for _ in range(count):
            timer = row.popleft()
            if timer.due_ms > timer.nominal_ms:
                self._released.add((timer.nominal_ms, timer.physical_offset))
            slot_counts[timer.slot_ms] -= 1
        self.due_ms = row[0].due_ms if row else FAR_MS
        if heap and heap[0].due_ms < self.due_ms:
            self.due_ms = heap[0].due_ms

    def wait(self, timer: NearTimer) -> None:
        """Note that a removed message is still to be delivered."""
        if timer not in self._waiting:
            self._waiting.add(timer)
            self._count_in(timer.slot_ms)

    def done(self, timer: NearTimer) -> None:
        """Note that a message that waited need not be delivered any more."""
        if timer in self._waiting:
            self._waiting.remove(timer)
            self._slot_counts[timer.slot_ms] -= 1

    def put_back(self) -> None:
        """Add the messages again that wait for another attempt."""
        waiting, self._waiting = self._waiting, set()
        for timer in waiting:
            self._slot_counts[timer.slot_ms] -= 1
            self.push(timer)

    # --- progress ---------------------------------------------------------------------------------------------------

    @property
    def left(self) -> tuple[tuple[int, int] | None, int | None]:
        """The lower bound (nominal due time, physical offset) of the remaining messages, and their earliest slot."""
        while self._slots and not self._slot_counts[self._slots[0]]:
            del self._slot_counts[heapq.heappop(self._slots)]
        if not (self.row or self._heap or self._waiting):
            self._held.clear()
            self._released.clear()
            return None, None
        while self._held and self._held[0] in self._released:
            self._released.discard(heapq.heappop(self._held))
        firsts = (*islice(self.row, 1), *self._heap[:1], *self._waiting)
        pairs = ((min(timer.due_ms, timer.nominal_ms), timer.physical_offset) for timer in firsts)
        return min((*pairs, *self._held[:1])), self._slots[0]

    def forget_cancelled(self, before_ms: int) -> None:
        """Forget cancelled keys of finished slots; slots from `before_ms` on are not finished."""
        if len(self) < _FEW:
            before_ms = min((before_ms, *(timer.out_ms for timer in self)))
            for out_ms in [one for one in self.cancelled if one < before_ms]:
                del self.cancelled[out_ms]

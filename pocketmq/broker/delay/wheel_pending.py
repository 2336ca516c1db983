"""Pending timer messages: those of loaded slots from the due queue, the others from the timer log."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

import numpy as np

from pocketmq.broker.delay.due_queue import DueQueue
from pocketmq.broker.delay.pending import Entry, Place, add_by_hour
from pocketmq.broker.delay.records import TimerReader
from pocketmq.broker.delay.sources import FAR_MS
from pocketmq.broker.delay.wheel_loader import WheelLoader
from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.delivery_time import TIMER_OUT_MS
from pocketmq.runtime.clock import Clock
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import TIMER_MAGIC_DELETE
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import Record
from pocketmq.store.timer.timer_log import Numbers, unit_dues
from pocketmq.store.timer.timer_store import TimerStore

_FIRST_LOOK: Final = 1000
_LOOKS_GROW: Final = 8


class WheelPending:
    """The timer wheel as a `PendingSource`."""

    def __init__(
        self,
        timer_store: TimerStore,
        near: DueQueue,
        loader: WheelLoader,
        reader: TimerReader,
        clock: Clock,
        begin_offset: Callable[[], int],
        enter_all: Callable[[], None],
    ) -> None:
        """`begin_offset` returns the physical offset before which records are deleted or carried forward.

        `enter_all` enters messages whose entering was deferred.
        """
        self._timer_store = timer_store
        self._begin_offset = begin_offset
        self._enter_all = enter_all
        self._near = near
        self._loader = loader
        self._reader = reader
        self._clock = clock

    def pending(self, begin_ms: int = 0, end_ms: int = FAR_MS, topic: str | None = None) -> Iterator[Place]:
        """Yield the messages with out_ms in [begin_ms, end_ms), by out_ms and then arrival.

        With `topic`, only messages of it or of a topic with the same hash code. Cancelled messages are left out. Each pass
        reads the units of all messages, so the first pass takes as many as are usually wanted, and each further one more.
        """
        self._enter_all()
        return self._passes(begin_ms, end_ms, topic)

    def entries(self, begin_ms: int, end_ms: int, topic: str | None) -> Iterator[Entry]:
        return (Entry(place, 0, -1, -1) for place in self.pending(begin_ms, end_ms, topic))

    def find(self, record: Record) -> Entry | None:
        out_text = decode_properties(record.properties).get(TIMER_OUT_MS, "")
        if record.topic != TIMER_TOPIC.encode() or not out_text.isdigit():
            return None
        place = Place(int(out_text), record.physical_offset)
        return Entry(place, 0, -1, -1) if place in self.pending(place.out_ms, place.out_ms + 1) else None

    def _passes(self, begin_ms: int, end_ms: int, topic: str | None) -> Iterator[Place]:
        count = _FIRST_LOOK
        while begin_ms < end_ms:
            rows, cancelling, end_of_look_ms = self._first(count, begin_ms, end_ms, topic)
            yield from self._listed(rows, self._cancelled(cancelling))
            begin_ms, count = end_of_look_ms, count * _LOOKS_GROW

    def _first(self, count: int, begin_ms: int, end_ms: int, topic: str | None) -> tuple[Numbers, Numbers, int]:
        """Return the first `count` messages, the units that cancel some of them, and the next out_ms.

        Both arrays have the rows out_ms and physical offset, unsorted. Messages with the out_ms of the last one are
        included.
        """
        # Pending messages of slots before the first unloaded one are in the due queue.
        is_far = end_ms > self._loader.unread_ms
        if is_far:
            self._loader.finish(self._clock.message_time_ms())
        hashed = None if topic is None else java_hash(topic)
        rows = np.array(self._near_rows(begin_ms, end_ms, hashed), np.int64).reshape(-1, 2).T
        cancelling = rows[:, :0]
        for units in self._timer_store.pending(None, self._loader.loaded_to_ms, self._begin_offset()) if is_far else ():
            outs, offsets = unit_dues(units), units["physical_offset"].astype(np.int64)
            wanted = (outs >= begin_ms) & (outs < end_ms)
            cancels = wanted & (units["magic"] & TIMER_MAGIC_DELETE != 0)
            wanted &= ~cancels
            if hashed is not None:
                wanted &= units["topic_hash"] == hashed
            cancelling = np.concatenate((cancelling, np.stack((outs[cancels], offsets[cancels]))), axis=1)
            rows = np.concatenate((rows, np.stack((outs[wanted], offsets[wanted]))), axis=1)
            if rows.shape[1] > count:
                last_ms = np.partition(rows[0], count - 1)[count - 1]
                rows, end_ms = rows[:, rows[0] <= last_ms], int(last_ms) + 1
        return rows, cancelling[:, cancelling[0] < end_ms], end_ms

    def _cancelled(self, cancelling: Numbers) -> dict[int, set[str]]:
        """Return the keys of cancelled messages by out_ms."""
        cancelled: dict[int, set[str]] = {}
        for physical_offset in cancelling[1].tolist():
            record = self._reader.read(physical_offset)
            if record is not None and record.cancels is not None:
                cancelled.setdefault(record.out_ms, set()).add(record.cancels)
        return cancelled

    def _near_rows(self, begin_ms: int, end_ms: int, hashed: int | None) -> list[tuple[int, int]]:
        return [
            (timer.out_ms, timer.physical_offset)
            for timer in self._near
            if begin_ms <= timer.out_ms < end_ms
            and (hashed is None or timer.topic_hash == hashed)
            and not self._reader.is_cancelled(timer.physical_offset, self._near.cancelled.get(timer.out_ms, set()))
        ]

    def _listed(self, rows: Numbers, cancelled: dict[int, set[str]]) -> Iterator[Place]:
        # A unit that was rolled twice occurs twice.
        rows = rows[:, np.unique(rows[1], return_index=True)[1]]
        for index in np.lexsort((rows[1], rows[0])):
            timer = Place(*rows[:, index].tolist())
            if not self._reader.is_cancelled(timer.physical_offset, cancelled.get(timer.out_ms, set())):
                yield timer

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        """Return (messages, cancelling units) by hour of the due time (epoch ms of its beginning), ascending.

        Cancelled messages are counted until their slot is loaded.
        """
        self._enter_all()
        self._loader.finish(self._clock.message_time_ms())
        counts: dict[int, tuple[int, int]] = {}
        add_by_hour(counts, np.array([timer.nominal_ms for timer in self._near], np.int64))
        for units in self._timer_store.pending(None, self._loader.loaded_to_ms, self._begin_offset()):
            cancels, dues = units["magic"] & TIMER_MAGIC_DELETE != 0, unit_dues(units)
            add_by_hour(counts, dues[~cancels])
            add_by_hour(counts, dues[cancels], are_cancelling=True)
        return dict(sorted(counts.items()))

    def parts(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield due times and hash codes of the topics of pending messages, in parts, between which the loop may run.

        Cancelled messages are included until their slot is loaded; a message that moves meanwhile may be seen twice or not
        at all.
        """
        unread_ms = self._loader.unread_ms
        near = [(timer.due_ms, timer.topic_hash) for timer in self._near if timer.slot_ms != unread_ms]
        rows = np.array(near, np.int64).reshape(-1, 2)
        yield rows[:, 0], rows[:, 1]
        unrolled = tuple(units for _, units in self._loader.unrolled)
        for units in chain(unrolled, self._timer_store.pending_parts(unread_ms, self._begin_offset())):
            kept = units[units["magic"] & TIMER_MAGIC_DELETE == 0]
            yield unit_dues(kept), kept["topic_hash"].astype(np.int64)

    def counts_by_topic_hash(self) -> dict[int, int]:
        """Return the number of pending messages by hash code of the real topic.

        Cancelled messages are counted until their slot is loaded.
        """
        self._enter_all()
        counts: Counter[int] = Counter()
        for _, hashes in self.parts():
            found, numbers = np.unique(hashes, return_counts=True)
            counts.update(dict(zip(found.tolist(), numbers.tolist(), strict=True)))
        return dict(counts)

    def count(self) -> int:
        """Return the number of pending messages less that of cancelling units, from the wheel's counts without reading
        units."""
        unread_ms, near = self._loader.unread_ms, self._near
        rolling = sum(
            len(units) - 2 * int(np.count_nonzero(units["magic"] & TIMER_MAGIC_DELETE)) for _, units in self._loader.unrolled
        )
        return len(near) - near.count_at(unread_ms) + self._timer_store.count_from(unread_ms) + rolling

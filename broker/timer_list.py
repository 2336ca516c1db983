"""What is pending in the timers: from the heap for the slots that are loaded, from the timer log for the others."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from broker.near_heap import NearHeap
from broker.slot_loader import SlotLoader
from broker.timer_entry import TimerReader
from runtime.clock import Clock
from store.java_hash import java_hash
from store.layout import TIMER_MAGIC_DELETE
from store.timer_log import Numbers, unit_dues
from store.timer_store import TimerStore

_HOUR_MS: Final = 3_600_000


class PendingTimer(NamedTuple):
    """One message that is still to come. `out_ms` is TIMER_OUT_MS: it is due at most a precision later."""

    out_ms: int
    physical_offset: int
    record_size: int


class TimerList:
    """Nothing may be entered or delivered while it is asked."""

    def __init__(
        self,
        timer_store: TimerStore,
        near: NearHeap,
        loader: SlotLoader,
        reader: TimerReader,
        clock: Clock,
        begin_offset: Callable[[], int],
    ) -> None:
        """`begin_offset` tells before which physical offset records are gone, or were copied forward."""
        self._timer_store = timer_store
        self._begin_offset = begin_offset
        self._near = near
        self._loader = loader
        self._reader = reader
        self._clock = clock

    def pending(self, begin_ms: int, end_ms: int, topic: str | None) -> Iterator[PendingTimer]:
        """Messages with out_ms in [begin_ms, end_ms), by out_ms and then arrival; of a topic, or one with its hash."""
        self._loader.finish(self._clock.message_time_ms())
        cancelled: dict[int, set[str]] = {}
        rows = self._near_rows(begin_ms, end_ms, topic)
        parts = [np.array(rows, np.int64).reshape(-1, 3).T]
        for units in self._timer_store.pending(None, self._loader.loaded_to_ms, self._begin_offset()):
            outs = unit_dues(units)
            wanted = (outs >= begin_ms) & (outs < end_ms)
            cancels = units["magic"] & TIMER_MAGIC_DELETE != 0
            for physical_offset in units["physical_offset"][wanted & cancels].tolist():
                record = self._reader.read(physical_offset)
                if record is not None and record.cancels is not None:
                    cancelled.setdefault(record.out_ms, set()).add(record.cancels)
            wanted &= ~cancels
            if topic is not None:
                wanted &= units["topic_hash"] == java_hash(topic)
            columns = outs, units["physical_offset"].astype(np.int64), units["record_size"]
            parts.append(np.stack(columns)[:, wanted])
        yield from self._listed(np.concatenate(parts, axis=1), cancelled)

    def _near_rows(self, begin_ms: int, end_ms: int, topic: str | None) -> list[tuple[int, int, int]]:
        rows = []
        for timer in self._near:
            if begin_ms <= timer.out_ms < end_ms:
                record = self._reader.read(timer.physical_offset)
                if record is None or not record.keys(timer.physical_offset).isdisjoint(
                    self._near.cancelled_at(timer.out_ms)
                ):
                    continue
                if topic is None or record.topic == topic:
                    rows.append((timer.out_ms, timer.physical_offset, record.size))
        return rows

    def _listed(self, rows: Numbers, cancelled: dict[int, set[str]]) -> Iterator[PendingTimer]:
        # What was rolled twice is there twice.
        rows = rows[:, np.unique(rows[1], return_index=True)[1]]
        for index in np.lexsort((rows[1], rows[0])):
            timer = PendingTimer(*rows[:, index].tolist())
            if timer.out_ms in cancelled:
                record = self._reader.read(timer.physical_offset)
                if record is None or not record.keys(timer.physical_offset).isdisjoint(cancelled[timer.out_ms]):
                    continue
            yield timer

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        """By the hour of the due time (epoch ms of its beginning): (messages, units that cancel some), ascending.

        What is cancelled counts until its slot comes.
        """
        self._loader.finish(self._clock.message_time_ms())
        counts = self._timer_store.counts_by_hour(self._loader.loaded_to_ms, self._begin_offset())
        for timer in self._near:
            hour_ms = timer.nominal_ms // _HOUR_MS * _HOUR_MS
            messages, cancelling = counts.get(hour_ms, (0, 0))
            counts[hour_ms] = messages + 1, cancelling
        return dict(sorted(counts.items()))

    def counts_by_topic_hash(self) -> dict[int, int]:
        """How many messages are pending for each hash of a real topic. What is cancelled counts until its slot comes."""
        self._loader.finish(self._clock.message_time_ms())
        counts: Counter[int] = Counter()
        for units in self._timer_store.pending(None, self._loader.loaded_to_ms, self._begin_offset()):
            hashes, numbers = np.unique(units["topic_hash"][units["magic"] & TIMER_MAGIC_DELETE == 0], return_counts=True)
            counts.update(dict(zip(hashes.tolist(), numbers.tolist(), strict=True)))
        near = (self._reader.read(timer.physical_offset) for timer in self._near)
        counts.update(java_hash(record.topic) for record in near if record is not None)
        return dict(counts)

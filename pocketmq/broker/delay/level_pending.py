"""Pending messages of the delay levels: those in their queues beyond what is delivered."""

import heapq
from collections.abc import Iterator
from typing import Final

import numpy as np

from pocketmq.broker.delay.cancel import DelayCancelled
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.delay.pending import Entry, Parts, Place, add_by_hour
from pocketmq.broker.put.delivery_time import slot_time_ms
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE, EXT_ADDRESS_MAX, HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.record import Record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.timer.timer_log import Numbers

_PRECISION_MS: Final = 1000
_UNITS_READ: Final = 4096


class LevelPending:
    """The levels as a `PendingSource`."""

    def __init__(self, store: MessageStore, levels: LevelSource, cancelled: DelayCancelled) -> None:
        self._store = store
        self._progress = levels.progress
        self._cancelled = cancelled

    def entries(self, begin_ms: int, end_ms: int, topic: str | None) -> Iterator[Entry]:
        return heapq.merge(*(self._level_entries(level, begin_ms) for level in sorted(self._progress())))

    def _level_entries(self, level: int, begin_ms: int) -> Iterator[Entry]:
        for first, physical_offsets, dues in self._rows(level):
            for row in np.flatnonzero(dues > begin_ms).tolist():
                entry = _entry(level, first + row, int(physical_offsets[row]), int(dues[row]))
                if entry.place.out_ms >= begin_ms:
                    yield entry

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        counts: dict[int, tuple[int, int]] = {}
        for dues, _ in self.parts():
            add_by_hour(counts, dues)
        return counts

    def parts(self) -> Parts:
        for level in sorted(self._progress()):
            for _, _, dues in self._rows(level):
                yield dues[dues > 0], None

    def find(self, record: Record) -> Entry | None:
        if record.topic != SCHEDULE_TOPIC.encode():
            return None
        level = record.queue_id + 1
        next_offset, _ = self._progress().get(level, (0, 0))
        unit = self._store.unit_at(SCHEDULE_TOPIC, record.queue_id, record.queue_offset)
        if unit is None or unit[0] != record.physical_offset or record.queue_offset < next_offset:
            return None
        if self._cancelled.end_of(level, record.queue_offset) is not None:
            return None
        due_ms = self._store.reader.tags_code(SCHEDULE_TOPIC, record.queue_id, unit[2], record.physical_offset)
        return _entry(level, record.queue_offset, record.physical_offset, due_ms)

    def _rows(self, level: int) -> Iterator[tuple[int, Numbers, Numbers]]:
        """Yield a level's queue in parts: first queue offset, physical offsets, due times (0: not pending)."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        next_offset, _ = self._progress().get(level, (0, 0))
        if queue is None:
            return
        next_offset = max(next_offset, queue.min_offset)
        while len(units := np.frombuffer(queue.units(next_offset, _UNITS_READ), CONSUME_QUEUE_UNIT_DTYPE)):
            physical_offsets = units["physical_offset"].astype(np.int64)
            dues = units["tags_code"].astype(np.int64)
            dues[dues == HOLE_TAGS_CODE] = 0
            for row in np.flatnonzero((dues <= EXT_ADDRESS_MAX) & (dues != 0)).tolist():
                code, physical_offset = int(dues[row]), int(physical_offsets[row])
                dues[row] = self._store.reader.tags_code(SCHEDULE_TOPIC, level - 1, code, physical_offset)
            for queue_offset in self._cancelled.of(level, next_offset, next_offset + len(units)):
                dues[queue_offset - next_offset] = 0
            yield next_offset, physical_offsets, dues
            next_offset += len(units)


def _entry(level: int, queue_offset: int, physical_offset: int, due_ms: int) -> Entry:
    return Entry(Place(slot_time_ms(due_ms, _PRECISION_MS), physical_offset), level, queue_offset, due_ms)

"""Pending messages: those in slots of the timer wheel and those in the queues of the delay levels, as one sorted list.

The *place* of an entry is its position in this list: the second in which it is due, as in TIMER_OUT_MS, then its physical
offset. Slots and queues are already sorted in this order, so nothing has to be collected first: an answer ends after some
entries, its cursor is the place of the last one, and the next answer continues after it.

A query for a key or id need not read the whole list: the index has both, under the topic in which the record is stored.
"""

import base64
import contextlib
import heapq
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pocketmq.broker.context import Context
from pocketmq.broker.delay.cancel import DelayCancelled
from pocketmq.broker.delay.level_source import LevelSource
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from pocketmq.broker.put.delivery_time import TIMER_DEL_UNIQKEY, TIMER_OUT_MS, due_of, slot_time_ms
from pocketmq.broker.put.message_id import decode_message_id, encode_message_id
from pocketmq.remoting.delay_bodies import DelayedCounts, DelayedMessage
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE, EXT_ADDRESS_MAX, HOLE_TAGS_CODE
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.properties import KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record

SCANNED_MAX: Final = 500
"""Limit of entries read for one answer, because all other requests wait for it."""
COUNTED_MAX: Final = 5000
PAGE_MAX: Final = 256
DETAILED_MAX: Final = 8
"""Limits of messages in one answer; the second if bodies are included, which may be large."""
_HOUR_MS: Final = 3_600_000
_LEVEL_PRECISION_MS: Final = 1000
_UNITS_READ: Final = 4096
Numbers = npt.NDArray[np.int64]


class PendingUnit(Protocol):
    """A pending message of the timer service: its slot and the place of its record."""

    @property
    def out_ms(self) -> int: ...

    @property
    def physical_offset(self) -> int: ...


class PendingTimers(Protocol):
    """Interface to the timer service."""

    def pending(self, begin_ms: int = 0, end_ms: int = 1 << 62, topic: str | None = None) -> Iterable[PendingUnit]: ...

    def counts_by_hour(self) -> dict[int, tuple[int, int]]: ...


class NoTimers:
    """Timer service without pending messages, used if timerWheelEnable=false."""

    def pending(self, begin_ms: int = 0, end_ms: int = 1 << 62, topic: str | None = None) -> tuple[PendingUnit, ...]:
        return ()

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        return {}


class Place(NamedTuple):
    """Position in the list of pending messages, see above."""

    out_ms: int
    physical_offset: int

    def __str__(self) -> str:
        return f"{self.out_ms}-{self.physical_offset}"


class Entry(NamedTuple):
    """A pending message. `level` 0: it is in the wheel and its record has the due time; otherwise `due_ms` has it."""

    place: Place
    level: int
    queue_offset: int
    due_ms: int


class Wanted(NamedTuple):
    """Conditions of a query; None matches everything. [begin_ms, end_ms) are due times."""

    topic: str | None = None
    key: str | None = None
    msg_id: str | None = None
    begin_ms: int = 0
    end_ms: int = 1 << 62


class Pending(NamedTuple):
    """An entry with its record."""

    entry: Entry
    record: Record
    properties: dict[str, str]
    due_ms: int
    is_delay: bool

    @property
    def topic(self) -> str:
        return self.properties.get(REAL_TOPIC, "")

    @property
    def msg_id(self) -> str:
        return self.properties.get(UNIQ_KEY) or encode_message_id(self.record.store_host, self.record.physical_offset)


def parse_cursor(text: str | None) -> Place | None:
    """Parse the cursor of an earlier answer. Raises ValueError if it is invalid."""
    if text is None:
        return None
    out_ms, dash, physical_offset = text.partition("-")
    if not (dash and out_ms.isascii() and out_ms.isdigit() and physical_offset.isascii() and physical_offset.isdigit()):
        raise ValueError(f"cursor {text!r} is invalid: use that of the previous answer")
    return Place(int(out_ms), int(physical_offset))


class DelayQuery:
    """Queries of pending messages; read-only."""

    def __init__(self, context: Context, timers: PendingTimers, schedule: LevelSource, cancelled: DelayCancelled) -> None:
        self._store = context.store
        self._timers = timers
        self._schedule = schedule
        self._cancelled = cancelled
        self._precision_ms = context.store.config.timer_precision_ms
        self._shift_ms = context.steps.shift_ms

    # --- answers ----------------------------------------------------------------------------------------------------

    def page(self, wanted: Wanted, cursor: Place | None, count_max: int) -> tuple[list[Pending], Place | None]:
        """Return up to `count_max` messages after `cursor` by due time, and the next cursor, None at the end.

        There may be fewer, even none, before the end: an answer reads at most SCANNED_MAX entries.
        """
        indexed = self._indexed(wanted)
        if indexed is not None:
            found = [pending for pending in indexed if self._is_wanted(pending, wanted)]
            return sorted(found, key=_by_due), None
        found, last, scanned = [], cursor, 0
        for entry in self._entries(wanted, cursor):
            if scanned == SCANNED_MAX or len(found) == count_max:
                return sorted(found, key=_by_due), last
            scanned, last = scanned + 1, entry.place
            pending = self._read(entry)
            if pending is not None and self._is_wanted(pending, wanted):
                found.append(pending)
        return sorted(found, key=_by_due), None

    def count(self, wanted: Wanted, cursor: Place | None) -> tuple[DelayedCounts, Place | None]:
        """Return the number of messages by hour of the due time, and the next cursor; all at once without conditions."""
        if wanted == Wanted():
            return self._count_all(), None
        hours: dict[int, int] = {}
        last = cursor
        for scanned, entry in enumerate(self._entries(wanted, cursor)):
            if scanned == COUNTED_MAX:
                return _counts(hours), last
            last = entry.place
            pending = self._read(entry)
            if pending is not None and self._is_wanted(pending, wanted):
                hour_ms = pending.due_ms // _HOUR_MS * _HOUR_MS
                hours[hour_ms] = hours.get(hour_ms, 0) + 1
        return _counts(hours), None

    def _count_all(self) -> DelayedCounts:
        hours: dict[int, int] = {}
        cancelled = 0
        for hour_ms, (messages, marks) in self._timers.counts_by_hour().items():
            hours[hour_ms] = messages
            cancelled += marks
        for level in self._levels():
            for _, _, dues in self._level_rows(level):
                numbers, counts = np.unique(dues[dues > 0] // _HOUR_MS, return_counts=True)
                for number, added in zip(numbers.tolist(), counts.tolist(), strict=True):
                    hours[number * _HOUR_MS] = hours.get(number * _HOUR_MS, 0) + added
        return _counts(hours, cancelled)

    def level_dues(self) -> Iterator[Numbers]:
        """Yield the due times of pending messages of the levels, in parts, between which the caller can let the loop run."""
        for level in self._levels():
            for _, _, dues in self._level_rows(level):
                yield dues[dues > 0]

    def find(self, physical_offset: int) -> Pending | None:
        """Return the pending message whose record is at `physical_offset`, or None."""
        view = self._store.message_at(physical_offset)
        try:
            record = None if view is None else decode_record(view)
        except BadRecordError:
            record = None
        entry = None if record is None else self._entry_of(record)
        return None if entry is None else self._read(entry)

    def describe(self, pending: Pending, detailed: bool = False) -> DelayedMessage:
        """Return a message in the form used in answers."""
        record, properties = pending.record, pending.properties
        return DelayedMessage(
            physical_offset=record.physical_offset,
            due_timestamp=pending.due_ms,
            is_delay=pending.is_delay,
            level=pending.entry.level,
            topic=pending.topic,
            queue_id=int(properties.get(REAL_QID, 0)),
            msg_id=pending.msg_id,
            offset_msg_id=encode_message_id(record.store_host, record.physical_offset),
            store_timestamp=record.store_timestamp_ms,
            born_timestamp=record.born_timestamp_ms,
            body_size=len(record.body),
            reconsume_times=record.reconsume_times,
            keys=properties.get(KEYS),
            tags=properties.get(TAGS),
            properties=properties if detailed else None,
            body=base64.b64encode(record.body).decode() if detailed else None,
        )

    # --- entries ----------------------------------------------------------------------------------------------------

    def _entries(self, wanted: Wanted, cursor: Place | None) -> Iterator[Entry]:
        """Yield entries after `cursor` that may match, by place."""
        # A delay counts from the store time, which may be some ms later than the time from which its slot was computed.
        begin_ms = max(wanted.begin_ms - 2 * self._precision_ms, 0)
        if cursor is not None:
            begin_ms = max(begin_ms, cursor.out_ms)
        units = self._timers.pending(begin_ms, wanted.end_ms, wanted.topic)
        rows: list[Iterable[Entry]] = [(Entry(Place(unit.out_ms, unit.physical_offset), 0, -1, -1) for unit in units)]
        rows += [self._level_entries(level, begin_ms) for level in self._levels()]
        for entry in heapq.merge(*rows):
            if entry.place.out_ms >= wanted.end_ms:
                return
            if cursor is None or entry.place > cursor:
                yield entry

    def _levels(self) -> list[int]:
        return sorted(self._schedule.progress())

    def _level_entries(self, level: int, begin_ms: int) -> Iterator[Entry]:
        for first, physical_offsets, dues in self._level_rows(level):
            for row in np.flatnonzero(dues > begin_ms).tolist():
                due_ms = int(dues[row])
                place = Place(slot_time_ms(due_ms, _LEVEL_PRECISION_MS), int(physical_offsets[row]))
                if place.out_ms >= begin_ms:
                    yield Entry(place, level, first + row, due_ms)

    def _level_rows(self, level: int) -> Iterator[tuple[int, Numbers, Numbers]]:
        """Yield a level's queue in parts: first queue offset, physical offsets, due times (0: not pending)."""
        queue = self._store.queue(SCHEDULE_TOPIC, level - 1)
        next_offset, _ = self._schedule.progress().get(level, (0, 0))
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

    def _entry_of(self, record: Record) -> Entry | None:
        """Return the entry of a record's message if it is pending."""
        physical_offset = record.physical_offset
        if record.topic == SCHEDULE_TOPIC.encode():
            level = record.queue_id + 1
            next_offset, _ = self._schedule.progress().get(level, (0, 0))
            queue = self._store.queue(SCHEDULE_TOPIC, record.queue_id)
            unit = None if queue is None or record.queue_offset < next_offset else queue.unit_at(record.queue_offset)
            if unit is None or unit[0] != physical_offset or self._cancelled.end_of(level, record.queue_offset) is not None:
                return None
            due_ms = self._store.reader.tags_code(SCHEDULE_TOPIC, record.queue_id, unit[2], physical_offset)
            return Entry(
                Place(slot_time_ms(due_ms, _LEVEL_PRECISION_MS), physical_offset), level, record.queue_offset, due_ms
            )
        out_text = decode_properties(record.properties).get(TIMER_OUT_MS, "")
        if record.topic != TIMER_TOPIC.encode() or not out_text.isdigit():
            return None
        out_ms = int(out_text)
        for unit_found in self._timers.pending(out_ms, out_ms + 1):
            if unit_found.physical_offset == physical_offset:
                return Entry(Place(out_ms, physical_offset), 0, -1, -1)
        return None

    # --- records ----------------------------------------------------------------------------------------------------

    def _read(self, entry: Entry) -> Pending | None:
        view = self._store.message_at(entry.place.physical_offset)
        if view is None:
            return None
        try:
            record = decode_record(view)
            properties = decode_properties(record.properties)
            if entry.level:
                due_ms, is_delay = entry.due_ms, True
            else:
                due_ms, is_delay = due_of(properties, record.store_timestamp_ms, self._precision_ms)
        except ValueError:  # includes BadRecordError
            return None
        if is_delay:
            due_ms += self._shift_ms(record.physical_offset, record.store_timestamp_ms)
        return Pending(entry, record, properties, due_ms, is_delay)

    def _is_wanted(self, pending: Pending, wanted: Wanted) -> bool:
        properties = pending.properties
        if not wanted.begin_ms <= pending.due_ms < wanted.end_ms or TIMER_DEL_UNIQKEY in properties:
            return False
        # The broker's own records of popped messages are only listed if their topic is given.
        is_own = wanted.topic is None and pending.topic.startswith(REVIVE_TOPIC_PREFIX)
        if is_own or (wanted.topic is not None and pending.topic != wanted.topic):
            return False
        if wanted.key is not None and wanted.key not in properties.get(KEYS, "").split():
            return False
        if wanted.msg_id is None or wanted.msg_id == properties.get(UNIQ_KEY):
            return True
        return wanted.msg_id == encode_message_id(pending.record.store_host, pending.record.physical_offset)

    def _indexed(self, wanted: Wanted) -> list[Pending] | None:
        """Return the pending messages that the index has for a key or id; None if the whole list must be read."""
        index_key = wanted.msg_id or wanted.key
        if index_key is None or self._store.index is None:
            return None
        physical_offsets: set[int] = set()
        limit = self._store.config.max_msgs_num_batch
        for topic in (TIMER_TOPIC, SCHEDULE_TOPIC):
            views = self._store.query_message(topic, index_key, limit, 0, 1 << 62).views
            if len(views) >= limit:
                return None  # the index may have more
            physical_offsets.update(decode_record(view).physical_offset for view in views)
        if wanted.msg_id is not None:
            with contextlib.suppress(ValueError):  # a unique key is not an offset id
                physical_offsets.add(decode_message_id(wanted.msg_id)[1])
        return [pending for pending in map(self.find, sorted(physical_offsets)) if pending is not None]


def _counts(hours: dict[int, int], cancelled: int = 0) -> DelayedCounts:
    return DelayedCounts({str(hour_ms): hours[hour_ms] for hour_ms in sorted(hours)}, cancelled)


def _by_due(pending: Pending) -> tuple[int, int]:
    return pending.due_ms, pending.record.physical_offset

"""Pending messages: those in slots of the timer wheel and those in the queues of the delay levels, as one sorted list.

The *place* of an entry is its position in this list: the second in which it is due, as in TIMER_OUT_MS, then its physical
offset. Slots and queues are already sorted in this order, so nothing has to be collected first: an answer ends after some
entries, its cursor is the place of the last one, and the next answer continues after it.

A query for a key or id need not read the whole list: the index has both, under the topic in which the record is stored.
"""

import base64
import contextlib
import heapq
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from pocketmq.broker.context import Context
from pocketmq.broker.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from pocketmq.broker.put.delivery_time import TIMER_DEL_UNIQKEY, due_of
from pocketmq.broker.put.message_id import decode_message_id, encode_message_id
from pocketmq.remoting.delay_bodies import DelayedCounts, DelayedMessage
from pocketmq.store.format.message import SCHEDULE_TOPIC
from pocketmq.store.format.properties import KEYS, REAL_QID, REAL_TOPIC, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record
from pocketmq.store.timer.timer_log import Numbers

SCANNED_MAX: Final = 500
"""Limit of entries read for one answer, because all other requests wait for it."""
COUNTED_MAX: Final = 5000
PAGE_MAX: Final = 256
DETAILED_MAX: Final = 8
"""Limits of messages in one answer; the second if bodies are included, which may be large."""
HOUR_MS: Final = 3_600_000
Parts = Iterator[tuple[Numbers, Numbers | None]]


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


class PendingSource(Protocol):
    """A place where messages are pending. No message may be entered or delivered while entries are being read."""

    def entries(self, begin_ms: int, end_ms: int, topic: str | None) -> Iterator[Entry]:
        """Yield the messages with out_ms in [begin_ms, end_ms) by place; with `topic`, others may be left out."""

    def counts_by_hour(self) -> dict[int, tuple[int, int]]:
        """Return (messages, cancelling units) by hour of the due time (epoch ms of its beginning)."""

    def parts(self) -> Parts:
        """Yield due times, and for messages with a delivery time of their own the hash codes of their topics.

        Between two parts the loop may run; a message that moves meanwhile may be seen twice or not at all.
        """

    def find(self, record: Record) -> Entry | None:
        """Return the entry of a record's message if it is pending here."""


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

    def __init__(self, context: Context, sources: Sequence[PendingSource]) -> None:
        self.sources = sources
        self._store = context.store
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
                hour_ms = pending.due_ms // HOUR_MS * HOUR_MS
                hours[hour_ms] = hours.get(hour_ms, 0) + 1
        return _counts(hours), None

    def _count_all(self) -> DelayedCounts:
        hours: dict[int, int] = {}
        cancelled = 0
        for source in self.sources:
            for hour_ms, (messages, marks) in source.counts_by_hour().items():
                hours[hour_ms] = hours.get(hour_ms, 0) + messages
                cancelled += marks
        return _counts(hours, cancelled)

    def find(self, physical_offset: int) -> Pending | None:
        """Return the pending message whose record is at `physical_offset`, or None."""
        view = self._store.message_at(physical_offset)
        if view is None:
            return None
        try:
            record = decode_record(view)
        except BadRecordError:
            return None
        entries = (source.find(record) for source in self.sources)
        entry = next((entry for entry in entries if entry is not None), None)
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
        for entry in heapq.merge(*(source.entries(begin_ms, wanted.end_ms, wanted.topic) for source in self.sources)):
            if entry.place.out_ms >= wanted.end_ms:
                return
            if cursor is None or entry.place > cursor:
                yield entry

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


def add_by_hour(counts: dict[int, tuple[int, int]], dues_ms: Numbers, *, are_cancelling: bool = False) -> None:
    """Add due times to (messages, cancelling units) by hour."""
    for number, added in zip(*(found.tolist() for found in np.unique(dues_ms // HOUR_MS, return_counts=True)), strict=True):
        messages, cancelling = counts.get(number * HOUR_MS, (0, 0))
        counts[number * HOUR_MS] = (messages, cancelling + added) if are_cancelling else (messages + added, cancelling)


def _counts(hours: dict[int, int], cancelled: int = 0) -> DelayedCounts:
    return DelayedCounts({str(hour_ms): hours[hour_ms] for hour_ms in sorted(hours)}, cancelled)


def _by_due(pending: Pending) -> tuple[int, int]:
    return pending.due_ms, pending.record.physical_offset

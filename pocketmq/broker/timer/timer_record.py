"""The fields of a timer topic's record that timers need, and the copy of a record that is copied forward."""

from typing import Final, NamedTuple

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.delivery_time import (
    ASKED,
    PMQ_CANCELS,
    PMQ_COPY_OF,
    PMQ_DUE_MS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    due_of,
)
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import REAL_TOPIC, UNIQ_KEY, decode_properties, encode_properties, mark_of, value_of
from pocketmq.store.format.record import Record, bounds, entries_of, store_timestamp_of

_FAR_MS: Final = 1 << 62
"""Limit of times in records of another broker, so that sums fit 64 bits."""
NOT_PLAIN: Final = (PMQ_DUE_MS, PMQ_COPY_OF, TIMER_ROLL_TIMES, TIMER_DEL_UNIQKEY)
"""A record without these properties is *plain*: its due time is the original one, and it cancels nothing."""
DIGITS_MAX: Final = 15  # times 1000 still fits 64 bits
_OUT_MARK: Final = mark_of(TIMER_OUT_MS)
_ASKED_MARKS: Final = tuple((mark_of(name), unit_ms) for name, unit_ms in ASKED)
_NOT_PLAIN_MARKS: Final = tuple(mark_of(name) for name in NOT_PLAIN)


class TimerRecord(NamedTuple):
    """Content of a record. `size` is that of the whole record, `out_ms` is TIMER_OUT_MS, `due_ms` the nominal due time >
    out_ms."""

    size: int
    out_ms: int
    due_ms: int
    is_relative: bool
    store_timestamp_ms: int
    topic: str
    unique_key: str
    cancels: str | None
    """Key of the messages of its slot that it cancels (`cancel_key`); such a record is not a message itself."""
    copy_of: int | None

    def keys(self, physical_offset: int) -> set[str]:
        """Return the keys that cancel this record: those of 5.5.0, 5.3 and this broker, and that of a later copy."""
        topic, unique_key = self.topic, self.unique_key
        at = _place_name(physical_offset if self.copy_of is None else self.copy_of)
        names = (at, unique_key, f"{topic}+{unique_key}") if unique_key else (at,)
        return {at, superseded_key(physical_offset), *(_in_topic(topic, name) for name in names)}


def cancel_key(properties: dict[str, str]) -> str | None:
    """Return the key of the messages that a record cancels; None if it is a message itself.

    TIMER_DEL_UNIQKEY names messages of the record's own topic only: every client that may send to the topic can set it, and
    several topics may contain the same unique key, because clients choose it. A record of this broker's commands cancels
    one message by its place, and has the unique key for other brokers. If one of them stored the record again, the place
    does not count.
    """
    name = properties.get(TIMER_DEL_UNIQKEY)
    if name is None:
        return None
    place = properties.get(PMQ_CANCELS, "")
    if place.isdecimal() and (TIMER_ROLL_TIMES not in properties or PMQ_COPY_OF in properties):
        return _place_name(int(place))
    return _in_topic(properties.get(REAL_TOPIC, ""), name)


def _place_name(physical_offset: int) -> str:
    return f"@{physical_offset}"


def _in_topic(topic: str, name: str) -> str:
    return f"{topic}/{name}"  # no topic contains a slash


def superseded_key(physical_offset: int) -> str:
    """Return the key by which the copy of a record cancels that record."""
    return f"#{physical_offset}"


def read_timer_record(view: memoryview, precision_ms: int, position: int = 0) -> TimerRecord:
    """Decode the record at `position`. Raises ValueError if it is not a record of the timer topic."""
    size, _, topic_start, topic_size = bounds(view, position)
    properties = decode_properties(view[topic_start + topic_size + 2 : position + size])
    return timer_record(properties, size, store_timestamp_of(view, position), precision_ms)


def timer_record(properties: dict[str, str], size: int, store_timestamp_ms: int, precision_ms: int) -> TimerRecord:
    """Build the TimerRecord of a record with these properties. Raises ValueError if it is not of the timer topic."""
    due_ms, is_relative = due_of(properties, store_timestamp_ms, precision_ms)
    get = properties.get
    out, copy_of = get(TIMER_OUT_MS), get(PMQ_COPY_OF)
    out_ms = min(max(due_ms - precision_ms if out is None else int(out), 0), _FAR_MS)
    return TimerRecord(
        size,
        out_ms,
        min(due_ms, _FAR_MS + 1) if due_ms > out_ms else out_ms + 1,
        is_relative,
        store_timestamp_ms,
        get(REAL_TOPIC, ""),
        get(UNIQ_KEY, ""),
        cancel_key(properties),
        None if copy_of is None else int(copy_of),
    )


def plain_times(view: memoryview, position: int) -> tuple[int, int, bool, int] | None:
    """Return (out_ms, due_ms, is_relative, store_timestamp_ms) of the plain record at `position`, as in `TimerRecord`.

    None for any other record. Faster than `read_timer_record`.
    """
    entries = entries_of(view, position)
    for mark in _NOT_PLAIN_MARKS:
        if mark in entries:
            return None
    out = value_of(entries, _OUT_MARK)
    for mark, unit_ms in _ASKED_MARKS:
        if mark not in entries:
            continue
        asked = value_of(entries, mark)
        if not (out and asked and out.isdecimal() and asked.isdecimal() and max(len(out), len(asked)) <= DIGITS_MAX):
            return None
        out_ms, due_ms, store_timestamp_ms = int(out), int(asked), store_timestamp_of(view, position)
        if unit_ms:
            due_ms = store_timestamp_ms + due_ms * unit_ms
        return out_ms, due_ms if due_ms > out_ms else out_ms + 1, unit_ms > 0, store_timestamp_ms
    return None


def carried_copy(record: Record, due_ms: int) -> Message:
    """Return a copy of the message for the timer topic, with an absolute due time, as its record is about to be deleted.

    TIMER_ROLL_TIMES marks it for an Apache broker as a rolled message. Raises ValueError if the properties become too large.
    """
    properties = decode_properties(record.properties)
    first = properties.get(PMQ_COPY_OF, str(record.physical_offset))
    rolled = properties.get(TIMER_ROLL_TIMES, "")
    roll_times = str(int(rolled) + 1) if rolled.isdecimal() else "1"
    properties |= {PMQ_COPY_OF: first, PMQ_DUE_MS: str(due_ms), TIMER_ROLL_TIMES: roll_times}
    stored = encode_properties(properties).encode()
    return Message(
        TIMER_TOPIC,
        0,
        record.body,
        record.born_host,
        record.store_host,
        record.flag,
        record.sys_flag,
        record.born_timestamp_ms,
        record.reconsume_times,
        record.prepared_transaction_offset,
        properties,
        stored,
    )

"""Records of delayed messages: the fields that timers need, and the copies made of a record.

A copy is made directly from the record's bytes: the body is a view of the log until the store joins the copy, and the stored
property string is the record's own with the delivery's properties appended. The string is only encoded anew if it is unusual
(see `properties`) or contains properties that apply only to the original record.
"""

import logging
from collections.abc import Iterator, Set
from functools import lru_cache
from typing import Final, NamedTuple

from pocketmq.broker.delay.cancel import cancel_key, keys_of
from pocketmq.broker.names import TIMER_TOPIC, TRANS_HALF_TOPIC, WAIT
from pocketmq.broker.put.delivery_time import (
    ASKED,
    PMQ_COPY_OF,
    PMQ_DUE_MS,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    due_of,
)
from pocketmq.broker.put.put import STALE_IN_COPIES
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_UNIT_STRUCT,
    HOLE_TAGS_CODE,
    RECORD_FIXED_STRUCTS,
    SYS_FLAG_POSITION,
)
from pocketmq.store.format.message import Message, PutResult, folder_problem
from pocketmq.store.format.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    decode_properties,
    encode_properties,
    is_odd,
    mark_of,
    text_of,
    value_of,
)
from pocketmq.store.format.record import (
    HOST_FLAGS,
    PROPERTIES_SIZE_MAX,
    BadRecordError,
    Record,
    bounds,
    entries_of,
    store_timestamp_of,
)
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = logging.getLogger("broker")

OWN_PROPERTY: Final = "PMQ_"
"""Prefix of PocketMQ's own property names; copies do not have them."""
NAME_SIZE_MAX: Final = 255
"""Limit of the characters in a topic name; no record holds more."""
_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
QUEUE_ID_MAX: Final = 2**31 - 1
_FAR_MS: Final = 1 << 62
"""Limit of times in records of another broker, so that sums fit 64 bits."""
_DIGITS_MAX: Final = 15  # times 1000 still fits 64 bits
_OUT_MARK: Final = mark_of(TIMER_OUT_MS)
_TOPIC_MARK: Final = mark_of(REAL_TOPIC)
_ASKED_MARKS: Final = tuple((mark_of(name), unit_ms) for name, unit_ms in ASKED)
_OWN_MARK: Final = mark_of(OWN_PROPERTY)[:-1]
_ROLLED_MARK, _CANCELLING_MARK = mark_of(TIMER_ROLL_TIMES), mark_of(TIMER_DEL_UNIQKEY)
_KNOWN_MAX: Final = 4096
_UNITS_READ: Final = 1024


def record_at(store: MessageStore, physical_offset: int) -> tuple[memoryview, int]:
    """Return the file's view with the record, and the position in it. Raises BadRecordError if the file is gone."""
    file = store.commit_log.mapped_files.file_at(physical_offset)
    if file is None:
        raise BadRecordError("the record does not exist")
    return file.view, physical_offset - file.start_offset


def records_from(
    store: MessageStore, queue: ConsumeQueue, queue_offset: int
) -> Iterator[tuple[int, int, memoryview | None]]:
    """Yield (queue offset, physical offset, record) of a queue from `queue_offset` on; None for a record that is gone."""
    while units := queue.units(queue_offset, _UNITS_READ):
        for physical_offset, _, tags_code in CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(units):
            view = None if tags_code == HOLE_TAGS_CODE else store.message_at(physical_offset)
            yield queue_offset, physical_offset, view
            queue_offset += 1


# --- fields of timers -----------------------------------------------------------------------------------------------


class TimerRecord(NamedTuple):
    """Content of a record of the timer topic. `out_ms` is TIMER_OUT_MS, `due_ms` the nominal due time > out_ms."""

    out_ms: int
    due_ms: int
    is_relative: bool
    store_timestamp_ms: int
    topic_hash: int
    """Java's hash code of the real topic."""
    cancels: str | None = None
    """Key of the messages of its slot that it cancels (`cancel_key`); such a record is not a message itself."""
    copy_of: int | None = None


def properties_at(view: memoryview, position: int) -> dict[str, str]:
    """Return the properties of the record at `position`. Raises BadRecordError if no record begins there."""
    size, _, topic_start, topic_size = bounds(view, position)
    return decode_properties(view[topic_start + topic_size + 2 : position + size])


def read_timer_record(view: memoryview, precision_ms: int, position: int = 0) -> TimerRecord:
    """Read the record at `position`. Raises ValueError if it is not a record of the timer topic."""
    record = _plain_record(view, position)
    if record is not None:
        return record
    return timer_record(properties_at(view, position), store_timestamp_of(view, position), precision_ms)


def timer_record(properties: dict[str, str], store_timestamp_ms: int, precision_ms: int) -> TimerRecord:
    """Build the TimerRecord of a record with these properties. Raises ValueError if it is not of the timer topic."""
    due_ms, is_relative = due_of(properties, store_timestamp_ms, precision_ms)
    out, copy_of = properties.get(TIMER_OUT_MS), properties.get(PMQ_COPY_OF)
    out_ms = min(max(due_ms - precision_ms if out is None else int(out), 0), _FAR_MS)
    return TimerRecord(
        out_ms,
        min(due_ms, _FAR_MS + 1) if due_ms > out_ms else out_ms + 1,
        is_relative,
        store_timestamp_ms,
        _topic_hash(properties.get(REAL_TOPIC, "")),
        cancel_key(properties),
        None if copy_of is None else int(copy_of),
    )


def _plain_record(view: memoryview, position: int) -> TimerRecord | None:
    """Return what `timer_record` would, but faster; None for a record that is not plain.

    A record without properties of PocketMQ's own, rolls and a key to cancel is *plain*: its due time is the original one.
    """
    entries = entries_of(view, position)
    if _OWN_MARK in entries or _ROLLED_MARK in entries or _CANCELLING_MARK in entries:
        return None
    out = value_of(entries, _OUT_MARK)
    for mark, unit_ms in _ASKED_MARKS:
        if mark not in entries:
            continue
        asked = value_of(entries, mark)
        if not (out and asked and out.isdecimal() and asked.isdecimal()):
            return None
        if len(out) > _DIGITS_MAX or len(asked) > _DIGITS_MAX:
            return None
        out_ms, due_ms, store_timestamp_ms = int(out), int(asked), store_timestamp_of(view, position)
        if unit_ms:
            due_ms = store_timestamp_ms + due_ms * unit_ms
        topic_hash = _entry_hash(value_of(entries, _TOPIC_MARK) or "")
        return TimerRecord(out_ms, due_ms if due_ms > out_ms else out_ms + 1, unit_ms > 0, store_timestamp_ms, topic_hash)
    return None


_topic_hash = lru_cache(4096)(java_hash)


@lru_cache(4096)
def _entry_hash(topic: str) -> int:
    return java_hash(text_of(topic))


class TimerReader:
    """Reader of the timer topic's records. An unreadable record is logged and skipped."""

    def __init__(self, store: MessageStore, precision_ms: int) -> None:
        self._store = store
        self._files = store.commit_log.mapped_files
        self._precision_ms = precision_ms
        # Records by physical offset that need not be read.
        self._known: dict[int, TimerRecord] = {}

    def remember(self, properties: dict[str, str], result: PutResult) -> None:
        """Keep the content of a record from the properties with which it was put, so that the record need not be read."""
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[result.physical_offset] = timer_record(properties, result.store_timestamp_ms, self._precision_ms)

    def read(self, physical_offset: int) -> TimerRecord | None:
        """Return the record at a physical offset; None if it is gone or not of the timer topic."""
        if self._known and (known := self._known.pop(physical_offset, None)) is not None:
            return known
        file = self._files.file_at(physical_offset)
        try:
            if file is None:
                raise BadRecordError("there is no such record")
            return read_timer_record(file.view[: file.wrote], self._precision_ms, physical_offset - file.start_offset)
        except ValueError as error:
            if physical_offset >= self._store.min_physical_offset:
                log.error("the timer message at physical offset %d is lost: %s", physical_offset, error)
            return None

    def is_cancelled(self, physical_offset: int, keys: Set[str]) -> bool:
        """Return whether one of `keys` cancels the record, or it is gone."""
        if not keys:
            return False
        try:
            properties = properties_at(*record_at(self._store, physical_offset))
            return not keys.isdisjoint(keys_of(properties, physical_offset))
        except ValueError:
            return True


# --- copies ---------------------------------------------------------------------------------------------------------


def delivered_message(view: memoryview, position: int = 0) -> Message:
    """Return the copy of the record at `position`; its body is a part of the view.

    Raises ValueError if there is no record, or if it has no valid real topic and queue.
    """
    size, body_start, topic_start, topic_size = bounds(view, position)
    fixed = RECORD_FIXED_STRUCTS[view[position + SYS_FLAG_POSITION + 3] & HOST_FLAGS]
    values = fixed.unpack_from(view, position)
    stored = bytes(view[topic_start + topic_size + 2 : position + size])
    text = str(stored, "utf-8", "replace")
    properties = decode_properties(text)
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QID)
    if not topic or queue_id is None:
        raise ValueError(f"the record has no {REAL_TOPIC} or no {REAL_QID}")
    problem = _topic_problem(topic) if len(topic) <= NAME_SIZE_MAX else f"a topic cannot have {len(topic)} characters"
    number = int(queue_id)
    if problem is not None or not 0 <= number <= QUEUE_ID_MAX:
        raise ValueError(problem or f"{REAL_QID}={queue_id} is not a queue id")
    for name in STALE_IN_COPIES:
        properties.pop(name, None)
    if 0 in stored or is_odd(text, properties):  # written by another broker, which stores strings unchanged
        stored = encode_properties(properties).encode()
    properties.pop(DELAY, None)
    properties[WAIT] = "false"
    return Message(
        topic,
        number,
        view[body_start : body_start + values[14]],
        values[9],
        values[11],
        values[4],
        values[7],
        values[8],
        values[12],
        values[13],
        properties,
        stored,
    )


@lru_cache(4096)
def _topic_problem(topic: str) -> str | None:
    return f"messages cannot be delivered to {topic}" if topic == TRANS_HALF_TOPIC else folder_problem(topic)


def due_copy(view: memoryview, position: int, now_ms: int, precision_ms: int) -> Message:
    """Return the copy of a timer message, as made by TimerMessageStore.convertMessage.

    Its properties have the times when it entered and left its slot. Raises ValueError as `delivered_message`.
    """
    message = delivered_message(view, position)
    stored, stored_ms = message.properties_bytes, store_timestamp_of(view, position)
    entered_ms = stored_ms - stored_ms % precision_ms
    if b"PMQ_" in stored or b"QUEUE_MS\x01" in stored:
        properties = decode_properties(stored)
        kept = {name: value for name, value in properties.items() if not name.startswith(OWN_PROPERTY)}
        kept |= {_ENQUEUE_MS: str(entered_ms), DEQUEUE_MS: str(now_ms)}
        added = encode_properties(kept).encode()
    else:
        separator = b"" if stored.endswith(b"\x02") else b"\x02"
        added = b"%b%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d" % (stored, separator, entered_ms, now_ms)
    if len(added) <= PROPERTIES_SIZE_MAX:
        message.properties_bytes = added
    return message


def carried_copy(record: Record, due_ms: int) -> Message:
    """Return a copy of the message for the timer topic, with an absolute due time, as its record is about to be deleted.

    TIMER_ROLL_TIMES marks it for an Apache broker as a rolled message. Raises ValueError if the properties become too large.
    """
    properties = decode_properties(record.properties)
    first = properties.get(PMQ_COPY_OF, str(record.physical_offset))
    rolled = properties.get(TIMER_ROLL_TIMES, "")
    roll_times = str(int(rolled) + 1) if rolled.isdecimal() else "1"
    properties |= {PMQ_COPY_OF: first, PMQ_DUE_MS: str(due_ms), TIMER_ROLL_TIMES: roll_times}
    message = record.copy_to(TIMER_TOPIC, 0, record.store_host, properties)
    message.prepared_transaction_offset = record.prepared_transaction_offset
    return message

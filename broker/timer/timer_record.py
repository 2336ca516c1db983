"""What the timers need to know of a record in the timer topic, and the copy of it that is carried forward."""

from typing import Final, NamedTuple

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.put.delivery_time import (
    ASKED,
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
"""Whatever another broker's record says, with what is added to it it is a number of 64 bits."""
NOT_PLAIN: Final = (PMQ_DUE_MS, PMQ_COPY_OF, TIMER_ROLL_TIMES, TIMER_DEL_UNIQKEY)
"""A record without them is *plain*: it waits for the first time, and cancels nothing."""
DIGITS_MAX: Final = 15  # times 1000 it is still a number of 64 bits
_OUT_MARK: Final = mark_of(TIMER_OUT_MS)
_ASKED_MARKS: Final = tuple((mark_of(name), unit_ms) for name, unit_ms in ASKED)
_NOT_PLAIN_MARKS: Final = tuple(mark_of(name) for name in NOT_PLAIN)


class TimerRecord(NamedTuple):
    """`size` is the whole record's; `out_ms` is TIMER_OUT_MS, `due_ms` the nominal due time, always behind it."""

    size: int
    out_ms: int
    due_ms: int
    is_relative: bool
    store_timestamp_ms: int
    topic: str
    unique_key: str
    cancels: str | None
    """What messages of its slot it cancels; it is none itself."""
    copy_of: int | None

    def keys(self, physical_offset: int) -> set[str]:
        """By which it may be cancelled: as 5.5.0's, as 5.3's and as our own messages name it; and by its later copy."""
        first = physical_offset if self.copy_of is None else self.copy_of
        return {self.unique_key, f"{self.topic}+{self.unique_key}", f"@{first}", superseded_key(physical_offset)}


def superseded_key(physical_offset: int) -> str:
    """The key by which a copy that was made of a record cancels that."""
    return f"#{physical_offset}"


def read_timer_record(view: memoryview, precision_ms: int, position: int = 0) -> TimerRecord:
    """What the record at `position` says. Raises ValueError when there is none of the timer topic's."""
    size, _, topic_start, topic_size = bounds(view, position)
    properties = decode_properties(view[topic_start + topic_size + 2 : position + size])
    return timer_record(properties, size, store_timestamp_of(view, position), precision_ms)


def timer_record(properties: dict[str, str], size: int, store_timestamp_ms: int, precision_ms: int) -> TimerRecord:
    """What a record with these properties says. Raises ValueError when it is none of the timer topic's."""
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
        get(TIMER_DEL_UNIQKEY),
        None if copy_of is None else int(copy_of),
    )


def plain_times(view: memoryview, position: int) -> tuple[int, int, bool, int] | None:
    """(out_ms, due_ms, is_relative, store_timestamp_ms) of the plain record at `position`, as in `TimerRecord`.

    None for any other record. Cheaper than `read_timer_record`.
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
    """The same message once more for the timer topic, due then: its record is about to be deleted.

    TIMER_ROLL_TIMES tells an Apache broker what it tells of its own. Raises ValueError when there is no room for properties.
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

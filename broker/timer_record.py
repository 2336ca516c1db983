"""What the timers need to know of a record in the timer topic, and the copy of it that is delivered."""

from typing import Final, NamedTuple

from broker.delivery_time import PMQ_DUE_MS, TIMER_DEL_UNIQKEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, TIMER_TOPIC, due_of
from broker.schedule import delivered_message
from store.message import Message
from store.properties import REAL_TOPIC, UNIQ_KEY, decode_properties, encode_properties
from store.record import PROPERTIES_SIZE_MAX, Record, decode_record

OWN_PROPERTY: Final = "PMQ_"
"""How the names of properties begin that only we know; no copy shows them."""
PMQ_COPY_OF: Final = "PMQ_COPY_OF"
"""Own: physical offset of the first record of a message that was copied forward."""
_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"


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


def read_timer_record(view: memoryview, precision_ms: int) -> TimerRecord:
    """What a whole record says. Raises ValueError when it is none of the timer topic's."""
    return timer_record(decode_record(view), precision_ms)


def timer_record(record: Record, precision_ms: int) -> TimerRecord:
    """As `read_timer_record`."""
    properties = decode_properties(record.properties)
    due_ms, is_relative = due_of(record, precision_ms, properties)
    out_ms = int(properties[TIMER_OUT_MS]) if TIMER_OUT_MS in properties else due_ms - precision_ms
    copy_of = properties.get(PMQ_COPY_OF)
    return TimerRecord(
        record.total_size,
        out_ms,
        max(due_ms, out_ms + 1),
        is_relative,
        record.store_timestamp_ms,
        properties.get(REAL_TOPIC, ""),
        properties.get(UNIQ_KEY, ""),
        properties.get(TIMER_DEL_UNIQKEY),
        None if copy_of is None else int(copy_of),
    )


def due_copy(record: Record, now_ms: int, precision_ms: int) -> Message:
    """The copy that goes to the real topic, as TimerMessageStore.convertMessage makes it. Raises ValueError as there."""
    message = delivered_message(record)
    stored = message.properties_bytes
    entered_ms = record.store_timestamp_ms // precision_ms * precision_ms
    if b"PMQ_" in stored or b"QUEUE_MS\x01" in stored:
        properties = decode_properties(stored)
        kept = {name: value for name, value in properties.items() if not name.startswith(OWN_PROPERTY)}
        kept |= {_ENQUEUE_MS: str(entered_ms), _DEQUEUE_MS: str(now_ms)}
        added = encode_properties(kept).encode()
    else:
        separator = b"" if stored.endswith(b"\x02") else b"\x02"
        added = b"%b%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d" % (stored, separator, entered_ms, now_ms)
    if len(added) <= PROPERTIES_SIZE_MAX:
        message.properties_bytes = added
    return message


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

"""Copies of delayed records for their real topics.

A copy is made directly from the record's bytes: the body is a view of the log until the store joins the copy, and the stored
property string is the record's own with the delivery's properties appended. The string is only encoded anew if it is unusual
(see `properties`) or contains properties that apply only to the original record.
"""

from functools import lru_cache
from typing import Final

from pocketmq.broker.names import TRANS_HALF_TOPIC, WAIT
from pocketmq.broker.put.put import STALE_IN_COPIES
from pocketmq.store.format.layout import RECORD_FIXED_STRUCTS, SYS_FLAG_POSITION
from pocketmq.store.format.message import Message, folder_problem
from pocketmq.store.format.properties import DELAY, REAL_QID, REAL_TOPIC, decode_properties, encode_properties, is_odd
from pocketmq.store.format.record import HOST_FLAGS, PROPERTIES_SIZE_MAX, bounds, store_timestamp_of

OWN_PROPERTY: Final = "PMQ_"
"""Prefix of PocketMQ's own property names; copies do not have them."""
_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
_QUEUE_ID_MAX: Final = 2**31 - 1


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
    if problem is not None or not 0 <= number <= _QUEUE_ID_MAX:
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


NAME_SIZE_MAX: Final = 255
"""Limit of the characters in a topic name; no record holds more."""


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
        kept |= {_ENQUEUE_MS: str(entered_ms), _DEQUEUE_MS: str(now_ms)}
        added = encode_properties(kept).encode()
    else:
        separator = b"" if stored.endswith(b"\x02") else b"\x02"
        added = b"%b%bTIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d" % (stored, separator, entered_ms, now_ms)
    if len(added) <= PROPERTIES_SIZE_MAX:
        message.properties_bytes = added
    return message

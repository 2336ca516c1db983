"""Detection of timer messages that were delivered already, by their copies in the log.

The timer files of a broker tell it exactly. Those of a slave's store are copied from its master every few seconds, so when
it is started as a master, messages delivered since then would be delivered again. Their copies are in the log. A copy has
the content, the unique key and the due time of its message, and two properties of its delivery. Messages alike in all that
are delivered in their order, so each copy stands for the first of them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from pocketmq.broker.delay.records import records_from
from pocketmq.broker.put.delivery_time import TIMER_OUT_MS
from pocketmq.store.format.properties import REAL_TOPIC, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import BadRecordError, Record, decode_record
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.time_search import Boundary

WINDOW_MS: Final = 600_000
"""Time before the last record of the log within which copies are looked for: progress is copied every few seconds."""
_DELIVERED_MARK: Final = b"TIMER_DEQUEUE_MS\x01"

_Key = tuple[int, bytes, int, int, str | None, str | None]


def delivered_of(store: MessageStore, due_messages: Iterable[tuple[int, int]]) -> set[int]:
    """Return the physical offsets of those of `due_messages` that have a copy. They are (due time, physical offset)."""
    waiting: dict[str, dict[_Key, list[int]]] = defaultdict(lambda: defaultdict(list))
    begin_ms: dict[str, int] = {}
    for due_ms, physical_offset in sorted(due_messages, reverse=True):
        if (record := _decoded(store.message_at(physical_offset))) is not None:
            properties = decode_properties(record.properties)
            topic = properties.get(REAL_TOPIC, "")
            waiting[topic][_key(record, properties)].append(physical_offset)
            begin_ms[topic] = due_ms
    found: set[int] = set()
    for queue in store.queues:
        if queue.topic in waiting:
            _find_copies(store, queue, begin_ms[queue.topic], waiting[queue.topic], found)
    return found


def _find_copies(
    store: MessageStore, queue: ConsumeQueue, begin_ms: int, waiting: dict[_Key, list[int]], found: set[int]
) -> None:
    """Look for copies in a queue, among the records stored from `begin_ms` on."""
    queue_offset = store.offset_by_time(queue.topic, queue.queue_id, begin_ms, Boundary.LOWER)
    for _, physical_offset, view in records_from(store, queue, queue_offset):
        record = _decoded(view)
        if record is None or _DELIVERED_MARK not in record.properties:
            continue
        originals = waiting.get(_key(record, decode_properties(record.properties)))
        if originals and originals[-1] < physical_offset:
            found.add(originals.pop())


def _key(record: Record, properties: dict[str, str]) -> _Key:
    get = properties.get
    content = record.body_crc, record.born_host, record.born_timestamp_ms, len(record.body)
    return *content, get(UNIQ_KEY), get(TIMER_OUT_MS)


def _decoded(view: memoryview | None) -> Record | None:
    try:
        return None if view is None else decode_record(view)
    except BadRecordError:
        return None

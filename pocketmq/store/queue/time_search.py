"""Search for a queue offset by store time with a lower or an upper boundary, as RocketMQ 5.x does.

4.9.4 takes the nearest record instead: any of those with the same time, so that a reset to the time of a batch skips its
first messages, and the last record for a time after it, which is then consumed again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from enum import Enum

from pocketmq.store.queue.consume_queue import ConsumeQueue

# (physical offset, size) -> store time of the record in ms, negative if it cannot be read.
StoreTimestamp = Callable[[int, int], int]


class Boundary(Enum):
    """Java's BoundaryType."""

    LOWER = "lower"
    UPPER = "upper"


def offset_at_boundary(queue: ConsumeQueue, timestamp_ms: int, boundary: Boundary, store_timestamp: StoreTimestamp) -> int:
    """Return the queue offset for a store time.

    LOWER: the first message not older than `timestamp_ms`, or `max_offset` if all are older. UPPER: the last message not
    newer, or 0 if all are newer. 0 for an empty queue. Unreadable records count as older.
    """
    queue_offsets = range(queue.min_offset, queue.max_offset)
    if not queue_offsets:
        return 0

    def time_ms(queue_offset: int) -> int:
        unit = queue.unit_at(queue_offset)
        return -1 if unit is None else store_timestamp(unit[0], unit[1])

    if boundary is Boundary.LOWER:
        return queue_offsets.start + bisect_left(queue_offsets, timestamp_ms, key=time_ms)
    count = bisect_right(queue_offsets, timestamp_ms, key=time_ms)
    return queue_offsets.start + count - 1 if count else 0

"""GROUP_GET_FALL_SIZE and GROUP_GET_FALL_TIME: how far a group's pulls of a queue lie behind the end of the log.

Apache's broker keeps both as momentary statistics, which it only prints; here they are computed on request.
"""

from typing import Final

from pocketmq.broker.services import Services
from pocketmq.broker.stats.stats_item import ROWS
from pocketmq.store.format.record import store_timestamp_of

SIZE: Final = "GROUP_GET_FALL_SIZE"
TIME: Final = "GROUP_GET_FALL_TIME"


def lag_figures(services: Services, name: str, key: str) -> dict[str, dict[str, float]] | None:
    """Return the body of VIEW_BROKER_STATS_DATA for one of the two statistics, whose key is `queueId@topic@group`.

    `sum` is the present value: bytes of the log behind the last pulled record, or ms since it was stored. None: the group
    has pulled nothing from the queue since the start.
    """
    if name not in (SIZE, TIME):
        return None
    queue_id, _, rest = key.partition("@")
    topic, _, group = rest.partition("@")
    if not (queue_id.isascii() and queue_id.isdecimal() and len(queue_id) < 10):
        return None
    store = services.store
    pulled_to = services.offsets.pull_offsets.get((group, topic, int(queue_id)))
    queue = store.queue(topic, int(queue_id))
    unit = None if pulled_to is None or queue is None else queue.unit_at(pulled_to - 1)
    if unit is None:
        return None
    physical_offset, size, _ = unit
    if name == SIZE:
        figure = store.max_physical_offset - physical_offset - size
    else:
        record = store.message_at(physical_offset)
        if record is None:
            return None
        figure = services.clock.message_time_ms() - store_timestamp_of(record)
    return {row: {"sum": max(figure, 0), "tps": 0.0, "avgpt": 0.0} for row, _, _ in ROWS}

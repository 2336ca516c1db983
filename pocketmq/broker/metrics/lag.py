"""How far consumer groups are behind: one row for each topic and group."""

from collections.abc import Generator
from typing import NamedTuple

from pocketmq.broker.metrics.limited import Limited
from pocketmq.broker.services import Services
from pocketmq.broker.tables.consumer_offset import TOPIC_GROUP_SEPARATOR


class Lag(NamedTuple):
    """Counts of messages; store times in ms of the oldest message, -1 if there is none."""

    topic: str
    group: str
    lag: int
    ready: int
    lag_since_ms: int
    ready_since_ms: int


def reading(services: Services, limited: Limited[tuple[str, str]]) -> Generator[None, None, tuple[list[Lag], Lag | None]]:
    """Read the lag of all groups. Return the rows of groups that have their own, and the sum of all other groups, if any."""
    rows: list[Lag] = []
    lag = ready = count = 0
    keys = [key.partition(TOPIC_GROUP_SEPARATOR) for key in services.offsets.table]
    pairs = [(topic, group) for topic, _, group in keys]
    yield
    limited.keep(pairs)
    yield
    for topic, group in pairs:
        if topic not in services.topics.table:
            continue  # deleted
        is_own = limited.is_own((topic, group))
        row = _row(services, topic, group, is_own)
        if is_own:
            rows.append(row)
        else:
            lag, ready, count = lag + row.lag, ready + row.ready, count + 1
        yield
    return rows, Lag("", "", lag, ready, -1, -1) if count else None


def _row(services: Services, topic: str, group: str, with_times: bool) -> Lag:
    """Return the lag of one group."""
    store, pulled = services.store, services.offsets.pull_offsets
    queues = store.queues.queues
    lag = ready = 0
    lag_since_ms = ready_since_ms = -1
    for queue_id, consumer_offset in services.offsets.queues(group, topic).items():
        queue = queues.get((topic, queue_id))
        if queue is None or (end := queue.max_offset) <= consumer_offset:
            continue
        lag += end - consumer_offset
        next_pull = min(max(pulled.get((group, topic, queue_id), consumer_offset), consumer_offset), end)
        ready += end - next_pull
        if with_times:
            lag_since_ms = _earlier(lag_since_ms, store.store_timestamp_at(topic, queue_id, consumer_offset))
            if next_pull < end:
                ready_since_ms = _earlier(ready_since_ms, store.store_timestamp_at(topic, queue_id, next_pull))
    return Lag(topic, group, lag, ready, lag_since_ms, ready_since_ms)


def _earlier(one_ms: int, other_ms: int) -> int:
    return max(one_ms, other_ms) if one_ms < 0 or other_ms < 0 else min(one_ms, other_ms)

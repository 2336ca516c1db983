"""Timer figures for 5.x's tools and slaves: the checkpoint, counts by topic, and keys of GET_BROKER_RUNTIME_INFO."""

from collections.abc import Mapping
from typing import Final

from pocketmq.broker.names import TIMER_TOPIC
from pocketmq.broker.services import Services
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import TIMER_CHECKPOINT_SIZE, TIMER_CHECKPOINT_STRUCT

DEQUEUE_NUMS: Final = "TIMER_DEQUEUE_NUMS"
"""PocketMQ's own statistic of delivered timer messages, with the timer topic as key."""
_PUT_NUMS: Final = "TOPIC_PUT_NUMS"


def timer_checkpoint(services: Services) -> bytes:
    """Return the content of `config/timercheck`, at most a second old; zeros without the file."""
    store = services.store
    try:
        return store.disk.read_range(store.config.store_path("config/timercheck"), 0, TIMER_CHECKPOINT_SIZE)
    except OSError:
        return bytes(TIMER_CHECKPOINT_SIZE)


def timer_metrics(services: Services) -> dict[str, object]:
    """Return 5.x's TimerMetrics: the number of waiting messages by topic."""
    now_ms = services.clock.message_time_ms()
    counts = services.timer_messages.waiting.counts_by_topic_hash() if services.delivery_times.is_enabled else {}
    return {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": now_ms},
        "timingCount": {
            topic: {"count": counts[topic_hash], "timeStamp": now_ms}
            for topic in services.topics.table
            if (topic_hash := java_hash(topic)) in counts
        },
    }


def timer_lines(services: Services) -> Mapping[str, str]:
    """Return 5.x's timer keys; rates per second are those of the last minute."""
    if not services.delivery_times.is_enabled:
        return dict.fromkeys(("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), "0") | dict.fromkeys(
            ("timerEnqueueTps", "timerDequeueTps"), "0.0"
        )
    read_time_ms, _, queue_offset, *_ = TIMER_CHECKPOINT_STRUCT.unpack(timer_checkpoint(services))
    behind_ms = services.clock.message_time_ms() - read_time_ms if read_time_ms else 0
    entered, delivered = (services.stats.samples.item(name, TIMER_TOPIC) for name in (_PUT_NUMS, DEQUEUE_NUMS))
    return {
        "timerReadBehind": str(max(behind_ms, 0) // 1000),
        "timerOffsetBehind": str(max(services.store.max_offset(TIMER_TOPIC, 0) - queue_offset, 0)),
        "timerCongestNum": str(services.timer_messages.count()),
        "timerEnqueueTps": f"{entered.minute_tps() if entered is not None else 0.0:.1f}",
        "timerDequeueTps": f"{delivered.minute_tps() if delivered is not None else 0.0:.1f}",
    }

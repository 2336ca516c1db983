"""BrokerSource: the metrics that a broker exports to Prometheus.

Small figures become families at once, on the event loop. Those that grow with topics and groups are copied there in small
pieces; the thread of the HTTP server makes families of them.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pocketmq.broker.metrics import names
from pocketmq.broker.metrics.clients import consumer_counts
from pocketmq.broker.metrics.lag import Lag, reading
from pocketmq.broker.metrics.limited import Limited, OtherTotals
from pocketmq.broker.metrics.node_families import STORAGE, node_families
from pocketmq.broker.metrics.pending import BOUNDS_S, HOURS, Pending, counting
from pocketmq.broker.names import DLQ_PREFIX, RETRY_PREFIX, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from pocketmq.broker.stats.counts import Copied
from pocketmq.broker.stats.samples import NUMS, SIZE
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.metrics.family import OTHER, Family, Node, Row
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.message import SCHEDULE_TOPIC, QueueKey

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker

_MESSAGE_TYPES: Final = {
    SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay", TRANS_HALF_TOPIC: "transaction", TRANS_OP_HALF_TOPIC: "transaction",
}  # fmt: skip
"""Other topics may contain messages of all types, which are not counted by type."""
_ANY_TYPE: Final = "unspecified"
_ROWS_AT_ONCE: Final = 4000
_PAUSE_S: Final = 0.0005

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass
class Collected:
    """Figures copied on the event loop."""

    now_ms: int
    small: list[Family]
    puts: Copied[QueueKey]
    gets: Copied[tuple[str, str, int]]
    lags: list[Lag]
    other_lag: Lag | None
    pending: Pending
    timer_topics: tuple[str, ...]
    """All topics, if there are pending messages with a delivery time of their own."""
    with_timers: bool


class BrokerSource:
    """Metrics and readiness of one broker that is started."""

    def __init__(self, broker: "Broker") -> None:
        config = broker.config
        self._broker = broker
        self._services = broker.services
        self._node: Node = (config.broker_cluster_name, "broker", config.broker_name)
        count_max = config.metrics_topics_max
        self._put_topics: Limited[str] = Limited(count_max)
        self._get_pairs: Limited[tuple[str, str]] = Limited(count_max)
        self._lag_pairs: Limited[tuple[str, str]] = Limited(count_max)
        self._consumer_groups: Limited[str] = Limited(count_max)
        self._timer_topics: Limited[str] = Limited(count_max)
        self._other_puts: OtherTotals[str] = OtherTotals(2)
        self._other_gets: OtherTotals[tuple[str, str]] = OtherTotals(2)

    def problems(self) -> list[str]:
        """Return the reasons why it is not ready: a master if a send would not succeed, a slave if it copies no log."""
        services, found = self._services, []
        name = services.config.broker_name
        if not services.is_master:
            client = services.ha_client
            if client is None or not client.is_connected:
                found.append(f"broker {name}: it is not connected to its master")
        else:
            if (refusal := services.store.commit_log.refusal) is not None:
                found.append(f"broker {name}: {refusal}")
            if not services.config.broker_permission & PERM_WRITE:
                found.append(f"broker {name}: brokerPermission={services.config.broker_permission} forbids sends")
            if services.clock.message_time_ms() < services.config.start_accept_send_request_time_stamp:
                begin_ms = services.config.start_accept_send_request_time_stamp
                found.append(f"broker {name}: sends are refused until startAcceptSendRequestTimeStamp={begin_ms}")
        name_servers = services.registration.name_servers()
        if name_servers and not any(name_servers.values()):
            found.append(f"broker {name}: it is registered with none of its name servers ({', '.join(name_servers)})")
        return found

    # --- on the event loop ------------------------------------------------------------------------------------------

    def collecting(self) -> Generator[None, None, Collected]:
        """Copy the figures in small pieces."""
        services = self._services
        now_ms, with_timers = services.clock.message_time_ms(), services.delivery_times.is_enabled
        small = [*node_families(services, self._node, self._broker.connection_count, not self.problems()), self._consumers()]
        yield
        yield from services.stats.count_lane()
        puts = services.stats.puts.copied()
        yield
        gets = services.stats.gets.copied()
        yield
        lags, other_lag = yield from reading(services, self._lag_pairs)
        pending = yield from counting(services.delay_query, now_ms)
        topics = tuple(services.topics.table) if pending.by_topic_hash else ()
        return Collected(now_ms, small, puts, gets, lags, other_lag, pending, topics, with_timers)

    def _consumers(self) -> Family:
        services, groups = self._services, self._consumer_groups
        groups.keep(services.clients.consumers)
        counts = consumer_counts(services, groups)
        rows = [((*labels, "remoting", "false"), count) for labels, count in counts.items()]
        return names.CONSUMERS.of(self._node, rows)

    # --- on the thread of the HTTP server ---------------------------------------------------------------------------

    def families(self, collected: Collected) -> Iterable[Family]:
        """Return the families of all collected figures."""
        yield from collected.small
        yield from self._puts(collected)
        yield from self._gets(collected)
        yield from self._lags(collected)
        yield from self._pending(collected)

    def _is_system(self, topic: str) -> str:
        return "true" if self._services.topics.is_system_topic(topic) or topic == SCHEDULE_TOPIC else "false"

    def _puts(self, collected: Collected) -> Iterator[Family]:
        def labels(topic: str) -> tuple[str, ...]:
            return topic, _MESSAGE_TYPES.get(topic, _ANY_TYPE), self._is_system(topic)

        places, words = collected.puts
        counts = ((topic, words[place + NUMS], words[place + SIZE]) for (topic, _), place in paced(places))
        messages, sizes = _counted(counts, self._put_topics, self._other_puts, labels, (OTHER, _ANY_TYPE, "false"))
        dead: list[Row] = [
            ((topic, topic.removeprefix(DLQ_PREFIX)), count)
            for (topic, *_), count in messages
            if topic.startswith(DLQ_PREFIX)
        ]
        yield names.MESSAGES_IN.of(self._node, messages)
        yield names.BYTES_IN.of(self._node, sizes)
        yield names.DLQ.of(self._node, dead)

    def _gets(self, collected: Collected) -> Iterator[Family]:
        def labels(pair: tuple[str, str]) -> tuple[str, ...]:
            return *pair, self._is_system(pair[0])

        places, words = collected.gets
        counts = (((topic, group), words[place + NUMS], words[place + SIZE]) for (group, topic, _), place in paced(places))
        messages, sizes = _counted(counts, self._get_pairs, self._other_gets, labels, (OTHER, OTHER, "false"))
        yield names.MESSAGES_OUT.of(self._node, messages)
        yield names.BYTES_OUT.of(self._node, sizes)

    def _lags(self, collected: Collected) -> Iterator[Family]:
        def labels(lag: Lag) -> tuple[str, ...]:
            return lag.topic, lag.group, str(lag.topic.startswith(RETRY_PREFIX)).lower(), self._is_system(lag.topic)

        node, now_ms, own = self._node, collected.now_ms, [(labels(lag), lag) for lag in collected.lags]
        others = () if collected.other_lag is None else (((OTHER, OTHER, "false", "false"), collected.other_lag),)
        rows = [*own, *others]
        yield names.LAG.of(node, [(values, lag.lag) for values, lag in rows])
        yield names.INFLIGHT.of(node, [(values, lag.lag - lag.ready) for values, lag in rows])
        yield names.READY.of(node, [(values, lag.ready) for values, lag in rows])
        yield names.LAG_LATENCY.of(node, [(values, _age_ms(now_ms, lag.lag_since_ms)) for values, lag in own])
        yield names.QUEUEING_LATENCY.of(node, [(values, _age_ms(now_ms, lag.ready_since_ms)) for values, lag in own])

    def _pending(self, collected: Collected) -> Iterator[Family]:
        pending = collected.pending
        hours = [((str(hour) if hour < HOURS else "later",), count) for hour, count in enumerate(pending.by_hour)]
        yield names.PENDING.of(self._node, hours)
        if not collected.with_timers:
            return
        bounds = zip((*map(str, BOUNDS_S), "+Inf"), pending.by_bound, strict=True)
        yield names.SNAPSHOT.of(self._node, [((bound, *STORAGE), count) for bound, count in bounds])
        yield names.DEQUEUE_LAG.of(self._node, [(STORAGE, pending.overdue)])
        counts: dict[str, int] = {}
        self._timer_topics.keep(collected.timer_topics)
        for topic in collected.timer_topics:
            if count := pending.by_topic_hash.get(java_hash(topic)):
                own = topic if self._timer_topics.is_own(topic) else OTHER
                counts[own] = counts.get(own, 0) + count
        yield names.TIMING.of(self._node, [((topic, *STORAGE), count) for topic, count in counts.items()])


def _counted(
    counts: Iterable[tuple[K, int, int]], limited: Limited[K], others: OtherTotals[K],
    labels: Callable[[K], tuple[str, ...]], other_labels: tuple[str, ...],
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Return the rows of messages and those of bytes, with one more for all keys beyond the limit, if there are any."""
    sums: dict[K, list[int]] = defaultdict(lambda: [0, 0])
    for key, nums, size in counts:
        row = sums[key]
        row[0] += nums
        row[1] += size
    limited.keep(sums)
    others.keep(sums)
    rows = [(labels(key), values) for key, values in sums.items() if limited.is_own(key)]
    further = [(key, values) for key, values in sums.items() if not limited.is_own(key)]
    for key, (nums, size) in further:
        others.add(key, (nums, size))
    if further or any(others.totals):
        rows.append((other_labels, others.totals))
    return [(texts, nums) for texts, (nums, _) in rows], [(texts, size) for texts, (_, size) in rows]


def paced(rows: Sequence[T]) -> Iterator[T]:
    """Yield `rows` with pauses, in which the event loop runs: it must not wait until all are summed up."""
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        if begin:
            time.sleep(_PAUSE_S)
        yield from rows[begin : begin + _ROWS_AT_ONCE]


def _age_ms(now_ms: int, since_ms: int) -> int:
    return max(now_ms - since_ms, 0) if since_ms >= 0 else 0

"""Families of a broker that do not grow with its topics and groups, made on the event loop."""

from collections.abc import Iterator
from typing import Final

from pocketmq.broker.metrics import names
from pocketmq.broker.metrics.clients import producer_counts
from pocketmq.broker.services import Services
from pocketmq.metrics.family import Family, Node
from pocketmq.store.format.record import store_timestamp_of

STORAGE: Final = ("local", "disk")
"""Values of RocketMQ 5's labels storage_type and storage_medium."""


def node_families(services: Services, node: Node, connection_count: int, is_ready: bool) -> Iterator[Family]:
    """Return the present figures."""
    yield names.PERMISSION.single(node, services.config.broker_permission)
    yield names.TOPICS.single(node, len(services.topics.table))
    yield names.GROUPS.single(node, len(services.groups.table))
    producers = producer_counts(services).items()
    yield names.PRODUCERS.of(node, [((*labels, "remoting"), count) for labels, count in producers])
    yield names.CONNECTIONS.single(node, connection_count)
    yield names.HELD.single(node, services.holds.count)
    yield names.TRANSACTIONS.single(node, services.transactions.open_count)
    yield names.PUT_FAILURES.single(node, services.stats.put_failed_times)
    pulls = ("found", services.stats.get_total.times), ("missed", services.stats.misses)
    yield names.PULLS.of(node, [((result,), count) for result, count in pulls])
    yield names.READY_STATE.single(node, is_ready)
    servers = services.registration.name_servers().items()
    yield names.NAME_SERVER.of(node, [((address,), is_registered) for address, is_registered in servers])
    yield from _storage(services, node)
    yield from _durations(services, node)
    yield from _replication(services, node)
    if services.delivery_times.is_enabled:
        yield names.ENQUEUE_LAG.of(node, [(STORAGE, services.timer_messages.not_entered)])
        late_ms = services.clock.message_time_ms() - 1 - services.timer_messages.delivered_to_ms
        yield names.DEQUEUE_LATENCY.of(node, [(STORAGE, max(late_ms, 0) if services.is_master else 0)])


def _storage(services: Services, node: Node) -> Iterator[Family]:
    store = services.store
    end = store.max_physical_offset
    yield names.STORAGE_SIZE.of(node, [(STORAGE, end - store.min_physical_offset)])
    yield names.FLUSH_BEHIND.of(node, [(STORAGE, max(end - store.flushed_offset, 0))])
    yield names.DISPATCH_BEHIND.of(node, [(STORAGE, store.dispatch_behind_bytes)])
    first = store.message_at(store.min_physical_offset)
    age_ms = 0 if first is None else max(services.clock.message_time_ms() - store_timestamp_of(first), 0)
    yield names.RESERVE_TIME.of(node, [(STORAGE, age_ms)])
    rows = []
    for path in store.config.commit_log_directories:
        try:
            rows.append(((path,), store.disk.usage(path)))
        except OSError:
            continue  # unknown
    yield names.DISK_USED.of(node, rows)


def _durations(services: Services, node: Node) -> Iterator[Family]:
    measured = services.measured
    yield names.PUT.single(node, measured.put_time.buckets)
    yield names.SYNC.single(node, measured.sync_time.buckets)
    lateness = ("level", measured.level_lateness), ("timer", measured.timer_lateness)
    yield names.LATENESS.of(node, [((kind,), histogram.buckets) for kind, histogram in lateness])
    parts = ("store", measured.store_recovery_s), ("timers", measured.timer_recovery_s)
    yield names.RECOVERY.of(node, [((part,), seconds) for part, seconds in parts])
    yield names.REPAIRS.single(node, measured.repairs)
    yield names.CLEAN.single(node, measured.started_cleanly)


def _replication(services: Services, node: Node) -> Iterator[Family]:
    if services.ha_client is not None:
        yield names.MASTER_CONNECTED.single(node, services.ha_client.is_connected)
    if services.ha is not None:
        replicas = services.ha.replicas()
        yield names.SLAVES.single(node, len(replicas))
        yield names.SLAVE_LAG_BYTES.of(node, [((one.address,), one.lag_size) for one in replicas])
        yield names.SLAVE_LAG.of(node, [((one.address,), one.lag_ms / 1000) for one in replicas])

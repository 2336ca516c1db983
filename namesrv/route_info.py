"""RouteInfoManager: which brokers live, and which queues of which topics they have.

Four tables, after Apache's: queues by topic and broker name, brokers (id -> address) by name, broker names by cluster, live
brokers by address. A broker is taken out when it unregisters, when its connection closes, or when it was silent for 120 s;
a topic without brokers goes with the last one. Nothing here knows a socket: a connection is an object to compare.

Only the broker with id 0 tells topics, and they are taken when its DataVersion changed: that is why write permission wiped
here survives the broker's heartbeats until its topics change. A topic that a broker no longer mentions stays, as in 4.9.
"""

import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from remoting.bodies import BrokerData, DataVersion, QueueData, TopicConfig, TopicConfigSerializeWrapper, TopicRouteData
from runtime.clock import Clock

log = logging.getLogger("namesrv")

MASTER_ID: Final = 0
BROKER_EXPIRED_S: Final = 120.0
"""A broker that did not register for this long is taken out, unless it asked for another time."""

PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2


class BrokerIdentity(NamedTuple):
    """Who a broker says it is."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker_name}/{self.broker_id} at {self.address}"


class _Live:
    """A broker that is believed alive. Times in seconds of the clock's monotonic time."""

    __slots__ = ("channel", "data_version", "expired_s", "filter_servers", "ha_address", "identity", "last_seen")

    def __init__(
        self,
        identity: BrokerIdentity,
        data_version: DataVersion,
        ha_address: str,
        filter_servers: list[str],
        channel: Any,
        expired_s: float,
        last_seen: float,
    ) -> None:
        self.identity = identity
        self.data_version = data_version
        self.ha_address = ha_address
        self.filter_servers = filter_servers
        self.channel = channel
        self.expired_s = expired_s
        self.last_seen = last_seen


class _Broker:
    """The addresses by id of one broker name."""

    __slots__ = ("address_by_id", "cluster", "name")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address_by_id: dict[int, str] = {}

    def data(self) -> BrokerData:
        return BrokerData(self.name, self.cluster, {str(i): a for i, a in sorted(self.address_by_id.items())})


class RouteInfoManager:
    """The tables of a name server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, _Live] = {}

    # Brokers

    def register(
        self,
        identity: BrokerIdentity,
        ha_address: str,
        topics: TopicConfigSerializeWrapper,
        filter_servers: list[str],
        channel: Any,
        expired_s: float = BROKER_EXPIRED_S,
    ) -> tuple[str | None, str | None]:
        """Enter a broker. Returns the HA address and the address of its master; None, None where it has none."""
        self._clusters.setdefault(identity.cluster, set()).add(identity.broker_name)
        broker = self._brokers.setdefault(identity.broker_name, _Broker(identity.cluster, identity.broker_name))
        for broker_id, address in list(broker.address_by_id.items()):
            if address == identity.address and broker_id != identity.broker_id:
                del broker.address_by_id[broker_id]  # a slave that became master, or the other way round
        is_first = broker.address_by_id.get(identity.broker_id) is None
        broker.address_by_id[identity.broker_id] = identity.address
        if identity.broker_id == MASTER_ID and (is_first or self.is_changed(identity.address, topics.data_version)):
            for config in topics.topic_config_table.values():
                self._enter_queues(identity.broker_name, config)
        if identity.address not in self._live:
            log.info("broker %s registered", identity)
        self._live[identity.address] = _Live(
            identity, topics.data_version, ha_address, filter_servers, channel, expired_s, self._clock.monotonic()
        )
        master_address = broker.address_by_id.get(MASTER_ID)
        master = self._live.get(master_address) if master_address else None
        if identity.broker_id == MASTER_ID or master is None:
            return None, None
        return master.ha_address, master_address

    def unregister(self, identity: BrokerIdentity) -> None:
        """Take a broker out; unknown ones are fine, and an id that meanwhile is at another address stays."""
        self._live.pop(identity.address, None)
        broker = self._brokers.get(identity.broker_name)
        if broker is not None and broker.address_by_id.get(identity.broker_id) == identity.address:
            log.info("broker %s is gone", identity)
            del broker.address_by_id[identity.broker_id]
            if not broker.address_by_id:
                self._drop_name(broker)

    def channel_closed(self, channel: Any) -> None:
        """Take out every broker that registered by this connection and by no other since."""
        for live in [live for live in self._live.values() if live.channel is channel]:
            self.unregister(live.identity)

    def expire(self) -> list[Any]:
        """Take out the brokers that were silent too long. Returns their connections, to be closed."""
        now = self._clock.monotonic()
        silent = [live for live in self._live.values() if live.last_seen + live.expired_s < now]
        for live in silent:
            log.warning("broker %s was silent for %.0f s", live.identity, live.expired_s)
            self.unregister(live.identity)
        return [live.channel for live in silent]

    def is_changed(self, address: str, data_version: DataVersion) -> bool:
        """Whether the broker at `address` is unknown or last registered with another version."""
        live = self._live.get(address)
        return live is None or live.data_version != data_version

    def data_version(self, address: str) -> DataVersion | None:
        """What the broker at `address` last registered with."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def touch(self, address: str) -> None:
        """The broker at `address` gave a sign of life."""
        live = self._live.get(address)
        if live is not None:
            live.last_seen = self._clock.monotonic()

    # Topics

    def route(self, topic: str) -> TopicRouteData | None:
        """Queues and brokers of a topic; None when no broker has it."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        filters = {
            address: self._live[address].filter_servers
            for broker in brokers
            for address in broker.address_by_id.values()
            if address in self._live and self._live[address].filter_servers
        }
        return TopicRouteData([broker.data() for broker in brokers], list(queues.values()), filters)

    def topics(self) -> list[str]:
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics that a broker of the cluster has; none for an unknown cluster."""
        names = self._clusters.get(cluster, set())
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def topics_by_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag, as the first of their brokers has it, matches."""
        return [
            topic for topic, queues in self._queues.items() if queues and matches(next(iter(queues.values())).topic_sys_flag)
        ]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, or only what the brokers of `cluster` have of it."""
        if cluster is None:
            self._queues.pop(topic, None)
            return
        for name in self._clusters.get(cluster, ()):
            self._drop_queues(topic, name)

    # Clusters

    def clusters(self) -> dict[str, list[str]]:
        """Broker names by cluster."""
        return {cluster: sorted(names) for cluster, names in self._clusters.items()}

    def brokers(self) -> dict[str, BrokerData]:
        """Brokers by name."""
        return {name: broker.data() for name, broker in self._brokers.items()}

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write permission from all queues of a broker. Returns how many topics it has."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let all queues of a broker be read and written; other bits are lost, as in Apache's. Returns how many topics."""
        return self._change_perm(broker_name, lambda perm: PERM_READ_WRITE)

    def _change_perm(self, broker_name: str, changed: Callable[[int], int]) -> int:
        rows = [queues[broker_name] for queues in self._queues.values() if broker_name in queues]
        for row in rows:
            row.perm = changed(row.perm)
        return len(rows)

    def _enter_queues(self, broker_name: str, config: TopicConfig) -> None:
        self._queues.setdefault(config.topic_name, {})[broker_name] = QueueData(
            broker_name, config.perm, config.read_queue_nums, config.write_queue_nums, config.topic_sys_flag
        )

    def _drop_name(self, broker: _Broker) -> None:
        del self._brokers[broker.name]
        for cluster, names in list(self._clusters.items()):
            names.discard(broker.name)
            if not names:
                del self._clusters[cluster]
        for topic in list(self._queues):
            self._drop_queues(topic, broker.name)

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        queues = self._queues.get(topic)
        if queues is not None and queues.pop(broker_name, None) is not None and not queues:
            del self._queues[topic]

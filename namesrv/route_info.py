"""RouteInfoManager: which brokers live, and which queues of which topics they have.

Four tables, after Apache's: queues by topic and broker name, brokers (id -> address) by name, broker names by cluster, live
brokers by address. A broker is taken out when it unregisters, when its connection closes, or when it was silent for 120 s;
a topic without brokers goes with the last one. Nothing here knows a socket: a connection is an object to compare.

A broker is *living* while its connection is open and it has registered within the longest period of brokers. A second one of
its name and id, or with its address from another host, is refused meanwhile, and told why; in Apache's name server it would
take over the route, until the first registers again. `refuseSecondBroker=false` has it so.

Only the broker with id 0 tells topics, and they are taken when its DataVersion changed: that is why write permission wiped
here survives the broker's heartbeats until its topics change. A topic that a broker no longer mentions stays, as in 4.9.
"""

import logging
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, NamedTuple

from pocketmq.namesrv.config import REGISTER_PERIOD_MAX_S, NamesrvConfig
from pocketmq.namesrv.register_limits import SHOWN_SIZE_MAX, RegistrationRefused, check_names, check_room, check_topics
from pocketmq.remoting.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("namesrv")

MASTER_ID: Final = 0
BROKER_EXPIRED_S: Final = 120.0
"""A broker that did not register for this long is taken out, unless it asked for another time."""

LIVING_S: Final = REGISTER_PERIOD_MAX_S + 15.0
"""A broker that did not register for this long no longer keeps others from its name: one that hangs is replaced."""

_TABLE_BYTES_MIN: Final = 64 * 1024
_ROW_BYTES_MAX: Final = 256
"""A table of topics that takes more for each of them is made anew."""

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
        cluster, name, address = (text[:SHOWN_SIZE_MAX] for text in (self.cluster, self.broker_name, self.address))
        return f"{cluster}/{name}/{self.broker_id} at {address}"


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
    """The addresses by id of one broker name, and the topics and clusters that it has."""

    __slots__ = ("address_by_id", "cluster", "clusters", "name", "topics")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address_by_id: dict[int, str] = {}
        self.clusters: set[str] = set()
        self.topics: dict[str, None] = {}

    def data(self) -> BrokerData:
        return BrokerData(self.name, self.cluster, {str(i): a for i, a in sorted(self.address_by_id.items())})


QueueKey = tuple[int, int, int, int]
"""perm, read queues, write queues, topicSysFlag."""


def _shared_row(shared: dict[QueueKey, QueueData], broker_name: str, key: QueueKey) -> QueueData:
    """Topics of a broker have few different rows: one object for each, which is never changed."""
    row = shared.get(key)
    if row is None:
        row = shared[key] = QueueData(broker_name, *key)
    return row


def host_of(channel: Any) -> str | None:
    """Where a connection comes from."""
    return getattr(channel, "remote_host", None)


class RouteInfoManager:
    """The tables of a name server."""

    def __init__(self, clock: Clock, config: NamesrvConfig | None = None) -> None:
        """`config` says how much brokers may bring."""
        self._clock = clock
        self._config = config or NamesrvConfig()
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, _Live] = {}
        self._row_count = 0
        self.refusals = RefusalLog(log)

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
        """Enter a broker. Returns the HA address and the address of its master; None, None where it has none.

        Raises RegistrationRefused, and changes nothing, for a second living broker and for what is beyond a limit.
        """
        tells_topics = self._check(identity, ha_address, topics, filter_servers, channel)
        known = self._live.get(identity.address)
        if known is not None:
            self._renamed(known.identity, identity)
        self._clusters.setdefault(identity.cluster, set()).add(identity.broker_name)
        broker = self._brokers.setdefault(identity.broker_name, _Broker(identity.cluster, identity.broker_name))
        broker.clusters.add(identity.cluster)
        before = broker.address_by_id.get(identity.broker_id)
        if before is not None and before != identity.address:
            self._live.pop(before, None)
        broker.address_by_id[identity.broker_id] = identity.address
        if tells_topics:
            self._enter_topics(broker, topics.topic_config_table)
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

    def _renamed(self, before: BrokerIdentity, identity: BrokerIdentity) -> None:
        """What was registered with this address until now; a broker that only changed its id keeps its topics."""
        if before.broker_name != identity.broker_name:
            self._drop(before)
        elif before.broker_id != identity.broker_id:
            ids = self._brokers[before.broker_name].address_by_id
            if ids.get(before.broker_id) == before.address:
                del ids[before.broker_id]

    def _check(
        self, identity: BrokerIdentity, ha_address: str, topics: TopicConfigSerializeWrapper, filter_servers: list[str],
        channel: Any,
    ) -> bool:  # fmt: skip
        """Whether the registration brings topics. Raises RegistrationRefused."""
        config = self._config
        names = [
            ("brokerName", identity.broker_name), ("clusterName", identity.cluster), ("brokerAddr", identity.address),
            ("haServerAddr", ha_address),
        ]  # fmt: skip
        check_names(config, names, filter_servers)
        self._check_second(identity, topics.data_version, channel)
        broker = self._brokers.get(identity.broker_name)
        is_first = broker is None or broker.address_by_id.get(identity.broker_id) is None
        is_changed = is_first or self.is_changed(identity.address, topics.data_version)
        tells_topics = identity.broker_id == MASTER_ID and is_changed
        rows = self._row_count
        if tells_topics:
            known = {} if broker is None else broker.topics
            fresh, told = check_topics(config, topics, known), len(topics.topic_config_table)
            # Of a broker that has told more topics than it may have at a time, those go that it no longer has.
            rows += fresh if len(known) + fresh <= config.register_topics_max else told - len(known)
        check_room(
            config,
            len(self._live) + (identity.address not in self._live),
            len(self._clusters) + (identity.cluster not in self._clusters),
            rows if rows > self._row_count else 0,
        )
        return tells_topics

    def _check_second(self, identity: BrokerIdentity, data_version: DataVersion, channel: Any) -> None:
        """Raises RegistrationRefused when a living broker has the name and id, or the address."""
        holder = self._living_other(self._live.get(identity.address), channel)
        if holder is None or host_of(holder.channel) == host_of(channel):  # the same broker, started again
            broker = self._brokers.get(identity.broker_name)
            address = None if broker is None else broker.address_by_id.get(identity.broker_id)
            if address is None or address == identity.address:
                return
            holder = self._living_other(self._live.get(address), channel)
            if holder is None or (data_version.state_version or 0) > (holder.data_version.state_version or 0):
                return  # a higher state version: 5.x's controller has elected a new master
        silent_s = self._clock.monotonic() - holder.last_seen
        why = (
            f"two living brokers: {identity} wants to register, {holder.identity} did so {silent_s:.0f} s ago over a "
            f"connection from {host_of(holder.channel)} that is open"
        )
        if self._config.refuse_second_broker:
            raise RegistrationRefused(
                f"second {identity}",
                f"{why}; the second is refused (refuseSecondBroker=true): give it a brokerName or brokerId of its own",
            )
        self.refusals.refused(identity.broker_name, f"{why}; the second takes over (refuseSecondBroker=false)")

    def _living_other(self, live: _Live | None, channel: Any) -> _Live | None:
        """`live`, if it lives and is connected by another connection than `channel`."""
        return live if live is not None and live.channel is not channel and self._is_living(live) else None

    def _is_living(self, live: _Live) -> bool:
        return self._clock.monotonic() <= live.last_seen + min(live.expired_s, LIVING_S)

    def unregister_by(self, identity: BrokerIdentity, channel: Any) -> None:
        """Take a broker out as `channel` asks. Raises RegistrationRefused when it lives and is connected from elsewhere."""
        live = self._living_other(self._live.get(identity.address), channel)
        if live is not None and host_of(live.channel) != host_of(channel):
            why = f"broker {live.identity} is connected from {host_of(live.channel)}, which alone may unregister it"
            raise RegistrationRefused("unregister", why)
        self.unregister(identity)

    def unregister(self, identity: BrokerIdentity) -> None:
        """Take a broker out; unknown ones are fine, and an id that meanwhile is at another address stays."""
        live = self._live.get(identity.address)
        if live is not None and live.identity[1:] == identity[1:]:
            del self._live[identity.address]
        self._drop(identity)

    def _drop(self, identity: BrokerIdentity) -> None:
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
        names = self._clusters.get(cluster, ())
        return list(
            dict.fromkeys(chain.from_iterable(self._brokers[name].topics for name in names if name in self._brokers))
        )

    def topics_by_flag(self, matches: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag, as the first of their brokers has it, matches."""
        return [
            topic for topic, queues in self._queues.items() if queues and matches(next(iter(queues.values())).topic_sys_flag)
        ]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, or only what the brokers of `cluster` have of it."""
        if cluster is None:
            for name in list(self._queues.get(topic, ())):
                self._drop_queues(topic, name)
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
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        shared: dict[QueueKey, QueueData] = {}
        for topic in broker.topics:
            queues = self._queues[topic]
            row = queues[broker_name]
            perm = changed(row.perm)
            if perm != row.perm:
                key = perm, row.read_queue_nums, row.write_queue_nums, row.topic_sys_flag
                queues[broker_name] = _shared_row(shared, broker_name, key)
        return len(broker.topics)

    def _enter_topics(self, broker: _Broker, table: dict[str, TopicConfig]) -> None:
        shared: dict[QueueKey, QueueData] = {}
        name, all_queues, topics = broker.name, self._queues, broker.topics
        for config in table.values():
            topic = config.topic_name
            key = config.perm, config.read_queue_nums, config.write_queue_nums, config.topic_sys_flag
            row = shared.get(key) or _shared_row(shared, name, key)
            if topic in topics:
                all_queues[topic][name] = row
            else:
                topics[topic] = None
                self._row_count += 1
                all_queues.setdefault(topic, {})[name] = row
        if len(broker.topics) > self._config.register_topics_max:
            told = {config.topic_name for config in table.values()}
            for topic in [topic for topic in broker.topics if topic not in told]:
                self._drop_queues(topic, broker.name)

    def _drop_name(self, broker: _Broker) -> None:
        del self._brokers[broker.name]
        for cluster in broker.clusters:
            names = self._clusters[cluster]
            names.discard(broker.name)
            if not names:
                del self._clusters[cluster]
        for topic in broker.topics:
            self._drop_row(topic, broker.name)
        if sys.getsizeof(self._queues) > _TABLE_BYTES_MIN + _ROW_BYTES_MAX * len(self._queues):
            self._queues = dict(self._queues)  # a dict keeps the room of what is taken out of it

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        if self._drop_row(topic, broker_name) and broker_name in self._brokers:
            self._brokers[broker_name].topics.pop(topic, None)

    def _drop_row(self, topic: str, broker_name: str) -> bool:
        queues = self._queues.get(topic)
        if queues is None or queues.pop(broker_name, None) is None:
            return False
        self._row_count -= 1
        if not queues:
            del self._queues[topic]
        return True

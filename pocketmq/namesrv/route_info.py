"""RouteInfoManager: registered brokers and the queues of their topics.

It has the same four tables as Apache's: queues by topic and broker name, brokers (id -> address) by name, broker names by
cluster, live brokers by address. A broker is removed when it unregisters, when its connection closes, or after 120 s of
silence; a topic is removed with its last broker. The module does not use sockets: connections are only compared.

A broker is *living* while its connection is open and it has registered within the maximum period of brokers. During that
time a second broker with the same name and id, or with the same address from another host, is refused with the reason. In
Apache's name server it takes over the route until the first registers again; so it does with `refuseSecondBroker=false`.
A broker with a higher state version, such as a slave's store that was started as master, takes over at once, and the first
is refused from then on.

Topics are taken only from the broker with id 0, and only when its DataVersion has changed. So a wiped write permission
survives heartbeats until the broker's topics change. A topic that a broker no longer sends stays, as in 4.9.

A broker name whose brokers registered with enableActingMaster (5.x) has an acting master while none has id 0: with
`supportActingMaster` its slave with the smallest id is shown as id 0 in the routes of topics. The queues are then without
write permission, and topics are taken from that slave.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.live_broker import BrokerIdentity, Live, host_of
from pocketmq.namesrv.register_limits import (
    RegistrationRefused,
    check_names,
    check_room,
    check_topics,
)
from pocketmq.remoting.bodies import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.headers.route import NotifyMinBrokerIdChangeRequestHeader
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("namesrv")

MASTER_ID: Final = 0
SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Prefix of topics whose routes always have the real broker ids; 5.x's brokers request them to learn the ids of a group."""
BROKER_EXPIRED_S: Final = 120.0
"""Silence after which a broker is removed, unless it has requested another time."""

_TABLE_BYTES_MIN: Final = 64 * 1024
_ROW_BYTES_MAX: Final = 256
"""Size per topic above which the table of topics is rebuilt."""

PERM_WRITE: Final = 2
PERM_READ_WRITE: Final = 6
FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2


class _Broker:
    """Addresses by id, topics and clusters of one broker name."""

    __slots__ = ("address_by_id", "cluster", "clusters", "enable_acting_master", "name", "topics")

    def __init__(self, cluster: str, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.address_by_id: dict[int, str] = {}
        self.clusters: set[str] = set()
        self.topics: dict[str, None] = {}
        self.enable_acting_master = False

    @property
    def has_acting_master(self) -> bool:
        """True if the broker with the smallest id acts as the missing master."""
        return self.enable_acting_master and MASTER_ID not in self.address_by_id

    def data(self, with_acting_master: bool = False) -> BrokerData:
        """Return the addresses by id; `with_acting_master`: the smallest id is shown as 0."""
        ids = sorted(self.address_by_id.items())
        if with_acting_master and self.has_acting_master:
            ids[0] = MASTER_ID, ids[0][1]
        return BrokerData(self.name, self.cluster, {str(i): a for i, a in ids}, self.enable_acting_master)


QueueKey = tuple[int, int, int, int]
"""perm, read queues, write queues, topicSysFlag."""


def _shared_row(shared: dict[QueueKey, QueueData], broker_name: str, key: QueueKey) -> QueueData:
    """Return the row for `key`. Topics with equal rows share one object, which is never modified."""
    row = shared.get(key)
    if row is None:
        row = shared[key] = QueueData(broker_name, *key)
    return row


def _ahead(identity: BrokerIdentity, data_version: DataVersion, holder: Live) -> int:
    """Return by how much the state version of a master is higher than that of the living master of its name, `holder`."""
    ids = {identity.broker_id, holder.identity.broker_id}
    if identity.broker_name != holder.identity.broker_name or ids != {MASTER_ID}:
        return 0
    return (data_version.state_version or 0) - (holder.data_version.state_version or 0)


class RouteInfoManager:
    """Tables of a name server."""

    def __init__(self, clock: Clock, config: NamesrvConfig | None = None) -> None:
        """`config` has the limits of registrations."""
        self._clock = clock
        self._config = config or NamesrvConfig()
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, Live] = {}
        self.row_count = 0
        """Rows of the table of queues: one for each topic of each broker."""
        self.refusals = RefusalLog(log)
        self.min_broker_id_changed: Event[[NotifyMinBrokerIdChangeRequestHeader, list[str]]] = Event()
        """Called when the smallest id of a broker name with enableActingMaster has changed, with the brokers to notify."""
        self.superseded: Event[[Any]] = Event()
        """Called with the connection of a broker whose name and id one with a higher state version takes over."""

    # Brokers

    def brokers_by_cluster(self) -> Counter[str]:
        """Return the number of registered brokers of each cluster."""
        return Counter(live.identity.cluster for live in self._live.values())

    def register(
        self,
        identity: BrokerIdentity,
        ha_address: str,
        topics: TopicConfigSerializeWrapper,
        filter_servers: list[str],
        channel: Any,
        expired_s: float = BROKER_EXPIRED_S,
        enable_acting_master: bool | None = None,
    ) -> tuple[str | None, str | None]:
        """Register a broker. Returns HA address and address of its master, (None, None) without a master.

        Raises RegistrationRefused, without any change, for a second living broker and for data beyond a limit.
        """
        is_5x = enable_acting_master is not None
        tells_topics = self._check(identity, ha_address, topics, filter_servers, channel, is_5x)
        known = self._live.get(identity.address)
        if known is not None:
            self._renamed(known.identity, identity)
        self._clusters.setdefault(identity.cluster, set()).add(identity.broker_name)
        broker = self._brokers.setdefault(identity.broker_name, _Broker(identity.cluster, identity.broker_name))
        if broker.address_by_id and identity.cluster not in broker.clusters:
            log.warning("broker %s registered, but other brokers of its name belong to cluster %s", identity, broker.cluster)
        broker.clusters.add(identity.cluster)
        broker.enable_acting_master = bool(enable_acting_master)
        min_before = min(broker.address_by_id, default=MASTER_ID)
        before = broker.address_by_id.get(identity.broker_id, "")
        replaced = self._living_other(self._live.get(before), channel)
        if before != identity.address:
            self._live.pop(before, None)
        broker.address_by_id[identity.broker_id] = identity.address
        if tells_topics:
            self._enter_topics(broker, topics.topic_config_table)
        if identity.address not in self._live:
            log.info("broker %s registered", identity)
        self._live[identity.address] = Live(
            identity, topics.data_version, ha_address, filter_servers, channel, expired_s, self._clock.monotonic()
        )
        if replaced is not None and _ahead(identity, topics.data_version, replaced) > 0:
            log.warning("broker %s takes over from %s: its state version is higher", identity, replaced.identity)
            self.superseded(replaced.channel)
        if identity.broker_id < min_before and broker.enable_acting_master:
            self._min_broker_id_changed(broker, None, ha_address)
        master_address = broker.address_by_id.get(MASTER_ID)
        master = self._live.get(master_address) if master_address else None
        if identity.broker_id == MASTER_ID or master is None:
            return None, None
        return master.ha_address, master_address

    def _renamed(self, before: BrokerIdentity, identity: BrokerIdentity) -> None:
        """Remove the previous identity of an address; a broker that changed only its id keeps its topics."""
        if before.broker_name != identity.broker_name:
            self._drop(before)
        elif before.broker_id != identity.broker_id:
            ids = self._brokers[before.broker_name].address_by_id
            if ids.get(before.broker_id) == before.address:
                del ids[before.broker_id]

    def _check(
        self, identity: BrokerIdentity, ha_address: str, topics: TopicConfigSerializeWrapper, filter_servers: list[str],
        channel: Any, is_5x: bool,
    ) -> bool:  # fmt: skip
        """Check a registration; return whether its topics are to be taken. Raises RegistrationRefused."""
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
        others = {} if broker is None else broker.address_by_id
        is_least = all(identity.broker_id <= i for i, a in others.items() if a != identity.address)
        tells_topics = (identity.broker_id == MASTER_ID or (is_5x and is_least)) and is_changed
        rows = self.row_count
        if tells_topics:
            known = {} if broker is None else broker.topics
            fresh, count = check_topics(config, topics, known), len(topics.topic_config_table)
            # If a broker has accumulated more topics than allowed, those that it no longer sends are removed.
            rows += fresh if len(known) + fresh <= config.register_topics_max else count - len(known)
        check_room(
            config,
            len(self._live) + (identity.address not in self._live),
            len(self._clusters) + (identity.cluster not in self._clusters),
            rows if rows > self.row_count else 0,
        )
        return tells_topics

    def _check_second(self, identity: BrokerIdentity, data_version: DataVersion, channel: Any) -> None:
        """Raise RegistrationRefused if another living broker has the name and id, or the address."""
        holder = self._living_other(self._live.get(identity.address), channel)
        if holder is None or host_of(holder.channel) == host_of(channel):  # the same broker, restarted
            broker = self._brokers.get(identity.broker_name)
            address = None if broker is None else broker.address_by_id.get(identity.broker_id)
            if address is None or address == identity.address:
                return
            holder = self._living_other(self._live.get(address), channel)
            if holder is None:
                return
        ahead = _ahead(identity, data_version, holder)
        if ahead > 0:
            return
        silent_s = self._clock.monotonic() - holder.last_seen
        why = (
            f"two living brokers: {identity} registers, but {holder.identity} registered {silent_s:.0f} s ago over a "
            f"connection from {host_of(holder.channel)} that is still open"
        )
        if ahead < 0:
            why = f"{why} with a higher state version; the second was its master or is an older copy, and is refused"
            raise RegistrationRefused(f"second {identity}", why, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH)
        if self._config.refuse_second_broker:
            why = f"{why}; the second is refused (refuseSecondBroker=true): give it a brokerName or brokerId of its own"
            raise RegistrationRefused(f"second {identity}", why, ResponseCode.CONTROLLER_INVALID_MASTER)
        self.refusals.refused(identity.broker_name, f"{why}; the second takes over (refuseSecondBroker=false)")

    def _living_other(self, live: Live | None, channel: Any) -> Live | None:
        """Return `live` if it is living and uses a connection other than `channel`, else None."""
        return live if live is not None and live.channel is not channel and live.is_living(self._clock) else None

    def unregister_by(self, identity: BrokerIdentity, channel: Any) -> None:
        """Remove a broker at the request of `channel`. Raises RegistrationRefused if it is connected from another host."""
        live = self._living_other(self._live.get(identity.address), channel)
        if live is not None and host_of(live.channel) != host_of(channel):
            why = f"broker {live.identity} is connected from {host_of(live.channel)}, only that host may unregister it"
            raise RegistrationRefused("unregister", why)
        self.unregister(identity)

    def unregister(self, identity: BrokerIdentity) -> None:
        """Remove a broker, if known; an id that is now registered with another address stays."""
        live = self._live.get(identity.address)
        if live is not None and live.identity[1:] == identity[1:]:
            del self._live[identity.address]
        self._drop(identity)

    def _drop(self, identity: BrokerIdentity) -> None:
        broker = self._brokers.get(identity.broker_name)
        if broker is not None and broker.address_by_id.get(identity.broker_id) == identity.address:
            log.info("broker %s removed", identity)
            was_first = identity.broker_id == min(broker.address_by_id)
            del broker.address_by_id[identity.broker_id]
            if not broker.address_by_id:
                self._drop_name(broker)
            elif broker.has_acting_master:
                self.wipe_write_perm(broker.name)
                if was_first:
                    self._min_broker_id_changed(broker, identity.address, None)

    def _min_broker_id_changed(self, broker: _Broker, offline_address: str | None, ha_address: str | None) -> None:
        """Report the smallest id, for the remaining brokers; a broker that has just come online with it is not notified."""
        min_id, *others = sorted(broker.address_by_id)
        notified = others if offline_address is None else [min_id, *others]
        address = broker.address_by_id[min_id]
        change = NotifyMinBrokerIdChangeRequestHeader(min_id, broker.name, address, offline_address, ha_address)
        self.min_broker_id_changed(change, [broker.address_by_id[broker_id] for broker_id in notified])

    def channel_closed(self, channel: Any) -> None:
        """Remove the brokers whose last registration came over this connection."""
        for live in [live for live in self._live.values() if live.channel is channel]:
            self.unregister(live.identity)

    def expire(self) -> list[Any]:
        """Remove the brokers that were silent too long. Returns their connections, to be closed."""
        now = self._clock.monotonic()
        silent = [live for live in self._live.values() if live.last_seen + live.expired_s < now]
        for live in silent:
            log.warning("broker %s was silent for %.0f s", live.identity, live.expired_s)
            self.unregister(live.identity)
        return [live.channel for live in silent]

    def is_changed(self, address: str, data_version: DataVersion) -> bool:
        """Return whether the broker at `address` is unknown or last registered with another version."""
        live = self._live.get(address)
        return live is None or live.data_version != data_version

    def data_version(self, address: str) -> DataVersion | None:
        """Return the version last registered by the broker at `address`."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def touch(self, address: str) -> None:
        """Record a heartbeat of the broker at `address`."""
        live = self._live.get(address)
        if live is not None:
            live.last_seen = self._clock.monotonic()

    # Topics

    def route(self, topic: str) -> TopicRouteData | None:
        """Return queues and brokers of a topic; None if no broker has it."""
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
        with_acting = self._config.support_acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        datas = [broker.data(with_acting and not queues[broker.name].perm & PERM_WRITE) for broker in brokers]
        return TopicRouteData(datas, list(queues.values()), filters)

    def topics(self) -> list[str]:
        return list(self._queues)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics of the brokers of a cluster; empty for an unknown cluster."""
        names = self._clusters.get(cluster, ())
        return list(
            dict.fromkeys(chain.from_iterable(self._brokers[name].topics for name in names if name in self._brokers))
        )

    def topics_by_flag(self, mask: int, wanted: int) -> list[str]:
        """Return the topics whose topicSysFlag on their first broker, of the bits in `mask`, has those in `wanted`."""
        rows = ((topic, next(iter(queues.values()))) for topic, queues in self._queues.items() if queues)
        return [topic for topic, row in rows if row.topic_sys_flag & mask == wanted]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Delete a topic, or only its queues on the brokers of `cluster`."""
        for name in tuple(self._queues.get(topic, ()) if cluster is None else self._clusters.get(cluster, ())):
            self._drop_queues(topic, name)

    # Clusters

    def clusters(self) -> dict[str, list[str]]:
        """Return broker names by cluster."""
        return {cluster: sorted(names) for cluster, names in self._clusters.items()}

    def brokers(self) -> dict[str, BrokerData]:
        """Return brokers by name."""
        return {name: broker.data() for name, broker in self._brokers.items()}

    def broker_addresses(self, broker_name: str) -> dict[str, str]:
        """Return the addresses of a broker name by id; empty for an unknown one."""
        broker = self._brokers.get(broker_name)
        return {} if broker is None else broker.data().broker_addrs

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all queues of a broker. Returns its number of topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Set read and write permission on all queues of a broker; clears other bits, as Apache. Returns its topic count."""
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
        perm_mask = ~PERM_WRITE if broker.has_acting_master else -1
        for config in table.values():
            topic = config.topic_name
            key = config.perm & perm_mask, config.read_queue_nums, config.write_queue_nums, config.topic_sys_flag
            row = shared.get(key) or _shared_row(shared, name, key)
            if topic not in topics:
                topics[topic] = None
                self.row_count += 1
            all_queues.setdefault(topic, {})[name] = row
        if len(broker.topics) > self._config.register_topics_max:
            registered = {config.topic_name for config in table.values()}
            for topic in [topic for topic in broker.topics if topic not in registered]:
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
            self._queues = dict(self._queues)  # a dict does not shrink when keys are deleted

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        if self._drop_row(topic, broker_name) and broker_name in self._brokers:
            self._brokers[broker_name].topics.pop(topic, None)

    def _drop_row(self, topic: str, broker_name: str) -> bool:
        queues = self._queues.get(topic)
        if queues is None or queues.pop(broker_name, None) is None:
            return False
        self.row_count -= 1
        if not queues:
            del self._queues[topic]
        return True

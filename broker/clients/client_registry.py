"""Who is connected: producers and consumers by group, as their heartbeats tell.

A client is known by its connection. It counts as gone when the connection closes, when it says so (UNREGISTER_CLIENT), or
when no heartbeat came for 120 s; what is left of its group hears of it at once (NOTIFY_CONSUMER_IDS_CHANGED), so that the
queues are shared out anew without waiting for the next rebalance. Time here is liveness.

What clients say of themselves is kept within limits: a heartbeat beyond them is refused, and names the key.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.broker.clients.group_notifier import GroupNotifier
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.remoting.bodies import ConsumerData, SubscriptionData
from pocketmq.remoting.server import Channel
from pocketmq.runtime.clock import Clock

log = logging.getLogger("broker")

CLIENT_EXPIRED_S: Final = 120.0
"""A client without a heartbeat for this long is gone, and its connection is closed (Apache: CHANNEL_EXPIRED_TIMEOUT)."""

NAME_SIZE_MAX: Final = 255
"""Characters of a client id and of a producer group; Java's clients have the same limit for groups."""
SUBSCRIPTIONS_SIZE_MAX: Final = 1 << 20
"""Characters of all subscriptions of a group."""

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERES: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ClientChannelInfo(msgspec.Struct):
    """A client on a connection, as one group knows it. `last_update_s` is monotonic."""

    channel: Channel
    client_id: str
    language: str | int
    version: int
    last_update_s: float


class ConsumerGroupInfo:
    """A consumer group with somebody in it."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.consume_type = CONSUME_TYPES[1]
        self.message_model = MESSAGE_MODELS[1]
        self.consume_from_where = CONSUME_FROM_WHERES[0]
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.clients: dict[Channel, ClientChannelInfo] = {}
        self.next_told_s = 0.0
        """Until then the group is not told again that it changed."""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == MESSAGE_MODELS[0]

    def client_ids(self) -> list[str]:
        """Every client id once; two processes that share one count as one, as in Apache."""
        return list(dict.fromkeys(client.client_id for client in self.clients.values()))

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """The client of that id, or None."""
        return next((client for client in self.clients.values() if client.client_id == client_id), None)

    def update(self, data: ConsumerData) -> bool:
        """Take over what a heartbeat says of the group. True when the set of topics changed.

        A subscription replaces an older one only when its version is greater: heartbeats may overtake each other.
        """
        self.consume_type = _name(data.consume_type, CONSUME_TYPES)
        self.message_model = _name(data.message_model, MESSAGE_MODELS)
        self.consume_from_where = _name(data.consume_from_where, CONSUME_FROM_WHERES)
        told = {subscription.topic: subscription for subscription in data.subscription_data_set}
        topics_before = set(self.subscriptions)
        for topic, subscription in told.items():
            present = self.subscriptions.get(topic)
            if present is None or subscription.sub_version > present.sub_version:
                self.subscriptions[topic] = subscription
        if gone := topics_before - set(told):
            more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
            log.info("group %s no longer subscribes to %s%s", self.group, ", ".join(sorted(gone)[:3]), more)
        for topic in gone:
            del self.subscriptions[topic]
        return set(self.subscriptions) != topics_before


def _name(value: str | int, names: tuple[str, ...]) -> str:
    """The name of an enum constant that came as name, ordinal or ordinal in text; an unknown one stays as it is."""
    text = str(value)
    if text.isascii() and text.isdigit():
        return names[int(text)] if int(text) < len(names) else text
    return text


class ClientRegistry:
    """The producers and consumers of this broker. `consumers` and `producers` are for reading."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        clock: Clock,
        notifier: GroupNotifier,
        on_group_gone: Callable[[str], None] = lambda group: None,
    ) -> None:
        """`on_group_gone` is called when the last consumer of a group left."""
        self._config = config
        self._groups = groups
        self._clock = clock
        self._notifier = notifier
        self._refusals = LimitRefusals(clock, "heartbeat refused")
        self._registration_count = 0
        self._producers_by_id: dict[str, dict[tuple[str, Channel], ClientChannelInfo]] = {}
        self.consumers: dict[str, ConsumerGroupInfo] = {}
        self.producers: dict[str, dict[Channel, ClientChannelInfo]] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._on_group_gone = on_group_gone

    # --- what clients say --------------------------------------------------------------------------------------------

    def register_consumer(
        self, data: ConsumerData, channel: Channel, client_id: str, language: str | int, version: int
    ) -> bool:
        """A heartbeat of a consumer. True when the group changed: a connection more, or another set of topics.

        Raises RemotingError when it is more than is kept.
        """
        self._check_room(data.group_name, channel)
        self._check_subscriptions(data)
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroupInfo(data.group_name)
        is_new = self._refresh(group.clients, channel, client_id, language, version)
        is_changed = group.update(data) or is_new
        if is_new:
            self._watch(channel, data.group_name)
        if is_changed:
            self._notify(group)
        return is_changed

    def register_producer(self, group: str, channel: Channel, client_id: str, language: str | int, version: int) -> None:
        """A heartbeat of a producer. Raises RemotingError when it is more than is kept."""
        self._check_room(group, channel)
        table = self.producers.get(group)
        if table is None:
            if len(self.producers) >= self._config.max_producer_groups:
                self._refusals.refuse(f"{len(self.producers)} producer groups are connected, the limit (maxProducerGroups)")
            table = self.producers[group] = {}
        before = table.get(channel)
        if before is not None and before.client_id != client_id:
            self._forget_id(group, channel, before.client_id)
        if self._refresh(table, channel, client_id, language, version):
            self._watch(channel, group)
        self._producers_by_id.setdefault(client_id, {})[group, channel] = table[channel]

    def unregister_consumer(self, group: str, channel: Channel) -> None:
        """A consumer says goodbye; the others of its group hear of it."""
        self._drop_consumer(group, channel)

    def unregister_producer(self, group: str, channel: Channel) -> None:
        """A producer says goodbye."""
        self._drop_producer(group, channel)

    # --- who is there ------------------------------------------------------------------------------------------------

    def consumer_group(self, group: str) -> ConsumerGroupInfo | None:
        """The group, if any consumer of it is connected."""
        return self.consumers.get(group)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group's heartbeats say it wants of `topic`."""
        info = self.consumers.get(group)
        return None if info is None else info.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """The connected groups that subscribe to `topic` (Java: queryTopicConsumeByWho)."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}

    def producer_clients(self, group: str) -> list[ClientChannelInfo]:
        """The connected producers of a group."""
        return list(self.producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Channel | None:
        """The connection of the producers with that client id: of several the one that was heard from last."""
        found = self._producers_by_id.get(client_id)
        return max(found.values(), key=lambda info: info.last_update_s).channel if found else None

    # --- who is gone -------------------------------------------------------------------------------------------------

    def channel_closed(self, channel: Channel) -> None:
        """Forget a connection in all its groups. Called by the channel itself, once registered."""
        for group in self._groups_of.pop(channel, set()):
            self._drop_consumer(group, channel)
            self._drop_producer(group, channel)

    def scan(self) -> None:
        """Close the connections whose heartbeats stopped; to be called every 10 s."""
        oldest = self._clock.monotonic() - CLIENT_EXPIRED_S
        tables = [group.clients for group in self.consumers.values()] + list(self.producers.values())
        expired = {info.channel for table in tables for info in table.values() if info.last_update_s < oldest}
        for channel in expired:
            log.warning("closing %s: no heartbeat for %.0f s", channel, CLIENT_EXPIRED_S)
            self.channel_closed(channel)
            channel.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_room(self, group: str, channel: Channel) -> None:
        """Raises RemotingError when a client may not be added to a group."""
        groups = self._groups_of.get(channel, ())
        if group in groups:
            return
        if len(groups) >= self._config.max_groups_per_connection:
            limit = self._config.max_groups_per_connection
            self._refusals.refuse(f"{channel.remote_address} is in {limit} groups, the limit (maxGroupsPerConnection)")
        if self._registration_count >= self._config.max_client_registrations:
            limit = self._config.max_client_registrations
            self._refusals.refuse(f"clients are registered {limit} times, the limit (maxClientRegistrations)")

    def _check_subscriptions(self, data: ConsumerData) -> None:
        size = sum(
            len(one.topic) + len(one.sub_string) + sum(map(len, one.tags_set or ())) + 8 * len(one.code_set or ())
            for one in data.subscription_data_set
        )
        if size > SUBSCRIPTIONS_SIZE_MAX:
            self._refusals.refuse(f"subscriptions of {size} characters in one group, limit {SUBSCRIPTIONS_SIZE_MAX}")

    def _notify(self, group: ConsumerGroupInfo) -> None:
        """Tell the clients of a group that it changed, unless the broker or the group wants no such calls."""
        group_config = self._groups.get(group.group)
        if not self._config.notify_consumer_ids_changed_enable:
            return
        if group_config is not None and not group_config.notify_consumer_ids_changed_enable:
            return
        self._notifier.changed(group)

    def _refresh(
        self,
        table: dict[Channel, ClientChannelInfo],
        channel: Channel,
        client_id: str,
        language: str | int,
        version: int,
    ) -> bool:
        now = self._clock.monotonic()
        info = table.get(channel)
        if info is None:
            table[channel] = ClientChannelInfo(channel, client_id, language, version, now)
            self._registration_count += 1
            return True
        info.client_id, info.last_update_s = client_id, now
        return False

    def _watch(self, channel: Channel, group: str) -> None:
        groups = self._groups_of.get(channel)
        if groups is None:
            groups = self._groups_of[channel] = set()
            if not channel.attachments.get("registered"):
                channel.attachments["registered"] = True
                channel.on_close(self.channel_closed)
        groups.add(group)

    def _drop_consumer(self, group: str, channel: Channel) -> None:
        info = self.consumers.get(group)
        if info is None or info.clients.pop(channel, None) is None:
            return
        self._unwatch(group, channel)
        if not info.clients:
            del self.consumers[group]
            self._on_group_gone(group)
        self._notify(info)

    def _drop_producer(self, group: str, channel: Channel) -> None:
        table = self.producers.get(group)
        info = None if table is None else table.pop(channel, None)
        if table is None or info is None:
            return
        self._forget_id(group, channel, info.client_id)
        self._unwatch(group, channel)
        if not table:
            del self.producers[group]

    def _forget_id(self, group: str, channel: Channel, client_id: str) -> None:
        same_id = self._producers_by_id[client_id]
        del same_id[group, channel]
        if not same_id:
            del self._producers_by_id[client_id]

    def _unwatch(self, group: str, channel: Channel) -> None:
        """A client of a connection left a group; it may be in it as the other kind still."""
        self._registration_count -= 1
        groups, consumers, producers = self._groups_of.get(channel), self.consumers.get(group), self.producers.get(group)
        if groups is None or (consumers and channel in consumers.clients) or (producers and channel in producers):
            return
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]

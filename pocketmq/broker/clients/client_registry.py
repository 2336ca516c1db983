"""ClientRegistry: the connected producers and consumers by group, as reported by their heartbeats.

A client is identified by its connection. It is removed when the connection closes, when it unregisters
(UNREGISTER_CLIENT), or when no heartbeat came for 120 s (monotonic time). The remaining consumers of its group are notified
at once (NOTIFY_CONSUMER_IDS_CHANGED), so that they reallocate the queues without waiting for their next rebalance.

The amount of data kept for clients is limited: a heartbeat beyond a limit is refused with the limit's config key.
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
from pocketmq.remoting.channel import Channel
from pocketmq.runtime.clock import Clock

log = logging.getLogger("broker")

CLIENT_EXPIRED_S: Final = 120.0
"""A client without a heartbeat for this long is removed and its connection closed (Apache: CHANNEL_EXPIRED_TIMEOUT)."""

NAME_SIZE_MAX: Final = 255
"""Maximum characters of a client id and of a producer group; Java's clients have the same limit for groups."""
SUBSCRIPTIONS_SIZE_MAX: Final = 1 << 20
"""Maximum characters of all subscriptions of a group together."""

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
    """A client of one group on one connection. `last_update_s`: monotonic time of its last heartbeat."""

    channel: Channel
    client_id: str
    language: str | int
    version: int
    last_update_s: float = 0.0


class ConsumerGroupInfo:
    """A consumer group with at least one connected consumer."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.consume_type = CONSUME_TYPES[1]
        self.message_model = MESSAGE_MODELS[1]
        self.consume_from_where = CONSUME_FROM_WHERES[0]
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.clients: dict[Channel, ClientChannelInfo] = {}
        self.next_notify_s = 0.0
        """Monotonic time before which the group is not notified of a change again."""
        self.refused_locks: dict[Channel, bool] = {}
        """Connections to which a lock was refused since the last one was freed -> whether they waited for it in vain."""

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == MESSAGE_MODELS[0]

    def client_ids(self) -> list[str]:
        """Return the distinct client ids; two processes with the same id count as one, as in Apache."""
        return list(dict.fromkeys(client.client_id for client in self.clients.values()))

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return a client with that id, or None."""
        return next((client for client in self.clients.values() if client.client_id == client_id), None)

    def update(self, data: ConsumerData) -> bool:
        """Update the group from a heartbeat. Return True when the set of topics changed.

        A subscription is replaced only by one with a greater version, because heartbeats may overtake each other.
        """
        self.consume_type = _name(data.consume_type, CONSUME_TYPES)
        self.message_model = _name(data.message_model, MESSAGE_MODELS)
        self.consume_from_where = _name(data.consume_from_where, CONSUME_FROM_WHERES)
        received = {subscription.topic: subscription for subscription in data.subscription_data_set}
        topics_before = set(self.subscriptions)
        for topic, subscription in received.items():
            present = self.subscriptions.get(topic)
            if present is None or subscription.sub_version > present.sub_version:
                self.subscriptions[topic] = subscription
        if gone := topics_before - set(received):
            more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
            log.info("group %s no longer subscribes to %s%s", self.group, ", ".join(sorted(gone)[:3]), more)
        for topic in gone:
            del self.subscriptions[topic]
        return set(self.subscriptions) != topics_before


def _name(value: str | int, names: tuple[str, ...]) -> str:
    """Return the name of an enum constant given by name, ordinal or ordinal as text; an unknown value is kept."""
    text = str(value)
    if text.isascii() and text.isdigit():
        return names[int(text)] if int(text) < len(names) else text
    return text


class ClientRegistry:
    """The connected producers and consumers. `consumers` and `producers` are read-only for others."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        clock: Clock,
        notifier: GroupNotifier,
        on_group_gone: Callable[[str], None] = lambda group: None,
    ) -> None:
        """`on_group_gone` is called with the group when its last consumer is removed."""
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

    # --- registering --------------------------------------------------------------------------------------------------

    def register_consumer(self, data: ConsumerData, client: ClientChannelInfo) -> None:
        """Handle a consumer's heartbeat. Raises RemotingError beyond a limit."""
        channel = client.channel
        self._check_room(data.group_name, channel)
        self._check_subscriptions(data)
        group = self.consumers.get(data.group_name)
        if group is None:
            group = self.consumers[data.group_name] = ConsumerGroupInfo(data.group_name)
        is_new = self._refresh(group.clients, client)
        if is_new:
            self._watch(channel, data.group_name)
            channel.attachments.get("left groups", {}).pop(data.group_name, None)
        if group.update(data) or is_new:
            self._notify(group)

    def register_producer(self, group: str, client: ClientChannelInfo) -> None:
        """Handle a producer's heartbeat. Raises RemotingError beyond a limit."""
        channel, client_id = client.channel, client.client_id
        self._check_room(group, channel)
        table = self.producers.get(group)
        if table is None:
            if len(self.producers) >= self._config.max_producer_groups:
                self._refusals.refuse(f"{len(self.producers)} producer groups are connected, the limit (maxProducerGroups)")
            table = self.producers[group] = {}
        before = table.get(channel)
        if before is not None and before.client_id != client_id:
            self._forget_id(group, channel, before.client_id)
        if self._refresh(table, client):
            self._watch(channel, group)
        self._producers_by_id.setdefault(client_id, {})[group, channel] = table[channel]

    def unregister_consumer(self, group: str, channel: Channel) -> str | None:
        """Remove a consumer that unregistered, and notify the rest of its group. Return its client id, None if unknown."""
        info = self.consumers.get(group)
        client = None if info is None else info.clients.get(channel)
        if client is None:
            return None
        self._drop_consumer(group, channel)
        left: dict[str, str] = channel.attachments.setdefault("left groups", {})
        left[group] = client.client_id
        if len(left) > self._config.max_groups_per_connection:
            del left[next(iter(left))]
        return client.client_id

    # --- looking up ---------------------------------------------------------------------------------------------------

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the group's subscription to `topic`, or None."""
        info = self.consumers.get(group)
        return None if info is None else info.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the connected groups that subscribe to `topic` (Java: queryTopicConsumeByWho)."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}

    def producer_clients(self, group: str) -> list[ClientChannelInfo]:
        """Return the connected producers of a group."""
        return list(self.producers.get(group, {}).values())

    def find_producer(self, client_id: str) -> Channel | None:
        """Return the connection of a producer with that client id; of several, the one with the latest heartbeat."""
        found = self._producers_by_id.get(client_id)
        return max(found.values(), key=lambda info: info.last_update_s).channel if found else None

    def has_client(self, group: str, client_id: str) -> bool:
        """Whether a consumer with that client id is connected."""
        info = self.consumers.get(group)
        return info is not None and info.find_client(client_id) is not None

    def has_left(self, group: str, client_id: str, channel: Channel) -> bool:
        """Whether a consumer has unregistered from a group, and not registered again on that connection."""
        return bool(channel.attachments.get("left groups", {}).get(group) == client_id)

    # --- queue locks --------------------------------------------------------------------------------------------------

    def may_wait_for_locks(self, group: str, channel: Channel) -> bool:
        """Whether a connection is in a group, and has not waited in vain for a lock since the last one was freed."""
        info = self.consumers.get(group)
        return info is not None and channel in info.clients and not info.refused_locks.get(channel, False)

    def lock_refused(self, group: str, channel: Channel, *, has_waited: bool) -> None:
        """Remember that a queue lock was refused to a connection, possibly after a wait."""
        info = self.consumers.get(group)
        if info is not None and channel in info.clients:
            info.refused_locks[channel] = has_waited or info.refused_locks.get(channel, False)

    def lock_freed(self, group: str) -> None:
        """Notify a group again if a member was refused a queue lock: it would ask again only after 20 s."""
        info = self.consumers.get(group)
        if info is not None and info.refused_locks:
            info.refused_locks.clear()
            self._notify(info)

    # --- removing -----------------------------------------------------------------------------------------------------

    def channel_closed(self, channel: Channel) -> None:
        """Remove a connection from all its groups. Called when a channel with registered clients closes."""
        for group in self._groups_of.pop(channel, set()):
            self._drop_consumer(group, channel)
            self.unregister_producer(group, channel)

    def scan(self) -> None:
        """Close the connections whose heartbeats stopped. Must be called every 10 s."""
        oldest = self._clock.monotonic() - CLIENT_EXPIRED_S
        tables = [group.clients for group in self.consumers.values()] + list(self.producers.values())
        expired = {info.channel for table in tables for info in table.values() if info.last_update_s < oldest}
        for channel in expired:
            log.warning("closing %s: no heartbeat for %.0f s", channel, CLIENT_EXPIRED_S)
            self.channel_closed(channel)
            channel.close()

    # --- internals ----------------------------------------------------------------------------------------------------

    def _check_room(self, group: str, channel: Channel) -> None:
        """Raises RemotingError when adding a client to a group would exceed a limit."""
        groups = self._groups_of.get(channel, ())
        if group in groups:
            return
        if len(groups) >= self._config.max_groups_per_connection:
            limit = self._config.max_groups_per_connection
            self._refusals.refuse(f"{channel.remote_address} is in {limit} groups, the limit (maxGroupsPerConnection)")
        if self._registration_count >= self._config.max_client_registrations:
            limit = self._config.max_client_registrations
            self._refusals.refuse(f"{limit} clients are registered, the limit (maxClientRegistrations)")

    def _check_subscriptions(self, data: ConsumerData) -> None:
        size = sum(
            len(one.topic) + len(one.sub_string) + sum(map(len, one.tags_set or ())) + 8 * len(one.code_set or ())
            for one in data.subscription_data_set
        )
        if size > SUBSCRIPTIONS_SIZE_MAX:
            self._refusals.refuse(
                f"subscriptions of one group have {size} characters, the limit is {SUBSCRIPTIONS_SIZE_MAX}"
            )

    def _notify(self, group: ConsumerGroupInfo) -> None:
        """Notify the clients of a group of a change, unless notifyConsumerIdsChangedEnable is off here or in the group."""
        group_config = self._groups.get(group.group)
        if not self._config.notify_consumer_ids_changed_enable:
            return
        if group_config is not None and not group_config.notify_consumer_ids_changed_enable:
            return
        self._notifier.changed(group)

    def _refresh(self, table: dict[Channel, ClientChannelInfo], client: ClientChannelInfo) -> bool:
        now_s = self._clock.monotonic()
        info = table.get(client.channel)
        if info is None:
            table[client.channel] = msgspec.structs.replace(client, last_update_s=now_s)
            self._registration_count += 1
            return True
        info.client_id, info.last_update_s = client.client_id, now_s
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
        info.refused_locks.pop(channel, None)
        self._unwatch(group, channel)
        if not info.clients:
            del self.consumers[group]
            self._on_group_gone(group)
        self._notify(info)

    def unregister_producer(self, group: str, channel: Channel) -> None:
        """Remove a producer."""
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
        """Remove a producer or consumer from a group; the connection may still be in the group as the other of the two."""
        self._registration_count -= 1
        groups, consumers, producers = self._groups_of.get(channel), self.consumers.get(group), self.producers.get(group)
        if groups is None or (consumers and channel in consumers.clients) or (producers and channel in producers):
            return
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]

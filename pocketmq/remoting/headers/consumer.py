"""Clients and consumer groups."""

from msgspec import field

from pocketmq.remoting.header import CommandHeader


class UnregisterClientRequestHeader(CommandHeader):
    """UNREGISTER_CLIENT."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupRequestHeader(CommandHeader):
    """GET_CONSUMER_LIST_BY_GROUP, GET_CONSUMER_CONNECTION_LIST, NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class ProducerGroupRequestHeader(CommandHeader):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class DeleteSubscriptionGroupRequestHeader(CommandHeader):
    """DELETE_SUBSCRIPTIONGROUP. The field is removeOffset in 4.9 and cleanOffset in 5.x."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False


class GroupRequestHeader(CommandHeader):
    """GET_SUBSCRIPTIONGROUP_CONFIG, QUERY_TOPICS_BY_CONSUMER."""

    group: str


class ConsumeStatsRequestHeader(CommandHeader):
    """GET_CONSUME_STATS. topic absent or empty: all topics of the group."""

    consumer_group: str
    topic: str | None = None


class TopicAndGroupRequestHeader(CommandHeader):
    """QUERY_CONSUME_TIME_SPAN, QUERY_SUBSCRIPTION_BY_CONSUMER."""

    topic: str
    group: str


class ConsumerStatusRequestHeader(TopicAndGroupRequestHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS and, towards clients, GET_CONSUMER_STATUS_FROM_CLIENT."""

    client_addr: str | None = None


class CloneGroupOffsetRequestHeader(CommandHeader):
    """CLONE_GROUP_OFFSET. topic absent or empty: all topics of the source. offline: also topics not subscribed."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class BrokerStatsRequestHeader(CommandHeader):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class BrokerConsumeStatsRequestHeader(CommandHeader):
    """GET_BROKER_CONSUME_STATS. is_order: ordered topics only."""

    is_order: bool = False

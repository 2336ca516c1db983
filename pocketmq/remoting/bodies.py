"""JSON bodies as structs: one declaration per shape, camelCase on the wire, unknown and absent fields allowed.

`decode_body` reads the dialects of all clients (unquoted keys, numbers as text, enum names or ordinals); `encode_body`
writes strict JSON with fields in alphabetical order, as fastjson does, and omits None.
"""

from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.remoting import fastjson
from pocketmq.remoting.header import I64
from pocketmq.remoting.layout import FRAME_SIZE_MAX

B = TypeVar("B", bound=msgspec.Struct)


class Body(msgspec.Struct, rename="camel", omit_defaults=False):
    """Base of all bodies."""


REQUEST_BODY_SIZE_MAX: Final = 2 * 1024 * 1024
"""Maximum size in bytes of a JSON body of a request, because decoding it blocks the event loop."""


def decode_body(declared: type[B], body: bytes, size_max: int = FRAME_SIZE_MAX) -> B:
    """Decode a body. Raises msgspec.ValidationError or ValueError with the invalid field."""
    if len(body) > size_max:
        raise ValueError(f"it has {len(body)} bytes, the limit is {size_max}")
    try:
        return msgspec.json.decode(body, type=declared, strict=False)
    except fastjson.DECODE_ERRORS:
        pass
    try:
        return msgspec.convert(_without_nulls(fastjson.loads(body)), declared, strict=False)
    except RecursionError:
        raise ValueError(fastjson.TOO_DEEP) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def encode_body(value: Any) -> bytes:
    """Encode a body."""
    data = fastjson.dumps(value)
    # Removing None from a large table takes much longer than encoding it, so it is done only if there is any.
    return data if b":null" not in data else fastjson.dumps(_without_none(value))


def _without_none(value: Any) -> Any:
    if isinstance(value, (dict, msgspec.Struct)):
        fields = value if isinstance(value, dict) else _fields(value)
        return {key: _without_none(item) for key, item in fields.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return value


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {encode_name: getattr(value, name) for encode_name, name in _names(type(value))}


@cache
def _names(declared: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return (wire name, field name) of each field. Cached, because `msgspec.structs.fields` is slow."""
    return tuple((field.encode_name, field.name) for field in msgspec.structs.fields(declared))


class DataVersion(Body):
    """Version of a table; brokers and name servers compare counter and timestamp."""

    counter: I64 = 0
    timestamp: I64 = 0
    state_version: I64 | None = None


class TopicConfig(Body):
    """A topic as brokers keep and register it. perm: 4 read, 2 write, 1 inherit."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class CreateTopicListRequestBody(Body):
    """Topics that 5.x's tools create with one request."""

    topic_config_list: list[TopicConfig]


class QueueData(Body):
    """The queues of a topic on one broker."""

    broker_name: str
    perm: int
    read_queue_nums: int
    write_queue_nums: int
    topic_sys_flag: int = 0


class BrokerData(Body):
    """A broker name and its addresses by broker id.

    enable_acting_master exists since 5.x and is sent to 5.x clients; the Rust client fails to read a route without it.
    """

    broker_name: str
    cluster: str = ""
    broker_addrs: dict[str, str] = msgspec.field(default_factory=dict)
    enable_acting_master: bool | None = None


class TopicRouteData(Body):
    """Route of a topic: its brokers and queues."""

    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, Any] = msgspec.field(default_factory=dict)
    order_topic_conf: str | None = None


class TopicList(Body):
    """Names of topics."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class MessageQueue(msgspec.Struct, rename="camel", frozen=True):
    """One queue of a topic on a broker."""

    broker_name: str
    queue_id: int
    topic: str


class OffsetMovedEvent(Body):
    """Body of the messages in OFFSET_MOVED_EVENT: the offset that a consumer requested, and its new offset."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: int
    offset_new: int


class KVTable(Body):
    """A map of strings."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionData(Body):
    """Subscription of a consumer group to a topic."""

    topic: str
    sub_string: str = "*"
    expression_type: str = "TAG"
    sub_version: int = 0
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[int] = msgspec.field(default_factory=list)
    class_filter_mode: bool = False


class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class ConsumerData(Body):
    """A consumer group in a heartbeat. Enums are names (Java, Go) or ordinals (C++)."""

    group_name: str
    consume_type: str | int = "CONSUME_PASSIVELY"
    message_model: str | int = "CLUSTERING"
    consume_from_where: str | int = "CONSUME_FROM_LAST_OFFSET"
    unit_mode: bool = False
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)


class ProducerData(Body):
    """A producer group in a heartbeat."""

    group_name: str


class HeartbeatData(Body):
    """Body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class LockBatchBody(Body):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class LockOkBody(Body):
    """Answer of LOCK_BATCH_MQ: the queues that the client now holds."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class ConsumerIdList(Body):
    """Answer of GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker with their version: answer of GET_ALL_TOPIC_CONFIG, part of REGISTER_BROKER."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class RegisterBrokerBody(Body):
    """Body of REGISTER_BROKER."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(default_factory=TopicConfigSerializeWrapper)
    filter_server_list: list[str] = msgspec.field(default_factory=list)


class ClusterInfo(Body):
    """Answer of GET_BROKER_CLUSTER_INFO: brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class SubscriptionGroupConfig(Body):
    """Settings of a consumer group. Fields that may be None exist since 5.x: set by tools, read by proxy and clients."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    group_retry_policy: dict[str, Any] | None = None
    group_sys_flag: int | None = None
    consume_timeout_minute: int | None = None
    subscription_data_set: list[dict[str, Any]] | None = None
    attributes: dict[str, str] | None = None


class SubscriptionGroupList(Body):
    """Consumer groups that 5.x's tools create with one request."""

    group_config_list: list[SubscriptionGroupConfig]


class Connection(Body):
    """A client in GET_CONSUMER_CONNECTION_LIST and GET_PRODUCER_CONNECTION_LIST. client_addr: `ip:port`."""

    client_id: str
    client_addr: str
    language: str | int
    version: int


# --- 5.x's access administration: users and ACLs (codes 3001 to 3010)


class UserInfo(Body):
    """A user. An update does not change fields that are None. user_type: Super, Normal; user_status: enable, disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r})"  # without the password, because tracebacks may show it


class PolicyEntryInfo(Body):
    """The decision of a policy about one resource. source_ips: addresses and CIDR networks; none: all addresses."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """One of a subject's policies. policy_type: Custom (also if it is None) or Default, which is evaluated second."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """The policies of a subject, such as `User:alice`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None

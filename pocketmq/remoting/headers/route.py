"""Registration of brokers at name servers, and key-value config."""

from pocketmq.remoting.header import I32, I64, CommandHeader


class RegisterBrokerRequestHeader(CommandHeader):
    """REGISTER_BROKER. body_crc32=0: not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool = False
    body_crc32: I32 = 0
    heartbeat_timeout_millis: I64 | None = None
    enable_acting_master: bool | None = None
    """5.x: whether a slave of this broker name acts as master while no master is alive. None: the server is older."""


class RegisterBrokerResponseHeader(CommandHeader):
    """REGISTER_BROKER: addresses of the master of a slave; absent for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerIdentityRequestHeader(CommandHeader):
    """UNREGISTER_BROKER, QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


class BrokerHeartbeatRequestHeader(CommandHeader):
    """BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str | None = None


class BrokerMemberGroupRequestHeader(CommandHeader):
    """GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


class NotifyMinBrokerIdChangeRequestHeader(CommandHeader):
    """NOTIFY_MIN_BROKER_ID_CHANGE. `offline_broker_addr`: the broker that went offline; None if one came online."""

    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


class ExchangeHAInfoRequestHeader(CommandHeader):
    """EXCHANGE_BROKER_HA_INFO: a master's addresses, sent to a slave; without `master_ha_address`, a query for them."""

    master_ha_address: str | None = None
    master_flush_offset: I64 | None = None
    master_address: str | None = None


class ExchangeHAInfoResponseHeader(ExchangeHAInfoRequestHeader):
    """EXCHANGE_BROKER_HA_INFO: addresses of the master that was asked."""


class QueryDataVersionResponseHeader(CommandHeader):
    """QUERY_DATA_VERSION."""

    changed: bool


class BrokerNameRequestHeader(CommandHeader):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


class WipeWritePermResponseHeader(CommandHeader):
    """WIPE_WRITE_PERM_OF_BROKER: number of topics that lost the permission."""

    wipe_topic_count: I32


class AddWritePermResponseHeader(CommandHeader):
    """ADD_WRITE_PERM_OF_BROKER: number of topics that got the permission."""

    add_topic_count: I32


class KVConfigKeyRequestHeader(CommandHeader):
    """GET_KV_CONFIG, DELETE_KV_CONFIG."""

    namespace: str
    key: str


class PutKVConfigRequestHeader(KVConfigKeyRequestHeader):
    """PUT_KV_CONFIG."""

    value: str


class GetKVConfigResponseHeader(CommandHeader):
    """GET_KV_CONFIG."""

    value: str | None = None


class KVNamespaceRequestHeader(CommandHeader):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: str


class GetBrokerConfigRequestHeader(CommandHeader):
    """GET_BROKER_CONFIG. with_updatable_keys: PocketMQ's own field, for tools that show which keys can be changed."""

    with_updatable_keys: bool = False


class ConfigVersionResponseHeader(CommandHeader):
    """GET_BROKER_CONFIG: the DataVersion as JSON text; updatable_keys: separated by blanks, if they were asked for."""

    version: str
    updatable_keys: str | None = None

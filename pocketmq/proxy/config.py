"""Settings of the gRPC front, with the keys of Apache's rmq-proxy.json where it has them."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pocketmq.metrics.config import MetricsConfig
from pocketmq.runtime.config import setting
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL

GRPC_PORT: Final = 8081
_INT_MAX: Final = (1 << 31) - 1
_HOUR_MS: Final = 3_600_000


class ProxyMode(Enum):
    """LOCAL: in a broker's process, for that broker alone. CLUSTER: before all brokers of the name servers."""

    CLUSTER = "CLUSTER"
    LOCAL = "LOCAL"


@dataclass
class GrpcConfig:
    """Settings of the front in a broker and on its own."""

    grpc_server_port: int | None = setting(None, low=0, high=65535, important=True)
    grpc_advertise: str | None = setting(None, important=True)
    """`HOST`, `HOST:PORT` or `:PORT` that routes name. None: the address that the client came by."""
    grpc_max_inbound_message_size: int = setting(130 << 20, low=1 << 16, high=_INT_MAX)
    max_message_size: int = setting(4 << 20, low=1, high=_INT_MAX)
    enable_message_body_empty_check: bool = True
    max_user_property_size: int = setting(16 << 10, low=1, high=32_767)
    user_property_max_num: int = setting(128, low=0, high=_INT_MAX)
    max_message_group_size: int = setting(64, low=1, high=32_767)
    enable_topic_message_type_check: bool = True
    use_delay_level: bool = False
    """Whether a delivery time is asked of brokers as the next longer delay level: those before 5.0 know no other delay."""
    message_delay_level: str = DEFAULT_MESSAGE_DELAY_LEVEL
    max_transaction_recovery_second: int = setting(3600, low=1, high=_INT_MAX)
    default_invisible_time_mills: int = setting(60_000, low=1000, high=_INT_MAX)
    min_invisible_time_mills_for_recv: int = setting(10_000, low=0, high=_INT_MAX)
    max_invisible_time_mills: int = setting(12 * _HOUR_MS, low=1000, high=_INT_MAX)
    grpc_client_producer_max_attempts: int = setting(3, low=1, high=1000)
    grpc_client_producer_backoff_initial_millis: int = setting(10, low=0, high=_INT_MAX)
    grpc_client_producer_backoff_max_millis: int = setting(1000, low=0, high=_INT_MAX)
    grpc_client_producer_backoff_multiplier: int = setting(2, low=1, high=1000)
    grpc_client_consumer_min_long_polling_timeout_millis: int = setting(5000, low=0, high=_INT_MAX)
    grpc_client_consumer_max_long_polling_timeout_millis: int = setting(20_000, low=0, high=_INT_MAX)
    grpc_client_consumer_long_polling_batch_size: int = setting(32, low=1, high=32)
    grpc_client_idle_time_mills: int = setting(120_000, low=1000, high=_INT_MAX)
    long_polling_reserve_time_in_millis: int = setting(100, low=0, high=10_000)
    enable_proxy_auto_renew: bool = True
    renew_ahead_time_millis: int = setting(10_000, low=100, high=_INT_MAX)
    renew_schedule_period_millis: int = setting(5000, low=100, high=_INT_MAX)
    renew_max_time_millis: int = setting(3 * _HOUR_MS, low=1000, high=_INT_MAX)
    max_renew_retry_times: int = setting(3, low=0, high=1000)
    invisible_time_millis_when_clear: int = setting(1000, low=0, high=_INT_MAX)
    # Limits of PocketMQ's own, on what peers can pin.
    grpc_max_clients: int = setting(10_000, low=1, high=_INT_MAX)
    grpc_max_new_clients_per_second: int = setting(200, low=1, high=_INT_MAX)
    grpc_max_streams_per_connection: int = setting(128, low=1, high=_INT_MAX)
    grpc_max_calls: int = setting(40_000, low=1, high=_INT_MAX)
    grpc_max_calls_per_client: int = setting(1024, low=1, high=_INT_MAX)
    grpc_max_messages_in_hand_per_client: int = setting(100_000, low=1, high=_INT_MAX)
    grpc_max_metadata_size: int = setting(16 << 10, low=1 << 10, high=1 << 20)


@dataclass
class ProxyConfig(MetricsConfig, GrpcConfig):
    """Settings of `mqproxy`."""

    namesrv_addr: str = setting("", important=True)
    proxy_mode: ProxyMode = setting(ProxyMode.CLUSTER, important=True)
    bind_address: str = setting("127.0.0.1", important=True)
    use_tls: bool = setting(False, key="useTLS")
    """Whether connections to brokers and name servers use TLS (tls.client.*)."""
    acl_enable: bool = False
    """Whether clients must sign; their secret keys are read from `plain_acl.yml`, and sign their requests to brokers."""


IGNORED_KEYS: Final = {
    "useEndpointPortFromRequest": "routes name the address that the client came by, or grpcAdvertise",
    "remotingListenPort": "remoting clients connect to the brokers",
    "transactionDataExpireMillis": "a transaction id contains what its end needs",
    "transactionHeartbeatPeriodSecond": "producers are registered by their own heartbeats",
    "rocketMQClusterName": "the brokers are those that the name servers know",
    "metricCollectorMode": "clients are told that metrics are off",
}

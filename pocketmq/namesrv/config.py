"""NamesrvConfig: Apache's keys and defaults, as far as they have an effect here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.metrics.config import MetricsConfig
from pocketmq.remoting.allow_list import networks
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.runtime.apache_keys import NAMESRV_KEYS
from pocketmq.runtime.config import setting
from pocketmq.runtime.config_updates import Rules
from pocketmq.runtime.lifecycle import StartError

REGISTER_PERIOD_MAX_S: Final = 60
"""Maximum time between two registrations of a broker, PocketMQ's or Apache's, whatever its registerNameServerPeriod."""


@dataclass
class NamesrvConfig(MetricsConfig, ConnectionLimits):
    """Settings of the name server. An empty path: nothing is kept on disk."""

    bind_address: str = setting("127.0.0.1", important=True)
    listen_port: int = setting(9876, low=0, high=65535, important=True)
    kv_config_path: str = setting(str(Path.home() / "namesrv" / "kvConfig.json"), important=True)
    max_kv_value_bytes: int = setting(1 << 20, low=1)
    max_kv_entries: int = setting(5_000, low=1)
    max_kv_total_bytes: int = setting(1 << 20, low=1)
    """Total size of all namespaces, keys and values."""
    config_store_path: str = ""
    order_message_enable: bool = False
    server_channel_max_idle_time_seconds: int = setting(120, low=REGISTER_PERIOD_MAX_S, high=86_400)
    """A shorter time would close the connections of healthy brokers and remove their routes."""

    admin_allow: str = ""
    """Addresses and CIDR networks, separated by commas, that may use administrative codes. Empty: all, as in Apache."""
    register_allow: str = ""
    """The same for brokers, which register and unregister."""
    support_acting_master: bool = False
    """5.x: whether routes show the slave with the smallest id as master while a broker name has none."""
    notify_min_broker_id_changed: bool = False
    """5.x: whether brokers are notified at once when the smallest id changes; else they learn of it within a second."""
    scan_not_active_broker_interval: int = setting(5_000, low=100, high=60_000)
    """Interval in ms between checks for silent brokers."""
    enable_controller_in_namesrv: bool = False
    """5.x: whether it contains a controller, which elects masters; refused at start."""
    refuse_second_broker: bool = True
    """Whether to refuse a broker whose name and id, or address, belong to another living broker; else it takes over."""
    register_brokers_max: int = setting(2_000, low=1)
    """Maximum number of registered brokers."""
    register_clusters_max: int = setting(1_000, low=1)
    register_topics_max: int = setting(50_000, low=1)
    """Maximum number of topics of one broker."""
    register_queues_max: int = setting(65_536, low=1)
    """Maximum number of queues of one topic on one broker."""
    register_name_size_max: int = setting(600, low=1)
    """Maximum length in characters of a name or address sent by a broker."""
    register_filter_servers_max: int = setting(16, low=0)
    """Maximum number of filter servers of one broker."""
    route_rows_max: int = setting(250_000, low=1)
    """Maximum number of rows of the route table: one for each topic of each broker."""


def check(config: NamesrvConfig) -> None:
    """Raise StartError for an invalid config. Called at start, and for each change while running."""
    if config.enable_controller_in_namesrv:
        raise StartError(
            "enableControllerInNamesrv=true: the controller, which elects masters, is not supported; give brokers fixed "
            "roles (brokerRole, brokerId)"
        )
    networks("adminAllow", config.admin_allow)
    networks("registerAllow", config.register_allow)


UPDATE_RULES: Final = Rules(
    frozenset({"orderMessageEnable", "serverChannelMaxIdleTimeSeconds"}), NAMESRV_KEYS, lambda config, *_: check(config)
)
"""Keys that UPDATE_NAMESRV_CONFIG may change; no addresses or paths."""
KEPT_FILE: Final = "namesrv.properties"
"""File beside kvConfigPath for the settings changed while a name server without a config file runs; Apache's name too."""


def kept_file(config: NamesrvConfig) -> Path | None:
    """Return the path of KEPT_FILE; None if nothing is kept on disk."""
    return Path(config.kv_config_path).with_name(KEPT_FILE) if config.kv_config_path else None

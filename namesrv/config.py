"""NamesrvConfig: Apache's keys and defaults, as far as they mean something here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.remoting.allow_list import networks
from pocketmq.remoting.limits import ConnectionLimits
from pocketmq.runtime.config import setting
from pocketmq.runtime.lifecycle import StartError

REGISTER_PERIOD_MAX_S: Final = 60
"""Brokers, Apache's too, register again after this long at the latest, whatever their registerNameServerPeriod says."""


@dataclass
class NamesrvConfig(ConnectionLimits):
    """The name server's settings. An empty path: nothing is kept on disk."""

    bind_address: str = setting("127.0.0.1", important=True)
    listen_port: int = setting(9876, low=0, high=65535, important=True)
    kv_config_path: str = setting(str(Path.home() / "namesrv" / "kvConfig.json"), important=True)
    max_kv_value_bytes: int = setting(1 << 20, low=1)
    max_kv_entries: int = setting(10_000, low=1)
    max_kv_total_bytes: int = setting(16 << 20, low=1)
    """Of all namespaces, keys and values together."""
    config_store_path: str = ""
    order_message_enable: bool = False
    server_channel_max_idle_time_seconds: int = setting(120, low=REGISTER_PERIOD_MAX_S, high=86_400)
    """A shorter time would close the connections of living brokers, and their routes would go with them."""

    admin_allow: str = ""
    """Addresses and CIDR networks, with , between, that administrative codes are served to. Empty: all, as in Apache."""
    register_allow: str = ""
    """The same for brokers: who may register and unregister."""
    refuse_second_broker: bool = True
    """Whether a broker is refused whose name and id, or address, another living broker has; else it takes them over."""
    register_brokers_max: int = setting(2_000, low=1)
    """Brokers that are registered at a time."""
    register_clusters_max: int = setting(1_000, low=1)
    register_topics_max: int = setting(50_000, low=1)
    """Topics of one broker."""
    register_queues_max: int = setting(65_536, low=1)
    """Queues of one topic on one broker."""
    register_name_size_max: int = setting(600, low=1)
    """Characters of one name or address that a broker tells."""
    register_filter_servers_max: int = setting(16, low=0)
    """Filter servers of one broker."""
    route_rows_max: int = setting(250_000, low=1)
    """Rows of the route table: topics of all brokers, each counted once for each broker."""


def check(config: NamesrvConfig) -> None:
    """Raises StartError for what this name server cannot be. Used at start, and for each change while running."""
    try:
        networks("adminAllow", config.admin_allow)
        networks("registerAllow", config.register_allow)
    except ValueError as error:
        raise StartError(str(error)) from None


CHANGEABLE: Final = frozenset({"orderMessageEnable", "serverChannelMaxIdleTimeSeconds"})
"""Keys that UPDATE_NAMESRV_CONFIG may set; never an address or a path."""

_NETTY: Final = "one event loop serves all connections"
IGNORED_KEYS: Final = {
    "rocketmqHome": "nothing is read from an installation folder",
    "namesrvAddr": "name servers do not talk to each other",
    "productEnvName": "cluster tests ask no other name server",
    "clusterTest": "cluster tests ask no other name server",
    "useEpollNativeSelector": _NETTY,
    "serverWorkerThreads": _NETTY,
    "serverSelectorThreads": _NETTY,
    "serverCallbackExecutorThreads": _NETTY,
    "serverOnewaySemaphoreValue": _NETTY,
    "serverAsyncSemaphoreValue": _NETTY,
    "serverPooledByteBufAllocatorEnable": _NETTY,
    "serverSocketSndBufSize": "the kernel sizes socket buffers",
    "serverSocketRcvBufSize": "the kernel sizes socket buffers",
    "serverSocketBacklog": "the backlog is 1024",
    "writeBufferHighWaterMark": "the limit of unsent bytes is fixed",
    "writeBufferLowWaterMark": "the limit of unsent bytes is fixed",
}

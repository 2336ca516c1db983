"""NamesrvConfig: Apache's keys and defaults, as far as they mean something here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from remoting.limits import ConnectionLimits
from runtime.config import setting


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
    server_channel_max_idle_time_seconds: int = setting(120, low=1)


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

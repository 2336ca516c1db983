"""Settings of the port for metrics and health, which the config classes of the servers inherit."""

from dataclasses import dataclass

from pocketmq.runtime.config import setting


@dataclass
class MetricsConfig:
    """PocketMQ's own config keys."""

    metrics_port: int | None = setting(None, low=0, high=65535)
    """Port of `/metrics` and `/health`; 0: any free one. None: off."""
    metrics_host: str = "127.0.0.1"
    """Address to bind. There is no authentication, so other machines can connect only if this is set."""

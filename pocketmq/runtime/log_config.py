"""Settings of the log."""

from dataclasses import dataclass
from enum import Enum

from pocketmq.runtime.config import setting


class LogFormat(Enum):
    """Form of a log record."""

    TEXT = "text"
    JSON = "json"


@dataclass
class LogConfig:
    """PocketMQ's own config keys; Apache configures its log by files of logback."""

    log_directory: str = ""
    """Folder of the log file; `~/logs/rocketmqlogs` is Apache's. Empty: everything goes to standard error, else only
    warnings and errors do."""
    log_format: LogFormat = LogFormat.TEXT
    """text or json."""
    log_file_size: int = setting(100 << 20, low=64 << 10)
    """Size in bytes at which a new log file is begun; the old one is renamed to `broker.log.1`."""
    log_file_count: int = setting(10, low=1, high=1000)
    """Number of old log files that are kept."""

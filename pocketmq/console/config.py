"""Settings of the console: keys of its optional config file, and of the command line."""

from dataclasses import dataclass
from typing import Final

from pocketmq.runtime.config import setting

CONSOLE_PORT: Final = 8088


@dataclass
class ConsoleConfig:
    """Settings of `pocketmq console`."""

    namesrv_addr: str = setting("", important=True)
    bind_address: str = setting("127.0.0.1", important=True)
    console_port: int = setting(CONSOLE_PORT, low=0, high=65535, important=True)
    console_write: bool = setting(False, important=True)
    """Whether the console changes anything: without it there are no forms, and requests for changes are refused."""
    console_hosts: str = setting("", important=True)
    """Host names by which browsers may address the console besides localhost and IP addresses, separated by `;`."""
    console_session_idle_minutes: int = setting(30, low=1, high=10_080)
    console_sessions_max: int = setting(100, low=1, high=10_000)
    console_request_timeout_seconds: int = setting(3, low=1, high=60)
    """Time limit of a request to a broker or name server."""

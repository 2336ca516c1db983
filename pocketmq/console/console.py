"""Console: settings, sessions and templates, which all its requests share."""

import logging

from jinja2 import Environment, PackageLoader, StrictUndefined

from pocketmq.client.access import Access
from pocketmq.console import values
from pocketmq.console.accounts import Accounts
from pocketmq.console.attempts import FailedAttempts
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.sampler import Sampler
from pocketmq.console.security import Tokens
from pocketmq.console.texts import KEYS
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("console")


class Console:
    """One console. Make it inside a running loop."""

    def __init__(self, config: ConsoleConfig, access: Access) -> None:
        """`access`: how to connect to the servers; its credentials belong to the console itself."""
        self.config = config
        self.accounts = Accounts(config, access)
        self.failed_attempts = FailedAttempts()
        self.sampler = Sampler(self.accounts.own)
        self.tokens = Tokens()
        self.refusals = RefusalLog(log)
        self.templates = _templates()
        self.done_keys = frozenset(key for key in KEYS if key.startswith("done."))
        # Cookies do not know ports: two consoles on one machine would take each other's.
        self.session_cookie = f"pocketmq_session_{config.console_port}"
        self.visitor_cookie = f"pocketmq_visitor_{config.console_port}"

    @property
    def hosts(self) -> list[str]:
        """The host names by which browsers may address the console."""
        given = [host.strip() for host in self.config.console_hosts.split(";") if host.strip()]
        return [*given, self.config.bind_address]

    async def close(self) -> None:
        """End all connections."""
        await self.accounts.close()


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("pocketmq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(values.FILTERS)
    environment.globals["zone"] = values.zone
    return environment

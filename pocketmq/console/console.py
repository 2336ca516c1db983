"""Console: settings, sessions and templates, which all its requests share."""

import logging
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from pocketmq.client.access import Access
from pocketmq.console import values
from pocketmq.console.accounts import Accounts
from pocketmq.console.bodies import FORMS
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.sampler import Sampler
from pocketmq.console.security import Tokens
from pocketmq.console.texts import KEYS
from pocketmq.runtime.admission import RateByAddress
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("console")

FAILED_SIGN_INS_AT_ONCE: Final = 5
"""Failed sign-ins that an address may have at once, so that secret keys cannot be guessed by trying."""
FAILED_SIGN_IN_INTERVAL_S: Final = 5.0
"""Time after which it may have one more."""


class Console:
    """One console. Make it inside a running loop."""

    def __init__(self, config: ConsoleConfig, access: Access) -> None:
        """`access`: how to connect to the servers; its credentials belong to the console itself."""
        self.config = config
        self.accounts = Accounts(config, access)
        self.failed_sign_ins = RateByAddress(FAILED_SIGN_INS_AT_ONCE, FAILED_SIGN_IN_INTERVAL_S)
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
    environment.globals.update(zone=values.zone, body_forms_known=FORMS)
    return environment

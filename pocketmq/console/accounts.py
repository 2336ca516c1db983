"""Accounts: who is signed in, and the connections by which requests are sent in that account's name.

An account is an access key and a secret key, as in mqadmin's tools.yml. The secret stays in this process; the browser gets
a random session id. Brokers decide what an account may do, because each request of a page is signed by it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.admin.api.brokers import runtime_info
from pocketmq.admin.api.client import AdminClient, AdminError, described, is_of_access
from pocketmq.client.access import Access
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.security import new_cookie
from pocketmq.remoting.signature import Credentials

_KEY_SIZE_MAX: Final = 1000


class Account:
    """Connections to all servers in the name of one account, or of none. `name` empty: requests are not signed."""

    def __init__(self, namesrv_addresses: Sequence[str], access: Access, timeout_s: float) -> None:
        self.name = "" if access.credentials is None else access.credentials.access_key
        self.client = AdminClient(namesrv_addresses, access, timeout_s)
        self.used_s = 0.0

    async def close(self) -> None:
        await self.client.__aexit__()


class SignInRefused(Exception):
    """The brokers do not know the account, or its secret key is another one."""


class Accounts:
    """The sessions, of which the longest unused one ends where there are too many. Use it inside a running loop."""

    def __init__(
        self,
        config: ConsoleConfig,
        access: Access,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`access`: how to connect without an account; its credentials, if it has any, belong to the console itself."""
        self._config = config
        self._tls = access.tls
        self._now_s = now_s
        self.sessions: dict[str, Account] = {}
        self.own = self._account(access.credentials)
        """The console's own account, in whose name it samples the brokers' figures."""
        self.anonymous = self._account(None) if access.credentials else self.own

    def _account(self, credentials: Credentials | None) -> Account:
        config = self._config
        addresses = [address for address in config.namesrv_addr.split(";") if address]
        return Account(addresses, Access(credentials, self._tls), config.console_request_timeout_seconds)

    def of(self, session_id: str) -> Account:
        """Return the account of a session; without one the account that does not sign."""
        account = self.sessions.get(session_id)
        if account is None or self._now_s() - account.used_s > self._config.console_session_idle_minutes * 60:
            return self.anonymous
        account.used_s = self._now_s()
        return account

    async def sign_in(self, access_key: str, secret_key: str) -> str:
        """Return the id of a new session. Raises SignInRefused, and AdminError if no broker can be asked."""
        if not access_key or not secret_key or len(access_key) + len(secret_key) > _KEY_SIZE_MAX:
            raise SignInRefused
        account = self._account(Credentials(access_key, secret_key))
        account.used_s = self._now_s()
        try:
            await _check(account)
        except BaseException:
            await account.close()
            raise
        await self.end_idle()
        if len(self.sessions) >= self._config.console_sessions_max:
            await self.sign_out(min(self.sessions, key=lambda one: self.sessions[one].used_s))
        session_id = new_cookie()
        self.sessions[session_id] = account
        return session_id

    async def sign_out(self, session_id: str) -> None:
        """End a session and its connections."""
        account = self.sessions.pop(session_id, None)
        if account is not None:
            await account.close()

    async def end_idle(self) -> None:
        """End the sessions that were not used for too long."""
        oldest_s = self._now_s() - self._config.console_session_idle_minutes * 60
        for session_id in [one for one, account in self.sessions.items() if account.used_s < oldest_s]:
            await self.sign_out(session_id)

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(self.sign_out(one) for one in list(self.sessions)))
        for account in {self.own, self.anonymous}:
            await account.close()


async def _check(account: Account) -> None:
    """Raise SignInRefused unless a broker accepts the signature. A broker that refuses the request itself accepts it."""
    admin = account.client.again()
    tables = (await admin.cluster_info()).broker_addr_table.values()
    asked = [runtime_info(admin, address) for data in tables for address in data.broker_addrs.values()]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    if len(failures) < len(answers) or not answers:
        return
    refusals = [failure for failure in failures if is_of_access(failure)]
    if not refusals:
        raise AdminError(described(failures[0]))
    if not any("permission" in str(refusal).lower() for refusal in refusals):
        raise SignInRefused

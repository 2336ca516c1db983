"""Users of 5.x's access administration, each with its policies, in `config/auth.json`.

Apache keeps users and ACLs in two RocksDB databases. Here an ACL is part of its user's row, so that both are deleted by one
write. Passwords are stored as they are, because a signature can only be checked with them: the file is readable by its
owner alone.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pocketmq.broker.access.auth.policies import (
    AuthError,
    Policy,
    Rules,
    check_name,
    checked_policies,
    containing,
    merged,
    one_of,
    without,
)
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.config_manager import RowsManager
from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.remoting.bodies import UserInfo
from pocketmq.remoting.signature import Credentials, Signer
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.store.disk.config_file import ConfigFile

log = logging.getLogger("broker")

SUPER, NORMAL = "Super", "Normal"
ENABLE, DISABLE = "enable", "disable"
SUBJECT_PREFIX: Final = "User:"


class User(msgspec.Struct, rename="camel", frozen=True):
    """A row of the table. A Super user may do everything, whatever its policies say."""

    password: str
    user_type: str = NORMAL
    user_status: str = ENABLE
    policies: tuple[Policy, ...] | None = None

    def __repr__(self) -> str:
        return f"User({self.user_type}, {self.user_status})"  # without the password, because tracebacks may show it

    @property
    def is_super(self) -> bool:
        """Whether this is a Super user."""
        return self.user_type == SUPER


class Account:
    """The data of a user that checks of requests need, computed once for each version of its row."""

    __slots__ = ("row", "signer", "rules", "size")

    def __init__(self, name: str, row: User) -> None:
        self.row = row
        self.signer = Signer(row.password.encode())
        self.rules = Rules(row.policies or ())
        self.size = len(name) + len(msgspec.json.encode(row))


def user_problem(name: str) -> str | None:
    """Return why the name is not allowed for a user, or None."""
    try:
        check_name("username", name, "a name")
    except AuthError as error:
        return str(error)
    return None


def user_of_subject(subject: str | None) -> str:
    """Return the name of the user in a subject `User:NAME`. Raises AuthError."""
    kind, colon, name = (subject or "").partition(":")
    if not colon or kind.lower() != "user":
        raise AuthError(f"subject={(subject or '')[:100]}: expected User:NAME")
    return name


class AuthUsers(RowsManager[User]):
    """The users by name. Changes are in force at once; `unwritten` returns the pending write to disk."""

    TABLE_KEY = "userTable"
    ROWS_NAME = "users"

    def __init__(self, config: BrokerConfig, file: ConfigFile, clock: Clock, writer: TableWriter | None = None) -> None:
        super().__init__(file, clock, User, user_problem, writer)
        self._config = config
        self._refusals = LimitRefusals(clock)
        self._accounts: dict[str, Account] = {}
        self.inner = inner_credentials(config)
        """Credentials with which this broker signs its own requests; None: they are not signed."""

    def load(self) -> None:
        """Read the file, and add the users that the config names if they do not exist. Raises StoreError."""
        super().load()
        for name, password in initial_users(self._config):
            if name not in self.table:
                log.info("the user %s of the config is created as a Super user", name)
                self._put(name, User(password, SUPER))
        if not self.table:
            log.warning("authenticationEnabled=true, but there are no users: set initAuthenticationUser")

    def decode(self, document: dict[str, Any]) -> None:
        super().decode(document)
        for name, row in self.table.items():
            # A file edited by hand may have values that no request can write; AuthError then makes the start fail.
            checked = _checked(UserInfo(name, row.password, row.user_type, row.user_status))
            policies = merged((), checked_policies([policy.info() for policy in row.policies])) if row.policies else None
            self.table[name] = User(checked.password, checked.user_type, checked.user_status, policies)

    # --- queries ----------------------------------------------------------------------------------------------------

    def account(self, name: str) -> Account | None:
        """Return the account of a user, or None when there is no such user."""
        row = self.table.get(name)
        if row is None:
            return None
        account = self._accounts.get(name)
        if account is None or account.row is not row:
            account = self._accounts[name] = Account(name, row)
        return account

    def is_super(self, name: str | None) -> bool:
        """Whether there is a Super user of this name."""
        row = self.table.get(name) if name is not None else None
        return row is not None and row.is_super

    def named_like(self, part: str | None) -> Iterable[tuple[str, User]]:
        """Return the users whose names contain `part`, by name; None or empty: all users."""
        return sorted((name, row) for name, row in self.table.items() if not part or part in name)

    def policies(self, name: str) -> tuple[Policy, ...]:
        """Return a user's policies. Raises AuthError when there is no such user."""
        return self._existing(name).policies or ()

    def acls(self, subject_part: str | None, resource_part: str | None) -> Iterable[tuple[str, tuple[Policy, ...]]]:
        """Return (subject, policies) of the users with policies that contain the given texts; None or empty: all.

        If `resource_part` occurs in the subject, all of the subject's entries are returned, as in Apache.
        """
        for name, row in self.named_like(None):
            subject = SUBJECT_PREFIX + name
            if not row.policies or (subject_part and subject_part not in subject):
                continue
            is_all = not resource_part or resource_part in subject
            policies = row.policies if is_all else containing(row.policies, resource_part or "")
            if policies:
                yield subject, policies

    # --- changes: each raises AuthError, and RemotingError at a limit -------------------------------------------------

    def create(self, info: UserInfo) -> None:
        """Create a user."""
        name = info.username or ""
        if name in self.table:
            raise AuthError(f"username={name}: this user exists")
        if len(self.table) >= self._config.max_auth_users:
            limit = self._config.max_auth_users
            self._refusals.refuse(f"maxAuthUsers={limit}: the broker has {len(self.table)} users and creates no more")
        self._change(name, _checked(info))

    def update(self, info: UserInfo) -> None:
        """Change the fields of a user that are given."""
        name = info.username or ""
        old = self._existing(name)
        given = UserInfo(
            name, info.password or old.password, info.user_type or old.user_type, info.user_status or old.user_status
        )
        self._change(name, msgspec.structs.replace(_checked(given), policies=old.policies))

    def delete(self, name: str) -> None:
        """Delete a user with its policies; one that does not exist is ignored, as in Apache."""
        if self.table.forget(name):
            self._accounts.pop(name, None)
            self.advance()

    def set_policies(self, name: str, given: Iterable[Policy]) -> None:
        """Add entries to a user's policies, in place of those for the same resources."""
        old = self._existing(name)
        policies = merged(old.policies or (), given)
        count, limit = sum(len(policy.entries) for policy in policies), self._config.max_acl_entries_per_user
        if count > limit:
            self._refusals.refuse(f"maxAclEntriesPerUser={limit}: User:{name} would have {count} entries")
        self._change(name, msgspec.structs.replace(old, policies=policies))

    def delete_policies(self, name: str, policy_type: str, resource: str | None) -> None:
        """Delete a resource's entry in one of a user's policies; without a resource, all of its policies."""
        old = self._existing(name)
        if not old.policies:
            raise AuthError(f"subject=User:{name}: it has no policies")
        policies = without(old.policies, policy_type, resource) if resource is not None else ()
        self._change(name, msgspec.structs.replace(old, policies=policies or None))

    def _existing(self, name: str) -> User:
        row = self.table.get(name)
        if row is None:
            raise AuthError(f"User:{name[:100]} does not exist")
        return row

    def _change(self, name: str, row: User) -> None:
        present = self.table.get(name)
        growth = Account(name, row).size - (0 if present is None else Account(name, present).size)
        if growth > 0:
            size = growth + sum(account.size for account in map(self.account, self.table) if account is not None)
            if size > self._config.max_auth_bytes:
                limit = self._config.max_auth_bytes
                self._refusals.refuse(f"maxAuthBytes={limit}: users and policies would have {size} bytes")
        self._put(name, row)

    def _put(self, name: str, row: User) -> None:
        self.table.put(name, row)
        self.advance()


def _checked(info: UserInfo) -> User:
    """Return the row of a user whose fields are all given. Raises AuthError."""
    check_name("username", info.username, "a name")
    return User(
        check_name("password", info.password, "a text"),
        one_of("userType", info.user_type, (SUPER, NORMAL)) if info.user_type else NORMAL,
        one_of("userStatus", info.user_status, (ENABLE, DISABLE)) if info.user_status else ENABLE,
    )


# --- users of the config --------------------------------------------------------------------------------------------


def initial_users(config: BrokerConfig) -> Iterable[tuple[str, str]]:
    """Return (name, password) of the users that the config names. Raises AuthError naming the key."""
    user = _object("initAuthenticationUser", config.init_authentication_user, "username", "password")
    if user is not None:
        yield user
    inner = inner_credentials(config)
    if inner is not None:
        yield inner.access_key, inner.secret_key


def inner_credentials(config: BrokerConfig) -> Credentials | None:
    """Return the credentials with which this broker signs its own requests, or None. Raises AuthError naming the key."""
    found = _object(
        "innerClientAuthenticationCredentials", config.inner_client_authentication_credentials, "accessKey", "secretKey"
    )
    return None if found is None else Credentials(*found)


def _object(key: str, text: str | None, *names: str) -> tuple[str, str] | None:
    """Return two fields of a JSON object in the config; the error does not show the text, which has a password."""
    if not text:
        return None
    expected = f'{{"{names[0]}":"NAME","{names[1]}":"PASSWORD"}}'
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
        first, second = (check_name(name, document.get(name), "a text") for name in names)
    except (ValueError, AttributeError) as error:
        why = error if isinstance(error, AuthError) else f"expected {expected}"
        raise AuthError(f"{key}: {why}") from None
    return first, second

"""Who may do what: the accounts of the ACL files, and the addresses that need none.

A resource is a topic's name; a group is spoken of by the name of its retry topic, as in Apache's broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.acl.remote_address import Strategy, any_of
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.remoting.signature import Signer

KEY_SIZE_MIN: Final = 7
"""Characters that an access key and a secret key must have."""
ACCOUNTS: Final = "accounts"
GLOBAL_WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"


class AclError(ValueError):
    """Something in the rules is wrong; the text says what and where."""


DENY: Final = 1
PUB: Final = 4
SUB: Final = 8
ADMIN: Final = 16
"""What no file gives to a topic or group: only an admin has it."""
_WORDS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
Resources = Iterable[tuple[str, int]]
"""Topics and groups, and what must be allowed of each."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one access key stands for."""

    access_key: str
    signer: Signer
    is_admin: bool
    default_topic_perm: int
    default_group_perm: int
    perms: Mapping[str, int]
    is_white: Strategy

    def denied(self, resources: Resources) -> str | None:
        """The first resource that the account may not use so. An admin for whom no resource is listed may use all."""
        if self.is_admin and not self.perms:
            return None
        for resource, needed in resources:
            if needed == ADMIN and self.is_admin:
                continue
            owned = self.perms.get(resource)
            if owned is None:
                owned = self.default_group_perm if resource.startswith(RETRY_PREFIX) else self.default_topic_perm
            if owned & DENY or not owned & needed:
                return resource
        return None


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of all files together."""

    accounts: Mapping[str, Account]
    is_white: Strategy
    repeated: tuple[str, ...] = ()
    """Access keys that come more than once; the first place counts."""


def access_rules(documents: Mapping[str, Mapping[str, Any]]) -> AccessRules:
    """The rules of `documents` (path -> what YAML made of the file). Raises AclError naming the file."""
    accounts: dict[str, Account] = {}
    addresses: list[str] = []
    repeated: list[str] = []
    for path, document in documents.items():
        try:
            any_of(white := global_white_addresses(document))
            addresses += white
            for entry in account_entries(document):
                account = _account(entry)
                if account.access_key in accounts:
                    repeated.append(account.access_key)
                else:
                    accounts[account.access_key] = account
        except ValueError as error:
            raise AclError(f"{path}: {error}") from error
    return AccessRules(accounts, any_of(addresses), tuple(repeated))


def account_entries(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The accounts of one file, as they stand there. Raises AclError."""
    entries = document.get(ACCOUNTS) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise AclError(f"{ACCOUNTS}: expected a list of accounts")
    return entries


def global_white_addresses(document: Mapping[str, Any]) -> list[str]:
    """The global white list of one file. Raises AclError."""
    return _texts(document, GLOBAL_WHITE_ADDRESSES)


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Raises AclError, without the secret, for keys that cannot be."""
    if not access_key or len(access_key) < KEY_SIZE_MIN:
        raise AclError(f"accessKey={access_key}: expected {KEY_SIZE_MIN} characters or more")
    if not secret_key or len(secret_key) < KEY_SIZE_MIN:
        raise AclError(f"the secretKey of accessKey={access_key}: expected {KEY_SIZE_MIN} characters or more")


def check_perms(perms: Iterable[str]) -> None:
    """Stricter than what is read from files, where an unknown word denies. Raises AclError."""
    for text in perms:
        _, word = _resource_and_word(text)
        if word not in _WORDS:
            raise AclError(f"{text}: the permission must be DENY, PUB, SUB or PUB|SUB")


def text_of(value: Any) -> str | None:
    """A YAML scalar as the text that its author meant: a secret may be a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def is_admin(entry: Mapping[str, Any]) -> bool:
    """Of an account as it stands in a file. Raises AclError."""
    word = (text_of(entry.get("admin")) or "false").lower()
    if word not in ("true", "false"):
        raise AclError(f"admin={word}: expected true or false")
    return word == "true"


def _account(entry: Mapping[str, Any]) -> Account:
    access_key, secret_key = text_of(entry.get("accessKey")), text_of(entry.get("secretKey"))
    check_keys(access_key, secret_key)
    assert access_key is not None and secret_key is not None
    try:
        perms = {RETRY_PREFIX + group: perm for group, perm in _perms(_texts(entry, "groupPerms"))}
        perms |= dict(_perms(_texts(entry, "topicPerms")))
        white = text_of(entry.get("whiteRemoteAddress"))
        return Account(
            access_key, Signer(secret_key.encode()), is_admin(entry),
            _permission(text_of(entry.get("defaultTopicPerm"))), _permission(text_of(entry.get("defaultGroupPerm"))),
            perms, any_of([white] if white else []),
        )  # fmt: skip
    except ValueError as error:
        raise AclError(f"accessKey={access_key}: {error}") from error


def _texts(entry: Mapping[str, Any], key: str) -> list[str]:
    values = entry.get(key) or []
    if not isinstance(values, list) or any(isinstance(value, (dict, list)) for value in values):
        raise AclError(f"{key}: expected a list of texts")
    return [text_of(value) or "" for value in values]


def _perms(texts: Iterable[str]) -> Iterable[tuple[str, int]]:
    for text in texts:
        resource, word = _resource_and_word(text)
        yield resource, _permission(word)


def _resource_and_word(text: str) -> tuple[str, str]:
    parts = [part.strip() for part in text.split("=") if part]
    if len(parts) != 2:
        raise AclError(f"{text}: expected resource=permission, for example topicA=SUB")
    return parts[0], parts[1]


def _permission(word: str | None) -> int:
    return _WORDS.get((word or "").strip(), DENY)

"""Access rules: the accounts of the ACL files, and the white-listed addresses that need no account.

A resource is the name of a topic. A group is represented by the name of its retry topic, as in Apache's broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.access.acl.remote_address import Strategy, any_of
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.remoting.signature import Signer

KEY_SIZE_MIN: Final = 7
"""Minimum characters of an access key and of a secret key."""
ACCOUNTS: Final = "accounts"
GLOBAL_WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"


class AclError(ValueError):
    """Raised for invalid rules; the message names the place and the fault."""


DENY: Final = 1
PUB: Final = 4
SUB: Final = 8
ADMIN: Final = 16
"""Permission that no file can give: only an admin has it."""
_WORDS: Final = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
Resources = Iterable[tuple[str, int]]
"""Topics and groups, each with the permission needed."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one access key."""

    access_key: str
    signer: Signer
    is_admin: bool
    default_topic_perm: int
    default_group_perm: int
    perms: Mapping[str, int]
    is_white: Strategy

    def denied(self, resources: Resources) -> str | None:
        """Return the first resource that the account may not use as needed, or None.

        An admin without listed permissions may use all resources.
        """
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
    """The merged rules of all files."""

    accounts: Mapping[str, Account]
    is_white: Strategy
    repeated: tuple[str, ...] = ()
    """Access keys that occur more than once; the first account counts."""


def access_rules(documents: Mapping[str, Mapping[str, Any]]) -> AccessRules:
    """Return the rules of `documents` (path -> parsed YAML). Raises AclError naming the file."""
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
    """Return the account entries of one file unchanged. Raises AclError."""
    entries = document.get(ACCOUNTS) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise AclError(f"{ACCOUNTS}: expected a list of accounts")
    return entries


def global_white_addresses(document: Mapping[str, Any]) -> list[str]:
    """Return the global white list of one file. Raises AclError."""
    return _texts(document, GLOBAL_WHITE_ADDRESSES)


def check_keys(access_key: str | None, secret_key: str | None) -> None:
    """Raises AclError for keys that are too short; its text does not contain the secret."""
    if not access_key or len(access_key) < KEY_SIZE_MIN:
        raise AclError(f"accessKey={access_key}: expected {KEY_SIZE_MIN} characters or more")
    if not secret_key or len(secret_key) < KEY_SIZE_MIN:
        raise AclError(f"the secretKey of accessKey={access_key}: expected {KEY_SIZE_MIN} characters or more")


def check_perms(perms: Iterable[str]) -> None:
    """Raises AclError for an unknown permission. Stricter than the reading of files, where an unknown word means DENY."""
    for text in perms:
        _, word = _resource_and_word(text)
        if word not in _WORDS:
            raise AclError(f"{text}: the permission must be DENY, PUB, SUB or PUB|SUB")


def text_of(value: Any) -> str | None:
    """Return a YAML scalar as text, because a secret may look like a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def is_admin(entry: Mapping[str, Any]) -> bool:
    """Return the `admin` flag of an account entry. Raises AclError."""
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

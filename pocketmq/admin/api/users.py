"""Users and ACLs of 5.x: a broker's answer is a JSON object with the fields of UserInfo or AclInfo. Access rules of 4.9:
accounts, addresses that need no signature, and the versions of the ACL files.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from pocketmq.admin.api.client import AdminClient, Where, document
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import AclInfo, DataVersion, UserInfo, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from pocketmq.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)

Document = dict[str, Any]


async def get_user(admin: AdminClient, address: str, username: str | None) -> Any:
    """Return a user with its password, None if a broker has no such user."""
    return await _answered(admin, address, RequestCode.AUTH_GET_USER, UserRequestHeader(username))


async def create_user(admin: AdminClient, address: str, user: UserInfo) -> None:
    """Create a user at one broker."""
    await admin.call(address, RequestCode.AUTH_CREATE_USER, UserRequestHeader(user.username), encode_body(user))


async def update_user(admin: AdminClient, address: str, user: UserInfo) -> None:
    """Change the fields of a user that are not None, at one broker."""
    await admin.call(address, RequestCode.AUTH_UPDATE_USER, UserRequestHeader(user.username), encode_body(user))


async def copy_users(admin: AdminClient, source: str, target: str, names: list[str] | None) -> AsyncIterator[str]:
    """Copy users from one broker to another; yield the name of each once it is copied. None: all users."""
    found = await list_users(admin, source) if names is None else [await get_user(admin, source, name) for name in names]
    for user in filter(None, found or []):
        info = msgspec.convert(user, UserInfo, strict=False)
        change = update_user if await get_user(admin, target, info.username) else create_user
        await change(admin, target, info)
        yield user["username"]


async def get_acl(admin: AdminClient, address: str, subject: str | None) -> Any:
    """Return the ACL of a user, None if a broker has none."""
    return await _answered(admin, address, RequestCode.AUTH_GET_ACL, AclRequestHeader(subject))


async def create_acl(admin: AdminClient, address: str, acl: AclInfo) -> None:
    """Allow or deny a user actions on resources, at one broker."""
    await admin.call(address, RequestCode.AUTH_CREATE_ACL, AclRequestHeader(acl.subject), encode_body(acl))


async def update_acl(admin: AdminClient, address: str, acl: AclInfo) -> None:
    """Change what a user is allowed or denied on resources, at one broker."""
    await admin.call(address, RequestCode.AUTH_UPDATE_ACL, AclRequestHeader(acl.subject), encode_body(acl))


async def copy_acls(admin: AdminClient, source: str, target: str, subjects: list[str] | None) -> AsyncIterator[str]:
    """Copy ACLs from one broker to another; yield the subject of each once it is copied. None: all ACLs."""
    found = await list_acls(admin, source) if subjects is None else [await get_acl(admin, source, one) for one in subjects]
    for acl in filter(None, found or []):
        info = msgspec.convert(acl, AclInfo, strict=False)
        change = update_acl if await get_acl(admin, target, info.subject) else create_acl
        await change(admin, target, info)
        yield acl["subject"]


async def delete_user(admin: AdminClient, address: str, username: str) -> None:
    """Delete a user and its ACL at one broker."""
    await admin.call(address, RequestCode.AUTH_DELETE_USER, UserRequestHeader(username))


async def delete_acl(admin: AdminClient, address: str, subject: str, resource: str | None) -> None:
    """Delete a user's ACL, or its entry for a resource, at one broker."""
    await admin.call(address, RequestCode.AUTH_DELETE_ACL, DeleteAclRequestHeader(subject, None, resource))


async def list_users(admin: AdminClient, address: str, part: str | None = None) -> Any:
    """Return the users of a broker whose names contain `part`; None or an empty list if there are none."""
    return await _answered(admin, address, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader(part))


async def list_acls(admin: AdminClient, address: str, subject: str | None = None, resource: str | None = None) -> Any:
    """Return the ACLs of a broker whose subject and resource contain these texts; None or an empty list without any."""
    return await _answered(admin, address, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader(subject, resource))


async def first(admin: AdminClient, where: Where, ask: Callable[[str], Awaitable[Any]]) -> tuple[Any, str]:
    """Return the first answer that is not empty, and the address of its broker: users or ACLs of one or many brokers."""
    for address in await admin.targets(where):
        found = await ask(address)
        if found:
            return found, address
    return None, ""


async def _answered(admin: AdminClient, address: str, code: int, header: CommandHeader) -> Any:
    answer = await admin.call(address, code, header)
    return fastjson.loads(bytes(answer.body)) if answer.body else None


# --- access rules of 4.9 -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AclFile:
    """An ACL file of a broker, with its version."""

    cluster: str
    broker_name: str
    broker_addr: str
    path: str
    version: DataVersion


async def update_account(admin: AdminClient, address: str, account: CreateAccessConfigRequestHeader) -> None:
    """Create or change an account at one broker."""
    await admin.call(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)


async def delete_account(admin: AdminClient, address: str, access_key: str) -> None:
    """Delete an account at one broker."""
    await admin.call(address, RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequestHeader(access_key))


async def update_white_addresses(admin: AdminClient, address: str, addresses: str, acl_file: str | None) -> None:
    """Set the addresses that need no signature at one broker. `acl_file`: the file to change, at the broker."""
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(addresses, acl_file)
    await admin.call(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)


async def file_versions(admin: AdminClient, address: str) -> list[AclFile]:
    """Return the ACL files of a broker."""
    answer = await admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    info = answer.header(GetBrokerAclConfigResponseHeader)
    return [
        AclFile(
            info.cluster_name, info.broker_name, info.broker_addr, path, msgspec.convert(value, DataVersion, strict=False)
        )
        for path, value in fastjson.loads(info.all_acl_file_version or "{}").items()
    ]


async def access_config(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return the accounts of a broker with their secret keys, and the addresses that need no signature."""
    return document(await admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))

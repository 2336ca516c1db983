"""Access rules of 4.9: accounts, addresses that need no signature, and the versions of the ACL files."""

from dataclasses import dataclass
from typing import Any

import msgspec

from pocketmq.admin.api.client import AdminClient, document
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)


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

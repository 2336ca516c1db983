"""Commands for the access rules of 4.9."""

from typing import Any

import msgspec

from pocketmq.admin.admin_client import each
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.commands.topic import only_one_target
from pocketmq.admin.formats import time_seconds
from pocketmq.admin.output import Table
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

WHERE = targets("this broker", "all brokers of this cluster")
ACCESS_KEY = option("-a", "--accessKey", "access key of the account", required=True)
ACCOUNT_FIELDS = (
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
    "groupPerms",
)  # fmt: skip

VERSIONS = Table(
    "#Cluster Name|#Broker Name|#Broker Addr|#AclFilePath|#AclConfigVersionNum|#AclLastUpdateTime",
    "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s",
    "cluster brokerName brokerAddr aclFilePath version lastUpdated",
)


@command(
    "updateAclConfig",
    ACCESS_KEY,
    *WHERE,
    option("-s", "--secretKey", "secret key"),
    option("-w", "--whiteRemoteAddress", "addresses that need no signature"),
    option("-i", "--defaultTopicPerm", "permission for topics that are not listed"),
    option("-u", "--defaultGroupPerm", "permission for consumer groups that are not listed"),
    option("-t", "--topicPerms", "permissions of topics, such as topicA=DENY,topicD=SUB"),
    option("-g", "--groupPerms", "permissions of consumer groups, such as groupA=DENY,groupD=SUB"),
    option("-m", "--admin", "true: may administer", type=bool, default=False),
    check=only_one_target,
)
async def update_acl_config(
    run: Run, access_key: str, broker_addr: str | None, cluster_name: str | None, **given: Any
) -> object:
    """Create or change an account."""
    header = CreateAccessConfigRequestHeader(access_key.strip(), **given)
    addresses = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    for address in addresses:
        await run.admin.broker(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)
        run.say(f"create or update plain access config to {address} success.")
    run.say(f"account's accesskey is:{access_key.strip()}")
    return {"brokers": addresses, "accessKey": access_key.strip()}


@command("deleteAclConfig", ACCESS_KEY, *WHERE, check=only_one_target)
async def delete_acl_config(run: Run, access_key: str, broker_addr: str | None, cluster_name: str | None) -> object:
    """Delete an account."""
    header = DeleteAccessConfigRequestHeader(access_key.strip())
    addresses = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    for address in addresses:
        await run.admin.broker(address, RequestCode.DELETE_ACL_CONFIG, header)
        run.say(f"delete plain access config account from {address} success.")
    run.say(f"account's accesskey is:{access_key.strip()}")
    return {"brokers": addresses, "accessKey": access_key.strip()}


@command(
    "updateGlobalWhiteAddr",
    *WHERE,
    option("-g", "--globalWhiteRemoteAddresses", "addresses, such as 10.10.103.*,192.168.0.*", required=True),
    option("-p", "--aclFileFullPath", "the ACL file to change, at the broker"),
    check=only_one_target,
)
async def update_global_white_addr(
    run: Run,
    broker_addr: str | None,
    cluster_name: str | None,
    global_white_remote_addresses: str,
    acl_file_full_path: str | None,
) -> object:
    """Set the addresses that need no signature."""
    given = global_white_remote_addresses.strip()
    header = UpdateGlobalWhiteAddrsConfigRequestHeader(given, acl_file_full_path)
    addresses = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    for address in addresses:
        await run.admin.broker(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
        run.say(f"update global white remote addresses to {address} success.")
    return {"brokers": addresses, "globalWhiteRemoteAddresses": given}


@command("clusterAclConfigVersion", *WHERE, check=only_one_target)
async def cluster_acl_config_version(run: Run, broker_addr: str | None, cluster_name: str | None) -> object:
    """Show the versions of the ACL files."""
    rows = []
    for address in await run.admin.targets(broker_addr, cluster_name):
        answer = await run.admin.broker(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        info = answer.header(GetBrokerAclConfigResponseHeader)
        for path, value in fastjson.loads(info.all_acl_file_version or "{}").items():
            version = msgspec.convert(value, DataVersion, strict=False)
            where = info.cluster_name, info.broker_name, info.broker_addr
            rows.append((*where, path, version.counter, time_seconds(version.timestamp)))
    result = run.table(VERSIONS, rows)
    run.say(f"get {'broker' if broker_addr else 'cluster'}'s plain access config version success.")
    return result


@command("getAclConfig", *WHERE, check=only_one_target)
async def get_acl_config(run: Run, broker_addr: str | None, cluster_name: str | None) -> object:
    """Show all accounts, including their secret keys."""
    addresses = await run.admin.targets(broker_addr, cluster_name)
    answers = await each(addresses, lambda at: run.admin.broker(at, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
    result = {address: fastjson.loads(bytes(answer.body)) for address, answer in answers.items()}
    for document in result.values():
        run.say(f"\nglobalWhiteRemoteAddresses: {_shown(document.get('globalWhiteAddrs') or [])}\n\naccounts:")
        for account in document.get("plainAccessConfigs") or []:
            for name in ACCOUNT_FIELDS:
                run.say(f"  {name:<18}: {_shown(account.get(name))}")
            run.say()
    return result


def _shown(value: Any) -> str:
    """Return a field as Java shows it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

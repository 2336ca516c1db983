"""Commands for the access rules of 4.9."""

from typing import Any

import msgspec

from pocketmq.admin.api.client import Where, document
from pocketmq.admin.command import Run, command, only_one_target, option, targets
from pocketmq.admin.formats import java_text, time_seconds
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
async def update_acl_config(run: Run, access_key: str, where: Where, **given: Any) -> object:
    """Create or change an account."""
    account = CreateAccessConfigRequestHeader(access_key.strip(), **given)
    code, done = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, "create or update plain access config to"
    return await _change_account(run, where, code, account, done)


@command("deleteAclConfig", ACCESS_KEY, *WHERE, check=only_one_target)
async def delete_acl_config(run: Run, access_key: str, where: Where) -> object:
    """Delete an account."""
    account = DeleteAccessConfigRequestHeader(access_key.strip())
    return await _change_account(
        run, where, RequestCode.DELETE_ACL_CONFIG, account, "delete plain access config account from"
    )


async def _change_account(
    run: Run,
    where: Where,
    code: int,
    account: CreateAccessConfigRequestHeader | DeleteAccessConfigRequestHeader,
    done: str,
) -> object:
    brokers = await run.at_each(where, code, account, done=lambda at: f"{done} {at} success.", with_slaves=True)
    run.say(f"account's accesskey is:{account.access_key}")
    return {"brokers": brokers, "accessKey": account.access_key}


@command(
    "updateGlobalWhiteAddr",
    *WHERE,
    option("-g", "--globalWhiteRemoteAddresses", "addresses, such as 10.10.103.*,192.168.0.*", required=True),
    option("-p", "--aclFileFullPath", "the ACL file to change, at the broker"),
    check=only_one_target,
)
async def update_global_white_addr(
    run: Run, where: Where, global_white_remote_addresses: str, acl_file_full_path: str | None
) -> object:
    """Set the addresses that need no signature."""
    given = global_white_remote_addresses.strip()
    brokers = await run.at_each(
        where,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        UpdateGlobalWhiteAddrsConfigRequestHeader(given, acl_file_full_path),
        done=lambda at: f"update global white remote addresses to {at} success.",
        with_slaves=True,
    )
    return {"brokers": brokers, "globalWhiteRemoteAddresses": given}


@command("clusterAclConfigVersion", *WHERE, check=only_one_target)
async def cluster_acl_config_version(run: Run, where: Where) -> object:
    """Show the versions of the ACL files."""
    rows = []
    for address in await run.admin.targets(where):
        answer = await run.admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        info = answer.header(GetBrokerAclConfigResponseHeader)
        for path, value in fastjson.loads(info.all_acl_file_version or "{}").items():
            version = msgspec.convert(value, DataVersion, strict=False)
            place = info.cluster_name, info.broker_name, info.broker_addr, path
            rows.append((*place, version.counter, time_seconds(version.timestamp)))
    result = run.table(VERSIONS, rows)
    run.say(f"get {'broker' if where.broker else 'cluster'}'s plain access config version success.")
    return result


@command("getAclConfig", *WHERE, check=only_one_target)
async def get_acl_config(run: Run, where: Where) -> object:
    """Show all accounts, including their secret keys."""
    result = {}
    for address in await run.admin.targets(where):
        result[address] = document(await run.admin.call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
    for config in result.values():
        run.say(f"\nglobalWhiteRemoteAddresses: {_text(config.get('globalWhiteAddrs') or [])}\n\naccounts:")
        for account in config.get("plainAccessConfigs") or []:
            for name in ACCOUNT_FIELDS:
                run.say(f"  {name:<18}: {_text(account.get(name))}")
            run.say()
    return result


def _text(value: Any) -> str:
    return "" if value is None else java_text(value)

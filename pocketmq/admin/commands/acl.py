"""Commands for the access rules of 4.9."""

from typing import Any

from pocketmq.admin.api import users
from pocketmq.admin.api.client import Where
from pocketmq.admin.command import Run, command, only_one_target, option, targets
from pocketmq.admin.formats import java_text, time_seconds
from pocketmq.admin.output import Table
from pocketmq.remoting.headers.acl import CreateAccessConfigRequestHeader

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
    brokers = await run.at_each(
        where,
        lambda at: users.update_account(run.admin, at, account),
        lambda at: f"create or update plain access config to {at} success.",
        with_slaves=True,
    )
    run.say(f"account's accesskey is:{account.access_key}")
    return {"brokers": brokers, "accessKey": account.access_key}


@command("deleteAclConfig", ACCESS_KEY, *WHERE, check=only_one_target)
async def delete_acl_config(run: Run, access_key: str, where: Where) -> object:
    """Delete an account."""
    access_key = access_key.strip()
    brokers = await run.at_each(
        where,
        lambda at: users.delete_account(run.admin, at, access_key),
        lambda at: f"delete plain access config account from {at} success.",
        with_slaves=True,
    )
    run.say(f"account's accesskey is:{access_key}")
    return {"brokers": brokers, "accessKey": access_key}


@command(
    "updateGlobalWhiteAddr",
    *WHERE,
    option("-g", "--globalWhiteRemoteAddresses", "addresses, such as 10.10.103.*,192.168.0.*", required=True),
    option("-p", "--aclFileFullPath", "the ACL file to change, at the broker"),
    check=only_one_target,
)
async def update_global_white_addr(
    run: Run,
    where: Where,
    global_white_remote_addresses: str,
    acl_file_full_path: str | None,
) -> object:
    """Set the addresses that need no signature."""
    given = global_white_remote_addresses.strip()
    brokers = await run.at_each(
        where,
        lambda at: users.update_white_addresses(run.admin, at, given, acl_file_full_path),
        lambda at: f"update global white remote addresses to {at} success.",
        with_slaves=True,
    )
    return {"brokers": brokers, "globalWhiteRemoteAddresses": given}


@command("clusterAclConfigVersion", *WHERE, check=only_one_target)
async def cluster_acl_config_version(run: Run, where: Where) -> object:
    """Show the versions of the ACL files."""
    rows = [
        (one.cluster, one.broker_name, one.broker_addr, one.path, one.version.counter, time_seconds(one.version.timestamp))
        for address in await run.admin.targets(where)
        for one in await users.file_versions(run.admin, address)
    ]
    result = run.table(VERSIONS, rows)
    run.say(f"get {'broker' if where.broker else 'cluster'}'s plain access config version success.")
    return result


@command("getAclConfig", *WHERE, check=only_one_target)
async def get_acl_config(run: Run, where: Where) -> object:
    """Show all accounts, including their secret keys."""
    result = {address: await users.access_config(run.admin, address) for address in await run.admin.targets(where)}
    for document in result.values():
        run.say(f"\nglobalWhiteRemoteAddresses: {_text(document.get('globalWhiteAddrs') or [])}\n\naccounts:")
        for account in document.get("plainAccessConfigs") or []:
            for name in ACCOUNT_FIELDS:
                run.say(f"  {name:<18}: {_text(account.get(name))}")
            run.say()
    return result


def _text(value: Any) -> str:
    return "" if value is None else java_text(value)

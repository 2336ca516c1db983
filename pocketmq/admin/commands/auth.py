"""Commands for the users and ACLs of 5.x."""

from collections.abc import Iterable
from typing import Any

from pocketmq.admin.command import Run, command, one_of, option, targets
from pocketmq.admin.commands.topic import only_one_target
from pocketmq.admin.output import Table
from pocketmq.remoting import fastjson
from pocketmq.remoting.auth_bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pocketmq.remoting.bodies import encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from pocketmq.runtime.command_line.option_types import ADDRESS

WHERE = targets("this broker", "all brokers of this cluster")
FROM = targets("this broker", "the first master of this cluster that returns a result")
COPY = (
    option("-f", "--fromBroker", "broker to copy from", required=True, type=ADDRESS),
    option("-t", "--toBroker", "broker to copy to", required=True, type=ADDRESS),
)
USERNAME = option("-u", "--username", "name of the user", required=True)
SUBJECT = option("-s", "--subject", "whose ACL, such as User:alice", required=True)
ENTRY = (
    option("-r", "--resources", "resources, such as Topic:orders*,Group:billing,Cluster:*", required=True),
    option("-a", "--actions", "All, or some of Pub,Sub,Create,Update,Delete,Get,List", required=True),
    option("-d", "--decision", "Allow or Deny", required=True),
    option("-i", "--sourceIp", "client addresses and CIDR networks to which the entry applies"),
)

USERS = Table(
    "#UserName|#Password|#UserType|#UserStatus",
    "%-16s  %-22s  %-22s  %-22s",
    "username password userType userStatus",
)
ACLS = Table(
    "#Subject|#PolicyType|#Resource|#Actions|#SourceIp|#Decision",
    "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s",
    "subject policyType resource actions sourceIps decision",
)


# --- users ------------------------------------------------------------------------------------------------------------


@command(
    "createUser", *WHERE, USERNAME,
    option("-p", "--password", "password of the user", required=True),
    option("-t", "--userType", "Super or Normal (the default)"),
    check=only_one_target,
)  # fmt: skip
async def create_user(
    run: Run, broker_addr: str | None, cluster_name: str | None, username: str, password: str, user_type: str | None
) -> object:
    """Create a user (5.x)."""
    info = UserInfo(username.strip(), password.strip(), user_type)
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell(run, where, RequestCode.AUTH_CREATE_USER, UserRequestHeader(info.username), info, "create user")


def _one_change(broker_addr: str | None, cluster_name: str | None, **given: Any) -> None:
    only_one_target(broker_addr, cluster_name)
    one_of({"-p": given["password"], "-t": given["user_type"], "-s": given["user_status"]})


@command(
    "updateUser", *WHERE, USERNAME,
    option("-p", "--password", "new password"),
    option("-t", "--userType", "Super or Normal"),
    option("-s", "--userStatus", "enable or disable"),
    check=_one_change,
)  # fmt: skip
async def update_user(
    run: Run, broker_addr: str | None, cluster_name: str | None, username: str, **given: str | None
) -> object:
    """Change the password, the type or the status of a user (5.x)."""
    info = UserInfo(username.strip(), **given)
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell(run, where, RequestCode.AUTH_UPDATE_USER, UserRequestHeader(info.username), info, "update user")


@command("deleteUser", *WHERE, USERNAME, check=only_one_target)
async def delete_user(run: Run, broker_addr: str | None, cluster_name: str | None, username: str) -> object:
    """Delete a user and its ACL (5.x)."""
    header = UserRequestHeader(username.strip())
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell(run, where, RequestCode.AUTH_DELETE_USER, header, None, "delete user")


@command("getUser", *FROM, option("-u", "--username", "name of the user"), check=only_one_target)
async def get_user(run: Run, broker_addr: str | None, cluster_name: str | None, username: str | None) -> object:
    """Show a user with its password (5.x)."""
    header = UserRequestHeader(username and username.strip())
    found, _ = await _first(run, broker_addr, cluster_name, RequestCode.AUTH_GET_USER, header)
    return _show_users(run, [found])[0] if found else None


@command(
    "listUser", *FROM, option("-f", "--filter", "only users whose names contain this"), check=only_one_target
)  # fmt: skip
async def list_user(run: Run, broker_addr: str | None, cluster_name: str | None, filter: str | None) -> object:
    """List the users with their passwords (5.x)."""
    header = ListUsersRequestHeader(filter)
    found, address = await _first(run, broker_addr, cluster_name, RequestCode.AUTH_LIST_USER, header)
    shown = _show_users(run, found) if found else []
    if found and cluster_name:
        run.say(f"get user from {address} success.")
    return shown


@command("copyUser", *COPY, option("-u", "--usernames", "users to copy, such as alice,bob; without it: all"))
async def copy_user(run: Run, from_broker: str, to_broker: str, usernames: str | None) -> object:
    """Copy users from one broker to another (5.x)."""
    if usernames and usernames.strip():
        headers = [UserRequestHeader(name) for name in _split(usernames)]
        users = [await _asked(run, from_broker, RequestCode.AUTH_GET_USER, header) for header in headers]
    else:
        users = await _asked(run, from_broker, RequestCode.AUTH_LIST_USER, ListUsersRequestHeader()) or []
    copied = []
    for user in _present(users):
        header = UserRequestHeader(user["username"])
        is_there = await _asked(run, to_broker, RequestCode.AUTH_GET_USER, header)
        code = RequestCode.AUTH_UPDATE_USER if is_there else RequestCode.AUTH_CREATE_USER
        await run.admin.broker(to_broker, code, header, encode_body(user))
        run.say(f"copy user of {user['username']} from {from_broker} to {to_broker} success.")
        copied.append(user["username"])
    return {"users": copied}


# --- ACLs -------------------------------------------------------------------------------------------------------------


@command("createAcl", *WHERE, SUBJECT, *ENTRY, check=only_one_target)
async def create_acl(run: Run, broker_addr: str | None, cluster_name: str | None, **given: Any) -> object:
    """Allow or deny a user actions on resources (5.x)."""
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell_acl(run, where, RequestCode.AUTH_CREATE_ACL, "create acl", **given)


@command("updateAcl", *WHERE, SUBJECT, *ENTRY, check=only_one_target)
async def update_acl(run: Run, broker_addr: str | None, cluster_name: str | None, **given: Any) -> object:
    """Change what a user is allowed or denied on resources (5.x)."""
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell_acl(run, where, RequestCode.AUTH_UPDATE_ACL, "update acl", **given)


async def _tell_acl(
    run: Run, where: list[str], code: int, done: str, subject: str, resources: str, actions: str, decision: str,
    source_ip: str | None,
) -> object:  # fmt: skip
    source_ips = None if source_ip is None else _split(source_ip)
    entries = [PolicyEntryInfo(one, _split(actions), source_ips, decision.strip()) for one in _split(resources)]
    info = AclInfo(subject.strip(), [PolicyInfo(None, entries)])
    return await _tell(run, where, code, AclRequestHeader(info.subject), info, done)


@command(
    "deleteAcl", *WHERE, SUBJECT,
    option("-r", "--resources", "resource whose entry is deleted; without it: the whole ACL"),
    check=only_one_target,
)  # fmt: skip
async def delete_acl(
    run: Run, broker_addr: str | None, cluster_name: str | None, subject: str, resources: str | None
) -> object:
    """Delete a user's ACL, or its entry for a resource (5.x)."""
    header = DeleteAclRequestHeader(subject.strip(), None, resources and resources.strip())
    where = await run.admin.targets(broker_addr, cluster_name, with_slaves=True)
    return await _tell(run, where, RequestCode.AUTH_DELETE_ACL, header, None, "delete acl")


@command("getAcl", *FROM, option("-s", "--subject", "whose ACL, such as User:alice"), check=only_one_target)
async def get_acl(run: Run, broker_addr: str | None, cluster_name: str | None, subject: str | None) -> object:
    """Show the ACL of a user (5.x)."""
    header = AclRequestHeader(subject and subject.strip())
    found, _ = await _first(run, broker_addr, cluster_name, RequestCode.AUTH_GET_ACL, header)
    return _show_acls(run, [found]) if found else []


@command(
    "listAcl", *FROM,
    option("-s", "--subject", "only subjects that contain this"),
    option("-r", "--resource", "only resources that contain this"),
    check=only_one_target,
)  # fmt: skip
async def list_acl(
    run: Run, broker_addr: str | None, cluster_name: str | None, subject: str | None, resource: str | None
) -> object:
    """List the ACLs of all users (5.x)."""
    header = ListAclsRequestHeader(subject, resource)
    found, _ = await _first(run, broker_addr, cluster_name, RequestCode.AUTH_LIST_ACL, header)
    return _show_acls(run, found) if found else []


@command("copyAcl", *COPY, option("-s", "--subjects", "whose ACLs, such as User:alice,User:bob; without it: all"))
async def copy_acl(run: Run, from_broker: str, to_broker: str, subjects: str | None) -> object:
    """Copy ACLs from one broker to another, which must have their users (5.x)."""
    if subjects and subjects.strip():
        headers = [AclRequestHeader(subject) for subject in _split(subjects)]
        acls = [await _asked(run, from_broker, RequestCode.AUTH_GET_ACL, header) for header in headers]
    else:
        acls = await _asked(run, from_broker, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader()) or []
    copied = []
    for acl in _present(acls):
        header = AclRequestHeader(acl["subject"])
        is_there = await _asked(run, to_broker, RequestCode.AUTH_GET_ACL, header)
        code = RequestCode.AUTH_UPDATE_ACL if is_there else RequestCode.AUTH_CREATE_ACL
        await run.admin.broker(to_broker, code, header, encode_body(acl))
        run.say(f"copy acl of {acl['subject']} from {from_broker} to {to_broker} success.")
        copied.append(acl["subject"])
    return {"subjects": copied}


# --- requests and tables ------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part]


def _present(found: Iterable[Any]) -> list[Any]:
    """Return the users or ACLs that exist."""
    return [one for one in found if one]


async def _tell(run: Run, where: list[str], code: int, header: CommandHeader, info: Any, done: str) -> object:
    """Send a change to brokers, and report each."""
    for address in where:
        await run.admin.broker(address, code, header, b"" if info is None else encode_body(info))
        run.say(f"{done} to {address} success.")
    return {"brokers": where}


async def _asked(run: Run, address: str, code: int, header: CommandHeader) -> Any:
    """Return the body of an answer, or None without one."""
    answer = await run.admin.broker(address, code, header)
    return fastjson.loads(bytes(answer.body)) if answer.body else None


async def _first(
    run: Run, broker_addr: str | None, cluster_name: str | None, code: int, header: CommandHeader
) -> tuple[Any, str]:
    """Return the first answer with a body, and the address of its broker."""
    for address in await run.admin.targets(broker_addr, cluster_name):
        found = await _asked(run, address, code, header)
        if found:
            return found, address
    return None, ""


def _show_users(run: Run, users: list[dict[str, Any]]) -> list[dict[str, Any]]:
    run.table(USERS, [[_shown(user.get(key)) for key in USERS.keys] for user in users])
    return [{key: user.get(key) for key in USERS.keys} for user in users]


def _show_acls(run: Run, acls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for acl in acls:
        policies = acl.get("policies") or []
        if not policies:
            rows.append([acl["subject"], *[""] * 5])
        for policy in policies:
            for entry in policy.get("entries") or []:
                fields = (_shown(entry.get(key)) for key in ACLS.keys[2:])
                rows.append([acl["subject"], _shown(policy.get("policyType")), *fields])
    run.table(ACLS, rows)
    return acls


def _shown(value: Any) -> str:
    """Return a field as Java shows it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value)

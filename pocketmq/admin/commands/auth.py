"""Commands for the users and ACLs of 5.x."""

from collections.abc import Awaitable, Callable
from typing import Any

from pocketmq.admin.api import users
from pocketmq.admin.api.client import Where
from pocketmq.admin.api.users import Document
from pocketmq.admin.command import Run, command, one_of, only_one_target, option, targets
from pocketmq.admin.formats import java_text
from pocketmq.admin.output import Table
from pocketmq.remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
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
async def create_user(run: Run, where: Where, username: str, password: str, user_type: str | None) -> object:
    """Create a user (5.x)."""
    user = UserInfo(username.strip(), password.strip(), user_type)
    return await _change(run, where, lambda at: users.create_user(run.admin, at, user), "create user")


def _one_change(where: Where, **given: Any) -> None:
    only_one_target(where)
    one_of({"-p": given["password"], "-t": given["user_type"], "-s": given["user_status"]})


@command(
    "updateUser", *WHERE, USERNAME,
    option("-p", "--password", "new password"),
    option("-t", "--userType", "Super or Normal"),
    option("-s", "--userStatus", "enable or disable"),
    check=_one_change,
)  # fmt: skip
async def update_user(run: Run, where: Where, username: str, **given: str | None) -> object:
    """Change the password, the type or the status of a user (5.x)."""
    user = UserInfo(username.strip(), **given)
    return await _change(run, where, lambda at: users.update_user(run.admin, at, user), "update user")


@command("deleteUser", *WHERE, USERNAME, check=only_one_target)
async def delete_user(run: Run, where: Where, username: str) -> object:
    """Delete a user and its ACL (5.x)."""
    return await _change(run, where, lambda at: users.delete_user(run.admin, at, username.strip()), "delete user")


@command("getUser", *FROM, option("-u", "--username", "name of the user"), check=only_one_target)
async def get_user(run: Run, where: Where, username: str | None) -> object:
    """Show a user with its password (5.x)."""
    found, _ = await users.first(run.admin, where, lambda at: users.get_user(run.admin, at, username and username.strip()))
    return _show_users(run, [found])[0] if found else None


@command(
    "listUser", *FROM, option("-f", "--filter", "only users whose names contain this"), check=only_one_target
)  # fmt: skip
async def list_user(run: Run, where: Where, filter: str | None) -> object:
    """List the users with their passwords (5.x)."""
    found, address = await users.first(run.admin, where, lambda at: users.list_users(run.admin, at, filter))
    shown = _show_users(run, found) if found else []
    if found and where.cluster:
        run.say(f"get user from {address} success.")
    return shown


@command("copyUser", *COPY, option("-u", "--usernames", "users to copy, such as alice,bob; without it: all"))
async def copy_user(run: Run, from_broker: str, to_broker: str, usernames: str | None) -> object:
    """Copy users from one broker to another (5.x)."""
    copied = []
    async for user in users.copy_users(run.admin, from_broker, to_broker, _some(usernames)):
        run.say(f"copy user of {user} from {from_broker} to {to_broker} success.")
        copied.append(user)
    return {"users": copied}


# --- ACLs -------------------------------------------------------------------------------------------------------------


@command("createAcl", *WHERE, SUBJECT, *ENTRY, check=only_one_target)
async def create_acl(run: Run, where: Where, **given: Any) -> object:
    """Allow or deny a user actions on resources (5.x)."""
    acl = _acl(**given)
    return await _change(run, where, lambda at: users.create_acl(run.admin, at, acl), "create acl")


@command("updateAcl", *WHERE, SUBJECT, *ENTRY, check=only_one_target)
async def update_acl(run: Run, where: Where, **given: Any) -> object:
    """Change what a user is allowed or denied on resources (5.x)."""
    acl = _acl(**given)
    return await _change(run, where, lambda at: users.update_acl(run.admin, at, acl), "update acl")


def _acl(subject: str, resources: str, actions: str, decision: str, source_ip: str | None) -> AclInfo:
    source_ips = None if source_ip is None else _split(source_ip)
    entries = [PolicyEntryInfo(one, _split(actions), source_ips, decision.strip()) for one in _split(resources)]
    return AclInfo(subject.strip(), [PolicyInfo(None, entries)])


@command(
    "deleteAcl", *WHERE, SUBJECT,
    option("-r", "--resources", "resource whose entry is deleted; without it: the whole ACL"),
    check=only_one_target,
)  # fmt: skip
async def delete_acl(run: Run, where: Where, subject: str, resources: str | None) -> object:
    """Delete a user's ACL, or its entry for a resource (5.x)."""
    resource = resources and resources.strip()
    return await _change(run, where, lambda at: users.delete_acl(run.admin, at, subject.strip(), resource), "delete acl")


@command("getAcl", *FROM, option("-s", "--subject", "whose ACL, such as User:alice"), check=only_one_target)
async def get_acl(run: Run, where: Where, subject: str | None) -> object:
    """Show the ACL of a user (5.x)."""
    found, _ = await users.first(run.admin, where, lambda at: users.get_acl(run.admin, at, subject and subject.strip()))
    return _show_acls(run, [found]) if found else []


@command(
    "listAcl", *FROM,
    option("-s", "--subject", "only subjects that contain this"),
    option("-r", "--resource", "only resources that contain this"),
    check=only_one_target,
)  # fmt: skip
async def list_acl(run: Run, where: Where, subject: str | None, resource: str | None) -> object:
    """List the ACLs of all users (5.x)."""
    found, _ = await users.first(run.admin, where, lambda at: users.list_acls(run.admin, at, subject, resource))
    return _show_acls(run, found) if found else []


@command("copyAcl", *COPY, option("-s", "--subjects", "whose ACLs, such as User:alice,User:bob; without it: all"))
async def copy_acl(run: Run, from_broker: str, to_broker: str, subjects: str | None) -> object:
    """Copy ACLs from one broker to another, which must have their users (5.x)."""
    copied = []
    async for subject in users.copy_acls(run.admin, from_broker, to_broker, _some(subjects)):
        run.say(f"copy acl of {subject} from {from_broker} to {to_broker} success.")
        copied.append(subject)
    return {"subjects": copied}


# --- options and tables -----------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part]


def _some(text: str | None) -> list[str] | None:
    return _split(text) if text and text.strip() else None


async def _change(run: Run, where: Where, change: Callable[[str], Awaitable[None]], done: str) -> object:
    return {"brokers": await run.at_each(where, change, lambda at: f"{done} to {at} success.", with_slaves=True)}


def _show_users(run: Run, users: list[Document]) -> list[Document]:
    run.table(USERS, [[java_text(user.get(key)) for key in USERS.keys] for user in users])
    return [{key: user.get(key) for key in USERS.keys} for user in users]


def _show_acls(run: Run, acls: list[Document]) -> list[Document]:
    rows = []
    for acl in acls:
        policies = acl.get("policies") or []
        if not policies:
            rows.append([acl["subject"], *[""] * 5])
        for policy in policies:
            for entry in policy.get("entries") or []:
                fields = (java_text(entry.get(key)) for key in ACLS.keys[2:])
                rows.append([acl["subject"], java_text(policy.get("policyType")), *fields])
    run.table(ACLS, rows)
    return acls

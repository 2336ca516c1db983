"""Users: the accounts of 4.9 and the users of 5.x at all brokers, without their secrets, and changes of them."""

from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from pocketmq.admin.api import users
from pocketmq.admin.api.brokers import broker_config
from pocketmq.admin.api.client import AdminClient, sorted_addresses
from pocketmq.console.forms import Form, WrongInput
from pocketmq.console.routes import action, page
from pocketmq.console.tables import Column, columns
from pocketmq.console.view import View
from pocketmq.remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pocketmq.remoting.headers.acl import CreateAccessConfigRequestHeader

MENU: Final = ("/users", "access.title")
OF_4, OF_5 = "4.9", "5.x"
ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
_TYPES, _STATES, _DECISIONS = ("Normal", "Super"), ("enable", "disable"), ("Allow", "Deny")
_PERMS: Final = ("DENY", "PUB", "SUB", "PUB|SUB")

Found = dict[str, dict[str, Any]]


class UserRow(NamedTuple):
    """An account of 4.9 or a user of 5.x; `fields`: as the first broker has them."""

    name: str
    generation: str
    kind: str
    state: str
    brokers: str
    fields: dict[str, Any]


class AclRow(NamedTuple):
    """An entry of the policies of a user of 5.x."""

    resource: str
    actions: str
    decision: str
    sources: str
    policy: str


COLUMNS: Final = columns("access.name", "access.generation", "word.kind", "access.state", "word.brokers")
ACL_COLUMNS: Final = (
    *columns("access.resource", "access.actions", "access.decision", "access.sources", "access.policy"),
    Column("delete", ""),
)


async def show_list(view: View) -> Response:
    rows, generations = await _all(view)
    return view.render("users.html", table=view.table(COLUMNS, rows), generations=generations)


async def show_user(view: View) -> Response:
    name, generation = view.required("name"), view.query.get("generation", OF_5)
    rows, _ = await _all(view)
    row = next((row for row in rows if (row.name, row.generation) == (name, generation)), None)
    if row is None:
        raise WrongInput("access.unknown", name=name)
    acls: list[AclRow] = []
    if generation == OF_5:
        brokers = await view.admin.brokers()
        found = await view.ask_each(brokers, lambda at: users.get_acl(view.admin, at, f"User:{name}"))
        acls = _acl_rows(next(iter(found.values()), {}) or {})
    return view.render("user.html", row=row, is_of_5=generation == OF_5, acls=view.table(ACL_COLUMNS, acls), actions=ACTIONS)


async def _all(view: View) -> tuple[list[UserRow], set[str]]:
    """Return the accounts and users of all brokers, and the generations of access rules that any of them has."""
    brokers = await view.admin.brokers()
    answers = await view.ask_each(brokers, lambda at: _at(view.admin, at))
    rows: dict[tuple[str, str], UserRow] = {}
    generations = set()
    for broker, by_generation in answers.items():
        for generation, found in by_generation.items():
            generations.add(generation)
            for name, fields in found.items():
                row = rows.get((name, generation)) or _row(name, generation, fields)
                rows[name, generation] = row._replace(brokers=", ".join(filter(None, (row.brokers, broker))))
    return list(rows.values()), generations


async def _at(admin: AdminClient, address: str) -> dict[str, Found]:
    """Return the accounts and users of one broker by generation and name, for the generations that are enabled."""
    config = await broker_config(admin, address)
    found: dict[str, Found] = {}
    if config.get("authenticationEnabled") == "true":
        listed = await users.list_users(admin, address) or []
        found[OF_5] = {one["username"]: one for one in listed}
    if config.get("aclEnable") == "true":
        listed = (await users.access_config(admin, address)).get("plainAccessConfigs") or []
        found[OF_4] = {one["accessKey"]: one for one in listed}
    return found


def _row(name: str, generation: str, fields: dict[str, Any]) -> UserRow:
    """Return a row without the secrets in the fields."""
    known = {key: value for key, value in fields.items() if key not in ("password", "secretKey")}
    if generation == OF_5:
        return UserRow(name, generation, str(fields.get("userType") or ""), str(fields.get("userStatus") or ""), "", known)
    return UserRow(name, generation, "admin" if str(fields.get("admin")).lower() == "true" else "", "", "", known)


def _acl_rows(acl: dict[str, Any]) -> list[AclRow]:
    return [
        AclRow(
            str(entry.get("resource") or ""),
            ", ".join(map(str, entry.get("actions") or [])),
            str(entry.get("decision") or ""),
            ", ".join(map(str, entry.get("sourceIps") or [])),
            str(policy.get("policyType") or ""),
        )
        for policy in acl.get("policies") or []
        for entry in policy.get("entries") or []
    ]


# --- changes, at all brokers -------------------------------------------------------------------------------------------


async def save_user(view: View) -> Response:
    """Create a user of 5.x, or change the fields that are given."""
    form, name = view.form, view.form.required("name")
    password, is_new = form.raw("password").strip() or None, form.flag("new")
    if is_new and password is None:
        raise WrongInput("wrong.empty", field="password")
    user = UserInfo(name, password, form.one_of("type", _TYPES), None if is_new else form.one_of("status", _STATES))
    change = users.create_user if is_new else users.update_user
    for address in (await view.admin.brokers()).values():
        await change(view.admin, address, user)
    return view.redirect("/user", "user_saved", name=name, generation=OF_5)


async def delete_user(view: View) -> Response:
    name, generation = view.form.required("name"), view.form.one_of("generation", (OF_4, OF_5))
    view.form.confirm(name)
    if generation == OF_5:
        for address in (await view.admin.brokers()).values():
            await users.delete_user(view.admin, address, name)
    else:
        for address in await _with_slaves(view.admin):
            await users.delete_account(view.admin, address, name)
    return view.redirect("/users", "user_deleted")


async def save_acl(view: View) -> Response:
    """Allow or deny a user of 5.x actions on resources."""
    form, name = view.form, view.form.required("name")
    resources, sources = _words(form.required("resources")), _words(form.text("sources"))
    chosen = [action for action in form.all("actions") if action in ACTIONS]
    if not chosen:
        raise WrongInput("wrong.empty", field="actions")
    decision = form.one_of("decision", _DECISIONS)
    entries = [PolicyEntryInfo(resource, chosen, sources or None, decision) for resource in resources]
    acl = AclInfo(f"User:{name}", [PolicyInfo("Custom", entries)])
    for address in (await view.admin.brokers()).values():
        change = users.update_acl if await users.get_acl(view.admin, address, f"User:{name}") else users.create_acl
        await change(view.admin, address, acl)
    return view.redirect("/user", "acl_saved", name=name, generation=OF_5)


async def delete_acl(view: View) -> Response:
    name, resource = view.form.required("name"), view.form.required("resource")
    for address in (await view.admin.brokers()).values():
        await users.delete_acl(view.admin, address, f"User:{name}", resource)
    return view.redirect("/user", "acl_saved", name=name, generation=OF_5)


async def save_account(view: View) -> Response:
    """Create or change an account of 4.9. A change must name the secret key, also if it stays."""
    account = _account(view.form)
    for address in await _with_slaves(view.admin):
        secret = account.secret_key or await _secret_key(view.admin, address, account.access_key)
        await users.update_account(view.admin, address, msgspec.structs.replace(account, secret_key=secret))
    return view.redirect("/user", "user_saved", name=account.access_key, generation=OF_4)


async def _secret_key(admin: AdminClient, address: str, access_key: str) -> str:
    """Return the secret key that an account has at a broker. Raises WrongInput for a new account."""
    present = (await users.access_config(admin, address)).get("plainAccessConfigs") or []
    found = next((str(one["secretKey"]) for one in present if one["accessKey"] == access_key), None)
    if found is None:
        raise WrongInput("wrong.empty", field="secret")
    return found


async def _with_slaves(admin: AdminClient) -> list[str]:
    """Return the addresses of all brokers: slaves of 4.9 do not copy users."""
    info = await admin.cluster_info()
    return [address for data in info.broker_addr_table.values() for _, address in sorted_addresses(data)]


def _account(form: Form) -> CreateAccessConfigRequestHeader:
    return CreateAccessConfigRequestHeader(
        form.required("name"),
        form.raw("secret").strip() or None,
        form.text("addresses") or None,
        form.flag("admin"),
        form.one_of("topic_perm", _PERMS),
        form.one_of("group_perm", _PERMS),
        ",".join(_words(form.text("topics"))) or None,
        ",".join(_words(form.text("groups"))) or None,
    )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


ROUTES: Final = (
    page("/users", show_list),
    page("/user", show_user),
    action("/user/save", save_user),
    action("/user/delete", delete_user),
    action("/user/acl", save_acl),
    action("/user/acl/delete", delete_acl),
    action("/user/account", save_account),
)

"""Consumer groups: the list with lags, one group with its queues and clients, one client, reset by time, deletion."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api import consumers
from pocketmq.admin.api.client import AdminClient, by_queue, is_of_access
from pocketmq.admin.api.consumers import ConsumerConnection, Progress, client_fields
from pocketmq.admin.api.exports import is_system_group, user_groups
from pocketmq.admin.api.groups import delete_everywhere, topics_of_group
from pocketmq.admin.api.monitoring import stuck_queues
from pocketmq.admin.api.offsets import reset_offsets
from pocketmq.admin.api.topics import group_names, is_of_group
from pocketmq.console.forms import moment
from pocketmq.console.routes import action, page
from pocketmq.console.tables import PAIRS, Column, columns
from pocketmq.console.view import View
from pocketmq.remoting.dispatch import RemotingError

MENU: Final = ("/groups", "word.groups")

STACKS_SIZE_MAX: Final = 1 << 20

State = tuple[Progress, ConsumerConnection]


class GroupRow(NamedTuple):
    """A group in the list. `progress` None, `clients` None: no broker tells it."""

    group: str
    brokers: str
    progress: Progress | None = None
    clients: int | None = None


class ClientRow(NamedTuple):
    """A client of a group, and the broker that knows it."""

    client_id: str
    address: str
    language: str
    version: str
    broker: str


COLUMNS: Final = (
    *columns("word.group", "word.brokers"),
    Column("clients", "groups.clients", is_number=True),
    Column("lag", "word.lag", is_number=True),
    Column("rate", "word.rate", is_number=True),
)
QUEUE_COLUMNS: Final = (
    Column("topic", "word.topic", lambda row: (row[0].topic, row[0].broker_name, row[0].queue_id)),
    Column("broker", "word.broker", lambda row: row[0].broker_name),
    Column("queue", "word.queue", lambda row: row[0].queue_id, is_number=True),
    Column("consumed", "groups.consumer_offset", lambda row: row[1].consumer_offset, is_number=True),
    Column("end", "groups.broker_offset", lambda row: row[1].broker_offset, is_number=True),
    Column("lag", "word.lag", lambda row: max(row[1].diff, 0), is_number=True),
    Column("last", "groups.last", lambda row: row[1].last_timestamp, is_number=True),
)
CLIENT_COLUMNS: Final = (
    Column("client", "groups.client", lambda row: row.client_id),
    *columns("word.address", "word.language", "word.version", "word.broker"),
)
HELD_COLUMNS: Final = (
    *QUEUE_COLUMNS[:3],
    Column("consumed", "groups.consumer_offset", lambda row: _whole(row[1], "commitOffset"), is_number=True),
    Column("cached", "clients.cached", lambda row: _whole(row[1], "cachedMsgCount"), is_number=True),
    Column("last", "clients.last_consumed", lambda row: _whole(row[1], "lastConsumeTimestamp"), is_number=True),
)


async def show_list(view: View) -> Response:
    brokers = await view.admin.brokers()
    found: dict[str, list[str]] = {name: [] for name in await group_names(view.admin) if not is_system_group(name)}
    for broker, answer in (await view.ask_each(brokers, lambda at: user_groups(view.admin, at))).items():
        for name in answer["subscriptionGroupTable"]:
            found.setdefault(name, []).append(broker)
    table = view.table(COLUMNS, [GroupRow(name, ", ".join(names)) for name, names in found.items()])
    shown = [row.group for row in table.rows]
    states = await view.ask_each(brokers, lambda at: _states_at(view.admin, at, shown))
    table.rows = [row._replace(**_joined([answer[row.group] for answer in states.values()])) for row in table.rows]
    return view.render("groups.html", table=table)


async def _states_at(admin: AdminClient, address: str, groups: list[str]) -> dict[str, State]:
    """Return the states of some groups at one broker."""
    return {group: await _state_at(admin, address, group) for group in groups}


async def _state_at(admin: AdminClient, address: str, group: str) -> State:
    """Return the offsets and the clients of a group at one broker; empty ones if it does not know the group."""
    progress = Progress()
    try:
        progress.add(await consumers.progress_at(admin, address, group))
        return progress, await consumers.clients_at(admin, address, group)
    except RemotingError as refusal:
        if is_of_access(refusal):
            raise
        return progress, ConsumerConnection()


def _joined(states: list[State]) -> dict[str, Any]:
    if not states:
        return {}
    total = Progress()
    for progress, _ in states:
        total.tps += progress.tps
        total.queues |= progress.queues
    ids = {client.client_id for _, clients in states for client in clients.connection_set}
    return {"progress": total, "clients": len(ids)}


async def show_group(view: View) -> Response:
    group = view.required("name")
    brokers = await view.admin.brokers()
    states = await view.ask_each(brokers, lambda at: _state_at(view.admin, at, group))
    total = _joined(list(states.values())).get("progress") or Progress()
    known = {clients.consume_type: clients for _, clients in states.values() if clients.connection_set}
    first = next(iter(known.values()), ConsumerConnection())
    rows = total.rows()
    return view.render(
        "group.html",
        group=group,
        progress=total,
        about=first,
        queues=view.table(QUEUE_COLUMNS, rows, "queues"),
        clients=view.table(CLIENT_COLUMNS, _client_rows(states), "clients"),
        subscriptions=sorted(first.subscription_table.values(), key=lambda one: one.topic),
        topics=sorted({queue.topic for queue, _ in rows if not is_of_group(queue.topic)}),
        of_group=topics_of_group(group),
    )


def _client_rows(states: dict[str, State]) -> list[ClientRow]:
    """Return the clients of a group, each with the first broker that knows it."""
    rows: dict[str, ClientRow] = {}
    for broker, (_, clients) in states.items():
        for one in clients.connection_set:
            rows.setdefault(one.client_id, ClientRow(*client_fields(one), broker))
    return list(rows.values())


async def show_client(view: View) -> Response:
    group, client_id, broker = view.required("group"), view.required("id"), view.required("broker")
    with_stacks = "stacks" in view.query
    address = (await view.admin.brokers(broker_name=broker))[broker]
    asked = consumers.running_info(view.admin, group, client_id, with_stacks, address)
    info = await view.ask(client_id, asked, consumers.RUNNING_INFO_TIMEOUT_S) or {}
    properties = sorted((str(key), str(value)) for key, value in (info.get("properties") or {}).items())
    return view.render(
        "client.html",
        group=group,
        client_id=client_id,
        broker=broker,
        is_known=bool(info),
        queues=view.table(HELD_COLUMNS, by_queue(info.get("mqTable")), "queues"),
        properties=view.table(PAIRS, properties, "properties"),
        stuck=stuck_queues(client_id, info),
        with_stacks=with_stacks,
        stacks=str(info.get("jstack") or "")[:STACKS_SIZE_MAX],
    )


def _whole(fields: dict[str, Any], name: str) -> int:
    return int(fields.get(name) or 0)


# --- changes ----------------------------------------------------------------------------------------------------------


async def reset(view: View) -> Response:
    group, topic = view.form.required("name"), view.form.required("topic")
    to = view.form.one_of("to", ("time", "earliest", "latest"))
    timestamp_ms = {"earliest": 0, "latest": -1}.get(to)
    if timestamp_ms is None:
        timestamp_ms = max(moment(view.form.text("time"), "time"), 0)
    view.form.confirm(group)
    await reset_offsets(view.admin, group, topic, timestamp_ms, force=True)
    return view.redirect("/group", "group_reset", name=group)


async def delete(view: View) -> Response:
    group = view.form.required("name")
    view.form.confirm(group)
    await delete_everywhere(view.admin, group)
    return view.redirect("/groups", "group_deleted")


ROUTES: Final = (
    page("/groups", show_list),
    page("/group", show_group),
    page("/client", show_client),
    action("/group/reset", reset),
    action("/group/delete", delete),
)

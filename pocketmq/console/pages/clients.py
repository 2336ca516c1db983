"""Clients: one consumer with its queues, subscriptions and stack traces, and the producers that are connected."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api.client import addresses_by_name, by_queue
from pocketmq.admin.api.consumers import RUNNING_INFO_TIMEOUT_S, language_name, producers, producers_at, running_info
from pocketmq.admin.api.running_info import stuck_queues
from pocketmq.client.versions import version_name
from pocketmq.console.routes import page
from pocketmq.console.tables import Column
from pocketmq.console.view import View

MENU: Final = ("/producers", "clients.producers")
STACKS_SIZE_MAX: Final = 1 << 20


class ProducerRow(NamedTuple):
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    last_ms: int
    broker: str


QUEUE_COLUMNS: Final = (
    Column("topic", "groups.topic", lambda row: (row[0].topic, row[0].broker_name, row[0].queue_id)),
    Column("broker", "groups.broker", lambda row: row[0].broker_name),
    Column("queue", "groups.queue", lambda row: row[0].queue_id, is_number=True),
    Column("consumed", "groups.consumer_offset", lambda row: _whole(row[1], "commitOffset"), is_number=True),
    Column("cached", "clients.cached", lambda row: _whole(row[1], "cachedMsgCount"), is_number=True),
    Column("last", "clients.last_consumed", lambda row: _whole(row[1], "lastConsumeTimestamp"), is_number=True),
)
PROPERTY_COLUMNS: Final = (
    Column("key", "cluster.key", lambda row: row[0]),
    Column("value", "cluster.value", lambda row: row[1]),
)
PRODUCER_COLUMNS: Final = (
    Column("group", "clients.group", lambda row: row.group),
    Column("client", "groups.client", lambda row: row.client_id),
    Column("address", "groups.address", lambda row: row.address),
    Column("language", "groups.language", lambda row: row.language),
    Column("version", "groups.version", lambda row: row.version),
    Column("last", "clients.last_heartbeat", lambda row: row.last_ms, is_number=True),
    Column("broker", "groups.broker", lambda row: row.broker),
)


async def show_client(view: View) -> Response:
    group, client_id, broker = view.required("group"), view.required("id"), view.required("broker")
    with_stacks = "stacks" in view.query
    address = (await view.admin.brokers(broker_name=broker))[broker]
    asked = running_info(view.admin, group, client_id, with_stacks, address)
    info = await view.ask(client_id, asked, RUNNING_INFO_TIMEOUT_S) or {}
    properties = sorted((str(key), str(value)) for key, value in (info.get("properties") or {}).items())
    return view.render(
        "client.html",
        group=group,
        client_id=client_id,
        broker=broker,
        is_known=bool(info),
        queues=view.table(QUEUE_COLUMNS, by_queue(info.get("mqTable")), "queues"),
        properties=view.table(PROPERTY_COLUMNS, properties, "properties"),
        stuck=stuck_queues(client_id, info),
        with_stacks=with_stacks,
        stacks=str(info.get("jstack") or "")[:STACKS_SIZE_MAX],
    )


async def show_producers(view: View) -> Response:
    topic, group = view.query.get("topic", "").strip(), view.query.get("group", "").strip()
    if topic and group:
        brokers = addresses_by_name(await view.admin.route(topic))
        found = await view.ask(topic, producers(view.admin, group, topic)) or []
        rows = [
            ProducerRow(
                group,
                one.client_id,
                one.client_addr,
                language_name(one.language),
                version_name(one.version),
                0,
                ", ".join(brokers),
            )
            for one in found
        ]
    else:
        brokers = addresses_by_name(await view.admin.route(topic)) if topic else await view.admin.brokers()
        answers = await view.ask_each(brokers, lambda at: producers_at(view.admin, at))
        rows = [
            _producer(broker, name, one) for broker, data in answers.items() for name, ones in data.items() for one in ones
        ]
    return view.render("producers.html", topic=topic, group=group, table=view.table(PRODUCER_COLUMNS, rows))


def _producer(broker: str, group: str, fields: dict[str, Any]) -> ProducerRow:
    language, version = language_name(fields.get("language") or ""), version_name(_whole(fields, "version"))
    address, last_ms = str(fields.get("remoteIP") or "").lstrip("/"), _whole(fields, "lastUpdateTimestamp")
    return ProducerRow(group, str(fields.get("clientId") or ""), address, language, version, last_ms, broker)


def _whole(fields: dict[str, Any], name: str) -> int:
    return int(fields.get(name) or 0)


ROUTES: Final = (page("/client", show_client), page("/producers", show_producers))

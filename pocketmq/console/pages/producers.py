"""Producers: all that are connected, or the producers of a group and a topic."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api.consumers import client_fields, language_name, producers, producers_at
from pocketmq.client.versions import version_name
from pocketmq.console.routes import page
from pocketmq.console.tables import Column, columns
from pocketmq.console.view import View

MENU: Final = ("/producers", "clients.producers")


class ProducerRow(NamedTuple):
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    last_ms: int
    broker: str


COLUMNS: Final = (
    *columns("clients.group"),
    Column("client", "groups.client", lambda row: row.client_id),
    *columns("word.address", "word.language", "word.version"),
    Column("last", "clients.last_heartbeat", lambda row: row.last_ms, is_number=True),
    *columns("word.broker"),
)


async def show(view: View) -> Response:
    topic, group = view.query.get("topic", "").strip(), view.query.get("group", "").strip()
    if topic and group:
        brokers = await view.admin.route_brokers(topic)
        found = await view.ask(topic, producers(view.admin, group, topic)) or []
        rows = [ProducerRow(group, *client_fields(one), 0, ", ".join(brokers)) for one in found]
    else:
        brokers = await (view.admin.route_brokers(topic) if topic else view.admin.brokers())
        answers = await view.ask_each(brokers, lambda at: producers_at(view.admin, at))
        rows = [
            _producer(broker, name, one) for broker, data in answers.items() for name, ones in data.items() for one in ones
        ]
    return view.render("producers.html", topic=topic, group=group, table=view.table(COLUMNS, rows))


def _producer(broker: str, group: str, fields: dict[str, Any]) -> ProducerRow:
    language, version = language_name(fields.get("language") or ""), version_name(int(fields.get("version") or 0))
    address, last_ms = str(fields.get("remoteIP") or "").lstrip("/"), int(fields.get("lastUpdateTimestamp") or 0)
    return ProducerRow(group, str(fields.get("clientId") or ""), address, language, version, last_ms, broker)


ROUTES: Final = (page("/producers", show),)

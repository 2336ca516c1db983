"""One client of a consumer group: its queues, properties and stack traces."""

from typing import Any, Final

from starlette.responses import Response

from pocketmq.admin.api.client import by_queue
from pocketmq.admin.api.consumers import RUNNING_INFO_TIMEOUT_S, running_info
from pocketmq.admin.api.running_info import stuck_queues
from pocketmq.console.tables import Column
from pocketmq.console.view import View

STACKS_SIZE_MAX: Final = 1 << 20

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


def _whole(fields: dict[str, Any], name: str) -> int:
    return int(fields.get(name) or 0)

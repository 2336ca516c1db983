"""Messages: lists by topic and time, by key and by id."""

from typing import Final

from starlette.responses import Response

from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.message_pages import MessageRow, PageWanted, TopicQueue, message_page, row_of, topic_queues
from pocketmq.admin.api.message_search import by_key, by_unique_key
from pocketmq.admin.api.topics import queue_status_at, topic_names
from pocketmq.console.bodies import one_line
from pocketmq.console.forms import QUEUES_MAX, moment, positions_of, positions_text
from pocketmq.console.routes import page
from pocketmq.console.view import View, url
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import ResponseCode

MENU: Final = ("/messages", "messages.title")
SIZES: Final = (20, 50, 100)
NAMES_MAX: Final = 1000
"""Maximum number of topics that the form offers."""


async def show(view: View) -> Response:
    """Show the search and its result: by key if one is given, otherwise by time."""
    topic, key = (view.query.get(name, "").strip() for name in ("topic", "key"))
    wanted = _wanted(view)
    values_of_list: dict[str, object] = {"rows": None, "queues": [], "next_link": "", "first_query": {}, "cut": 0}
    if topic and key:
        values_of_list["rows"] = await _with_key(view, topic, key)
    elif topic:
        queues = await queues_of(view, topic)
        values_of_list = {"queues": queues, **await list_of(view, _chosen(view, queues), wanted)}
    names = sorted(name for name in await topic_names(view.admin) if not name.startswith("%"))[:NAMES_MAX]
    return view.render(
        "messages.html", topic=topic, key=key, wanted=wanted, names=names, sizes=SIZES, one_line=one_line, **values_of_list
    )


async def queues_of(view: View, topic: str) -> list[TopicQueue]:
    """Return the queues of a topic that have messages; a broker that does not answer is named by the page."""
    addresses = await view.admin.route_brokers(topic)
    states = await view.ask_each(addresses, lambda at: queue_status_at(view.admin, at, topic))
    return topic_queues(states, addresses)


async def list_of(view: View, queues: list[TopicQueue], wanted: PageWanted) -> dict[str, object]:
    """Return the values of `message_rows` for one page of some queues' messages."""
    merged = queues[:QUEUES_MAX]
    found = await message_page(view.admin, merged, wanted, positions_of(view.query.get("at", "")), view.ask)
    query = view.query_without("at")
    next_link = "" if found.positions is None else url(view.request.url.path, **query, at=positions_text(found.positions))
    return {"rows": found.rows, "next_link": next_link, "first_query": query, "cut": len(queues) - len(merged)}


def size_of(view: View) -> int:
    """Return the number of messages of a page."""
    text = view.query.get("size", "")
    return int(text) if text in map(str, SIZES) else SIZES[0]


def _wanted(view: View) -> PageWanted:
    """Return the page that the query asks for. With tags the oldest messages come first: brokers filter in this order."""
    tags = view.query.get("tags", "").strip()
    newest_first = not tags and view.query.get("order") != "oldest"
    return PageWanted(size_of(view), newest_first, time_of(view, "from"), time_of(view, "to"), tags or "*")


def time_of(view: View, name: str) -> int | None:
    """Return a time of the query, None if the query has no such time. Raises WrongInput."""
    text = view.query.get(name, "").strip()
    return moment(text, name) if text else None


def _chosen(view: View, queues: list[TopicQueue]) -> list[TopicQueue]:
    """Return the queue that the query names, or all."""
    name = view.query.get("queue", "")
    return [one for one in queues if f"{one.queue.broker_name}:{one.queue.queue_id}" == name] if name else queues


async def _with_key(view: View, topic: str, key: str) -> list[MessageRow]:
    """Return the messages with a key or a unique key, the newest first."""
    found = []
    for search in (by_key, by_unique_key):
        with Tolerating(ResponseCode.NO_MESSAGE):
            found += await search(view.admin, topic, key)
    rows = {one.message.offset_msg_id: row_of(one.record, one.message.broker_name) for one in found}
    return sorted(rows.values(), key=lambda row: -row.store_timestamp_ms)


async def find(view: View) -> Response:
    """Open a message by its id: an offset id, or with a topic a unique key."""
    msg_id, topic = view.required("id").strip(), view.query.get("topic", "").strip()
    if topic:
        with_id = await _with_key(view, topic, msg_id)
        if len(with_id) > 1:
            return view.redirect("/messages", topic=topic, key=msg_id)
        if with_id:
            return view.redirect("/message", **place_of(with_id[0]))
    elif len(msg_id) not in (32, 56):
        raise AdminError(view.text("messages.no_id", id=msg_id[:100]))
    return view.redirect("/message", id=msg_id)


def place_of(row: MessageRow) -> dict[str, object]:
    """Return the query by which the page of a message is opened."""
    return {"topic": row.topic, "broker": row.broker_name, "queue": row.queue_id, "offset": row.queue_offset}


ROUTES: Final = (page("/messages", show), page("/messages/find", find))

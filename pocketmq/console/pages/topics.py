"""Topics: the list, one topic with its queues and groups, and the forms that create, change, delete, and send a message."""

from typing import Any, Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api import topic_configs
from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.consumers import Progress, progress_at
from pocketmq.admin.api.sending import producer
from pocketmq.admin.api.topic_configs import OF_CLIENTS, OF_SERVERS, PERMS, TopicAt, TopicChange, TopicTable, perm_text
from pocketmq.admin.api.topics import QueueStatus, groups_of_topic_at, queue_status_at
from pocketmq.client.message import Message
from pocketmq.console.forms import WrongInput
from pocketmq.console.pages.message import PRODUCER_GROUP
from pocketmq.console.routes import action, page
from pocketmq.console.tables import Column, columns
from pocketmq.console.view import View

MENU: Final = ("/topics", "topics.title")
QUEUES_MAX: Final = 65_536
_DELAY_MAX_S: Final = 400 * 86_400


class TopicRow(NamedTuple):
    """A topic in the list."""

    topic: str
    kind: str
    places: list[TopicAt]

    @property
    def queues(self) -> int:
        return sum(place.config.read_queue_nums for place in self.places)

    @property
    def perms(self) -> str:
        return ", ".join(sorted({perm_text(place.config.perm) for place in self.places}))

    @property
    def brokers(self) -> str:
        return ", ".join(place.broker_name for place in self.places)


class GroupRow(NamedTuple):
    """A consumer group of a topic, and how far it is; None if no broker tells it."""

    group: str
    progress: Progress | None


COLUMNS: Final = (
    *columns("word.topic", "word.kind"),
    *columns("topics.queues", are_numbers=True),
    Column("perm", "topics.perm", lambda row: row.perms),
    *columns("word.brokers"),
)
QUEUE_COLUMNS: Final = (
    Column("broker", "word.broker", lambda row: (row.queue.broker_name, row.queue.queue_id)),
    Column("queue", "word.queue", lambda row: row.queue.queue_id, is_number=True),
    Column("min", "topics.min_offset", lambda row: row.min_offset, is_number=True),
    Column("max", "topics.max_offset", lambda row: row.max_offset, is_number=True),
    Column("messages", "word.message_count", lambda row: row.max_offset - row.min_offset, is_number=True),
    Column("last", "topics.last", lambda row: row.last_update_ms, is_number=True),
)
GROUP_COLUMNS: Final = (
    Column("group", "word.group", lambda row: row.group),
    Column("lag", "word.lag", is_number=True),
    Column("rate", "word.rate", is_number=True),
)


async def show_list(view: View) -> Response:
    brokers = await view.admin.brokers()
    names = {address: name for name, address in brokers.items()}
    table = TopicTable()
    await view.ask_each(brokers, lambda at: table.add(view.admin, names[at], at))
    with_special, kind = "all" in view.query, view.query.get("kind", "")
    rows = [TopicRow(name, table.kind(name), table.topics[name]) for name in table.names(with_special)]
    kinds = sorted({row.kind for row in rows})
    shown = view.table(COLUMNS, [row for row in rows if kind in ("", row.kind)])
    return view.render("topics.html", table=shown, kinds=kinds, kind=kind, with_special=with_special, brokers=list(brokers))


async def show_topic(view: View) -> Response:
    topic = view.required("name")
    brokers = await view.admin.route_brokers(topic)
    places = await _places(view, topic, brokers)
    states = await view.ask_each(brokers, lambda at: queue_status_at(view.admin, at, topic))
    rows: list[QueueStatus] = [row for state in states.values() for row in state]
    groups = await view.ask_each(brokers, lambda at: groups_of_topic_at(view.admin, at, topic))
    group_table = view.table(
        GROUP_COLUMNS,
        [GroupRow(group, None) for group in sorted({one for found in groups.values() for one in found})],
        "groups",
    )
    group_table.rows = await _with_progress(view, topic, brokers, [row.group for row in group_table.rows])
    return view.render(
        "topic.html",
        topic=topic,
        kind=topic_configs.kind_by_name(topic) or topic_configs.kind_of(places),
        places=[(place, perm_text(place.config.perm)) for place in places],
        queues=view.table(QUEUE_COLUMNS, rows, "queues"),
        groups=group_table,
        messages=sum(max(row.max_offset - row.min_offset, 0) for row in rows),
    )


async def _places(view: View, topic: str, brokers: dict[str, str]) -> list[TopicAt]:
    """Return the config of a topic at the brokers of its route."""
    names = {address: name for name, address in brokers.items()}
    found = await view.ask_each(brokers, lambda at: topic_configs.topic_at(view.admin, names[at], at, topic))
    return [place for _, place in sorted(found.items()) if place is not None]


async def _with_progress(view: View, topic: str, brokers: dict[str, str], groups: list[str]) -> list[GroupRow]:
    """Return the groups that are shown, each with its progress in the topic."""

    async def stats_at(address: str) -> dict[str, dict[str, Any]]:
        return {group: await progress_at(view.admin, address, group, topic) for group in groups}

    found = (await view.ask_each(brokers, stats_at)).values()
    return [GroupRow(group, Progress(*(stats[group] for stats in found)) if found else None) for group in groups]


# --- changes ----------------------------------------------------------------------------------------------------------


async def create(view: View) -> Response:
    topic = view.form.required("name")
    queues, kind = view.form.whole("queues", 1, QUEUES_MAX), view.form.one_of("kind", OF_CLIENTS)
    brokers = await view.admin.brokers(broker_name=view.form.text("broker") or None)
    await topic_configs.create(view.admin, brokers, topic, queues, kind)
    return view.redirect("/topic", "topic_created", name=topic)


async def change(view: View) -> Response:
    topic = view.form.required("name")
    change = TopicChange(view.form.whole("queues", 1, QUEUES_MAX), PERMS[view.form.one_of("perm", tuple(PERMS))])
    for address in (await view.admin.route_brokers(topic)).items():
        place = await topic_configs.topic_at(view.admin, *address, topic)
        if place is not None:
            await topic_configs.change(view.admin, [place], change)
    return view.redirect("/topic", "topic_changed", name=topic)


async def delete(view: View) -> Response:
    topic = view.form.required("name")
    view.form.confirm(topic)
    table = await topic_configs.topic_table(view.admin)
    if topic not in table.topics:
        raise WrongInput("topics.unknown", topic=topic)
    if table.kind(topic) in OF_SERVERS[2:]:
        raise WrongInput("topics.of_system", topic=topic)
    await topic_configs.delete(view.admin, topic, [place.broker_name for place in table.topics[topic]])
    return view.redirect("/topics", "topic_deleted")


async def send(view: View) -> Response:
    topic = view.form.required("topic")
    delay_s = view.form.whole("delay", 0, _DELAY_MAX_S) if view.form.text("delay") else 0
    message = Message(
        topic,
        view.form.raw("body").encode(),
        view.form.text("tags") or None,
        view.form.text("keys") or None,
        properties=_properties(view.form.raw("properties")),
        delay=delay_s or None,
    )
    try:
        async with producer(view.admin, PRODUCER_GROUP) as sender:
            sent = await sender.send(message, timeout_s=view.console.config.console_request_timeout_seconds)
    except (TypeError, ValueError) as wrong:
        raise AdminError(str(wrong)) from wrong
    return view.redirect(
        "/topic/sent", topic=topic, broker=sent.queue.broker_name, queue=sent.queue.queue_id, id=sent.msg_id
    )


async def show_sent(view: View) -> Response:
    topic, broker, queue = view.required("topic"), view.required("broker"), view.required("queue")
    return view.render("sent.html", topic=topic, broker=broker, queue=queue, id=view.required("id"))


def _properties(text: str) -> dict[str, str]:
    """Return the properties written as lines `key=value`. Raises WrongInput."""
    found = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if line.strip() and not (equals and key.strip()):
            raise WrongInput("topics.wrong_property", line=line[:100])
        if line.strip():
            found[key.strip()] = value.strip()
    return found


ROUTES: Final = (
    page("/topics", show_list),
    page("/topic", show_topic),
    page("/topic/sent", show_sent),
    action("/topics/create", create),
    action("/topic/change", change),
    action("/topic/delete", delete),
    action("/topic/send", send),
)

"""One message: its fields, body, consumption by groups, trace and retries, and the form that sends it again."""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.message_pages import MessageRow, row_of
from pocketmq.admin.api.message_search import by_offset_id, names_known_broker
from pocketmq.admin.api.message_tracks import MessageTrack, message_track, retries, trace_of
from pocketmq.admin.api.queue_reading import message_at
from pocketmq.admin.api.sending import producer
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.api.topics import DLQ_PREFIX, RETRY_PREFIX, groups_of_topic
from pocketmq.client.message import Message
from pocketmq.client.message_check import sender_properties
from pocketmq.console.bodies import editable, shown
from pocketmq.console.forms import NotFound, WrongInput, whole
from pocketmq.console.pages.messages import place_of
from pocketmq.console.routes import action, page
from pocketmq.console.view import View
from pocketmq.errors import MQError
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError

GROUPS_MAX: Final = 50
"""Maximum number of groups whose consumption a page shows."""
PRODUCER_GROUP: Final = "pocketmq-console"
_ARRIVAL_TRIES: Final = 10
_ARRIVAL_POLL_S: Final = 0.1


class GroupOfMessage(NamedTuple):
    """The consumption of a message by a group, and its copies in the group's retry topic and dead letters."""

    group: str
    track: MessageTrack
    retries: list[MessageRow]


async def show(view: View) -> Response:
    stored = await _found(view)
    message = stored.message
    track = view.text("message.track")
    names = await view.ask(track, _groups(view, stored)) or []
    groups = await view.ask_all(track, [partial(_group, view, stored, name) for name in names[:GROUPS_MAX]])
    trace = await view.ask(view.text("message.trace"), trace_of(view.admin, message.msg_id)) or []
    return view.render(
        "message.html",
        stored=stored,
        message=message,
        place=place_of(row_of(stored.record, message.broker_name)),
        body=shown(message.body, view.query.get("as", "")),
        groups=[one for one in groups if one is not None],
        groups_cut=max(len(names) - GROUPS_MAX, 0),
        trace=trace,
        editable=editable(message.body),
        tags=message.tags or "",
        keys=message.keys or "",
    )


async def _found(view: View) -> StoredMessage:
    """Return the message that the query names, by its id or its place. Raises NotFound."""
    msg_id = view.query.get("id", "").strip()
    if msg_id:
        if not await names_known_broker(view.admin, msg_id):
            raise AdminError(view.text("messages.no_id", id=msg_id[:100]))
        return await by_offset_id(view.admin, msg_id)
    return await _at_place(view, {name: view.required(name) for name in ("topic", "broker", "queue", "offset")})


async def _at_place(view: View, place: dict[str, str]) -> StoredMessage:
    """Return the message at a place. One that was just sent may arrive in its queue a moment later. Raises NotFound."""
    queue = MessageQueue(place["broker"], whole(place["queue"]), place["topic"])
    for _ in range(_ARRIVAL_TRIES if view.query.get("done") else 1):
        stored = await message_at(view.admin, queue, whole(place["offset"]))
        if stored is not None:
            return stored
        await asyncio.sleep(_ARRIVAL_POLL_S)
    raise NotFound("messages.gone")


async def _groups(view: View, stored: StoredMessage) -> list[str]:
    """Return the groups that may have consumed a message."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if stored.topic.startswith(prefix):
            return [stored.topic.removeprefix(prefix)]
    return sorted(await groups_of_topic(view.admin, stored.topic))


async def _group(view: View, stored: StoredMessage, group: str) -> GroupOfMessage:
    track = await message_track(view.admin, stored, group)
    found = await retries(view.admin, stored.message.msg_id, group)
    rows = [row_of(one.record, one.message.broker_name) for one in found]
    return GroupOfMessage(group, track, [row for row in rows if row.offset_msg_id != stored.message.offset_msg_id])


async def download(view: View) -> Response:
    """Return the body alone, as a file."""
    stored = await _found(view)
    name = f"{stored.message.offset_msg_id}.bin"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(stored.message.body, media_type="application/octet-stream", headers=headers)


async def send_again(view: View) -> Response:
    """Send a message again, as it is or with another topic, tag, keys or text."""
    form = view.form
    place = {name: form.required(name) for name in ("topic", "broker", "queue", "offset")}
    old = (await _at_place(view, place)).message
    body = form.raw("body").encode() if editable(old.body) is not None else old.body
    tags, keys = form.text("tags") or None, form.text("keys") or None
    try:
        message = Message(form.required("to"), body, tags, keys, 0, sender_properties(old.properties), old.flag)
        async with producer(view.admin, PRODUCER_GROUP) as sender:
            sent = await sender.send(message)
    except RemotingError:
        raise
    except (MQError, TypeError) as failure:
        raise AdminError(str(failure)) from failure
    except ValueError as wrong:
        raise WrongInput("wrong.message", why=wrong) from None
    queue, queue_offset = sent.queue, sent.queue_offset
    where = {"topic": message.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": queue_offset}
    return view.redirect("/message", "sent_again", **where)


ROUTES: Final = (page("/message", show), page("/message/body", download), action("/message/send-again", send_again))

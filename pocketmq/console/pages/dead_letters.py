"""Dead letters: groups that have any, their messages, sending them again, and their export."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from starlette.responses import Response, StreamingResponse

from pocketmq.admin.api import dead_letters
from pocketmq.admin.api.client import Unreachable, described
from pocketmq.admin.api.dead_letters import DeadLetterCount, Outcome
from pocketmq.admin.api.message_pages import MessageRow, PageWanted, TopicQueue
from pocketmq.admin.api.queue_reading import message_at
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.api.topics import DLQ_PREFIX
from pocketmq.console.bodies import one_line
from pocketmq.console.forms import NotFound, positions_of, positions_text, whole
from pocketmq.console.pages.messages import list_of, queues_of, size_of, time_of
from pocketmq.console.routes import action, page
from pocketmq.console.tables import Column, columns
from pocketmq.console.view import View
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import ResponseCode
from pocketmq.runtime.peer_text import escaped_json
from pocketmq.store_tools.transfer.documents import as_export

MENU: Final = ("/dead-letters", "dead.title")
COLUMNS: Final = (
    *columns("dead.group"),
    *columns("dead.count", are_numbers=True),
    Column("last", "dead.last", lambda row: row.last_ms, is_number=True),
)
RESEND_S: Final = 5.0
"""Time after which one request stops to send dead letters again; its page has a button that continues."""
_BATCH: Final = 50
_FAILURES_SHOWN: Final = 20


@dataclass
class Resent:
    """Numbers of dead letters by what became of them, and where to continue; an empty position: all are done."""

    sent: int = 0
    before: int = 0
    failed: int = 0
    position: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, one: Outcome) -> None:
        self.failed += one.failure is not None
        self.sent += one.sent is not None
        self.before += one.sent is None and one.failure is None
        why = one.failure or (one.sent.refusal if one.sent is not None else None)
        if why is not None and len(self.failures) < _FAILURES_SHOWN:
            self.failures.append((one.stored.message.msg_id, described(why)))


_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
"""One lock for each group whose dead letters are being sent again, so that two browsers do not send one twice."""


async def show(view: View) -> Response:
    topics = await dead_letters.dead_letter_topics(view.admin)
    brokers = await view.admin.brokers() if topics else {}
    found = await view.ask_each(brokers, lambda at: dead_letters.counts_at(view.admin, at, topics))
    rows: dict[str, DeadLetterCount] = {}
    for one in (count for counts in found.values() for count in counts if count.count):
        before = rows.get(one.group, DeadLetterCount(one.group, 0, 0))
        rows[one.group] = DeadLetterCount(one.group, before.count + one.count, max(before.last_ms, one.last_ms))
    return view.render("dead_letters.html", table=view.table(COLUMNS, list(rows.values())))


async def show_group(view: View) -> Response:
    group = view.required("group")
    queues = await _queues_of(view, group)
    newest_first = view.query.get("order") != "oldest"
    wanted = PageWanted(size_of(view), newest_first, time_of(view, "from"), time_of(view, "to"))
    found = await list_of(view, queues, wanted)
    rows: list[MessageRow] = found["rows"]  # type: ignore[assignment]
    resent = await view.ask_all(view.text("dead.resent"), [partial(_is_resent, view, row) for row in rows])
    count = sum(queue.max_offset - queue.min_offset for queue in queues)
    letters = list(zip(rows, resent, strict=True))
    return view.render(
        "dead_letters_of.html", group=group, letters=letters, count=count, wanted=wanted, one_line=one_line, **found
    )


async def _queues_of(view: View, group: str) -> list[TopicQueue]:
    """Return the queues with dead letters. A group has no topic for them before its first one."""
    with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
        return await queues_of(view, DLQ_PREFIX + group)
    return []


async def _is_resent(view: View, row: MessageRow) -> bool:
    topic = row.original_topic
    return topic is not None and await dead_letters.has_copy(view.admin, topic, row.msg_id, row.offset_msg_id)


async def resend(view: View) -> Response:
    """Send one dead letter again, unless that was done before."""
    form = view.form
    group = form.required("group")
    queue = MessageQueue(form.required("broker"), whole(form.required("queue")), DLQ_PREFIX + group)
    stored = await message_at(view.admin, queue, whole(form.required("offset")))
    if stored is None:
        raise NotFound("messages.gone")
    async with _locks.setdefault(group, asyncio.Lock()):
        async for one in dead_letters.resend(view.admin, [stored]):
            if one.failure is not None:
                raise one.failure
            if one.sent is None:
                return view.redirect("/dead-letters/group", "resent_before", group=group)
    return view.redirect("/dead-letters/group", "resent", group=group)


async def resend_all(view: View) -> Response:
    """Send the dead letters of a group again, each once; as many as the time of one request allows."""
    group = view.form.required("group")
    begins = positions_of(view.form.text("at"))
    total, deadline_s = Resent(), time.monotonic() + RESEND_S
    async with _locks.setdefault(group, asyncio.Lock()):
        batch: list[StoredMessage] = []
        async for stored in dead_letters.dead_letters(view.admin, group, begins):
            if len(batch) == _BATCH:
                await _send(view, batch, total)
                batch.clear()
                if time.monotonic() > deadline_s:
                    place = stored.message.broker_name, stored.message.queue_id
                    total.position = positions_text({**begins, place: stored.message.queue_offset})
                    break
            batch.append(stored)
            place = stored.message.broker_name, stored.message.queue_id
            begins[place] = stored.message.queue_offset + 1
        await _send(view, batch, total)
    return view.render("dead_letters_resent.html", group=group, total=total)


async def _send(view: View, letters: list[StoredMessage], total: Resent) -> None:
    """Send dead letters again. Raises Unreachable at the first server that does not answer: each would wait for it."""
    async for one in dead_letters.resend(view.admin, letters):
        if isinstance(one.failure, Unreachable):
            raise one.failure
        total.add(one)


async def export(view: View) -> Response:
    """Return the dead letters of a group as a file of JSON lines, in the form of `pocketmq dlq export`."""
    group = view.required("group")
    letters = dead_letters.dead_letters(view.admin, group)
    first = await anext(letters, None)  # a failure here is still shown by a page
    headers = {"content-disposition": "attachment; filename=dead-letters.jsonl"}
    return StreamingResponse(_lines(first, letters), media_type="application/x-ndjson", headers=headers)


async def _lines(first: StoredMessage | None, letters: AsyncIterator[StoredMessage]) -> AsyncIterator[str]:
    if first is not None:
        yield _line(first)
    async for stored in letters:
        yield _line(stored)


def _line(stored: StoredMessage) -> str:
    return escaped_json(json.dumps(as_export(stored.record), ensure_ascii=False)) + "\n"


ROUTES: Final = (
    page("/dead-letters", show),
    page("/dead-letters/group", show_group),
    page("/dead-letters/export", export),
    action("/dead-letters/resend", resend),
    action("/dead-letters/resend-all", resend_all),
)

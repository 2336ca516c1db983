"""`pocketmq dlq VERB`: lists, shows, sends again, exports and deletes dead letters."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from pocketmq.admin.api import dead_letters
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.cli.verbs import running
from pocketmq.cli.verbs.running import counted, document, moment, show
from pocketmq.runtime.command_line.commands import complain, say, warn
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.peer_text import clipped, escaped_json
from pocketmq.store_tools.transfer.documents import as_export

_BODY_SHOWN = 60


async def _list(admin: AdminClient, options: SimpleNamespace) -> None:
    found = [one for one in await dead_letters.counts(admin) if one.count]
    if options.json:
        document([{"group": one.group, "messages": one.count, "lastTimestamp": one.last_ms or None} for one in found])
        return
    if not found:
        say("no consumer group has dead letters")
    show(("group", "dead letters", "last"), [(one.group, one.count, moment(one.last_ms)) for one in found])


async def _show(admin: AdminClient, options: SimpleNamespace) -> None:
    found: list[tuple[StoredMessage, bool]] = []
    async for stored in dead_letters.dead_letters(admin, options.group):
        if len(found) == options.limit:
            say(f"there are more dead letters than --limit {options.limit}", to_errors=True)
            break
        found.append((stored, await _is_known(admin, stored)))
    if options.json:
        document([_document(stored, resent) for stored, resent in found])
        return
    rows = []
    for stored, resent in found:
        message = stored.message
        body = clipped(message.body.decode(errors="backslashreplace"), _BODY_SHOWN)
        topic = dead_letters.topic_named(stored) or running.NONE
        when = moment(message.store_timestamp_ms)
        about = message.tags or "", message.keys or "", "yes" if resent else "no"
        rows.append((when, message.msg_id, topic, *about, " ".join(body.split())))
    show(("dead since", "id", "topic", "tag", "keys", "resent", "body"), rows)


async def _is_known(admin: AdminClient, stored: StoredMessage) -> bool:
    """Return whether a dead letter was sent again; False for one that cannot be, as it does not name its topic."""
    if dead_letters.topic_named(stored) is None:
        return False
    return await dead_letters.is_sent_again(admin, stored)


def _document(stored: StoredMessage, resent: bool) -> dict[str, Any]:
    message = stored.message
    return {
        "id": message.msg_id,
        "messageId": message.offset_msg_id,
        "topic": dead_letters.topic_named(stored),
        "broker": message.broker_name,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "deadTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "attempts": message.reconsume_times,
        "resent": resent,
        "properties": message.properties,
        "body": message.body.decode(errors="backslashreplace"),
    }


async def _resend(admin: AdminClient, options: SimpleNamespace) -> int:
    letters = [stored async for stored in dead_letters.dead_letters(admin, options.group)]
    if options.ids:
        letters, missing = dead_letters.with_ids(letters, options.ids)
        if missing:
            raise AdminError(f"group {options.group!r} has no dead letter with the id {', '.join(missing)}")
    if letters and not options.yes:
        about = f"up to {counted(len(letters), 'message')} of group {options.group} go to the original topics again"
        running.agree(about)
    rows, failed = [], 0
    async for one in dead_letters.resend(admin, letters, options.again):
        if one.failure is not None:
            failed += 1
            complain(f"{one.stored.message.msg_id}: {reason(one.failure)}")
        else:
            rows.append(_told(one.stored, one.sent, options.json))
    if options.json:
        document(rows)
    else:
        resent = sum(row["resent"] for row in rows)
        say(f"{resent} sent again, {len(rows) - resent} were sent again before, {failed} failed")
    return 1 if failed else 0


def _told(stored: StoredMessage, sent: dead_letters.SentAgain | None, as_json: bool) -> dict[str, Any]:
    """Print what became of a dead letter, without `--json`, and return its row. `sent` None: it was sent again before."""
    msg_id = stored.message.msg_id
    if sent is None:
        topic = dead_letters.original_topic(stored)
        if not as_json:
            say(f"{msg_id} was sent to {topic} again before")
        return {"id": msg_id, "topic": topic, "resent": False, "broker": None, "queue": None, "queueOffset": None}
    if sent.refusal is not None:
        warn(f"{msg_id} is stored, but: {sent.refusal}")
    where = f"{sent.broker_name} queue {sent.queue_id} @ {sent.queue_offset}" if sent.refusal is None else sent.broker_name
    if not as_json:
        say(f"{msg_id} is sent to {sent.topic} again: {where}")
    place = {"broker": sent.broker_name, "queue": sent.queue_id, "queueOffset": sent.queue_offset}
    return {"id": msg_id, "topic": sent.topic, "resent": True, **place}


async def _export(admin: AdminClient, options: SimpleNamespace) -> None:
    is_output = options.file == Path("-")
    count = 0
    letters = dead_letters.dead_letters(admin, options.group)
    if is_output:
        async for stored in letters:
            say(_line(stored))
        return
    first = await anext(letters, None)
    with options.file.open("x", encoding="utf-8") as file:
        if first is not None:
            file.write(_line(first) + "\n")
            count = 1
        async for stored in letters:
            file.write(_line(stored) + "\n")
            count += 1
    say(f"wrote {counted(count, 'dead letter')} to {options.file}")


def _line(stored: StoredMessage) -> str:
    return escaped_json(json.dumps(as_export(stored.record), ensure_ascii=False))


async def _purge(admin: AdminClient, options: SimpleNamespace) -> None:
    count = await dead_letters.count_of(admin, options.group)
    if not count:
        say(f"group {options.group} has no dead letters")
        return
    about = f"{counted(count, 'dead letter')} of group {options.group} are deleted."
    if not options.yes:
        running.agree_by_name(about, options.group)
    await dead_letters.purge(admin, options.group)
    say(f"deleted {counted(count, 'dead letter')} of group {options.group}")


VERBS: Final = {"ls": _list, "show": _show, "resend": _resend, "export": _export, "purge": _purge}

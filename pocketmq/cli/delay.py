"""`pocketmq delay`: lists, counts, cancels delayed messages, or delivers them now. `pocketmq clock`: shows the message
time of brokers, and advances it if they were started with --test-clock.
"""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Final, NamedTuple

import msgspec
from rich.table import Table

from pocketmq.admin.api import delayed
from pocketmq.cli import server_options
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.cli.duration import parse_duration_ms
from pocketmq.cli.verbs import running
from pocketmq.client.access import Access
from pocketmq.remoting.delay_bodies import DelayedMessage
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.delay import CountDelayedRequestHeader, QueryDelayedRequestHeader
from pocketmq.runtime.command_line.commands import CommandError, complain, say
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.peer_text import escaped_json, time_text
from pocketmq.store_tools.files.value_text import parse_time_ms
from pocketmq.store_tools.files.value_text import time_text as local_time

_NOTHING: Final = "no such message is pending"
Change = Callable[[ClusterAdmin, str, int], Awaitable[None]]


class Found(NamedTuple):
    """A message and the name of its broker."""

    broker_name: str
    address: str
    message: DelayedMessage


def run(options: SimpleNamespace, action: str) -> int | None:
    """Run an action. Returns the exit code, or None for 0."""
    return server_options.run(options, lambda access: _run(options, access, action))


async def _run(options: SimpleNamespace, access: Access, action: str) -> int | None:
    async with ClusterAdmin(options.namesrv, access) as admin:
        return await _ACTIONS[action](admin, options)


async def _clock(admin: ClusterAdmin, options: SimpleNamespace) -> None:
    """Show the message time of brokers, or advance it by `duration`, one line per broker."""
    ms = options.duration
    for name, address in sorted(admin.brokers.items()):
        now = await (delayed.read_clock(admin, address) if ms is None else delayed.advance_clock(admin, address, ms))
        kind = "test clock" if now.is_virtual else "the machine's clock"
        say(f"{name}  {local_time(now.now)}  {now.now}  {kind}")


# --- requests -------------------------------------------------------------------------------------------------------


async def _find(admin: ClusterAdmin, options: SimpleNamespace, detailed: bool = False) -> AsyncIterator[Found]:
    """Yield matching messages broker by broker, each sorted by due time."""
    for name, address in sorted(admin.brokers.items()):
        begin, end = await _due_range(admin, address, options)
        for msg_id in options.ids or (None,):
            count_max = delayed.DETAILED_PAGE if detailed else delayed.PAGE
            wanted = QueryDelayedRequestHeader(options.topic, options.key, msg_id, begin, end, count_max, None, detailed)
            async for message in delayed.delayed_messages(admin, address, wanted):
                yield Found(name, address, message)


async def _due_range(admin: ClusterAdmin, address: str, options: SimpleNamespace) -> tuple[int, int]:
    texts = (options.begin or "0", options.end or str(1 << 62))
    now_ms = 0
    if any(text.startswith("+") for text in texts):
        now_ms = (await delayed.read_clock(admin, address)).now
    begin, end = (now_ms + parse_duration_ms(text[1:]) if text.startswith("+") else parse_time_ms(text) for text in texts)
    return begin, end


# --- answers --------------------------------------------------------------------------------------------------------


async def _list(admin: ClusterAdmin, options: SimpleNamespace) -> None:
    table = Table("due", "topic", "queue", "id", "by", "keys", "tag", "bytes", box=None, pad_edge=False)
    count = 0
    async for found in _find(admin, options):
        if count == options.limit:
            say(f"there are more messages than --limit {options.limit}", to_errors=True)
            break
        count += 1
        message = found.message
        if options.json:
            say(_json(found))
        else:
            by = f"level {message.level}" if message.level else "delay" if message.is_delay else "time"
            table.add_row(
                _moment(message.due_timestamp), message.topic, str(message.queue_id), message.msg_id, by, message.keys or "",
                message.tags or "", str(message.body_size),
            )  # fmt: skip
    if count and not options.json:
        Printer(soft_wrap=True, pipe_width=running.PIPE_WIDTH).print(table)


async def _show(admin: ClusterAdmin, options: SimpleNamespace) -> None:
    count = 0
    async for found in _find(admin, options, detailed=True):
        message, count = found.message, count + 1
        if options.json:
            say(_json(found))
            continue
        body = base64.b64decode(message.body or "")
        rows = {
            "id": message.msg_id,
            "due": f"{_moment(message.due_timestamp)}  {message.due_timestamp}",
            "topic": f"{message.topic}, queue {message.queue_id}",
            "broker": f"{found.broker_name}, physical offset {message.physical_offset}",
            "stored": _moment(message.store_timestamp),
            **(message.properties or {}),
            f"body ({len(body)} bytes)": body.decode(errors="backslashreplace"),
        }
        for name, value in rows.items():
            say(f"{name}: {value}")
        say()
    if not count:
        raise CommandError(_NOTHING)


async def _count(admin: ClusterAdmin, options: SimpleNamespace) -> None:
    counts = []
    for address in admin.brokers.values():
        begin, end = await _due_range(admin, address, options)
        wanted = CountDelayedRequestHeader(options.topic, begin, min(end, (1 << 63) - 1))
        counts.append(await delayed.delayed_counts(admin, address, wanted))
    total = delayed.summed(counts)
    hours = dict(sorted(total.hours.items(), key=lambda row: int(row[0])))
    if options.json:
        say(json.dumps({"hours": hours, "cancelled": total.cancelled}))
        return
    for hour_ms, count in hours.items():
        say(f"{time_text(int(hour_ms), '%Y-%m-%d %H:00')}  {count:>10}")
    note = f", {total.cancelled} of them cancelled" if total.cancelled else ""
    say(f"{'total':<16}  {sum(hours.values()):>10}{note}")


async def _change(admin: ClusterAdmin, options: SimpleNamespace, change: Change, done: str) -> int:
    chosen = [found async for found in _find(admin, options)]
    if not chosen:
        raise CommandError(_NOTHING)
    about = f"{len(chosen)} message(s), the first due {_moment(chosen[0].message.due_timestamp)}"
    if not options.yes:
        running.agree(about)
    failed = 0
    for found in chosen:
        message = found.message
        try:
            await change(admin, found.address, message.physical_offset)
            say(f"{done} {message.msg_id} of {message.topic}, due {_moment(message.due_timestamp)}")
        except RemotingError as refusal:
            failed += 1
            complain(f"{message.msg_id}: {refusal}")
    return 1 if failed else 0


def _json(found: Found) -> str:
    document = msgspec.to_builtins(found.message) | {"brokerName": found.broker_name}
    shown = {name: value for name, value in document.items() if value is not None}
    return escaped_json(json.dumps(shown, ensure_ascii=False))


def _moment(ms: int) -> str:
    return time_text(ms, "%Y-%m-%d %H:%M:%S.%f")


_ACTIONS: Final[dict[str, Callable[[ClusterAdmin, SimpleNamespace], Awaitable[int | None]]]] = {
    "clock": _clock,
    "ls": _list,
    "show": _show,
    "count": _count,
    "cancel": partial(_change, change=delayed.cancel, done="cancelled"),
    "now": partial(_change, change=delayed.deliver_now, done="delivered"),
}

"""Delayed messages: when they are due, a list of them, cancelling one, delivering one now, and the clock of tests."""

import base64
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import Response

from pocketmq.admin.api import delayed
from pocketmq.admin.api.delayed import DelayedPage
from pocketmq.console import time_line
from pocketmq.console.bodies import shown
from pocketmq.console.forms import NotFound, WrongInput
from pocketmq.console.pages.messages import SIZES, size_of, time_of
from pocketmq.console.routes import action, page
from pocketmq.console.view import View, url
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.delay_bodies import DelayedMessage
from pocketmq.remoting.headers.delay import ClockResponseHeader, CountDelayedRequestHeader, QueryDelayedRequestHeader

MENU: Final = ("/delayed", "delayed.title")
UNITS_MS: Final = {"seconds": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_ANSWERS_MAX: Final = 4
"""Answers that a page asks a broker for: each scans pending messages, of which a filter may leave few."""
_END: Final = "end"
_EVER: Final = 1 << 62


class Found(NamedTuple):
    """A pending message and the name of its broker."""

    broker_name: str
    message: DelayedMessage


async def show(view: View) -> Response:
    brokers = await view.admin.brokers()
    clocks = await view.ask_each(brokers, lambda at: _clock(view, at))
    ours = {name: brokers[name] for name, clock in clocks.items() if clock.now}
    others = [name for name, clock in clocks.items() if not clock.now]
    counts = await view.ask_each(ours, lambda at: delayed.delayed_counts(view.admin, at, CountDelayedRequestHeader()))
    levels = await view.ask_each(brokers, lambda at: delayed.level_counts(view.admin, at))
    timers = await view.ask_each({name: brokers[name] for name in others}, lambda at: delayed.timer_counts(view.admin, at))
    total = delayed.summed(counts.values())
    hours = {int(hour): count for hour, count in total.hours.items()}
    line = time_line.by_hour(hours, time.localtime().tm_gmtoff * 1000)
    by_level = time_line.summed(list(levels.values()))
    rows, next_link = await _page(view, ours)
    return view.render(
        "delayed.html",
        clocks={name: clock for name, clock in clocks.items() if clock.now},
        is_virtual=any(clock.is_virtual for clock in clocks.values()),
        ours=ours,
        others=others,
        line=line,
        cancelled=total.cancelled,
        levels=by_level,
        level_bars=time_line.by_level(by_level),
        timers=timers,
        rows=rows,
        next_link=next_link,
        first_query=view.query_without("at"),
        input_time=_input_time,
        sizes=SIZES,
        size=size_of(view),
        units=list(UNITS_MS),
        shape=time_line,
    )


async def _clock(view: View, address: str) -> ClockResponseHeader:
    """Return a broker's message time; 0 for a broker that does not know the request, as Apache's."""
    with Tolerating(ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
        return await delayed.read_clock(view.admin, address)
    return ClockResponseHeader(0, False)


def _input_time(ms: int) -> str:
    """Return a time as an input of type datetime-local has it."""
    return datetime.fromtimestamp(ms / 1000).isoformat(timespec="seconds")


# --- list -------------------------------------------------------------------------------------------------------------


async def _page(view: View, brokers: dict[str, str]) -> tuple[list[Found], str]:
    """Return the messages of a page from all brokers by due time, and the link to the next page."""
    cursors, size = _cursors(view.query.get("at", "")), size_of(view)
    begin, end = time_of(view, "from") or 0, time_of(view, "to") or _EVER
    topic = view.query.get("topic", "").strip() or None

    async def some(name: str, count: int) -> DelayedPage:
        """Return the next messages of a broker, after as many answers as that takes."""
        wanted = QueryDelayedRequestHeader(topic, None, None, begin, end, count, cursors.get(name))
        found = DelayedPage([], wanted.cursor)
        for _ in range(_ANSWERS_MAX):
            wanted.max_num = count - len(found.messages)
            answer = await delayed.delayed_page(view.admin, brokers[name], wanted)
            found = DelayedPage(found.messages + answer.messages, answer.cursor)
            wanted.cursor = answer.cursor
            if answer.cursor is None or len(found.messages) >= count:
                break
        return found

    asked = {name: name for name in brokers if cursors.get(name) != _END}
    pages = await view.ask_each(asked, lambda name: some(name, size))
    shown_counts = _shares(pages, size)
    # A broker tells the cursor after a whole answer only, so that one of which a part is shown is asked for that part.
    partly = {name: name for name, count in shown_counts.items() if 0 < count < len(pages[name].messages)}
    pages |= await view.ask_each(partly, lambda name: some(name, shown_counts[name]))
    rows = [Found(name, one) for name, count in shown_counts.items() for one in pages[name].messages[:count]]
    rows.sort(key=lambda row: (row.message.due_timestamp, row.broker_name, row.message.physical_offset))
    ends = {name: _next(cursors.get(name), pages[name], count) for name, count in shown_counts.items()}
    if all(end == _END for end in ends.values()):
        return rows, ""
    at = ",".join(f"{name}:{cursor}" for name, cursor in {**cursors, **ends}.items() if cursor)
    return rows, url("/delayed", **view.query_without("at"), at=at)


def _shares(pages: dict[str, DelayedPage], size: int) -> dict[str, int]:
    """Return how many messages of each broker are among the first `size` of all."""
    merged = sorted((one.due_timestamp, name) for name, found in pages.items() for one in found.messages)[:size]
    names = [name for _, name in merged]
    return {name: names.count(name) for name in pages}


def _next(cursor: str | None, found: DelayedPage, count: int) -> str | None:
    """Return the cursor after the messages of a broker that are shown: the old one unless all are shown."""
    if count < len(found.messages):
        return cursor
    return found.cursor or _END


def _cursors(text: str) -> dict[str, str]:
    found = {}
    for item in filter(None, text.split(",")):
        name, _, cursor = item.partition(":")
        if len(cursor) > 60:
            raise WrongInput("wrong.position")
        found[name] = cursor
    return found


# --- one message ------------------------------------------------------------------------------------------------------


async def show_message(view: View) -> Response:
    broker_name, msg_id = view.required("broker"), view.required("id")
    address = await _address(view, broker_name)
    wanted = QueryDelayedRequestHeader(msg_id=msg_id, max_num=delayed.DETAILED_PAGE, detailed=True)
    found = await delayed.delayed_page(view.admin, address, wanted)
    message = next((one for one in found.messages if one.offset_msg_id == msg_id), None)
    if message is None:
        raise NotFound("delayed.gone")
    body = shown(base64.b64decode(message.body or ""), view.query.get("as", ""))
    return view.render("delayed_message.html", broker_name=broker_name, message=message, body=body)


async def cancel(view: View) -> Response:
    view.form.confirm(view.form.required("id"))
    await _change(view, delayed.cancel)
    return view.redirect("/delayed", "cancelled")


async def deliver_now(view: View) -> Response:
    await _change(view, delayed.deliver_now)
    return view.redirect("/delayed", "delivered")


async def _change(view: View, change: Callable[..., Awaitable[None]]) -> None:
    address = await _address(view, view.form.required("broker"))
    await change(view.admin, address, view.form.whole("physicalOffset", 0, _EVER))


async def _address(view: View, broker_name: str) -> str:
    """Return the address of a broker that is registered. Raises AdminError for another name."""
    return (await view.admin.brokers(broker_name=broker_name))[broker_name]


async def advance(view: View) -> Response:
    """Advance the clocks of all brokers that were started with --test-clock, so that messages due by then are delivered."""
    unit = view.form.one_of("unit", tuple(UNITS_MS))
    ms = view.form.whole("amount", 1, 100_000) * UNITS_MS[unit]
    for address in (await view.admin.brokers()).values():
        if (await _clock(view, address)).is_virtual:
            await delayed.advance_clock(view.admin, address, ms)
    return view.redirect("/delayed", "advanced")


ROUTES: Final = (
    page("/delayed", show),
    page("/delayed/message", show_message),
    action("/delayed/cancel", cancel),
    action("/delayed/deliver", deliver_now),
    action("/delayed/advance", advance),
)

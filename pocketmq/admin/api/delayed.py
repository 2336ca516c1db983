"""Delayed messages that brokers hold until they are due, and the brokers' message time.

A PocketMQ broker lists, counts, cancels and delivers them. An Apache broker tells the number of messages of each delay
level, and since 5.x of each topic's timers; `level_counts` and `timer_counts` ask for these, which PocketMQ answers as well.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pocketmq.admin.api.brokers import broker_config, runtime_info
from pocketmq.admin.api.client import AdminClient, AdminError, Caller, document
from pocketmq.admin.api.topics import queue_status_at
from pocketmq.remoting.bodies import decode_body
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.delay_bodies import DelayedCounts, DelayedMessage, DelayedMessages
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.delay import (
    AdvanceClockRequestHeader,
    ClockResponseHeader,
    CountDelayedRequestHeader,
    CursorResponseHeader,
    DelayedMessageRequestHeader,
    QueryDelayedRequestHeader,
)
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels
from pocketmq.store.format.message import SCHEDULE_TOPIC

PAGE: Final = 256
DETAILED_PAGE: Final = 8
"""Messages of one answer; the second if bodies are included."""
_LEVEL_OFFSETS: Final = re.compile(r"scheduleMessageOffset_(\d+)=(\d+),(\d+)")
"""A row of the runtime info: the level, the offset of its first message that is pending, and the end of its queue."""


class DelayedPage(NamedTuple):
    """Some messages by due time. `cursor` None: there are no more; otherwise there may be, even without messages here."""

    messages: list[DelayedMessage]
    cursor: str | None


@dataclass(frozen=True)
class LevelCount:
    """The pending messages of a delay level. `delay_ms` None: the broker has no such level any more."""

    level: int
    delay_ms: int | None
    count: int


# --- messages of a PocketMQ broker ------------------------------------------------------------------------------------


async def delayed_page(admin: Caller, address: str, wanted: QueryDelayedRequestHeader) -> DelayedPage:
    """Return the messages of one answer, after the cursor in `wanted`."""
    answer = await admin.call(address, RequestCode.QUERY_DELAYED, wanted)
    cursor = _next_cursor(address, answer, wanted.cursor)
    return DelayedPage(decode_body(DelayedMessages, answer.body).messages, cursor)


async def delayed_messages(admin: Caller, address: str, wanted: QueryDelayedRequestHeader) -> AsyncIterator[DelayedMessage]:
    """Yield all matching messages of a broker by due time; `wanted` moves on. Raises RemotingError if it never ends."""
    while True:
        page = await delayed_page(admin, address, wanted)
        for message in page.messages:
            yield message
        wanted.cursor = page.cursor
        if wanted.cursor is None:
            return


async def delayed_counts(admin: Caller, address: str, wanted: CountDelayedRequestHeader) -> DelayedCounts:
    """Return the numbers of matching messages of a broker; `wanted` moves on."""
    answers = []
    while True:
        answer = await admin.call(address, RequestCode.COUNT_DELAYED, wanted)
        answers.append(decode_body(DelayedCounts, answer.body))
        wanted.cursor = _next_cursor(address, answer, wanted.cursor)
        if wanted.cursor is None:
            return summed(answers)


def summed(counts: Iterable[DelayedCounts]) -> DelayedCounts:
    """Return the sums of the numbers of several answers, or of several brokers."""
    total, hours = DelayedCounts(), Counter[str]()
    for one in counts:
        hours.update(one.hours)
        total.cancelled += one.cancelled
    total.hours = dict(hours)
    return total


def _next_cursor(address: str, answer: RemotingCommand, before: str | None) -> str | None:
    cursor = answer.header(CursorResponseHeader).cursor
    if cursor is not None and cursor == before:
        remark = f"{address} answers with the cursor that it was asked to continue from, {clipped(before)}"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return cursor


async def cancel(admin: Caller, address: str, physical_offset: int) -> None:
    """Cancel one message of a broker: it is never delivered. Raises RemotingError if it is not pending."""
    await admin.call(address, RequestCode.CANCEL_DELAYED, DelayedMessageRequestHeader(physical_offset))


async def deliver_now(admin: Caller, address: str, physical_offset: int) -> None:
    """Deliver one message of a broker now, and not again when it is due. Raises RemotingError if it is not pending."""
    await admin.call(address, RequestCode.DELIVER_DELAYED_NOW, DelayedMessageRequestHeader(physical_offset))


# --- numbers of any broker --------------------------------------------------------------------------------------------


async def level_counts(admin: AdminClient, address: str) -> list[LevelCount]:
    """Return the number of pending messages of each delay level that has had any, by level."""
    delays_ms = await level_delays_ms(admin, address)
    spans: dict[int, tuple[int, int]] = {}
    with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
        for state in await queue_status_at(admin, address, SCHEDULE_TOPIC):
            if state.max_offset > 0:
                spans[state.queue.queue_id + 1] = state.min_offset, state.max_offset
    for name, value in (await runtime_info(admin, address)).items():
        offsets = _LEVEL_OFFSETS.fullmatch(f"{name}={value}")
        if offsets is not None:  # Apache's broker leaves out levels of which it has not delivered any
            level, delivered, end = map(int, offsets.groups())
            spans[level] = delivered, end
    return [LevelCount(level, delays_ms.get(level), max(end - begin, 0)) for level, (begin, end) in sorted(spans.items())]


async def level_delays_ms(admin: AdminClient, address: str) -> dict[int, int]:
    """Return the delay of each level of a broker. Raises AdminError if its messageDelayLevel cannot be read."""
    text = (await broker_config(admin, address)).get("messageDelayLevel", DEFAULT_MESSAGE_DELAY_LEVEL)
    try:
        return dict(enumerate(DelayLevels(text).delays_ms, 1))
    except (ValueError, IndexError) as wrong:
        raise AdminError(f"{address}: {wrong}") from None


async def timer_counts(admin: AdminClient, address: str) -> dict[str, int]:
    """Return the number of pending timers by topic; none if the broker has no timers, as those of 4.9."""
    with Tolerating(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR):
        metrics = document(await admin.call(address, RequestCode.GET_TIMER_METRICS)).get("timingCount") or {}
        return {topic: int(metric["count"]) for topic, metric in sorted(metrics.items())}
    return {}


# --- time -------------------------------------------------------------------------------------------------------------


async def read_clock(admin: Caller, address: str) -> ClockResponseHeader:
    """Return a broker's message time."""
    return (await admin.call(address, RequestCode.READ_CLOCK)).header(ClockResponseHeader)


async def advance_clock(admin: Caller, address: str, ms: int) -> ClockResponseHeader:
    """Advance a broker's time by `ms`; messages due by then are in their topics afterwards."""
    answer = await admin.call(address, RequestCode.ADVANCE_CLOCK, AdvanceClockRequestHeader(ms))
    return answer.header(ClockResponseHeader)

"""Pages of a topic's messages by store time, the newest or the oldest first, over all its queues.

A page reads the messages that it shows and a few beside them, wherever in the topic it is. It ends at a position in each
queue, from which the next page continues. Bodies are neither decompressed nor kept, but for their beginnings.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.queue_reading import FOUND, PULL_COUNT, at_time, has_tag, pull_answer
from pocketmq.admin.api.topics import QueueStatus
from pocketmq.client.message import RETRY_TOPIC, records_of
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.headers.pull import PullMessageResponseHeader
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import Record

BODY_START: Final = 200
"""Bytes of a body that a list shows."""
_CHUNK_MIN: Final = 4
_FILLS_MAX: Final = 64
"""Maximum number of times that a page reads on: with tags, much may be read of which nothing is shown."""

Place = tuple[str, int]
"""A queue: its broker's name and its id."""
Ask = Callable[[str, Awaitable[Any]], Awaitable[Any]]
"""Waits for what a broker answers; returns None if it does not answer, or refuses."""


class TopicQueue(NamedTuple):
    """A queue of the topic, the address of its broker, and its limits."""

    queue: MessageQueue
    address: str
    min_offset: int
    max_offset: int

    @property
    def place(self) -> Place:
        return self.queue.broker_name, self.queue.queue_id


@dataclass(frozen=True)
class MessageRow:
    """A message as lists show it. `body_start`: the beginning of its body; None if it is compressed.

    `original_topic`: of a message in a group's retry topic or dead-letter topic; None for others.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_timestamp_ms: int
    msg_id: str
    offset_msg_id: str
    original_topic: str | None
    tags: str | None
    keys: str | None
    reconsume_times: int
    body_size: int
    body_start: bytes | None


@dataclass(frozen=True)
class PageWanted:
    """The selection of a page: messages stored in [begin_ms, end_ms). A filter by tag needs the oldest first."""

    count: int
    newest_first: bool = True
    begin_ms: int | None = None
    end_ms: int | None = None
    expression: str = "*"


class MessagePage(NamedTuple):
    """The messages of a page, and where the next one continues; None: this is the last one."""

    rows: list[MessageRow]
    positions: dict[Place, int] | None


def topic_queues(states: Mapping[str, Sequence[QueueStatus]], addresses: Mapping[str, str]) -> list[TopicQueue]:
    """Return the queues with messages, from the states of each broker's queues."""
    return [
        TopicQueue(state.queue, addresses[name], state.min_offset, state.max_offset)
        for name, found in sorted(states.items())
        for state in found
        if state.max_offset > state.min_offset
    ]


def row_of(record: Record, broker_name: str) -> MessageRow:
    """Return a record as lists show it."""
    properties = decode_properties(record.properties)
    is_compressed = bool(record.sys_flag & COMPRESSED_FLAG)
    offset_id = (record.store_host + record.physical_offset.to_bytes(8, "big", signed=True)).hex().upper()
    return MessageRow(
        topic=record.topic.decode(errors="replace"),
        broker_name=broker_name,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        store_timestamp_ms=record.store_timestamp_ms,
        msg_id=properties.get(UNIQ_KEY, offset_id),
        offset_msg_id=offset_id,
        original_topic=properties.get(RETRY_TOPIC),
        tags=properties.get(TAGS),
        keys=properties.get(KEYS),
        reconsume_times=record.reconsume_times,
        body_size=len(record.body),
        body_start=None if is_compressed else record.body[:BODY_START],
    )


async def message_page(
    admin: AdminClient, queues: Sequence[TopicQueue], wanted: PageWanted, positions: Mapping[Place, int], ask: Ask
) -> MessagePage:
    """Return a page. `positions`: where the page before ended; a queue without one is read from its begin or end."""
    chunk = min(max(-(-wanted.count // max(len(queues), 1)) + 1, _CHUNK_MIN), PULL_COUNT)
    readers = [_Reader(admin, queue, wanted, chunk) for queue in queues]
    lost: set[str] = set()

    async def do(reader: "_Reader", work: Awaitable[bool]) -> None:
        if await ask(reader.at.queue.broker_name, work) is None:
            lost.add(reader.at.queue.broker_name)

    await asyncio.gather(*(do(one, one.start(positions.get(one.at.place))) for one in readers))
    rows: list[MessageRow] = []
    fills = 0
    while len(rows) < wanted.count:
        open_readers = [one for one in readers if one.at.queue.broker_name not in lost and not one.is_done]
        empty = [one for one in open_readers if not one.rows]
        if empty and fills < _FILLS_MAX:
            fills += len(empty)
            await asyncio.gather(*(do(one, one.fill()) for one in empty))
            continue
        if empty or not open_readers:
            break
        rows.append(min(open_readers, key=_Reader.order).rows.popleft())
    has_more = any(not one.is_done for one in readers if one.at.queue.broker_name not in lost)
    return MessagePage(rows, {one.at.place: one.position for one in readers} if has_more else None)


class _Reader:
    """Reads a queue a few messages ahead of what the page shows. `next`: where it reads on."""

    def __init__(self, admin: AdminClient, at: TopicQueue, wanted: PageWanted, chunk: int) -> None:
        self.at = at
        self.rows: deque[MessageRow] = deque()
        self._admin, self._wanted, self._chunk = admin, wanted, chunk
        self._next = at.max_offset if wanted.newest_first else at.min_offset
        self._is_ended = False

    @property
    def is_done(self) -> bool:
        return self._is_ended and not self.rows

    @property
    def position(self) -> int:
        """Return the queue offset at which the next page continues."""
        if not self.rows:
            return self._next
        return self.rows[0].queue_offset + (1 if self._wanted.newest_first else 0)

    def order(self) -> tuple[int, str, int]:
        """Return the key by which the next message of each queue is chosen."""
        time_ms = self.rows[0].store_timestamp_ms
        return -time_ms if self._wanted.newest_first else time_ms, *self.at.place

    async def start(self, position: int | None) -> bool:
        """Go to a position; without one to the time at which the page begins."""
        wanted = self._wanted
        if position is not None:
            self._next = position
        elif wanted.newest_first and wanted.end_ms is not None:
            # 4.9.4 finds the nearest message, which may be the last one that is wanted.
            self._next = await self._at_time(wanted.end_ms) + 1
        elif not wanted.newest_first and wanted.begin_ms is not None:
            # 4.9.4 finds any message of exactly this time, so that an earlier time is searched.
            self._next = await self._at_time(wanted.begin_ms - 1)
        self._next = min(max(self._next, self.at.min_offset), self.at.max_offset)
        self._end_at_limit()
        return True

    async def _at_time(self, time_ms: int) -> int:
        return await at_time(self._admin, self.at.address, self.at.queue, max(time_ms, 0))

    async def fill(self) -> bool:
        """Read on, until at least one message is found or the queue ends."""
        wanted = self._wanted
        if wanted.newest_first:
            begin = max(self._next - self._chunk, self.at.min_offset)
            found = (await self._read(begin, self._next))[0]
            self._next = begin
            found.reverse()
        else:
            found, self._next = await self._read(self._next, self.at.max_offset, one_pull=True)
        self._end_at_limit()
        for row in found:
            is_early = wanted.begin_ms is not None and row.store_timestamp_ms < wanted.begin_ms
            is_late = wanted.end_ms is not None and row.store_timestamp_ms >= wanted.end_ms
            if is_early if wanted.newest_first else is_late:  # beyond what is wanted
                self._is_ended = True
                break
            if not is_early and not is_late:
                self.rows.append(row)
        return True

    def _end_at_limit(self) -> None:
        newest_first, at = self._wanted.newest_first, self.at
        self._is_ended = self._next <= at.min_offset if newest_first else self._next >= at.max_offset

    async def _read(self, begin: int, end: int, one_pull: bool = False) -> tuple[list[MessageRow], int]:
        """Return the messages in [begin, end), and the offset up to which they were read."""
        found: list[MessageRow] = []
        queue, expression = self.at.queue, self._wanted.expression
        while begin < end:
            count = min(end - begin, PULL_COUNT)
            status, answer = await pull_answer(self._admin, self.at.address, queue, begin, count, expression)
            next_offset = answer.header(PullMessageResponseHeader).next_begin_offset
            if status == FOUND:
                rows = rows_of(answer.body, queue.broker_name)
                found += [row for row in rows if row.queue_offset < end and has_tag(expression, row.tags)]
            if next_offset <= begin:
                return found, end
            begin = next_offset
            if one_pull:
                break
        return found, min(begin, end)


def rows_of(records: bytes | bytearray | memoryview, broker_name: str) -> list[MessageRow]:
    """Return the messages in an answer's body as lists show them. Raises AdminError for bytes that are not whole records."""
    try:
        return [row_of(record, broker_name) for record in records_of(records)]
    except ValueError as wrong:
        raise AdminError(f"the answer has no readable messages: {wrong}") from None

"""Dead letters: messages that a consumer group could not consume, in its topic `%DLQ%GROUP`. They are read and sent again.

A message that is sent again carries the property DLQ_RESENT, the offset message id of its dead letter. Before a dead letter
is sent again, the brokers' index is asked for the messages of its original topic with its unique key: if one of them has the
dead letter's id, it was sent again before. So nothing is kept beside the messages, and it does not matter who sent it again,
from which machine, or whether a run was killed. A dead letter is older than the message that remembers it, so that retention
deletes it first. The index must be on (messageIndexEnable, the default), which `check_is_found` verifies.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pocketmq.admin.api import topics
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.message_search import by_unique_key
from pocketmq.admin.api.queue_reading import FOUND, limits, pull, queues_to_read
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.api.topics import DLQ_PREFIX, RETRY_PREFIX, QueueStatus
from pocketmq.client.delivery_time import TIMED
from pocketmq.client.message import RETRY_TOPIC, encode_properties
from pocketmq.client.message_check import sender_properties
from pocketmq.client.route import MASTER_ID, WRITE
from pocketmq.client.sending.outgoing import STORED, send_header
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.send import SendMessageResponseHeader
from pocketmq.store.format.message import COMPRESSED_FLAG
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY

RESENT: Final = "DLQ_RESENT"
"""Property of a message that was sent again: the offset message id of its dead letter."""
PRODUCER_GROUP: Final = "pocketmq-dlq-resend"
INDEX_WAIT_S: Final = 10.0
_INDEX_POLL_S: Final = 0.1
_COMPRESSION: Final = COMPRESSED_FLAG | 0x700
_ANY_QUEUE: Final = -1
_CONCURRENT_MAX: Final = 16
_NOT_AGAIN: Final = TIMED | {
    *("TIMER_DEL_UNIQKEY", "TIMER_DEL_MS", "__STARTDELIVERTIME", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID")
}
"""Properties that are not sent again, besides those reserved for brokers: the message's delay has passed."""


@dataclass(frozen=True)
class DeadLetterCount:
    """The dead letters of a group. `last_ms`: when the last one was stored; 0: there has been none."""

    group: str
    count: int
    last_ms: int


@dataclass(frozen=True)
class SentAgain:
    """The place at which a dead letter was stored again. `refusal`: what the broker did not guarantee, None if all."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int | None
    refusal: RemotingError | None = None


class Outcome(NamedTuple):
    """The outcome of sending a dead letter again. `sent` None: the send failed, or an earlier one was stored."""

    stored: StoredMessage
    sent: SentAgain | None
    failure: RemotingError | AdminError | None = None


# --- reading ----------------------------------------------------------------------------------------------------------


async def counts(admin: AdminClient) -> list[DeadLetterCount]:
    """Return the numbers of dead letters of all groups that have any, or had some."""
    return [_count(name, await topics.queue_status(admin, name)) for name in await dead_letter_topics(admin)]


async def dead_letter_topics(admin: AdminClient) -> list[str]:
    """Return the names of all dead-letter topics."""
    return sorted(name for name in await topics.topic_names(admin) if name.startswith(DLQ_PREFIX))


async def counts_at(admin: AdminClient, address: str, names: Iterable[str]) -> list[DeadLetterCount]:
    """Return the numbers of dead letters that one broker has in topics of these names; it may not have all of them."""
    turns = asyncio.Semaphore(_CONCURRENT_MAX)

    async def count(topic: str) -> DeadLetterCount | None:
        async with turns:
            with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
                return _count(topic, await topics.queue_status_at(admin, address, topic))
        return None

    return [one for one in await asyncio.gather(*map(count, names)) if one is not None]


def _count(topic: str, rows: Sequence[QueueStatus]) -> DeadLetterCount:
    number = sum(max(row.max_offset - row.min_offset, 0) for row in rows)
    return DeadLetterCount(topic.removeprefix(DLQ_PREFIX), number, max((row.last_update_ms for row in rows), default=0))


async def count_of(admin: AdminClient, group: str) -> int:
    """Return the number of a group's dead letters."""
    return next((one.count for one in await counts(admin) if one.group == group), 0)


async def dead_letters(
    admin: AdminClient, group: str, begins: Mapping[tuple[str, int], int] | None = None
) -> AsyncIterator[StoredMessage]:
    """Yield the dead letters that a group has now, queue by queue, the oldest first. Raises AdminError without any.

    `begins`: the offset from which a queue is read, by broker name and queue id.
    """
    topic, queues = DLQ_PREFIX + group, None
    with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
        queues = await queues_to_read(admin, topic)
    if queues is None:
        raise AdminError(f"consumer group {group!r} has no dead letters; `pocketmq dlq ls` lists the groups that have")
    if not queues:
        raise AdminError(f"the topic {topic} may not be read; `pocketmq topic set {topic} --perm rw` permits it")
    ends = [(queue, address, await limits(admin, address, queue)) for queue, address in queues]
    for queue, address, (low, end) in ends:
        queue_offset = max(low, 0, (begins or {}).get((queue.broker_name, queue.queue_id), 0))
        while queue_offset < end:
            pulled = await pull(admin, address, queue, queue_offset)
            for stored in pulled.messages:
                if stored.message.queue_offset < end:
                    yield stored
            if pulled.next_offset <= queue_offset or (pulled.status != FOUND and pulled.next_offset >= end):
                break
            queue_offset = pulled.next_offset


def topic_named(stored: StoredMessage) -> str | None:
    """Return the original topic of a dead letter, as far as it names one."""
    return stored.message.properties.get(RETRY_TOPIC)


def original_topic(stored: StoredMessage) -> str:
    """Return the topic to which a dead letter was first sent. Raises AdminError if it is not known."""
    topic = topic_named(stored)
    if not topic or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise AdminError(f"{stored.message.msg_id}: the dead letter does not name its original topic")
    return topic


async def is_sent_again(admin: AdminClient, stored: StoredMessage) -> bool:
    """Return whether a dead letter was sent to its original topic again."""
    return await has_copy(admin, original_topic(stored), stored.message.msg_id, stored.message.offset_msg_id)


async def has_copy(admin: AdminClient, topic: str, msg_id: str, offset_msg_id: str) -> bool:
    """Return whether a topic has a message that was sent for the dead letter with these ids."""
    with Tolerating(ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST):
        found = await by_unique_key(admin, topic, msg_id)
        return any(one.message.properties.get(RESENT) == offset_msg_id for one in found)
    return False


# --- changes ----------------------------------------------------------------------------------------------------------


def properties_again(stored: StoredMessage) -> dict[str, str]:
    """Return the properties with which a dead letter is sent again: its sender's, and the mark."""
    message = stored.message
    own = {name: value for name, value in sender_properties(message.properties).items() if name not in _NOT_AGAIN}
    named = {name: value for name in (TAGS, KEYS) if (value := message.properties.get(name))}
    return {**own, **named, UNIQ_KEY: message.msg_id, "WAIT": "true", RESENT: message.offset_msg_id}


async def send_again(admin: AdminClient, stored: StoredMessage) -> SentAgain:
    """Send a dead letter to its original topic with its own body and properties: to its own broker, if that has the topic.

    Raises AdminError if no broker takes messages of the topic.
    """
    topic = original_topic(stored)
    broker_name, address = await _broker_for(admin, topic, stored.message.broker_name)
    queue, properties = MessageQueue(broker_name, _ANY_QUEUE, topic), encode_properties(properties_again(stored))
    flags = stored.record.flag, stored.record.sys_flag & _COMPRESSION
    about = {"default_topic_queue_nums": 0, "reconsume_times": 0, "unit_mode": False, "batch": False}
    header = send_header(PRODUCER_GROUP, topic, queue, properties, *flags, **about)
    try:
        answer = await admin.call(address, RequestCode.SEND_MESSAGE_V2, header, stored.record.body)
    except RemotingError as refusal:
        if refusal.code not in STORED:
            raise
        return SentAgain(topic, broker_name, _ANY_QUEUE, None, refusal)
    placed = answer.header(SendMessageResponseHeader)
    return SentAgain(topic, broker_name, placed.queue_id, placed.queue_offset)


async def resend(admin: AdminClient, letters: Iterable[StoredMessage], again: bool = False) -> AsyncIterator[Outcome]:
    """Send dead letters again, each once, and yield what became of each. `again`: also those that were sent again before.

    Raises AdminError after the first one if it would not be recognised as sent again by another run.
    """
    is_checked = again
    for stored in letters:
        try:
            if not again and await is_sent_again(admin, stored):
                yield Outcome(stored, None)
                continue
            sent = await send_again(admin, stored)
        except (RemotingError, AdminError) as failure:
            yield Outcome(stored, None, failure)
            continue
        yield Outcome(stored, sent)
        if not is_checked:
            await check_is_found(admin, stored)
            is_checked = True


async def _broker_for(admin: AdminClient, topic: str, preferred: str) -> tuple[str, str]:
    route = None
    with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
        route = await admin.route(topic)
    if route is None:
        raise AdminError(f"its topic {topic!r} does not exist any more; `pocketmq topic create {topic}` creates it")
    writable = {data.broker_name for data in route.queue_datas if data.perm & WRITE and data.write_queue_nums > 0}
    masters = {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in route.broker_datas
        if data.broker_name in writable and MASTER_ID in data.broker_addrs
    }
    if not masters:
        raise AdminError(f"no broker takes messages of its topic {topic!r}; `pocketmq topic describe {topic}` shows why")
    name = preferred if preferred in masters else min(masters)
    return name, masters[name]


async def check_is_found(admin: AdminClient, stored: StoredMessage) -> None:
    """Wait until a dead letter that was just sent again is recognised as such. Raises AdminError if it is not, in time."""
    try:
        async with asyncio.timeout(INDEX_WAIT_S):
            while not await is_sent_again(admin, stored):
                await asyncio.sleep(_INDEX_POLL_S)
    except TimeoutError:
        raise AdminError(
            f"{stored.message.msg_id} was sent again, but is not in the broker's index: another run would not know it "
            "(messageIndexEnable=false?); nothing more is sent"
        ) from None


async def purge(admin: AdminClient, group: str) -> None:
    """Delete the dead letters of a group: its dead-letter topic, which a broker creates again for the next dead letter."""
    topic = DLQ_PREFIX + group
    route = await admin.route(topic)
    for cluster in sorted({data.cluster for data in route.broker_datas}):
        await topics.delete_topic(admin, cluster, topic)


def with_ids(letters: Iterable[StoredMessage], ids: Iterable[str]) -> tuple[list[StoredMessage], list[str]]:
    """Return the dead letters with one of some ids (unique keys or offset message ids), and the ids that none has."""
    wanted = dict.fromkeys(ids)
    chosen, seen = [], set()
    for one in letters:
        named = {one.message.msg_id, one.message.offset_msg_id} & wanted.keys()
        if named:
            chosen.append(one)
            seen |= named
    return chosen, [one for one in wanted if one not in seen]

"""Tracks of a message: its consumption by each consumer group of its topic, and the trace that clients have sent of it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pocketmq.admin.api.client import AdminClient, AdminError, described
from pocketmq.admin.api.consumers import ACTIVELY, BROADCASTING, ConsumerConnection, connections, progress
from pocketmq.admin.api.message_search import by_key, by_unique_key
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.api.topics import DLQ_PREFIX, RETRY_PREFIX, groups_of_topic
from pocketmq.client.route import MASTER_ID
from pocketmq.client.trace import EVENT_END, FIELD_END, PUB, SUB_AFTER, TRACE_TOPIC
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError


class MessageTrack(NamedTuple):
    """Consumption status of a message in one consumer group."""

    consumer_group: str
    track_type: str
    exception_desc: str | None = None

    def __str__(self) -> str:
        desc = "null" if self.exception_desc is None else self.exception_desc
        return f"MessageTrack [consumerGroup={self.consumer_group}, trackType={self.track_type}, exceptionDesc={desc}]"

    def as_document(self) -> dict[str, Any]:
        return {
            "consumerGroup": self.consumer_group,
            "trackType": self.track_type,
            "exceptionDesc": self.exception_desc,
        }


async def message_tracks(admin: AdminClient, stored: StoredMessage) -> list[MessageTrack]:
    """Return a track for each group that consumes the message's topic, one after the other."""
    return [await message_track(admin, stored, group) for group in await groups_of_topic(admin, stored.topic)]


async def retries(admin: AdminClient, msg_id: str, group: str) -> list[StoredMessage]:
    """Return the copies of a message in the retry topic and the dead-letter topic of a group, the oldest first."""
    found: list[StoredMessage] = []
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        with Tolerating(ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST):
            found += await by_unique_key(admin, topic, msg_id)
    return found


async def message_track(admin: AdminClient, stored: StoredMessage, group: str) -> MessageTrack:
    """Return the track of one group."""
    try:
        clients = await connections(admin, group)
        if clients.consume_type == ACTIVELY:
            return MessageTrack(group, "PULL")
        if clients.message_model == BROADCASTING:
            return MessageTrack(group, "CONSUME_BROADCASTING")
        if not await _is_consumed(admin, stored, group):
            return MessageTrack(group, "NOT_CONSUME_YET")
    except RemotingError as refusal:
        kind = "NOT_ONLINE" if refusal.code == ResponseCode.CONSUMER_NOT_ONLINE else "UNKNOWN"
        return MessageTrack(group, kind, f"CODE:{int(refusal.code)} DESC:{refusal.remark}")
    except AdminError as failure:
        return MessageTrack(group, "UNKNOWN", described(failure))
    return MessageTrack(group, "CONSUMED" if _is_subscribed(clients, stored) else "CONSUMED_BUT_FILTERED")


async def _is_consumed(admin: AdminClient, stored: StoredMessage, group: str) -> bool:
    """Return whether the group's offset is past the message, at the broker that has it."""
    brokers = (await admin.cluster_info()).broker_addr_table
    for queue, offsets in (await progress(admin, group)).rows():
        if queue.topic == stored.topic and queue.queue_id == stored.message.queue_id and queue.broker_name in brokers:
            address = brokers[queue.broker_name].broker_addrs.get(MASTER_ID)
            if address == stored.store_host and offsets.consumer_offset > stored.message.queue_offset:
                return True
    return False


def _is_subscribed(clients: ConsumerConnection, stored: StoredMessage) -> bool:
    subscription = clients.subscription_table.get(stored.topic)
    tags = subscription.tags_set if subscription is not None else []
    return not tags or "*" in tags or stored.message.tags in tags


# --- traces: `field \x01 field ... \x02` for each event, in messages of a trace topic ------------------------------


class TraceEvent(NamedTuple):
    """A message was sent (Pub) or consumed (SubAfter)."""

    kind: str
    group: str | None
    client_host: str
    timestamp_ms: int
    cost_ms: int
    succeeded: bool


async def trace_of(admin: AdminClient, msg_id: str) -> list[TraceEvent]:
    """Return the events of a message by time; none without a trace topic, or if no client has sent trace data."""
    with Tolerating(ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST):
        found = await by_key(admin, TRACE_TOPIC, msg_id)
        events = (event for stored in found for event in trace_events(msg_id, stored))
        return sorted(events, key=lambda event: event.timestamp_ms)
    return []


def trace_events(msg_id: str, stored: StoredMessage) -> Iterator[TraceEvent]:
    """Yield the events of a message in a trace message. Events of other messages, and unreadable ones, are skipped."""
    host = stored.born_host.rpartition(":")[0].strip("[]")
    for event in stored.message.body.decode(errors="replace").split(EVENT_END):
        fields = event.split(FIELD_END)
        try:
            if fields[0] == PUB and fields[5] == msg_id:
                succeeded = fields[12] if len(fields) == 13 else fields[13]
                yield TraceEvent(PUB, fields[3], host, int(fields[1]), int(fields[10]), succeeded == "true")
            elif fields[0] == SUB_AFTER and fields[2] == msg_id:
                has_group = len(fields) >= 9
                group, time_ms = (fields[8], int(fields[7])) if has_group else (None, 0)
                yield TraceEvent(SUB_AFTER, group, host, time_ms, int(fields[3]), fields[4] == "true")
        except (IndexError, ValueError):
            continue

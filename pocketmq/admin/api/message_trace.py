"""Trace data of messages, which clients send to a trace topic: `field \\x01 field ... \\x02` for each event."""

from collections.abc import Iterator
from typing import NamedTuple

from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.message_search import by_key
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.client.trace import EVENT_END, FIELD_END, PUB, SUB_AFTER, TRACE_TOPIC
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError


class TraceEvent(NamedTuple):
    """A message was sent (Pub) or consumed (SubAfter)."""

    kind: str
    group: str | None
    client_host: str
    timestamp_ms: int
    cost_ms: int
    succeeded: bool


async def trace_of(admin: AdminClient, msg_id: str, topic: str = TRACE_TOPIC) -> list[TraceEvent]:
    """Return the events of a message by time; none without a trace topic, or if no client has sent trace data."""
    try:
        found = await by_key(admin, topic, msg_id)
    except RemotingError as refusal:
        if refusal.code not in (ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST):
            raise
        return []
    return sorted((event for stored in found for event in trace_events(msg_id, stored)), key=_time_of)


def _time_of(event: TraceEvent) -> int:
    return event.timestamp_ms


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

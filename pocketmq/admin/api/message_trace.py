"""Trace data of messages, which clients send to a trace topic: `field \\x01 field ... \\x02` for each event."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.client.message import Message, now_ms
from pocketmq.client.producer import Producer, SendResult
from pocketmq.client.route import MASTER_ID

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
PUB: Final = "Pub"
SUB_AFTER: Final = "SubAfter"
_EVENT_END: Final = "\x02"
_FIELD_END: Final = "\x01"


_NORMAL: Final = "0"
"""Type of a message that is neither delayed nor part of a transaction."""
_REGION: Final = "DefaultRegion"


class TraceEvent(NamedTuple):
    """A message was sent (Pub) or consumed (SubAfter)."""

    kind: str
    group: str | None
    client_host: str
    timestamp_ms: int
    cost_ms: int
    succeeded: bool


def trace_events(msg_id: str, stored: StoredMessage) -> Iterator[TraceEvent]:
    """Yield the events of a message in a trace message. Events of other messages, and unreadable ones, are skipped."""
    host = stored.born_host.rpartition(":")[0].strip("[]")
    for event in stored.message.body.decode(errors="replace").split(_EVENT_END):
        fields = event.split(_FIELD_END)
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


async def trace_send(admin: AdminClient, sender: Producer, message: Message, sent: SendResult, cost_ms: int) -> None:
    """Send the trace data of a message that was sent, as clients with enableMsgTrace do."""
    broker = (await admin.cluster_info()).broker_addr_table.get(sent.queue.broker_name)
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys or ())
    fields = (
        *(PUB, str(now_ms() - cost_ms), _REGION, sender.group, message.topic, sent.msg_id, message.tags or "", keys),
        *("" if broker is None else broker.broker_addrs.get(MASTER_ID, ""), str(len(message.body)), str(cost_ms), _NORMAL),
        *(sent.offset_msg_id, "true"),
    )
    body = _FIELD_END.join(fields) + _EVENT_END
    await sender.send(Message(TRACE_TOPIC, body.encode(), keys=[sent.msg_id, *keys.split()]))

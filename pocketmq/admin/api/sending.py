"""Sending messages from the tool: a producer of the command's name servers, and trace data."""

import time
from typing import Final

from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.message_trace import PUB, TRACE_TOPIC
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer, SendResult
from pocketmq.client.route import MASTER_ID

_NORMAL: Final = "0"
"""Type of a message that is neither delayed nor part of a transaction."""
_REGION: Final = "DefaultRegion"


def producer(admin: AdminClient, group: str | None = None) -> Producer:
    """Return a producer, to be entered. Without `group` the group's name is the time, as in Apache's tool."""
    return Producer(";".join(admin.namesrv_addresses), group or str(now_ms()), admin.access)


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


async def trace_send(admin: AdminClient, sender: Producer, message: Message, sent: SendResult, cost_ms: int) -> None:
    """Send the trace data of a message that was sent, as clients with enableMsgTrace do."""
    broker = (await admin.cluster_info()).broker_addr_table.get(sent.queue.broker_name)
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys or ())
    fields = (
        *(PUB, str(now_ms() - cost_ms), _REGION, sender.group, message.topic, sent.msg_id, message.tags or "", keys),
        *("" if broker is None else broker.broker_addrs.get(MASTER_ID, ""), str(len(message.body)), str(cost_ms), _NORMAL),
        *(sent.offset_msg_id, "true"),
    )
    body = "\x01".join(fields) + "\x02"
    await sender.send(Message(TRACE_TOPIC, body.encode(), keys=[sent.msg_id, *keys.split()]))

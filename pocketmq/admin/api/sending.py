"""Sending messages from the tool: a producer of the command's name servers, and trace data."""

from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.client.message import Message, now_ms
from pocketmq.client.message_check import sender_properties
from pocketmq.client.producer import Producer
from pocketmq.client.route import MASTER_ID
from pocketmq.client.sending.outgoing import SendResult
from pocketmq.client.trace import TRACE_TOPIC, pub


def producer(admin: AdminClient, group: str | None = None) -> Producer:
    """Return a producer, to be entered. Without `group` the group's name is the time, as in Apache's tool."""
    return Producer(";".join(admin.namesrv_addresses), group or str(now_ms()), admin.access)


async def send_again(admin: AdminClient, stored: StoredMessage, group: str) -> SendResult:
    """Send a message to its topic again, with its body and its sender's properties, by a producer of a group."""
    old = stored.message
    message = Message(stored.topic, old.body, old.tags, old.keys, 0, sender_properties(old.properties), old.flag)
    async with producer(admin, group) as sender:
        return await sender.send(message)


async def trace_send(admin: AdminClient, sender: Producer, message: Message, sent: SendResult, cost_ms: int) -> None:
    """Send the trace data of a message that was sent, as clients with enableMsgTrace do."""
    broker = (await admin.cluster_info()).broker_addr_table.get(sent.queue.broker_name)
    address = "" if broker is None else broker.broker_addrs.get(MASTER_ID, "")
    record = pub(sender.group, message, sent, address, now_ms() - cost_ms, cost_ms)
    await sender.send(Message(TRACE_TOPIC, record.text.encode(), keys=record.keys))

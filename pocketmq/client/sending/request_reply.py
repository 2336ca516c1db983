"""Request-reply: a message whose sender waits for the answer of a consumer.

    answer = await producer.request(Message("Prices", b"book 7"), timeout_s=2.0)      the requester

    async def listener(message: MessageExt) -> None:                                  a consumer of "Prices"
        await reply(consumer, message, b"12.50")

The reply goes to the topic `<cluster>_REPLY_TOPIC`; the broker that receives it pushes it to the requester.
"""

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Final, Protocol

from pocketmq.client.message import Message, MessageExt
from pocketmq.client.message_check import MESSAGE_SIZE_MAX
from pocketmq.client.sending.message_sender import SEND_TIMEOUT_S, MessageSender, Select
from pocketmq.client.sending.outgoing import SendResult, outgoing
from pocketmq.errors import RequestTimeout
from pocketmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    from pocketmq.client.client_instance import ClientInstance

log = logging.getLogger("client")

CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
CLUSTER: Final = "CLUSTER"
_REQUEST: Final = (CORRELATION_ID, REPLY_TO_CLIENT, TTL)
"""Properties of a request that its reply repeats."""
_REPLY_GROUP: Final = "CLIENT_INNER_PRODUCER"


class Client(Protocol):
    """A producer or consumer."""

    instance: "ClientInstance"


async def request(
    sender: MessageSender, message: Message, size_max: int, timeout_s: float, select: Select | None = None
) -> MessageExt:
    """Send a message and return the reply. Raises RequestTimeout if none came in time, else as a send."""
    instance, correlation_id = sender.instance, str(uuid.uuid4())
    about = {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: instance.client_id, TTL: str(round(timeout_s * 1000))}
    out = outgoing(message, size_max, added=about)
    future: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
    instance.replies[correlation_id] = future
    try:
        async with asyncio.timeout(timeout_s) as limit:
            await instance.introduce(message.topic)  # a reply is pushed only over a connection that had a heartbeat
            await sender.send(out, select, timeout_s)
            return await future
    except TimeoutError as failure:
        if not limit.expired():
            raise
        raise RequestTimeout(f"no reply to {out.msg_id} of topic {message.topic} within {timeout_s:g} s") from failure
    finally:
        instance.replies.pop(correlation_id, None)


async def reply(client: Client, message: MessageExt, body: bytes, timeout_s: float = SEND_TIMEOUT_S) -> SendResult:
    """Answer a request message, through any started producer or consumer of its cluster.

    Raises ValueError if `message` is no request, RemotingError if the requester is gone, else as a send.
    """
    about: dict[str, str] = {name: message.properties[name] for name in _REQUEST if name in message.properties}
    cluster = message.properties.get(CLUSTER)
    if REPLY_TO_CLIENT not in about or CORRELATION_ID not in about or cluster is None:
        raise ValueError(f"message {message.msg_id} is no request: its sender does not wait for a reply")
    answer = Message(f"{cluster}_REPLY_TOPIC", body)
    out = outgoing(answer, MESSAGE_SIZE_MAX, added={**about, "MSG_TYPE": "reply"})
    out.code = RequestCode.SEND_REPLY_MESSAGE_V2
    queues = await client.instance.routes.publish_queues(answer.topic)
    own = next((queue for queue in queues if queue.broker_name == message.broker_name), None)
    select = None if own is None else lambda _: own  # the broker of the request has the requester's connection
    return await MessageSender(client.instance, _REPLY_GROUP).send(out, select, timeout_s)


def received(instance: "ClientInstance", answer: MessageExt) -> None:
    """Hand a reply to the waiting request."""
    future = instance.replies.pop(answer.properties.get(CORRELATION_ID, ""), None)
    if future is None:
        log.info("a reply for %s is dropped: its request does not wait", answer.properties.get(CORRELATION_ID))
    elif not future.done():
        future.set_result(answer)

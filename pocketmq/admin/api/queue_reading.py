"""Reading a queue at a broker: its limits, and pulls at chosen offsets."""

from typing import Final, NamedTuple

from pocketmq.admin.api.client import AdminClient, AdminError, addresses_by_name
from pocketmq.admin.api.stored_messages import StoredMessage, stored_messages
from pocketmq.admin.api.topics import readable_queues
from pocketmq.client.consuming.queue_requests import PULL_STATUS, PULL_TIMEOUT_S
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.offset import OffsetResponseHeader, QueueRequestHeader, SearchOffsetRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

TOOLS_CONSUMER: Final = "TOOLS_CONSUMER"
PULL_COUNT: Final = 32
FOUND: Final = "FOUND"
NO_MATCHED_MSG: Final = "NO_MATCHED_MSG"
_SUBSCRIPTION: Final = 4


class Pulled(NamedTuple):
    """Result of a pull. `next_offset`: where the next one should begin."""

    status: str
    messages: list[StoredMessage]
    next_offset: int


async def queues_to_read(admin: AdminClient, topic: str) -> list[tuple[MessageQueue, str]]:
    """Return the queues of a topic that may be read, each with its broker's address, by broker name and queue id."""
    route = await admin.route(topic)
    brokers = addresses_by_name(route)
    return [(queue, brokers[queue.broker_name]) for queue in readable_queues(topic, route) if queue.broker_name in brokers]


async def address_of(admin: AdminClient, topic: str, broker_name: str) -> str:
    """Return the address of a broker in a topic's route. Raises AdminError if it is not in there."""
    address = (await admin.route_brokers(topic)).get(broker_name)
    if address is None:
        raise AdminError(f"The broker[{broker_name}] not exist")
    return address


async def limits(
    admin: AdminClient, address: str, queue: MessageQueue, begin_ms: int | None = None, end_ms: int | None = None
) -> tuple[int, int]:
    """Return the first offset of a queue and the one after its last message; a given time replaces either."""
    low = await _offset(admin, address, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))
    high = await at_time(admin, address, queue, -1)
    if begin_ms is not None:
        low = await at_time(admin, address, queue, begin_ms)
    if end_ms is not None:
        high = await at_time(admin, address, queue, end_ms)
    return low, high


async def at_time(admin: AdminClient, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return the offset of the first message stored at or after a time; -1: the end of the queue."""
    if timestamp_ms < 0:
        return await _offset(admin, address, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))
    header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
    return await _offset(admin, address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def _offset(admin: AdminClient, address: str, code: int, header: CommandHeader) -> int:
    return (await admin.call(address, code, header)).header(OffsetResponseHeader).offset


async def pull(
    admin: AdminClient,
    address: str,
    queue: MessageQueue,
    queue_offset: int,
    count: int = PULL_COUNT,
    expression: str = "*",
    group: str = TOOLS_CONSUMER,
) -> Pulled:
    """Pull messages from a queue without waiting for new ones. Raises RemotingError if the broker refuses."""
    status, answer = await pull_answer(admin, address, queue, queue_offset, count, expression, group)
    response = answer.header(PullMessageResponseHeader)
    messages = stored_messages(answer.body, queue.broker_name) if status == FOUND else []
    for stored in messages:
        limits_of_queue = {"MIN_OFFSET": str(response.min_offset), "MAX_OFFSET": str(response.max_offset)}
        stored.message.properties = {**limits_of_queue, **stored.message.properties}
    matching = [stored for stored in messages if has_tag(expression, stored.message.tags)]
    return Pulled(status, matching, response.next_begin_offset)


async def message_at(admin: AdminClient, queue: MessageQueue, queue_offset: int) -> StoredMessage | None:
    """Return the message at a queue offset; None if there is no message."""
    address = await address_of(admin, queue.topic, queue.broker_name)
    status, answer = await pull_answer(admin, address, queue, queue_offset, 1)
    found = stored_messages(answer.body, queue.broker_name) if status == FOUND else []
    return next((stored for stored in found if stored.message.queue_offset == queue_offset), None)


async def pull_answer(
    admin: AdminClient,
    address: str,
    queue: MessageQueue,
    queue_offset: int,
    count: int = PULL_COUNT,
    expression: str = "*",
    group: str = TOOLS_CONSUMER,
) -> tuple[str, RemotingCommand]:
    """Return the status of a pull and its answer, whose records are not decoded. Raises RemotingError."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=queue_offset,
        max_msg_nums=count,
        sys_flag=_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        expression_type="TAG",
    )
    answer = await admin.invoke(address, RequestCode.PULL_MESSAGE, header, timeout_s=PULL_TIMEOUT_S)
    if answer.code not in PULL_STATUS:
        raise RemotingError(answer.code, answer.remark or f"{address} refused the pull with code {answer.code}")
    return PULL_STATUS[answer.code], answer


def has_tag(expression: str, tag: str | None) -> bool:
    """Return whether an expression of tags, such as `A || B`, selects a tag: brokers compare only the hashes of tags."""
    return expression.strip() in ("", "*") or tag in {one.strip() for one in expression.split("||")}

"""Requests of brokers to a client, and their answers: to a consumer, most of them relayed from tools, and to a producer.

A request for another consumer group than the client's own is refused with SYSTEM_ERROR.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.client.message import MessageExt, decode_messages, plain_body
from pocketmq.client.sending import request_reply
from pocketmq.client.sending.transaction import PGROUP
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader, ConsumerStatusRequestHeader
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from pocketmq.remoting.headers.query import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader
from pocketmq.remoting.headers.send import ReplyMessageRequestHeader
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.properties import decode_properties

if TYPE_CHECKING:
    from pocketmq.client.client_instance import ClientInstance
    from pocketmq.client.consuming.group_member import GroupMember

log = logging.getLogger("client")

DIRECTLY_MAX: Final = 16
"""Maximum number of messages consumed directly at the same time; more are refused with SYSTEM_BUSY."""

CR_SUCCESS: Final = "CR_SUCCESS"
CR_THROW_EXCEPTION: Final = "CR_THROW_EXCEPTION"


class ConsumeMessageDirectlyResult(msgspec.Struct, rename="camel"):
    """Answer of CONSUME_MESSAGE_DIRECTLY."""

    consume_result: str
    spent_time_mills: int
    remark: str | None = None
    order: bool = False
    auto_commit: bool = True


def _member(asked: "ClientInstance", group: str) -> "GroupMember":
    if asked.member is None or asked.member.group != group:
        remark = f"The Consumer Group <{clipped(group)}> not exist in this consumer"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return asked.member


def notify_consumer_ids_changed(asked: "ClientInstance", request: Request[ConsumerGroupRequestHeader]) -> None:
    """Trigger a new allocation of the queues. The request is oneway."""
    if asked.member is not None:
        asked.member.rebalancing.allocate_now()


def reset_consumer_client_offset(asked: "ClientInstance", request: Request[ResetOffsetRequestHeader]) -> None:
    """Continue at the offsets in the body, a map with queues as keys or a list. The request is oneway."""
    member = _member(asked, request.header.group)
    try:
        member.rebalancing.reset_offsets(_offsets_of(request.body))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("a broker sent offsets that cannot be read: %s", clipped(error))


def _offsets_of(body: bytes) -> dict[MessageQueue, int]:
    table = fastjson.loads(bytes(body))["offsetTable"]
    if isinstance(table, dict):
        return {msgspec.json.decode(key, type=MessageQueue): _offset(value) for key, value in table.items()}
    return {msgspec.convert(row, MessageQueue): _offset(row["offset"]) for row in table}


def _offset(value: Any) -> int:
    if not 0 <= (offset := int(value)) < 1 << 63:
        raise ValueError(f"{offset} is no queue offset")
    return offset


def get_consumer_status(asked: "ClientInstance", request: Request[ConsumerStatusRequestHeader]) -> Response:
    """Return the consumer offsets of the allocated queues of a topic."""
    offsets = _member(asked, request.header.group).offsets(request.header.topic)
    rows = ((fastjson.object_key(q.broker_name, q.queue_id, q.topic), offset) for q, offset in offsets.items())
    return Response(body=fastjson.dumps({"messageQueueTable": fastjson.object_map(rows)}))


def get_consumer_running_info(asked: "ClientInstance", request: Request[ConsumerRunningInfoRequestHeader]) -> Response:
    """Return settings, subscriptions, queues and rates of the consumer; with jstackEnable also its stacks."""
    info = _member(asked, request.header.consumer_group).running_info(request.header.jstack_enable)
    return Response(body=fastjson.dumps(info))


def consume_message_directly(asked: "ClientInstance", request: Request[ConsumeMessageDirectlyRequestHeader]) -> Deferred:
    """Give the message in the body to its listener; the answer comes when the listener has finished."""
    member = _member(asked, request.header.consumer_group)
    if len(asked.asked_tasks) >= DIRECTLY_MAX:
        remark = f"this consumer already consumes {DIRECTLY_MAX} messages directly, the maximum"
        raise RemotingError(ResponseCode.SYSTEM_BUSY, remark)
    try:
        (message,) = decode_messages(bytes(request.body), request.header.broker_name or "")
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the body is not one message: {clipped(error)}") from None
    deferred = Deferred()

    async def consume() -> None:
        try:
            deferred.complete(Response(body=fastjson.dumps(await member.consume_directly(message))))
        except LookupError as refusal:
            deferred.complete(Response(ResponseCode.SYSTEM_ERROR, remark=str(refusal.args[0])))

    task = asyncio.create_task(consume())
    asked.asked_tasks.add(task)
    task.add_done_callback(asked.asked_tasks.discard)
    return deferred


# --- to a producer ----------------------------------------------------------------------------------------------------


def check_transaction_state(asked: "ClientInstance", request: Request[CheckTransactionStateRequestHeader]) -> None:
    """Ask the producer's callback about the half message in the body. The request is oneway."""
    try:
        (message,) = decode_messages(bytes(request.body), "")
    except ValueError as error:
        log.warning("a broker asks about a transaction that cannot be read: %s", clipped(error))
        return
    group = message.properties.get(PGROUP)
    if asked.checker is None or group != asked.producer_group:
        log.warning("a broker asks about a transaction of group %s, which has no check here", clipped(str(group)))
        return
    asked.checker.check(request.channel, request.header, message)


def push_reply_message_to_client(asked: "ClientInstance", request: Request[ReplyMessageRequestHeader]) -> Response:
    """Hand the reply in the body to the waiting request."""
    header = request.header
    body, problem = plain_body(bytes(request.body), header.sys_flag)
    answer = MessageExt(
        topic=header.topic,
        broker_name="",
        queue_id=header.queue_id,
        queue_offset=-1,
        physical_offset=-1,
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp,
        store_timestamp_ms=header.store_timestamp,
        reconsume_times=header.reconsume_times or 0,
        body=body,
        properties=decode_properties(header.properties or ""),
        offset_msg_id="",
        problem=problem,
    )
    request_reply.received(asked, answer)
    return Response()


ROUTES = routes(
    Route(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequestHeader, notify_consumer_ids_changed),
    Route(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader, reset_consumer_client_offset),
    Route(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusRequestHeader, get_consumer_status),
    Route(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader, get_consumer_running_info),
    Route(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, consume_message_directly),
    Route(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, check_transaction_state),
    Route(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequestHeader, push_reply_message_to_client),
)

"""PullMessage, and the offsets of groups and queues."""

from collections.abc import AsyncIterator
from typing import Final

from pocketmq.client.consuming.queue_requests import PULL_STATUS
from pocketmq.client.message import records_of
from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.clients.session import expression_of
from pocketmq.proxy.messages.incoming import milliseconds
from pocketmq.proxy.messages.outgoing import message_of
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

_WITH_SUBSCRIPTION, _MAY_WAIT = 4, 2
BATCH_SIZE_MAX: Final = 1024


async def pull_message(call: Call, request: pb.PullMessageRequest) -> AsyncIterator[pb.PullMessageResponse]:
    """Yield the status, the messages from an offset of a queue on, and the offset that follows them."""
    session, queue = call.session, request.message_queue
    topic, group = session.topic(queue.topic), session.group(request.group)
    if request.offset < 0:
        raise Refusal(pb.ILLEGAL_OFFSET, f"the offset {request.offset} is below 0")
    kind, text = expression_of(request.filter_expression)
    wait_ms = min(
        milliseconds(request.long_polling_timeout), call.config.grpc_client_consumer_max_long_polling_timeout_millis
    )
    header = PullMessageRequestHeader(
        group, topic, queue.id, request.offset, max(min(request.batch_size, BATCH_SIZE_MAX), 1),
        _WITH_SUBSCRIPTION | (_MAY_WAIT if wait_ms > 0 else 0), 0, max(wait_ms, 0), 0, text, kind,
    )  # fmt: skip
    answer = await session.invoke(
        topic, queue.broker.name, RequestCode.PULL_MESSAGE, header, timeout_s=max(wait_ms, 0) / 1000 + 3
    )
    if answer.code not in PULL_STATUS:
        raise RemotingError(answer.code, answer.remark or f"the broker answered with code {answer.code}")
    place = answer.header(PullMessageResponseHeader)
    if answer.code == ResponseCode.SUCCESS:
        yield pb.PullMessageResponse(status=OK)
        for record in records_of(answer.body):
            yield pb.PullMessageResponse(message=message_of(record, topic))
    else:
        moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
        code = pb.ILLEGAL_OFFSET if moved else pb.MESSAGE_NOT_FOUND
        yield pb.PullMessageResponse(status=pb.Status(code=code, message=answer.remark or "no new message"))
    yield pb.PullMessageResponse(next_offset=place.next_begin_offset)


async def update_offset(call: Call, request: pb.UpdateOffsetRequest) -> pb.UpdateOffsetResponse:
    """Commit the offset of a group."""
    queue, session = request.message_queue, call.session
    topic, group = session.topic(queue.topic), session.group(request.group)
    if request.offset < 0:
        raise Refusal(pb.ILLEGAL_OFFSET, f"the offset {request.offset} is below 0")
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue.id, request.offset)
    await session.call(topic, queue.broker.name, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return pb.UpdateOffsetResponse(status=OK)


async def get_offset(call: Call, request: pb.GetOffsetRequest) -> pb.GetOffsetResponse:
    """Return the offset of a group."""
    queue, session = request.message_queue, call.session
    topic, group = session.topic(queue.topic), session.group(request.group)
    header = QueryConsumerOffsetRequestHeader(group, topic, queue.id, set_zero_if_not_found=False)
    answer = await session.invoke(topic, queue.broker.name, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        raise Refusal(pb.OFFSET_NOT_FOUND, f"group {group} has no offset for queue {queue.id} of topic {topic}")
    if answer.code != ResponseCode.SUCCESS:
        raise RemotingError(answer.code, answer.remark or f"the broker answered with code {answer.code}")
    return pb.GetOffsetResponse(status=OK, offset=answer.header(OffsetResponseHeader).offset)


async def query_offset(call: Call, request: pb.QueryOffsetRequest) -> pb.QueryOffsetResponse:
    """Return the first or last offset of a queue, or the first that is not older than a time."""
    queue, session = request.message_queue, call.session
    topic = session.topic(queue.topic)
    if request.query_offset_policy == pb.TIMESTAMP:
        header: QueueRequestHeader = SearchOffsetRequestHeader(topic, queue.id, milliseconds(request.timestamp))
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    else:
        header = QueueRequestHeader(topic, queue.id)
        is_end = request.query_offset_policy == pb.END
        code = RequestCode.GET_MAX_OFFSET if is_end else RequestCode.GET_MIN_OFFSET
    answer = await session.call(topic, queue.broker.name, code, header)
    return pb.QueryOffsetResponse(status=OK, offset=answer.header(OffsetResponseHeader).offset)

"""POP_MESSAGE and related requests: acks, changes of the invisible time, peek, and NOTIFICATION.

Each pop contains its own subscription, so that it needs no preceding heartbeat.
"""

from collections.abc import Callable, Iterator
from functools import partial

from pocketmq.broker.filter.subscription import Wanted
from pocketmq.broker.handlers.consuming import (
    check_broker,
    check_group,
    check_topic,
    compiling,
    find_topic,
    no_queue,
    wanted,
)
from pocketmq.broker.polling.pop_polling import PopLongPollingService
from pocketmq.broker.pop.pop import Popped
from pocketmq.broker.pop.pop_record import MESSAGES_MAX
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.handles.pop_handle import Handle, retry_topic_of
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
)
from pocketmq.remoting.pop_bodies import BatchAck, BatchAckMessageRequestBody
from pocketmq.store.queue.record_filter import RecordFilter

# --- popping --------------------------------------------------------------------------------------------------------


@compiling
def pop_message(services: Services, request: Request[PopMessageRequestHeader]) -> Response | Deferred:
    """Return messages, or hold the request until some arrive."""
    header = request.header
    if services.pops.polling.is_stopped:
        raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, f"the broker[{services.broker_address}] is stopping")
    _check(services, header)
    matches = wanted(services, header.exp_type, header.exp) if header.exp else None
    popped = services.pops.pop(header, matches)
    if popped.count:
        return _found(services, popped)
    empty = partial(_empty, popped)
    if header.poll_time <= 0:
        return empty()
    size = matches.size if isinstance(matches, RecordFilter) else 0
    held = _wait(services, services.pops.polling, request, partial(_pop_again, services, header, matches), empty, size)
    if popped.is_behind:
        services.pops.try_waiting(header.topic, header.queue_id)
    return held or _empty(popped, ResponseCode.POLLING_FULL)


def _found(services: Services, popped: Popped) -> Response:
    header = popped.header
    if popped.rest:
        services.pops.try_waiting(header.topic, header.queue_id)  # other waiting pops can take the rest
    return Response(ResponseCode.SUCCESS, popped.answer(), popped.views, "FOUND")


def _empty(popped: Popped, code: ResponseCode = ResponseCode.POLLING_TIMEOUT) -> Response:
    return Response(code, popped.answer(), remark="NO_MESSAGE_IN_QUEUE")


def _pop_again(services: Services, header: PopMessageRequestHeader, matches: Wanted) -> Response | None:
    _check(services, header)
    popped = services.pops.pop(header, matches)
    # Also needed for the check points just put, which the turn must dispatch.
    services.turn.arm()
    if popped.is_behind and not popped.count:
        services.pops.try_waiting(header.topic, header.queue_id)
    return _found(services, popped) if popped.count else None


def _wait(
    services: Services,
    polling: PopLongPollingService,
    request: "Request[PopMessageRequestHeader] | Request[NotificationRequestHeader]",
    serve: Callable[[], Response | None],
    empty: Callable[[], Response],
    filter_size: int = 0,
) -> Deferred | None:
    header = request.header
    topics = header.topic, *services.pops.retry_topics(header.topic, header.consumer_group)
    key = header.topic, header.consumer_group, header.queue_id
    held = polling.wait(key, topics, serve, empty, header.poll_time / 1000, request.channel, request.size + filter_size)
    if held is not None:
        request.drop_content()
    return held


def _check(services: Services, header: PopMessageRequestHeader) -> None:
    """Make the checks of a pop in Apache's order. Raises RemotingError."""
    if header.max_msg_nums > MESSAGES_MAX:
        remark = f"the broker[{services.broker_address}] pop message's num is greater than {MESSAGES_MAX}"
        raise RemotingError(ResponseCode.INVALID_PARAMETER, remark)
    if not services.delivery_times.is_enabled:
        remark = f"the broker[{services.broker_address}] pop message is forbidden because timerWheelEnable is false"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    _check_place(services, header)


def _check_place(
    services: Services, header: PopMessageRequestHeader | PeekMessageRequestHeader | NotificationRequestHeader
) -> None:
    """Raises RemotingError if a group may not read a queue (-1: all queues)."""
    check_broker(services, "pop")
    topic_config = check_topic(services, header.topic, "peeking")
    if header.queue_id >= topic_config.read_queue_nums:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, no_queue(header.topic, header.queue_id, topic_config))
    check_group(services, header.consumer_group)


# --- peek and notification ------------------------------------------------------------------------------------------


def peek_message(services: Services, request: Request[PeekMessageRequestHeader]) -> Response:
    """Return the messages that a pop would return, without popping them and without handles."""
    header = request.header
    _check_place(services, header)
    asked = PopMessageRequestHeader(
        header.consumer_group, header.topic, header.queue_id, min(header.max_msg_nums, MESSAGES_MAX), 0, 0
    )
    popped = services.pops.peek(asked)
    code = ResponseCode.SUCCESS if popped.count else ResponseCode.PULL_NOT_FOUND
    return Response(code, popped.answer(), popped.views, "FOUND" if popped.count else "NO_MESSAGE_IN_QUEUE")


def notification(services: Services, request: Request[NotificationRequestHeader]) -> Response | Deferred:
    """Return whether a pop would find messages; hold the request until it would, or the time is over."""
    header = request.header
    _check_place(services, header)
    asked = PopMessageRequestHeader(
        header.consumer_group, header.topic, header.queue_id, 1, 0, 0, order=header.order, attempt_id=header.attempt_id
    )
    if services.pops.has_message(asked):
        return _has_message(True)
    if header.poll_time <= 0 or services.pops.notifications.is_stopped:
        return _has_message(False)
    # Earlier messages were announced to other requests, which may not have taken them: check again at the end.
    held = _wait(
        services, services.pops.notifications, request,
        lambda: _has_message(True) if services.pops.has_message(asked) else None,
        lambda: _has_message(services.pops.has_message(asked)),
    )  # fmt: skip
    return held or Response(header=NotificationResponseHeader(False, True))


def _has_message(has_message: bool) -> Response:
    return Response(header=NotificationResponseHeader(has_message))


def polling_info(services: Services, request: Request[QueryConsumerOffsetRequestHeader]) -> Response:
    """Return the number of pops of a group that wait at a queue."""
    header = request.header
    key = header.topic, header.consumer_group, header.queue_id
    return Response(header=PollingInfoResponseHeader(services.pops.polling.waiting_at(key)))


# --- popped messages ------------------------------------------------------------------------------------------------


def ack_message(services: Services, request: Request[AckMessageRequestHeader]) -> Response | Deferred:
    """Acknowledge one message."""
    header = request.header
    handle = _check_handle(services, header, is_end_legal=True)
    end_offset = services.pops.acknowledge(header.consumer_group, header.topic, header.queue_id, handle, [header.offset])
    return services.gate.when_done(Response(), end_offset=end_offset)


def _check_handle(
    services: Services, header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, *, is_end_legal: bool
) -> Handle:
    topic_config = find_topic(services, header.topic)
    if not 0 <= header.queue_id < topic_config.read_queue_nums:
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, no_queue(header.topic, header.queue_id, topic_config))
    low = max(services.store.min_offset(header.topic, header.queue_id), 0)
    high = services.store.max_offset(header.topic, header.queue_id)
    if not low <= header.offset < high + is_end_legal:
        remark = f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{low}~{high}"
        raise RemotingError(ResponseCode.NO_MESSAGE, remark)
    try:
        handle = Handle.parse(header.extra_info)
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"extraInfo: {error}") from None
    if not services.pops.is_ours(handle):
        remark = f"extraInfo: revive queue {handle.revive_queue} does not exist (reviveQueueNum)"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return handle


def batch_ack_message(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Acknowledge many messages. Invalid entries are ignored, as in Apache: their messages are popped again."""
    body = request_body(request, BatchAckMessageRequestBody)
    if not body.acks:
        raise RemotingError(ResponseCode.NO_MESSAGE, "there is nothing to acknowledge")
    if len(body.acks) > services.config.max_acks_per_batch:
        remark = f"the batch has {len(body.acks)} acks, more than maxAcksPerBatch={services.config.max_acks_per_batch}"
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)
    end_offset = max(_acknowledge(services, ack, body.broker_name) for ack in body.acks)
    return services.gate.when_done(Response(), end_offset=end_offset)


def _acknowledge(services: Services, ack: BatchAck, broker_name: str) -> int:
    topic = ack.t if ack.r == "0" else retry_topic_of(ack.t, ack.c, with_v2=ack.r == "2")
    low, high = services.store.min_offset(topic, ack.q), services.store.max_offset(topic, ack.q)
    bits = int.from_bytes(ack.b, "little")
    if bits.bit_count() > MESSAGES_MAX:
        return 0  # more than a check point can have
    offsets = [offset for offset in _set_bits(bits, ack.so) if low <= offset <= high]
    handle = Handle(ack.so, ack.pt, ack.it, ack.rq, ack.r, broker_name)
    if not offsets or not services.pops.is_ours(handle):
        return 0
    return services.pops.acknowledge(ack.c, topic, ack.q, handle, offsets)


def _set_bits(bits: int, start: int) -> Iterator[int]:
    """Yield the positions of the set bits, counted from `start`."""
    while bits:
        bit = (bits & -bits).bit_length() - 1
        yield start + bit
        bits >>= bit + 1
        start += bit + 1


def change_invisible_time(services: Services, request: Request[ChangeInvisibleTimeRequestHeader]) -> Response:
    """Change the invisible time of a popped message, counted from now."""
    header = request.header
    handle = _check_handle(services, header, is_end_legal=False)
    pop_time_ms, invisible_time_ms = services.pops.change_invisible_time(
        header.consumer_group, header.topic, header.queue_id, handle, header.offset, header.invisible_time
    )
    return Response(header=ChangeInvisibleTimeResponseHeader(pop_time_ms, invisible_time_ms, handle.revive_queue))


ROUTES = routes(
    Route(RequestCode.POP_MESSAGE, PopMessageRequestHeader, pop_message),
    Route(RequestCode.ACK_MESSAGE, AckMessageRequestHeader, ack_message),
    Route(RequestCode.BATCH_ACK_MESSAGE, NoHeader, batch_ack_message),
    Route(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeRequestHeader, change_invisible_time),
    Route(RequestCode.PEEK_MESSAGE, PeekMessageRequestHeader, peek_message),
    Route(RequestCode.NOTIFICATION, NotificationRequestHeader, notification),
    Route(RequestCode.POLLING_INFO, QueryConsumerOffsetRequestHeader, polling_info),
)

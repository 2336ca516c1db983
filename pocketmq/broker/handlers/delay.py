"""PocketMQ's own requests about delayed messages: list and count them, cancel one, deliver one now.

A message is identified by the physical offset of its record, which QUERY_DELAYED returns. A timer message is cancelled by a
further message, as in a recall; a message of a delay level by an entry in `config/delayCancelled.json`.

RECALL_MESSAGE: a sender recalls a timer message (5.3 and later).

A recall stores a message that cancels the timer message when their slot is read. Success means that it is stored, not that
there was a message to cancel. A message can be recalled until it is delivered; Apache refuses this once its second has
begun.
"""

import logging
from typing import Any

from pocketmq.broker.delay.pending import DETAILED_MAX, PAGE_MAX, Pending, Place, Wanted, parse_cursor
from pocketmq.broker.delay.records import delivered_message, due_copy
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.put.delivery_time import PMQ_COPY_OF, slot_time_ms
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.remoting.bodies import encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.delay_bodies import DelayedMessages
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from pocketmq.remoting.headers.delay import (
    CountDelayedRequestHeader,
    CursorResponseHeader,
    DelayedMessageRequestHeader,
    DelayedMessageResponseHeader,
    QueryDelayedRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
)
from pocketmq.store.format.message import PutResult
from pocketmq.store.format.properties import UNIQ_KEY

log = logging.getLogger("broker")


def query_delayed(services: Services, request: Request[QueryDelayedRequestHeader]) -> Response:
    """Return a page of messages by due time, and the cursor of the next page; the last page has no cursor."""
    header, query = request.header, services.delay_query
    wanted = Wanted(header.topic, header.key, header.msg_id, header.begin_timestamp, min(header.end_timestamp, 1 << 62))
    count_max = min(max(header.max_num, 1), DETAILED_MAX if header.detailed else PAGE_MAX)
    found, cursor = query.page(wanted, _cursor(header.cursor), count_max)
    body = DelayedMessages([query.describe(pending, header.detailed) for pending in found])
    return Response(header=_cursor_header(cursor), body=encode_body(body))


def count_delayed(services: Services, request: Request[CountDelayedRequestHeader]) -> Response:
    """Return the number of messages by the hour in which they are due."""
    header = request.header
    wanted = Wanted(header.topic, None, None, header.begin_timestamp, min(header.end_timestamp, 1 << 62))
    counts, cursor = services.delay_query.count(wanted, _cursor(header.cursor))
    return Response(header=_cursor_header(cursor), body=encode_body(counts))


def _cursor(text: str | None) -> Place | None:
    with refused_as(ResponseCode.SYSTEM_ERROR):
        return parse_cursor(text)


def _cursor_header(cursor: Place | None) -> CursorResponseHeader:
    return CursorResponseHeader(None if cursor is None else str(cursor))


def cancel_delayed(services: Services, request: Request[DelayedMessageRequestHeader]) -> Response | Deferred:
    """Cancel a message. Once this is answered, the message is never delivered, even after a crash."""
    pending = _pending(services, request.header.physical_offset)
    entry, answer = pending.entry, Response(header=DelayedMessageResponseHeader(pending.msg_id))
    log.info("%s cancels %s of %s", request.channel.remote_address, pending.msg_id, pending.topic)
    if entry.level:
        with refused_as(ResponseCode.SYSTEM_ERROR, "config/delayCancelled.json cannot be written: ", kind=OSError):
            services.delay_cancelled.cancel(entry.level, entry.queue_offset)
        return answer
    result = _cancel(services, request, pending)
    return services.gate.when_done(answer, end_offset=result.end_offset)


def deliver_delayed_now(services: Services, request: Request[DelayedMessageRequestHeader]) -> Response | Deferred:
    """Deliver a message now, and not again when it is due. A crash in between may deliver it twice, but never loses it."""
    pending = _pending(services, request.header.physical_offset)
    entry = pending.entry
    log.info("%s delivers %s of %s early", request.channel.remote_address, pending.msg_id, pending.topic)
    view = services.store.message_at(pending.record.physical_offset)
    assert view is not None, "the record was read just now"
    with refused_as(ResponseCode.SYSTEM_ERROR, "the message can never be delivered: "):
        if entry.level:
            copy = delivered_message(view)
        else:
            copy = due_copy(view, 0, services.clock.message_time_ms(), services.delivery_times.precision_ms)
    copy.queue_id = services.topics.readable_queue(copy.topic, copy.queue_id)
    result = services.putter.put_at_once(copy)
    if entry.level:
        services.delay_cancelled.delivered(entry.level, entry.queue_offset, result.end_offset)
    else:
        result = _cancel(services, request, pending)
    answer = Response(header=DelayedMessageResponseHeader(pending.msg_id))
    return services.gate.when_done(answer, end_offset=result.end_offset)


def _pending(services: Services, physical_offset: int) -> Pending:
    remark = f"no message is pending at physical offset {physical_offset}: it was delivered or cancelled, or never existed"
    return existing(services.delay_query.find(physical_offset), ResponseCode.QUERY_NOT_FOUND, remark)


def _cancel(services: Services, request: Request[Any], pending: Pending) -> PutResult:
    """Cancel one timer message, identified by the physical offset of its first record. Other brokers, which know only unique
    keys, cancel all messages with its key and second."""
    first = int(pending.properties.get(PMQ_COPY_OF, pending.record.physical_offset))
    unique_key = pending.properties.get(UNIQ_KEY) or None
    return _put_cancelling(services, request, pending.topic, unique_key, pending.entry.place.out_ms, only=first)


def _put_cancelling(
    services: Services, request: Request[Any], topic: str, unique_key: str | None, out_ms: int,
    producer_group: str | None = None, only: int | None = None,
) -> PutResult:  # fmt: skip
    """Put the message that cancels the timer messages of a topic with a unique key and TIMER_OUT_MS, or `only` one of them.

    TIMER_DEL_UNIQKEY has the topic as in 5.3, or as in 5.5.0 only with appendTopicForTimerDeleteKey.
    """
    key = f"@{only}" if unique_key is None else unique_key
    if unique_key is not None and services.store.config.append_topic_for_timer_delete_key:
        key = f"{topic}+{unique_key}"
    message = services.delivery_times.cancelling(
        topic, key, unique_key, out_ms, producer_group, request.channel.host_bytes, services.store_host, only
    )
    result = services.putter.put_at_once(message)
    services.timer_messages.cancel_near(message.properties)
    return result


def recall_message(services: Services, request: Request[RecallMessageRequestHeader]) -> Response | Deferred:
    """Make Apache's checks in its order (RecallMessageProcessor), then put the cancelling message."""
    handle, timestamp_ms = _admit(services, request.header)
    out_ms, group = slot_time_ms(timestamp_ms, services.delivery_times.precision_ms), request.header.producer_group
    with refused_as(ResponseCode.SYSTEM_ERROR, "recall failed, execute error: ", kind=RemotingError):
        result = _put_cancelling(services, request, handle.topic, handle.unique_key, out_ms, group)
    response = Response(header=RecallMessageResponseHeader(handle.unique_key, services.config.region_id))
    return services.gate.when_done(response, end_offset=result.end_offset)


def _admit(services: Services, header: RecallMessageRequestHeader) -> tuple[RecallHandle, int]:
    """Return the handle and its timestamp. Raises RemotingError."""
    config, now_ms = services.config, services.clock.message_time_ms()
    if not config.recall_message_enable:
        raise RemotingError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden (recallMessageEnable=false)")
    if now_ms < config.start_accept_send_request_time_stamp:
        remark = (
            "recall failed, broker service not available until startAcceptSendRequestTimeStamp="
            f"{config.start_accept_send_request_time_stamp}"
        )
        raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    if not (config.broker_permission & PERM_WRITE or config.allow_recall_when_broker_not_writeable):
        remark = (
            f"recall failed, broker service not available: brokerPermission={config.broker_permission} forbids writing, "
            "and allowRecallWhenBrokerNotWriteable=false"
        )
        raise RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    remark = f"recall failed, the topic[{header.topic}] not exist"
    existing(services.topics.get(header.topic), ResponseCode.TOPIC_NOT_EXIST, remark)
    if not services.delivery_times.is_enabled:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error: timerWheelEnable is false")
    return _checked_handle(services, header, now_ms)


def _checked_handle(services: Services, header: RecallMessageRequestHeader, now_ms: int) -> tuple[RecallHandle, int]:
    with refused_as(ResponseCode.ILLEGAL_OPERATION):
        handle = decode_recall_handle(header.recall_handle)
    if handle.topic != header.topic:
        raise _illegal(f"recall failed, topic not match: the request has {header.topic!r}, the handle {handle.topic!r}")
    broker_name = services.config.broker_name
    if handle.broker_name != broker_name:
        reason = f"the handle is of broker {handle.broker_name!r}, this is {broker_name!r}"
        raise _illegal(f"recall failed, broker service not available: {reason}")
    times, text = services.delivery_times, handle.timestamp
    timestamp_ms = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
    wanted = Wanted(handle.topic, msg_id=handle.unique_key)
    if timestamp_ms - now_ms >= times.delay_max_ms:
        raise _illegal(f"recall failed, timestamp invalid: {text} is beyond timerMaxDelaySec={times.delay_max_ms // 1000}")
    # After its time the message may still wait, if the calendar was set forward or the timer service is behind.
    if timestamp_ms + times.precision_ms <= now_ms and not services.delay_query.page(wanted, None, 1)[0]:
        raise _illegal(f"recall failed, timestamp invalid: {text} is past and the message is delivered")
    return handle, timestamp_ms


def _illegal(remark: str) -> RemotingError:
    return RemotingError(ResponseCode.ILLEGAL_OPERATION, remark)


ROUTES = routes(
    Route(RequestCode.QUERY_DELAYED, QueryDelayedRequestHeader, query_delayed),
    Route(RequestCode.COUNT_DELAYED, CountDelayedRequestHeader, count_delayed),
    Route(RequestCode.CANCEL_DELAYED, DelayedMessageRequestHeader, cancel_delayed),
    Route(RequestCode.DELIVER_DELAYED_NOW, DelayedMessageRequestHeader, deliver_delayed_now),
    Route(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader, recall_message),
)

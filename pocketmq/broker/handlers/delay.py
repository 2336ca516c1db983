"""PocketMQ's own requests about delayed messages: list and count them, cancel one, deliver one now.

A message is identified by the physical offset of its record, which QUERY_DELAYED returns. A timer message is cancelled by a
further message, as in a recall; a message of a delay level by an entry in `config/delayCancelled.json`.
"""

import logging

from pocketmq.broker.delay.pending import DETAILED_MAX, PAGE_MAX, Pending, Place, Wanted, parse_cursor
from pocketmq.broker.delay.records import delivered_message, due_copy
from pocketmq.broker.put.delivery_time import PMQ_COPY_OF, delete_key
from pocketmq.broker.services import Services
from pocketmq.remoting.bodies import encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.delay_bodies import DelayedMessages
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.delay import (
    CountDelayedRequestHeader,
    CursorResponseHeader,
    DelayedMessageRequestHeader,
    DelayedMessageResponseHeader,
    QueryDelayedRequestHeader,
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
    try:
        return parse_cursor(text)
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _cursor_header(cursor: Place | None) -> CursorResponseHeader:
    return CursorResponseHeader(None if cursor is None else str(cursor))


def cancel_delayed(services: Services, request: Request[DelayedMessageRequestHeader]) -> Response | Deferred:
    """Cancel a message. Once this is answered, the message is never delivered, even after a crash."""
    pending = _pending(services, request.header.physical_offset)
    entry, answer = pending.entry, Response(header=DelayedMessageResponseHeader(pending.msg_id))
    log.info("%s cancels %s of %s", request.channel.remote_address, pending.msg_id, pending.topic)
    if entry.level:
        try:
            services.delay_cancelled.cancel(entry.level, entry.queue_offset)
        except OSError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"config/delayCancelled.json cannot be written: {error}"
            ) from error
        return answer
    result = _put_cancelling(services, pending, request.channel.host_bytes)
    return services.gate.when_done(answer, end_offset=result.end_offset)


def deliver_delayed_now(services: Services, request: Request[DelayedMessageRequestHeader]) -> Response | Deferred:
    """Deliver a message now, and not again when it is due. A crash in between may deliver it twice, but never loses it."""
    pending = _pending(services, request.header.physical_offset)
    entry = pending.entry
    log.info("%s delivers %s of %s early", request.channel.remote_address, pending.msg_id, pending.topic)
    view = services.store.message_at(pending.record.physical_offset)
    assert view is not None, "the record was read just now"
    try:
        if entry.level:
            copy = delivered_message(view)
        else:
            copy = due_copy(view, 0, services.clock.message_time_ms(), services.delivery_times.precision_ms)
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the message can never be delivered: {error}") from None
    copy.queue_id = services.topics.readable_queue(copy.topic, copy.queue_id)
    result = services.putter.put_at_once(copy)
    if entry.level:
        services.delay_cancelled.delivered(entry.level, entry.queue_offset, result.end_offset)
    else:
        result = _put_cancelling(services, pending, request.channel.host_bytes)
    answer = Response(header=DelayedMessageResponseHeader(pending.msg_id))
    return services.gate.when_done(answer, end_offset=result.end_offset)


def _pending(services: Services, physical_offset: int) -> Pending:
    pending = services.delay_query.find(physical_offset)
    if pending is None:
        remark = (
            f"no message is pending at physical offset {physical_offset}: it was delivered or cancelled, or never existed"
        )
        raise RemotingError(ResponseCode.QUERY_NOT_FOUND, remark)
    return pending


def _put_cancelling(services: Services, pending: Pending, host: bytes) -> PutResult:
    """Put the message that cancels one timer message, identified by the physical offset of its first record. Other brokers,
    which know only unique keys, cancel all messages with its key and second."""
    properties = pending.properties
    unique_key = properties.get(UNIQ_KEY)
    first = int(properties.get(PMQ_COPY_OF, pending.record.physical_offset))
    if unique_key:
        key = delete_key(pending.topic, unique_key, with_topic=services.store.config.append_topic_for_timer_delete_key)
    else:
        key = f"@{first}"
    out_ms = pending.entry.place.out_ms
    message = services.delivery_times.cancelling(
        pending.topic, key, unique_key, out_ms, None, host, services.store_host, first
    )
    result = services.putter.put_at_once(message)
    services.timer_messages.cancel_near(message.properties)
    return result


ROUTES = routes(
    Route(RequestCode.QUERY_DELAYED, QueryDelayedRequestHeader, query_delayed),
    Route(RequestCode.COUNT_DELAYED, CountDelayedRequestHeader, count_delayed),
    Route(RequestCode.CANCEL_DELAYED, DelayedMessageRequestHeader, cancel_delayed),
    Route(RequestCode.DELIVER_DELAYED_NOW, DelayedMessageRequestHeader, deliver_delayed_now),
)

"""RECALL_MESSAGE: a sender recalls a timer message (5.3 and later).

A recall stores a message that cancels the timer message when their slot is read. Success means that it is stored, not that
there was a message to cancel. A message can be recalled until it is delivered; Apache refuses this once its second has
begun.
"""

from pocketmq.broker.delay.pending import Wanted
from pocketmq.broker.put.delivery_time import delete_key, slot_time_ms
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.handles.recall_handle import RecallHandle, decode_recall_handle
from pocketmq.remoting.headers.delay import RecallMessageRequestHeader, RecallMessageResponseHeader


def recall_message(services: Services, request: Request[RecallMessageRequestHeader]) -> Response | Deferred:
    """Make Apache's checks in its order (RecallMessageProcessor), then put the cancelling message."""
    handle, timestamp_ms = _admit(services, request.header)
    times = services.delivery_times
    out_ms = slot_time_ms(timestamp_ms, times.precision_ms)
    key = delete_key(handle.topic, handle.unique_key, with_topic=services.store.config.append_topic_for_timer_delete_key)
    message = times.cancelling(
        handle.topic, key, handle.unique_key, out_ms, request.header.producer_group, request.channel.host_bytes,
        services.store_host,
    )  # fmt: skip
    try:
        result = services.putter.put(message)
    except RemotingError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error.remark}") from None
    services.timer_messages.cancel_near(message.properties)
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
    if services.topics.get(header.topic) is None:
        raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
    if not services.delivery_times.is_enabled:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error: timerWheelEnable is false")
    return _checked_handle(services, header, now_ms)


def _checked_handle(services: Services, header: RecallMessageRequestHeader, now_ms: int) -> tuple[RecallHandle, int]:
    try:
        handle = decode_recall_handle(header.recall_handle)
    except ValueError as error:
        raise _illegal(str(error)) from None
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


ROUTES = routes(Route(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader, recall_message))

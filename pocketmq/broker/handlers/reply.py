"""SEND_REPLY_MESSAGE and its V2: the reply to a request message.

A requester sends an ordinary message with its client id in property REPLY_TO_CLIENT, and waits. The consumer of the request
sends the reply to `<cluster>_REPLY_TOPIC`. The broker pushes the reply to the waiting client, over the connection of one of
its producers (PUSH_REPLY_MESSAGE_TO_CLIENT), and stores it (storeReplyMessageEnable) for inspection only: nothing consumes
it.

The code of the answer is that of the push alone; its ids are those of the stored record, or 0.
"""

import asyncio
import logging
from typing import Final

from pocketmq.broker.handlers.send import admit, any_queue
from pocketmq.broker.put.put import split_properties
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand, Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.store.format.message import TRANSACTION_TYPE_MASK, Message
from pocketmq.store.format.properties import encode_properties

log = logging.getLogger("broker")

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PUSH_TIMEOUT_S: Final = 10.0


def send_reply_message(services: Services, request: Request[SendMessageRequestHeader]) -> Response | Deferred:
    """Push a reply to the waiting client and store it. The answer comes after the client's, or when the push failed."""
    header, config = request.header, services.config
    topic_config = admit(services, request)
    properties, text = split_properties(header.properties)
    pushed = _push(services, request, properties)
    queue_id = any_queue(topic_config) if header.queue_id < 0 else header.queue_id
    place = SendMessageResponseHeader("0", queue_id, 0, None, config.region_id, config.trace_on)
    stored: Response | Deferred = Response()
    if config.store_reply_message_enable and not services.store.config.is_slave:
        stored = _store(services, request, properties, text, place)
    deferred = Deferred()

    def answer(problem: str | None) -> None:
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        deferred.complete(Response(code, place, remark=problem))

    def on_stored(_: Response) -> None:
        if isinstance(pushed, str):
            answer(pushed)
        else:
            pushed.add_done_callback(lambda done: answer(_problem(properties, done)))

    if isinstance(stored, Response):
        on_stored(stored)
    else:
        stored.hand_to(on_stored)
    return services.gate.when_routed(deferred, header.topic)


def _push(
    services: Services, request: Request[SendMessageRequestHeader], properties: dict[str, str]
) -> "asyncio.Future[RemotingCommand] | str":
    """Push the reply. Return the future of the client's answer, or the reason why it cannot be pushed."""
    header = request.header
    client_id = properties.get(REPLY_TO_CLIENT)
    channel = services.clients.find_producer(client_id) if client_id else None
    if channel is None or not channel.is_writable:
        remark = f"push reply message fail, channel of <{client_id}> not found."
        if not client_id:
            remark = f"reply message properties[{REPLY_TO_CLIENT}] is null"
        elif channel is not None:  # it does not read: further data would pile up in memory
            remark = f"push reply message to {client_id} fail: the client does not read from its connection"
        return remark
    now_ms = services.clock.message_time_ms()
    push = ReplyMessageRequestHeader(
        header.producer_group,
        header.topic,
        header.default_topic,
        header.default_topic_queue_nums,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        request.channel.remote_address,
        services.broker_address,
        now_ms,
        encode_properties(properties | {PUSH_REPLY_TIME: str(now_ms)}),
        header.reconsume_times,
        bool(header.unit_mode),
    )
    return channel.invoke(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, request.body, PUSH_TIMEOUT_S)


def _problem(properties: dict[str, str], pushed: "asyncio.Future[RemotingCommand]") -> str | None:
    """Return why the client did not accept the reply, or None."""
    failure = pushed.exception()
    if failure is not None:
        return f"push reply message to {properties[REPLY_TO_CLIENT]} fail: {failure}"
    answer = pushed.result()
    if answer.code == ResponseCode.SUCCESS:
        return None
    return f"push reply message to {properties[REPLY_TO_CLIENT]} fail: code {answer.code}, {answer.remark}"


def _store(
    services: Services,
    request: Request[SendMessageRequestHeader],
    properties: dict[str, str],
    text: str,
    place: SendMessageResponseHeader,
) -> Response | Deferred:
    """Store a reply and fill in its ids in `place`. Done when it is durable; a failed put is only logged."""
    header, putter = request.header, services.putter
    message = Message(
        header.topic,
        place.queue_id,
        request.body,
        request.channel.host_bytes,
        services.store_host,
        header.flag,
        header.sys_flag & ~TRANSACTION_TYPE_MASK,  # Apache stores 0, which loses the flag of a compressed body
        header.born_timestamp,
        header.reconsume_times or 0,
        0,
        properties,
        putter.stored_properties(text, properties),
    )
    try:
        result = putter.put(message)
    except RemotingError as error:
        log.warning("a reply to %s is not stored: %s", properties.get(REPLY_TO_CLIENT), error.remark)
        return Response()
    place.msg_id, place.queue_offset = putter.message_id(result.physical_offset), result.queue_offset
    return services.gate.when_done(Response(), end_offset=result.end_offset, properties=properties)


ROUTES = routes(
    Route(RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader, send_reply_message),
    Route(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2, send_reply_message),
)

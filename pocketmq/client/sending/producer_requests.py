"""Requests of brokers to a producer: the check of a transaction, and the reply to a request message."""

import logging
from typing import TYPE_CHECKING

from pocketmq.client.message import MessageExt, decode_messages, plain_body
from pocketmq.client.sending import request_reply
from pocketmq.client.sending.transaction import PGROUP
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.headers.send import ReplyMessageRequestHeader
from pocketmq.remoting.headers.transaction import CheckTransactionStateRequestHeader
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.properties import decode_properties

if TYPE_CHECKING:
    from pocketmq.client.client_instance import ClientInstance

log = logging.getLogger("client")


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
    Route(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, check_transaction_state),
    Route(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequestHeader, push_reply_message_to_client),
)

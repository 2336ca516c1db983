"""Relay of requests from tools to clients: the broker forwards them over the client's connection, and returns the answers.

Bodies are forwarded unchanged. They hold maps with object keys, which only tool and client need to decode.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec

from pocketmq.broker.clients.client_registry import ClientChannelInfo
from pocketmq.broker.handlers.group import online_group
from pocketmq.broker.handlers.query import record_at
from pocketmq.broker.handlers.refusing import existing, refused_as
from pocketmq.broker.put.message_id import decode_message_id
from pocketmq.broker.services import Services
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Body, RemotingCommand, Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.consumer import ConsumerStatusRequestHeader
from pocketmq.remoting.headers.query import ConsumeMessageDirectlyRequestHeader, ConsumerRunningInfoRequestHeader

RELAY_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0
OFFSETS_VERSION_MIN: Final = 28
"""V3_0_7_SNAPSHOT: older clients know neither RESET_CONSUMER_CLIENT_OFFSET nor GET_CONSUMER_STATUS_FROM_CLIENT."""
RELAY_VERSION_MIN: Final = 62
"""V3_1_8_SNAPSHOT: older clients know neither 307 nor 309."""

# --- offsets --------------------------------------------------------------------------------------------------------


def check_versions(clients: Iterable[ClientChannelInfo]) -> None:
    """Raises RemotingError when a client is too old for the requests about offsets."""
    for client in clients:
        if client.version < OFFSETS_VERSION_MIN:
            remark = f"the client does not support this feature. version={client.version}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)


def get_consumer_status(services: Services, request: Request[ConsumerStatusRequestHeader]) -> Deferred:
    """Ask every client of the group, or the named one, for its offset in each queue."""
    header = request.header
    info = online_group(services, header.group)
    clients = [c for c in info.clients.values() if not header.client_addr or c.client_id == header.client_addr]
    if not clients:
        remark = f"No Any Consumer online in the consumer group: [{header.group}] with id {header.client_addr}"
        raise RemotingError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    check_versions(clients)
    ask = ConsumerStatusRequestHeader(header.topic, header.group)
    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    answers = [c.channel.invoke(code, ask, b"", STATUS_TIMEOUT_S) for c in clients]
    deferred = Deferred()

    def on_done(gathered: "asyncio.Future[list[RemotingCommand | BaseException]]") -> None:
        rows = []
        for client, answer in zip(clients, gathered.result(), strict=True):
            if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
                rows.append((fastjson.dumps(client.client_id), _status(answer.body)))
        body = {"consumerTable": fastjson.object_map(rows), "messageQueueTable": {}}
        deferred.complete(Response(body=fastjson.dumps(body)))

    asyncio.gather(*answers, return_exceptions=True).add_done_callback(on_done)
    return deferred


def _status(body: bytes) -> Any:
    """Return the messageQueueTable of a client's answer, for inclusion in a larger body; {} for an invalid one."""
    try:
        table = fastjson.loads(body)["messageQueueTable"]
        queues = [(msgspec.json.decode(key, type=MessageQueue), int(at)) for key, at in table.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return fastjson.object_map((fastjson.object_key(q.broker_name, q.queue_id, q.topic), at) for q, at in queues)


# --- one client -----------------------------------------------------------------------------------------------------


def get_consumer_running_info(services: Services, request: Request[ConsumerRunningInfoRequestHeader]) -> Deferred:
    """Return a consumer's running info, as the consumer answers it."""
    header = request.header
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    return _call_consumer(services, code, header, header.consumer_group, header.client_id)


def consume_message_directly(services: Services, request: Request[ConsumeMessageDirectlyRequestHeader]) -> Deferred:
    """Have a consumer consume one message now; the broker adds the message to the request."""
    header = request.header
    record: Body = b""
    if header.msg_id:
        with refused_as(ResponseCode.SYSTEM_ERROR):
            _, physical_offset = decode_message_id(header.msg_id)
        record = bytes(record_at(services, physical_offset))
    header.broker_name = services.config.broker_name
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    return _call_consumer(services, code, header, header.consumer_group, header.client_id or "", record)


def _call_consumer(
    services: Services, code: int, header: CommandHeader, group: str, client_id: str, body: Body = b""
) -> Deferred:
    info = services.clients.consumers.get(group)
    found = None if info is None else info.find_client(client_id)
    client = existing(found, ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
    if client.version < RELAY_VERSION_MIN:
        remark = f"The Consumer <{client_id}> Version <{client.version}> too low to finish"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{remark}, please upgrade it to V3_1_8_SNAPSHOT")
    deferred = Deferred()
    answered = client.channel.invoke(code, header, body, RELAY_TIMEOUT_S)
    answered.add_done_callback(partial(_hand_on, deferred, group, client_id))
    return deferred


def _hand_on(deferred: Deferred, group: str, client_id: str, answered: "asyncio.Future[RemotingCommand]") -> None:
    failure = answered.exception()
    if failure is None:
        answer = answered.result()
        code, remark = answer.code, answer.remark
        if not -(2**15) <= code < 2**15:  # does not fit in the binary header
            code, remark = ResponseCode.SYSTEM_ERROR, f"consumer <{group}> <{client_id}> answered with code {code}"
        deferred.complete(Response(code, body=answer.body, remark=remark))
    elif isinstance(failure, TimeoutError):
        remark = f"consumer <{group}> <{client_id}> Timeout: {failure}"
        deferred.complete(Response(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))
    else:
        remark = f"invoke consumer <{group}> <{client_id}> Exception: {failure}"
        deferred.complete(Response(ResponseCode.SYSTEM_ERROR, remark=remark))


ROUTES = routes(
    Route(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusRequestHeader, get_consumer_status),
    Route(RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfoRequestHeader, get_consumer_running_info),
    Route(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader, consume_message_directly),
)

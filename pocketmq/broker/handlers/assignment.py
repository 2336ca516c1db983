"""Queue allocation by the broker (for clients with clientRebalance off), and the choice between pull and pop mode.

A topic may have queues on several brokers, which are found by the name server. Without name server, or when none answers,
only the queues of this broker are used.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from pocketmq.broker.handlers.refusing import existing
from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.broker.services import Services
from pocketmq.broker.tables.message_request_mode import MODES, POP, PULL
from pocketmq.broker.tables.topic_config import PERM_READ
from pocketmq.remoting.bodies import MessageQueue, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, request_body, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.pop_bodies import (
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)

ANY_QUEUE: Final = -1
BROADCASTING: Final = "BROADCASTING"

Q = TypeVar("Q")


def query_assignment(services: Services, request: Request[NoHeader]) -> Deferred:
    """Return the client's share of a topic's queues. An answer without a set means that it keeps its present queues."""
    asked = request_body(request, QueryAssignmentRequestBody)
    deferred = Deferred()

    async def answer() -> None:
        queues = await _queues_of(services, asked.topic)
        body = QueryAssignmentResponseBody(_assigned(services, asked, queues))
        deferred.complete(Response(body=encode_body(body)))

    task = asyncio.ensure_future(answer())
    task.add_done_callback(lambda done: _failed(deferred, done))
    return deferred


def _failed(deferred: Deferred, done: "asyncio.Task[None]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        deferred.complete(Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}"))


async def _queues_of(services: Services, topic: str) -> list[MessageQueue]:
    """Return the readable queues of a topic, ordered by broker and queue id."""
    route = await services.registration.route_of(topic)
    if route is not None:
        counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas if data.perm & PERM_READ}
    else:
        config = services.topics.get(topic)
        counts = {} if config is None else {services.config.broker_name: config.read_queue_nums}
    return [MessageQueue(name, queue_id, topic) for name in sorted(counts) for queue_id in range(counts[name])]


def _assigned(
    services: Services, asked: QueryAssignmentRequestBody, queues: list[MessageQueue]
) -> list[MessageQueueAssignment] | None:
    if not queues:
        return None
    mode, share_num = _mode(services, asked.topic, asked.consumer_group)
    if asked.message_model == BROADCASTING:
        return [MessageQueueAssignment(queue, PULL) for queue in queues]
    group = services.clients.consumers.get(asked.consumer_group)
    if group is None or asked.strategy_name not in STRATEGIES:
        return None
    clients = sorted(group.client_ids())
    if mode == PULL:
        share = STRATEGIES[asked.strategy_name](queues, clients, asked.client_id)
        return [MessageQueueAssignment(queue, PULL) for queue in share]
    shared = shared_for_pop(asked.strategy_name, queues, clients, asked.client_id, share_num)
    if shared is None:
        names = dict.fromkeys(queue.broker_name for queue in queues)
        shared = [MessageQueue(name, ANY_QUEUE, asked.topic) for name in names]
    return [MessageQueueAssignment(queue, POP) for queue in dict.fromkeys(shared)]


def _mode(services: Services, topic: str, group: str) -> tuple[str, int]:
    found = services.request_modes.get(topic, group)
    if found is not None:
        return found.mode, found.pop_share_queue_num
    if topic.startswith(RETRY_PREFIX):
        return PULL, 0
    return services.config.default_message_request_mode, services.config.default_pop_share_queue_num


# --- allocation (Apache: QueryAssignmentProcessor) ------------------------------------------------------------------


def average(queues: Sequence[Q], clients: Sequence[str], client_id: str) -> list[Q]:
    """Strategy AVG: each client gets adjacent queues; a remainder goes to the first clients, one queue each."""
    if client_id not in clients:
        return []
    index, share, more = clients.index(client_id), *divmod(len(queues), len(clients))
    start = index * share + min(index, more)
    return list(queues[start : start + share + (index < more)])


def by_circle(queues: Sequence[Q], clients: Sequence[str], client_id: str) -> list[Q]:
    """Strategy AVG_BY_CIRCLE: each of n clients gets every n-th queue."""
    return list(queues[clients.index(client_id) :: len(clients)]) if client_id in clients else []


STRATEGIES = {"AVG": average, "AVG_BY_CIRCLE": by_circle}


def shared_for_pop(
    strategy: str, queues: Sequence[Q], clients: Sequence[str], client_id: str, share_num: int
) -> list[Q] | None:
    """Return the queues from which a client pops: its own share and those of the next `share_num` clients.

    None: with `share_num` <= 0, or one that covers all clients, the client pops from any queue.
    """
    if share_num <= 0 or share_num >= len(clients) - 1:
        return None
    if client_id not in clients or not queues:
        return []
    index = clients.index(client_id)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]]
    neighbours = [clients[(index + step) % len(clients)] for step in range(share_num + 1)]
    return [queue for one in neighbours for queue in STRATEGIES[strategy](queues, clients, one)]


# --- modes ----------------------------------------------------------------------------------------------------------


def set_message_request_mode(services: Services, request: Request[NoHeader]) -> Response | Deferred:
    """Set a group to pop or to pull from a topic (`mqadmin setConsumeMode`)."""
    asked = request_body(request, MessageRequestMode)
    if asked.topic.startswith(RETRY_PREFIX):
        raise RemotingError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    existing(services.topics.get(asked.topic), ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist")
    group = services.groups.find(asked.consumer_group)
    existing(group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
    if asked.mode not in MODES:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, f"mode {asked.mode!r}: expected one of {', '.join(MODES)}")
    services.request_modes.set(asked)
    written = services.request_modes.unwritten(), services.groups.unwritten(asked.consumer_group)
    return services.gate.when_done(Response(), written=written)


def get_all_message_request_mode(services: Services, request: Request[NoHeader]) -> Response:
    """Return the whole table."""
    return Response(body=encode_body(services.request_modes.encode()))


ROUTES = routes(
    Route(RequestCode.QUERY_ASSIGNMENT, NoHeader, query_assignment),
    Route(RequestCode.SET_MESSAGE_REQUEST_MODE, NoHeader, set_message_request_mode),
    Route(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, NoHeader, get_all_message_request_mode),
)

"""QueryRoute and QueryAssignment: the queues of a topic, at the address by which the client came."""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

from pocketmq.client.route import QUEUES_MAX, READ, WRITE
from pocketmq.proxy.calls.call import Call
from pocketmq.proxy.messages.names import resource_of
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal
from pocketmq.remoting.bodies import QueueData, TopicConfig, TopicRouteData

_TYPES = {
    "FIFO": (pb.FIFO,),
    "DELAY": (pb.DELAY,),
    "TRANSACTION": (pb.TRANSACTION,),
    "PRIORITY": (pb.PRIORITY,),
    "MIXED": (pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION),
}
ADDRESSES_MAX, HOST_SIZE_MAX = 64, 255
"""Limits of the endpoints in a request, which the answer repeats for each queue."""
_ADVERTISED = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)?(?::([0-9]+))?")


async def query_route(call: Call, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
    """Return the queues of a topic."""
    topic = call.session.topic(request.topic)
    route = await call.upstream.route(topic)
    types = accepted_types(await call.upstream.topic_config(call.session.client, topic))
    endpoints = endpoints_of(call, request.endpoints)
    queues = [
        pb.MessageQueue(
            topic=request.topic,
            id=queue_id,
            permission=permission,
            broker=pb.Broker(name=data.broker_name, id=int(broker_id), endpoints=endpoints),
            accept_message_types=types,
        )
        for data, broker_id in _brokers(route)
        for queue_id, permission in _permissions(data)
    ]
    return pb.QueryRouteResponse(status=OK, message_queues=queues)


async def query_assignment(call: Call, request: pb.QueryAssignmentRequest) -> pb.QueryAssignmentResponse:
    """Return what a push consumer shall receive from: each broker, or each queue if its group consumes in order."""
    topic, group = call.session.topic(request.topic), call.session.group(request.group)
    route = await call.upstream.route(topic)
    config = await call.upstream.group_config(call.session.client, topic, group)
    endpoints = endpoints_of(call, request.endpoints)
    readable = [data for data in route.queue_datas if data.perm & READ and data.read_queue_nums > 0]
    if not readable:
        raise Refusal(pb.FORBIDDEN, f"no readable queue of topic {topic}")
    in_order = config is not None and config.consume_message_orderly
    assignments = [
        pb.Assignment(
            message_queue=pb.MessageQueue(
                topic=resource_of(topic),
                id=queue_id,
                permission=pb.READ_WRITE if data.perm & WRITE else pb.READ,
                broker=pb.Broker(name=data.broker_name, id=0, endpoints=endpoints),
            )
        )
        for data in readable
        for queue_id in (range(min(data.read_queue_nums, QUEUES_MAX)) if in_order else (-1,))
    ]
    return pb.QueryAssignmentResponse(status=OK, assignments=assignments)


def accepted_types(config: TopicConfig | None) -> tuple[pb.MessageType, ...]:
    """Return the types of messages that a topic takes; all of them if its configuration is not known."""
    if config is None:
        return _TYPES["MIXED"]
    return _TYPES.get((config.attributes or {}).get("message.type", ""), (pb.NORMAL,))


def _brokers(route: TopicRouteData) -> Iterator[tuple[QueueData, str]]:
    addresses = {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}
    for data in route.queue_datas:
        for broker_id in addresses.get(data.broker_name, ()):
            yield data, broker_id


def _permissions(data: QueueData) -> Iterator[tuple[int, pb.Permission]]:
    """Yield id and permission of each queue, in Apache's order: those only read, those only written, the others."""
    reads = data.read_queue_nums if data.perm & READ else 0
    writes = data.write_queue_nums if data.perm & WRITE else 0
    both = min(reads, writes)
    kinds = [pb.READ] * (reads - both) + [pb.WRITE] * (writes - both) + [pb.READ_WRITE] * both
    if not kinds:
        kinds = [pb.NONE] * max(1, data.read_queue_nums, data.write_queue_nums)
    yield from enumerate(kinds[:QUEUES_MAX])


def endpoints_of(call: Call, asked: pb.Endpoints) -> pb.Endpoints:
    """Return the address that routes name: the one that the client came by, changed by grpcAdvertise."""
    if len(asked.addresses) > ADDRESSES_MAX or any(len(address.host) > HOST_SIZE_MAX for address in asked.addresses):
        raise Refusal(pb.ILLEGAL_ACCESS_POINT, f"the endpoints have more than {ADDRESSES_MAX} addresses, or a long one")
    advertised = call.config.grpc_advertise
    if not advertised:
        if not asked.addresses:
            raise Refusal(pb.ILLEGAL_ACCESS_POINT, "the request has no endpoints")
        return asked
    host, port = advertised_address(advertised)
    first = asked.addresses[0] if asked.addresses else pb.Address(host="127.0.0.1", port=0)
    host = host or first.host
    return pb.Endpoints(scheme=scheme_of(host), addresses=[pb.Address(host=host, port=port or first.port)])


@lru_cache
def advertised_address(text: str) -> tuple[str, int]:
    """Return host and port of grpcAdvertise; "" or 0 for the one that it leaves out. Raises ValueError."""
    found = _ADVERTISED.fullmatch(text)
    host, port = (text, "") if scheme_of(text) == pb.IPv6 else found.groups(default="") if found else ("", "")
    if not (host or port) or int(port or 1) not in range(1, 65_536):
        raise ValueError(f"grpcAdvertise={text}: not of the form HOST, HOST:PORT or :PORT")
    return host.strip("[]"), int(port or 0)


def scheme_of(host: str) -> pb.AddressScheme:
    """Return the kind of an address."""
    try:
        return pb.IPv4 if ipaddress.ip_address(host).version == 4 else pb.IPv6
    except ValueError:
        return pb.DOMAIN_NAME

"""QueryRoute and QueryAssignment: the queues of a topic, what they allow, and the address that they name."""

import pytest

from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.runtime.lifecycle import StartError
from tests.proxy.grpc_client import endpoints, resource
from tests.proxy.served import BROKER, ORDERED, running_front

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = endpoints(8081, "10.9.8.7")


def route_request(topic, at=OURS):
    return pb.QueryRouteRequest(topic=resource(topic), endpoints=at)


def assignment_request(topic, group, at=OURS):
    return pb.QueryAssignmentRequest(topic=resource(topic), group=resource(group), endpoints=at)


async def test_a_route_names_each_queue_of_the_topic_at_the_address_by_which_the_client_came(client):
    queues = (await client.done(route_request("normal"))).message_queues
    assert [queue.id for queue in queues] == [0, 1, 2, 3]
    for queue in queues:
        assert queue.topic == resource("normal")
        assert (queue.permission, list(queue.accept_message_types)) == (pb.READ_WRITE, [pb.NORMAL])
        assert (queue.broker.name, queue.broker.id, queue.broker.endpoints) == (BROKER, 0, OURS)


READ, WRITE, BOTH, NONE = pb.READ, pb.WRITE, pb.READ_WRITE, pb.NONE
QUEUES = {
    "both-alike": (6, 2, 2, [BOTH, BOTH]),
    "more-read": (6, 3, 1, [READ, READ, BOTH]),
    "more-written": (6, 1, 3, [WRITE, WRITE, BOTH]),
    "only-read": (4, 2, 2, [READ, READ]),
    "only-written": (2, 2, 2, [WRITE, WRITE]),
    "nothing": (0, 2, 2, [NONE, NONE]),
}


@pytest.mark.parametrize("topic", QUEUES)
async def test_queues_that_are_only_read_come_first_then_those_only_written_then_the_others(either, client, topic):
    perm, reads, writes, expected = QUEUES[topic]
    await either.create_topic(topic, perm=perm, reads=reads, writes=writes)
    queues = (await client.done(route_request(topic))).message_queues
    assert [(queue.id, queue.permission) for queue in queues] == list(enumerate(expected))


@pytest.mark.parametrize(
    ("topic", "kinds"),
    [
        ("fifo", [pb.FIFO]),
        ("delay", [pb.DELAY]),
        ("transaction", [pb.TRANSACTION]),
        ("mixed", [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]),
    ],
)
async def test_a_route_says_which_messages_its_topic_takes(client, topic, kinds):
    for queue in (await client.done(route_request(topic))).message_queues:
        assert list(queue.accept_message_types) == kinds


REFUSED = {"unknown": "TOPIC_NOT_FOUND", "": "ILLEGAL_TOPIC", "a.b": "ILLEGAL_TOPIC", "TBW102": "ILLEGAL_TOPIC"}


@pytest.mark.parametrize("topic", REFUSED)
async def test_a_route_and_an_assignment_of_a_topic_that_clients_may_not_use_are_refused(client, topic):
    assert await client.code(route_request(topic)) == REFUSED[topic]
    assert await client.code(assignment_request(topic, "g")) == REFUSED[topic]


async def test_requests_without_endpoints_or_with_very_many_are_refused(client):
    for wrong in (
        pb.Endpoints(),
        pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host="10.0.0.1", port=1)] * 1000),
        endpoints(host="h" * 1000),
    ):
        assert await client.code(route_request("normal", wrong)) == "ILLEGAL_ACCESS_POINT"
        assert await client.code(assignment_request("normal", "g", wrong)) == "ILLEGAL_ACCESS_POINT"


async def test_an_ordinary_group_is_assigned_each_broker(client):
    (one,) = (await client.done(assignment_request("normal", "g"))).assignments
    queue = one.message_queue
    assert (queue.topic, queue.id, queue.permission) == (resource("normal"), -1, pb.READ_WRITE)
    assert (queue.broker.name, queue.broker.endpoints) == (BROKER, OURS)


async def test_a_group_that_consumes_in_order_is_assigned_each_queue(client):
    assignments = (await client.done(assignment_request("fifo", ORDERED))).assignments
    assert [one.message_queue.id for one in assignments] == [0, 1, 2, 3]


async def test_an_assignment_of_a_topic_that_cannot_be_read_is_refused(either, client):
    await either.create_topic("unreadable", perm=2)
    answer = await client.ask(assignment_request("unreadable", "g"))
    assert (pb.Code.Name(answer.status.code), answer.status.message) == (
        "FORBIDDEN",
        "no readable queue of topic unreadable",
    )


@pytest.mark.parametrize("group", ["", "g h", "CID_RMQ_SYS_TRANS"])
async def test_an_assignment_of_a_group_that_clients_may_not_use_is_refused(client, group):
    assert await client.code(assignment_request("normal", group)) == "ILLEGAL_CONSUMER_GROUP"


# --- namespaces -----------------------------------------------------------------------------------------------------


async def test_a_namespace_of_a_name_or_of_the_client_is_part_of_the_topic(either, client):
    await either.create_topic("NS%inside", reads=1, writes=1)
    named = pb.QueryRouteRequest(topic=resource("inside", "NS"), endpoints=OURS)
    (queue,) = (await client.done(named)).message_queues
    assert queue.topic == resource("inside", "NS")
    async with either.client("of NS", metadata={"x-mq-namespace": "NS"}) as inside:
        await inside.done(route_request("inside"))
        await inside.send("inside", b"m")
        assert await inside.code(route_request("normal")) == "TOPIC_NOT_FOUND"
    assert await client.code(route_request("inside")) == "TOPIC_NOT_FOUND"
    pull = pb.PullMessageRequest(
        group=resource("g", "NS"),
        message_queue=pb.MessageQueue(topic=resource("inside", "NS"), broker=pb.Broker(name=BROKER)),
        batch_size=1,
    )
    (found,) = (await client.done(pull)).messages
    assert found.topic == resource("inside", "NS")


# --- grpcAdvertise --------------------------------------------------------------------------------------------------

ADVERTISED = {
    "mq.example.org": (pb.DOMAIN_NAME, "mq.example.org", 8081),
    "mq.example.org:9000": (pb.DOMAIN_NAME, "mq.example.org", 9000),
    ":9000": (pb.IPv4, "10.9.8.7", 9000),
    "192.168.0.1": (pb.IPv4, "192.168.0.1", 8081),
    "192.168.0.1:9000": (pb.IPv4, "192.168.0.1", 9000),
    "[2001:db8::1]:9000": (pb.IPv6, "2001:db8::1", 9000),
    "[2001:db8::1]": (pb.IPv6, "2001:db8::1", 8081),
    "2001:db8::1": (pb.IPv6, "2001:db8::1", 8081),
}


@pytest.mark.parametrize("text", ADVERTISED)
async def test_routes_name_the_address_that_is_advertised(front, text):
    front.broker.grpc_config.grpc_advertise = text
    try:
        async with front.client() as client:
            first = (await client.done(route_request("normal"))).message_queues[0].broker.endpoints
            assigned = (await client.done(assignment_request("normal", "g"))).assignments[0].message_queue.broker.endpoints
    finally:
        front.broker.grpc_config.grpc_advertise = None
    assert first == assigned
    assert (first.scheme, first.addresses[0].host, first.addresses[0].port) == ADVERTISED[text]


@pytest.mark.parametrize("text", ["host:", "host:abc", "host:70000", ":", "host name", "[::1", "http://host"])
async def test_a_front_does_not_start_with_an_address_that_it_cannot_advertise(text):
    with pytest.raises(StartError, match="grpcAdvertise"):
        async with running_front({"grpc_advertise": text}):
            pass

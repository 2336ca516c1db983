"""PullMessage, and the offsets of groups and queues."""

import asyncio

import pytest
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import queue_of, resource, seconds, tag

pytestmark = pytest.mark.asyncio(loop_scope="module")

READER = resource("reader")
BODIES = [b"0", b"1", b"2"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def queue(either):
    """A queue with messages that have even and odd tags."""
    await either.create_topic("pulled", reads=1, writes=1)
    async with either.client("filling") as client:
        for body in BODIES:
            await client.send("pulled", body, tag="odd" if int(body) % 2 else "even")
    return queue_of("pulled")


def pull_request(queue, offset=0, **fields):
    return pb.PullMessageRequest(**{"group": READER, "message_queue": queue, "offset": offset, "batch_size": 32, **fields})


async def test_a_pull_gives_the_messages_from_an_offset_on_and_the_offset_that_follows(client, queue):
    found = await client.done(pull_request(queue, 1))
    assert found.kinds == ["status", "message", "message", "next_offset"]
    assert (found.bodies, found.next_offset) == (BODIES[1:], 3)
    assert [message.system_properties.queue_offset for message in found.messages] == [1, 2]
    assert not any(message.system_properties.HasField("receipt_handle") for message in found.messages)


async def test_a_pull_gives_no_more_messages_than_asked_for(client, queue):
    found = await client.done(pull_request(queue, batch_size=2))
    assert (found.bodies, found.next_offset) == (BODIES[:2], 2)


async def test_a_pull_gives_only_messages_with_the_tag(client, queue):
    found = await client.done(pull_request(queue, filter_expression=tag("odd")))
    assert (found.bodies, found.next_offset) == ([b"1"], 3)


async def test_a_pull_at_the_end_of_a_queue_finds_nothing(client, queue):
    found = await client.ask(pull_request(queue, 3))
    assert (found.kinds, found.status.code, found.next_offset) == (["status", "next_offset"], pb.MESSAGE_NOT_FOUND, 3)


async def test_a_held_pull_is_answered_by_the_next_message(either, client):
    await either.create_topic("held", reads=1, writes=1)
    await client.send("held", b"0")
    pulling = asyncio.ensure_future(client.ask(pull_request(queue_of("held"), 1, long_polling_timeout=seconds(20))))
    await until(lambda: either.broker.services.holds.count > 0)
    await client.send("held", b"1")
    assert (await pulling).bodies == [b"1"]


async def test_a_pull_beyond_the_queue_is_refused_and_told_where_to_go_on(client, queue):
    found = await client.ask(pull_request(queue, 1000))
    assert (found.status.code, found.next_offset) == (pb.ILLEGAL_OFFSET, 3)
    assert await client.code(pull_request(queue, -1)) == "ILLEGAL_OFFSET"


async def test_offsets_of_a_group_are_those_that_were_committed(client, queue):
    get = pb.GetOffsetRequest(group=READER, message_queue=queue)
    assert await client.code(get) == "OFFSET_NOT_FOUND"
    await client.done(pb.UpdateOffsetRequest(group=READER, message_queue=queue, offset=2))
    assert (await client.done(get)).offset == 2
    assert await client.code(pb.UpdateOffsetRequest(group=READER, message_queue=queue, offset=-1)) == "ILLEGAL_OFFSET"
    assert (await client.done(get)).offset == 2


async def test_offsets_of_a_queue_are_its_ends_and_the_first_that_is_not_older_than_a_time(client, queue):
    async def offset(policy, time_ms=None):
        moment = Timestamp()
        moment.FromMilliseconds(time_ms or 0)
        request = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy, timestamp=moment)
        return (await client.done(request)).offset

    found = await client.done(pull_request(queue))
    last_ms = found.messages[-1].system_properties.store_timestamp.ToMilliseconds()
    assert await offset(pb.BEGINNING) == 0
    assert await offset(pb.END) == 3
    assert await offset(pb.TIMESTAMP, 1) == 0
    assert await offset(pb.TIMESTAMP, last_ms + 1) in (2, 3)


QUEUES = {
    "unknown topic": ("TOPIC_NOT_FOUND", queue_of("unknown")),
    "illegal topic": ("ILLEGAL_TOPIC", queue_of("a.b")),
    "system topic": ("ILLEGAL_TOPIC", queue_of("SCHEDULE_TOPIC_XXXX")),
    "no queue": ("ILLEGAL_TOPIC", pb.MessageQueue()),
}


def requests_for(queue, group=READER):
    """Return one request of each kind for a queue."""
    return [
        pull_request(queue, group=group),
        pb.UpdateOffsetRequest(group=group, message_queue=queue),
        pb.GetOffsetRequest(group=group, message_queue=queue),
        *([pb.QueryOffsetRequest(message_queue=queue)] if group is READER else []),
    ]


@pytest.mark.parametrize("case", QUEUES)
async def test_requests_for_a_topic_that_clients_may_not_use_are_refused(client, case):
    code, queue = QUEUES[case]
    assert [await client.code(request) for request in requests_for(queue)] == [code] * 4


@pytest.mark.parametrize("group", ["", "a.b", "CID_RMQ_SYS_TRANS"])
async def test_requests_of_a_group_that_clients_may_not_use_are_refused(client, queue, group):
    codes = [await client.code(request) for request in requests_for(queue, resource(group))]
    assert codes == ["ILLEGAL_CONSUMER_GROUP"] * 3


@pytest.mark.parametrize("queue_id", [-1, 4, 1 << 30])
async def test_requests_for_a_queue_that_the_topic_does_not_have_fail_without_an_error_of_the_proxy(client, queue, queue_id):
    wrong = queue_of("pulled", queue_id)
    for request in (*requests_for(wrong), *requests_for(queue_of("pulled", broker="elsewhere"))):
        assert await client.code(request) not in ("INTERNAL_ERROR", "CODE_UNSPECIFIED")

"""Messages in the hand of push consumers: invisible while the consumer lives, soon visible when it is gone."""

import asyncio
import contextlib
import time

import pytest
import pytest_asyncio

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import ack_request, consumer_settings, receive_request, resource, seconds
from tests.proxy.served import running_front

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVISIBLE_S = 10
TOPICS = ("cut", "acknowledged", "given-back")
RENEWING = {
    "grpc_client_consumer_min_long_polling_timeout_millis": 50,
    "default_invisible_time_mills": INVISIBLE_S * 1000,
    "renew_ahead_time_millis": 3500,
    "renew_schedule_period_millis": 100,
    "grpc_client_idle_time_mills": 1000,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served():
    """A front that soon renews handles, and soon forgets clients."""
    async with running_front(RENEWING) as front:
        yield front


def push(topic, group="g"):
    return consumer_settings(group, topic, pb.PUSH_CONSUMER)


async def received(client, topic, *bodies, group="g", **fields):
    """Send messages and receive them as a push consumer does; return their handles."""
    await client.send(topic, *bodies)
    found = await client.receive(topic, group, auto_renew=True, **fields)
    assert sorted(found.bodies) == sorted(bodies)
    return found.handles


async def next_messages(served, topic, group="g", poll_s=20.0):
    """Return what another consumer of the group receives."""
    async with served.client("other") as other, other.telemetry(consumer_settings(group, topic)):
        return (
            await other.receive(topic, group, invisible_duration=seconds(60), long_polling_timeout=seconds(poll_s))
        ).messages


async def next_bodies(served, topic, poll_s=20.0):
    """Return the bodies of what another consumer of the group receives."""
    return [message.body for message in await next_messages(served, topic, poll_s=poll_s)]


async def test_a_thousand_messages_of_a_consumer_that_is_cut_off_are_delivered_to_the_next_one(served):
    await served.create_topic("thousand", reads=1, writes=1)
    bodies = [b"%d" % number for number in range(1000)]
    async with served.client("sender") as sender:
        for start in range(0, len(bodies), 100):
            await sender.send("thousand", *bodies[start : start + 100])
    async with served.client("killed") as client, client.telemetry(push("thousand")):
        found = await all_received(client, "thousand", len(bodies))
        assert set(found) == set(bodies)
    async with served.client("next") as client, client.telemetry(push("thousand")):
        found = await all_received(client, "thousand", len(bodies))
        assert set(found) == set(bodies)
        assert min(found.values()) == 2  # more where this machine is too busy to renew a thousand handles in time


async def all_received(client, topic, count):
    """Receive as a push consumer does, without acks, until there are `count` messages; return body -> delivery attempt."""
    found = {}
    while len(found) < count:
        for one in (await client.receive(topic, "g", auto_renew=True, batch_size=32)).messages:
            found[one.body] = one.system_properties.delivery_attempt
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(served):
    """Return a living push consumer of each topic, with the handle of a message whose invisible time is over."""
    async with contextlib.AsyncExitStack() as stack:
        found = {}
        for topic in TOPICS:
            await served.create_topic(topic, reads=1, writes=1)
            client = await stack.enter_async_context(served.client(topic))
            stream = await stack.enter_async_context(client.telemetry(push(topic)))
            (handle,) = await received(client, topic, b"m")
            found[topic] = client, stream, handle
        others = await asyncio.gather(*(next_bodies(served, topic, poll_s=INVISIBLE_S + 1) for topic in TOPICS))
        assert others == [[], [], []], "a message was visible while its consumer lived"
        yield found


async def test_a_message_of_a_consumer_whose_stream_is_cut_is_visible_soon(served, kept):
    _, stream, _ = kept["cut"]
    stream.call.cancel()
    cut_s = time.monotonic()
    assert await next_bodies(served, "cut") == [b"m"]
    assert time.monotonic() - cut_s < INVISIBLE_S


async def test_a_renewed_message_is_acknowledged_by_the_handle_that_its_consumer_has(served, kept):
    client, _, handle = kept["acknowledged"]
    await client.done(ack_request("acknowledged", "g", handle))
    await client.done(pb.NotifyClientTerminationRequest())
    await client.send("acknowledged", b"next")
    assert await next_bodies(served, "acknowledged") == [b"next"]
    assert await next_bodies(served, "acknowledged", poll_s=1.5) == []


async def test_a_renewed_message_is_given_back_by_the_handle_that_its_consumer_has(served, kept):
    client, _, handle = kept["given-back"]
    change = pb.ChangeInvisibleDurationRequest(
        group=resource("g"), topic=resource("given-back"), receipt_handle=handle, invisible_duration=seconds(0)
    )
    answer = await client.done(change)
    assert answer.receipt_handle != handle
    assert await next_bodies(served, "given-back") == [b"m"]
    assert await client.code(ack_request("given-back", "g", handle)) == "INVALID_RECEIPT_HANDLE"


async def test_a_message_of_a_consumer_that_renews_by_itself_is_visible_after_its_time(served):
    await served.create_topic("own-time", reads=1, writes=1)
    served.broker.grpc_config.min_invisible_time_mills_for_recv = 500
    async with served.client() as client, client.telemetry(push("own-time")):
        await client.send("own-time", b"m")
        await client.receive("own-time", "g", invisible_duration=seconds(0.5))
        assert await next_bodies(served, "own-time") == [b"m"]


async def test_a_goodbye_makes_messages_visible_soon(served):
    await served.create_topic("goodbye", reads=1, writes=1)
    async with served.client() as client, client.telemetry(push("goodbye")):
        await received(client, "goodbye", b"m")
        await client.done(pb.NotifyClientTerminationRequest(group=resource("g")))
        assert await next_bodies(served, "goodbye") == [b"m"]


async def test_a_goodbye_does_not_cut_off_the_client_s_other_calls(served):
    await served.create_topic("busy", reads=1, writes=1)
    async with served.client() as client, client.telemetry(push("busy")):
        held = asyncio.ensure_future(client.ask(receive_request("busy", "g", long_polling_timeout=seconds(1))))
        await until(lambda: served.broker.services.pops.polling.count > 0)
        await client.done(pb.NotifyClientTerminationRequest(group=resource("g")))
        assert (await held).status.code == pb.MESSAGE_NOT_FOUND


async def test_a_message_that_arrives_after_the_goodbye_is_not_taken_by_a_held_receive(served):
    await served.create_topic("crossing", reads=1, writes=1)
    async with served.client() as client, client.telemetry(push("crossing")):
        held = asyncio.ensure_future(
            client.ask(receive_request("crossing", "g", auto_renew=True, long_polling_timeout=seconds(20)))
        )
        await until(lambda: served.broker.services.pops.polling.count > 0)
        await client.done(pb.NotifyClientTerminationRequest(group=resource("g")))
        async with served.client("sender") as sender:
            await sender.send("crossing", b"m")
        await held
        (message,) = await next_messages(served, "crossing")
        assert (message.body, message.system_properties.delivery_attempt) == (b"m", 1)


async def test_a_client_without_a_stream_that_is_silent_is_forgotten(served):
    front = served.broker._front.front
    async with served.client("silent") as client:
        await client.send("normal", b"m")
        assert any(client_id == "silent" for client_id, _ in front._sessions)
        await until(lambda: all(client_id != "silent" for client_id, _ in front._sessions))


async def test_a_client_with_a_stream_is_not_forgotten(served):
    async with served.client("quiet") as client, client.telemetry(push("normal")):
        started_s = time.monotonic()
        await until(lambda: time.monotonic() - started_s > 2)
        assert await client.code(pb.HeartbeatRequest(group=resource("g"))) == "OK"

"""ReceiveMessage, and what becomes of received messages: acks, other invisible times, the dead-letter topic."""

import asyncio
import itertools
import time

import grpc
import pytest
import pytest_asyncio

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import (
    ack_request,
    consumer_settings,
    message,
    queue_of,
    receive_request,
    resource,
    seconds,
    tag,
)
from tests.proxy.served import ORDERED

_numbers = itertools.count(1)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def topic(either):
    """A topic of one queue, for one test."""
    name = f"topic-{next(_numbers)}"
    await either.create_topic(name, "MIXED", reads=1, writes=1)
    return name


async def test_received_messages_follow_a_status_and_precede_the_time(client, topic):
    await client.send(topic, b"1", b"2")
    async with client.telemetry(consumer_settings("g", topic)):
        found = await client.receive(topic, "g")
        assert found.kinds == ["status", "message", "message", "delivery_timestamp"]
        assert sorted(found.bodies) == [b"1", b"2"]
        assert abs(found.delivery_timestamp.ToMilliseconds() / 1000 - time.time()) < 60
        system = found.messages[0].system_properties
        assert (system.delivery_attempt, system.invisible_duration.ToMilliseconds()) == (1, 30_000)
        assert await client.code(ack_request(topic, "g", *found.handles)) == "OK"


async def test_a_receive_that_finds_nothing_says_so_when_its_time_is_over(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        found = await client.receive(topic, "g", long_polling_timeout=seconds(0.1))
    assert found.kinds == ["status", "delivery_timestamp"]
    assert (found.status.code, found.status.message) == (pb.MESSAGE_NOT_FOUND, "no new message")


async def test_a_held_receive_is_answered_by_the_next_message(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        receiving = asyncio.ensure_future(client.receive(topic, "g", long_polling_timeout=seconds(20)))
        await asyncio.sleep(0)
        await client.send(topic, b"late")
        assert (await receiving).bodies == [b"late"]


async def test_no_more_messages_are_received_than_asked_for(client, topic):
    await client.send(topic, *[b"m"] * 40)
    async with client.telemetry(consumer_settings("g", topic)):
        assert len((await client.receive(topic, "g", batch_size=3)).messages) == 3
        assert len((await client.receive(topic, "g", batch_size=1000)).messages) == 32


async def test_only_messages_that_the_filter_accepts_are_received(client, topic):
    await client.send(topic, b"red", tag="red")
    await client.send(topic, b"green", tag="green")
    await client.send(topic, b"blue", tag="blue")
    async with client.telemetry(consumer_settings("g", topic, expression="red || blue")):
        found = await client.receive(topic, "g", filter_expression=tag("red || blue"))
    assert sorted(found.bodies) == [b"blue", b"red"]


async def test_a_filter_by_properties_is_applied(either, client, topic):
    either.broker.config.enable_property_filter = True
    messages = [message(topic, body, {"size": body.decode()}) for body in (b"1", b"5", b"9")]
    await client.done(pb.SendMessageRequest(messages=messages))
    by_size = pb.FilterExpression(type=pb.SQL, expression="size > 4")
    settings = consumer_settings("g", topic)
    settings.subscription.subscriptions[0].expression.CopyFrom(by_size)
    async with client.telemetry(settings):
        assert sorted((await client.receive(topic, "g", filter_expression=by_size)).bodies) == [b"5", b"9"]


async def test_an_invalid_filter_is_refused(either, client, topic):
    either.broker.config.enable_property_filter = True
    async with client.telemetry(consumer_settings("g", topic)):
        invalid = pb.FilterExpression(type=pb.SQL, expression="size >")
        assert await client.code(receive_request(topic, "g", filter_expression=invalid)) == "ILLEGAL_FILTER_EXPRESSION"


REFUSED = {
    "short invisible time": ("ILLEGAL_INVISIBLE_TIME", {"invisible_duration": seconds(0.999)}),
    "no invisible time": ("ILLEGAL_INVISIBLE_TIME", {"invisible_duration": None}),
    "long invisible time": ("ILLEGAL_INVISIBLE_TIME", {"invisible_duration": seconds(12 * 3600 + 1)}),
    "unknown topic": ("TOPIC_NOT_FOUND", {"message_queue": queue_of("unknown")}),
    "system topic": ("ILLEGAL_TOPIC", {"message_queue": queue_of("RMQ_SYS_TRANS_HALF_TOPIC")}),
    "no topic": ("ILLEGAL_TOPIC", {"message_queue": pb.MessageQueue()}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_receive_that_is_not_in_order_is_refused_with_its_code(client, case):
    code, fields = REFUSED[case]
    async with client.telemetry(consumer_settings("g", "normal")):
        assert await client.code(receive_request("normal", "g", **fields)) == code


@pytest.mark.parametrize("group", ["", "a.b", "g" * 256, "CID_RMQ_SYS_TRANS"])
async def test_a_group_that_clients_may_not_use_is_refused(client, group):
    async with client.telemetry(consumer_settings("g", "normal")):
        assert await client.code(receive_request("normal", group)) == "ILLEGAL_CONSUMER_GROUP"


async def test_a_receive_that_overtakes_the_settings_waits_for_them(either, topic):
    async with either.client("quick") as client:
        await client.send(topic, b"m")
        receiving = asyncio.ensure_future(client.receive(topic, "g"))
        assert await client.code(pb.HeartbeatRequest(client_type=pb.SIMPLE_CONSUMER)) == "UNRECOGNIZED_CLIENT_TYPE"
        async with client.telemetry(consumer_settings("g", topic)):
            assert (await receiving).bodies == [b"m"]


async def test_a_receive_without_settings_is_refused(either):
    async with either.client("without settings") as client:
        assert await client.code(receive_request("normal", "g")) == "UNRECOGNIZED_CLIENT_TYPE"


async def test_a_topic_that_cannot_be_read_refuses_receives(either, client):
    await either.create_topic("write-only", perm=2)
    async with client.telemetry(consumer_settings("g", "normal")):
        assert await client.code(receive_request("write-only", "g")) == "FORBIDDEN"


# --- received messages ----------------------------------------------------------------------------------------------


async def received(client, topic, group="g", count=1, **fields):
    """Send messages, receive them in one call, and return their handles."""
    await client.send(topic, *[b"m"] * count)
    return (await client.receive(topic, group, **fields)).handles


async def test_an_acknowledged_message_is_not_delivered_again(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        (handle,) = await received(client, topic, invisible_duration=seconds(1))
        answer = await client.done(ack_request(topic, "g", handle))
        assert [(one.message_id, one.receipt_handle, one.status.code) for one in answer.entries] == [("m0", handle, pb.OK)]
        await client.send(topic, b"not acknowledged")
        await client.receive(topic, "g", invisible_duration=seconds(1))
        assert (await client.receive(topic, "g", long_polling_timeout=seconds(20))).bodies == [b"not acknowledged"]


INVALID = {
    "empty": "",
    "no handle": "abc",
    "eight fields": "0 1 2 3 0 b 0 0",
    "no number": "x 1 2 3 0 b 0 0 0",
    "very long": "0 " * 600,
    "expired": "0 1700000000000 30000 0 0 b 0 0 0",
}


@pytest.mark.parametrize("case", INVALID)
async def test_a_handle_that_is_invalid_or_expired_is_refused(client, case):
    handle = INVALID[case]
    answer = await client.ask(ack_request("normal", "g", handle))
    assert (answer.status.code, answer.entries[0].status.code) == (pb.INVALID_RECEIPT_HANDLE, pb.INVALID_RECEIPT_HANDLE)
    names = {"group": resource("g"), "topic": resource("normal"), "receipt_handle": handle}
    change = pb.ChangeInvisibleDurationRequest(**names, invisible_duration=seconds(10))
    assert await client.code(change) == "INVALID_RECEIPT_HANDLE"
    assert await client.code(pb.ForwardMessageToDeadLetterQueueRequest(**names)) == "INVALID_RECEIPT_HANDLE"


async def test_each_ack_of_a_call_has_a_status_of_its_own(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        (handle,) = await received(client, topic)
        answer = await client.ask(ack_request(topic, "g", handle, "abc"))
    assert answer.status.code == pb.MULTIPLE_RESULTS
    assert [one.status.code for one in answer.entries] == [pb.OK, pb.INVALID_RECEIPT_HANDLE]


async def test_very_many_acks_in_one_call_are_refused(client):
    assert await client.code(ack_request("normal", "g", *["abc"] * 1025)) == "PAYLOAD_TOO_LARGE"


async def test_a_changed_invisible_time_makes_a_message_visible_then_and_replaces_the_handle(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        (handle,) = await received(client, topic)
        change = pb.ChangeInvisibleDurationRequest(
            group=resource("g"), topic=resource(topic), receipt_handle=handle, invisible_duration=seconds(1)
        )
        changed = await client.done(change)
        assert changed.receipt_handle not in ("", handle)
        again = await client.receive(topic, "g", long_polling_timeout=seconds(20))
        assert [one.system_properties.delivery_attempt for one in again.messages] == [2]
        assert await client.code(ack_request(topic, "g", *again.handles)) == "OK"


async def test_an_invisible_time_of_more_than_half_a_day_is_refused(client):
    change = pb.ChangeInvisibleDurationRequest(
        group=resource("g"), topic=resource("normal"), receipt_handle="abc", invisible_duration=seconds(12 * 3600 + 1)
    )
    assert await client.code(change) == "ILLEGAL_INVISIBLE_TIME"


async def test_a_forwarded_message_is_in_the_dead_letter_topic_and_not_delivered_again(client, topic):
    group = f"dlq-{topic}"
    async with client.telemetry(consumer_settings(group, topic)):
        await client.send(topic, b"bad", keys=["k"])
        found = await client.receive(topic, group)
        forward = pb.ForwardMessageToDeadLetterQueueRequest(
            group=resource(group),
            topic=resource(topic),
            receipt_handle=found.handles[0],
            message_id=found.messages[0].system_properties.message_id,
        )
        await client.done(forward)
        assert (await client.receive(topic, group, long_polling_timeout=seconds(0.2))).bodies == []
    pull = pb.PullMessageRequest(group=resource("reader"), message_queue=queue_of(f"%DLQ%{group}"), batch_size=1)
    (dead,) = (await client.done(pull)).messages
    system = dead.system_properties
    assert (dead.body, list(system.keys)) == (b"bad", ["k"])
    assert system.message_id == found.messages[0].system_properties.message_id


async def test_a_message_that_was_delivered_too_often_goes_to_the_dead_letter_topic(either, client, topic):
    group = f"once-{topic}"
    await either.create_group(group, retry_max_times=0)
    async with client.telemetry(consumer_settings(group, topic)) as stream:
        assert stream.settings.backoff_policy.max_attempts == 1
        (handle,) = await received(client, topic, group)
        change = pb.ChangeInvisibleDurationRequest(
            group=resource(group), topic=resource(topic), receipt_handle=handle, invisible_duration=seconds(0)
        )
        await client.done(change)
        dead = f"%DLQ%{group}"
        topics = either.broker.services.topics
        while topics.get(dead) is None:
            again = await client.receive(topic, group, long_polling_timeout=seconds(0.5))
            assert again.bodies == []


async def test_a_group_that_consumes_in_order_gets_no_message_behind_an_open_one(client, topic):
    async with client.telemetry(consumer_settings(ORDERED, topic)) as stream:
        assert stream.settings.subscription.fifo
        for body in (b"1", b"2"):
            await client.send(topic, body, message_type=pb.FIFO, message_group="one")
        first = await client.receive(topic, ORDERED, batch_size=1)
        assert (await client.receive(topic, ORDERED, batch_size=1, long_polling_timeout=seconds(0.1))).bodies == []
        await client.done(ack_request(topic, ORDERED, *first.handles))
        second = await client.receive(topic, ORDERED, batch_size=1)
        assert (first.bodies, second.bodies) == ([b"1"], [b"2"])


# --- how long a receive is held -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"),
    [("5.0.2", "BAD_REQUEST"), ("5.0.3", "ILLEGAL_POLLING_TIME"), ("5.1.0-SNAPSHOT", "ILLEGAL_POLLING_TIME")],
)
async def test_a_deadline_that_leaves_no_time_to_poll_is_refused(either, version, code):
    lowest_ms = 50
    async with (
        either.client(f"v{version}", metadata={"x-mq-client-version": version}) as client,
        client.telemetry(consumer_settings("g", "normal")),
    ):
        codes = set()
        for _ in range(20):  # the deadline may also be over before the front looks at it
            try:
                codes.add(await client.code(receive_request("normal", "g"), timeout_s=lowest_ms / 1000))
            except grpc.aio.AioRpcError as over:
                assert over.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert codes <= {code}
        assert codes


async def test_a_receive_is_answered_before_its_deadline(client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        found = await client.receive(topic, "g", timeout_s=1, long_polling_timeout=seconds(20))
        assert found.status.code == pb.MESSAGE_NOT_FOUND


async def test_a_receive_that_is_cancelled_while_it_is_held_loses_no_message(either, client, topic):
    async with client.telemetry(consumer_settings("g", topic)):
        pops = either.broker.services.pops.polling
        before = pops.count
        call = client.start(receive_request(topic, "g", long_polling_timeout=seconds(20)))
        reading = asyncio.ensure_future(call.read())
        await until(lambda: pops.count > before)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await client.send(topic, b"kept")
        found = []
        async with asyncio.timeout(20):
            while not found:
                found = (await client.receive(topic, "g", long_polling_timeout=seconds(5))).bodies
        assert found == [b"kept"]

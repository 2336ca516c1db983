"""Telemetry and heartbeats: settings of clients, completed and kept up to date."""

import asyncio

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import consumer_settings, endpoints, message, producer_settings, receive_request, resource
from tests.proxy.served import ORDERED

pytestmark = pytest.mark.asyncio(loop_scope="module")


def in_ms(durations: list[Duration]) -> list[int]:
    return [duration.ToMilliseconds() for duration in durations]


async def test_a_producer_s_settings_come_back_with_backoff_and_limits(client):
    given = producer_settings("normal", user_agent=pb.UA(language=pb.JAVA, version="5.0.8"), access_point=endpoints())
    async with client.telemetry(given) as stream:
        settings = stream.settings
    backoff = settings.backoff_policy.exponential_backoff
    assert settings.backoff_policy.max_attempts == 3
    assert (in_ms([backoff.initial, backoff.max]), backoff.multiplier) == ([10, 1000], 2)
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (4 << 20, True)
    assert not settings.metric.on
    kept = ("client_type", "user_agent", "access_point", "request_timeout")
    assert [getattr(settings, name) for name in kept] == [getattr(given, name) for name in kept]


async def test_a_consumer_s_settings_come_back_with_the_retries_of_its_group_and_limits(client):
    async with client.telemetry(consumer_settings("plain", "normal", pb.PUSH_CONSUMER)) as stream:
        settings = stream.settings
    subscription, backoff = settings.subscription, settings.backoff_policy
    assert (subscription.fifo, subscription.receive_batch_size) == (False, 32)
    assert subscription.long_polling_timeout.ToMilliseconds() == 20_000
    assert backoff.max_attempts == 17
    assert in_ms(backoff.customized_backoff.next)[:5] == [1000, 5000, 10_000, 30_000, 60_000]
    assert in_ms(backoff.customized_backoff.next)[-1] == 7_200_000


EXPONENTIAL = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 100, "max": 9000, "multiplier": 3}}
CUSTOMIZED = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1, 22, 333]}}


async def test_a_group_s_own_retry_policy_is_in_the_settings(either, client):
    await either.create_group("exponential", retry_max_times=4, group_retry_policy=EXPONENTIAL)
    await either.create_group("customized", retry_max_times=2, group_retry_policy=CUSTOMIZED)
    async with client.telemetry(consumer_settings("exponential", "normal")) as stream:
        policy = stream.settings.backoff_policy
        backoff = policy.exponential_backoff
        assert policy.max_attempts == 5
        assert (in_ms([backoff.initial, backoff.max]), backoff.multiplier) == ([100, 9000], 3)
    async with client.telemetry(consumer_settings("customized", "normal")) as stream:
        policy = stream.settings.backoff_policy
        assert (policy.max_attempts, in_ms(policy.customized_backoff.next)) == (3, [1, 22, 333])


async def test_a_group_that_consumes_in_order_is_told_so(client):
    async with client.telemetry(consumer_settings(ORDERED, "fifo", pb.PUSH_CONSUMER)) as stream:
        assert stream.settings.subscription.fifo


async def test_settings_of_neither_a_producer_nor_a_consumer_end_the_stream(client):
    async with client.telemetry() as stream:
        await stream.write(settings=pb.Settings(client_type=pb.PRODUCER))
        assert await stream.end() is grpc.StatusCode.INVALID_ARGUMENT


def many_topics():
    return producer_settings(*[f"t{number}" for number in range(1025)])


def large():
    return producer_settings("normal", client_properties={"k": "v" * (1 << 20)})


REFUSED = {
    "system topic": ("ILLEGAL_TOPIC", lambda: producer_settings("TBW102")),
    "illegal topic": ("ILLEGAL_TOPIC", lambda: producer_settings("a.b")),
    "illegal subscription": ("ILLEGAL_TOPIC", lambda: consumer_settings("g", "a.b")),
    "illegal group": ("ILLEGAL_CONSUMER_GROUP", lambda: consumer_settings("a.b", "normal")),
    "system group": ("ILLEGAL_CONSUMER_GROUP", lambda: consumer_settings("CID_RMQ_SYS_TRANS", "normal")),
    "many topics": ("BAD_REQUEST", many_topics),
    "large settings": ("BAD_REQUEST", large),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_settings_that_are_not_in_order_end_the_stream(client, case):
    code, wrong = REFUSED[case]
    async with client.telemetry(producer_settings("normal")) as stream:
        answer = await stream.settle(wrong())
        assert pb.Code.Name(answer.status.code) == code
        assert not answer.HasField("settings")
        assert await stream.end() is grpc.StatusCode.INVALID_ARGUMENT


async def test_settings_for_a_topic_that_is_not_there_yet_are_accepted(client):
    async with client.telemetry(producer_settings("not-yet")) as stream:
        assert [topic.name for topic in stream.settings.publishing.topics] == ["not-yet"]


async def test_commands_that_are_none_of_a_client_s_are_ignored(client):
    async with client.telemetry(producer_settings("normal")) as stream:
        await stream.write(reconnect_endpoints_command=pb.ReconnectEndpointsCommand(nonce="1"))
        await stream.write(thread_stack_trace=pb.ThreadStackTrace(nonce="not asked"))
        await stream.write(verify_message_result=pb.VerifyMessageResult(nonce="not asked"))
        await stream.write(status=pb.Status(code=pb.OK))
        assert (await stream.settle(producer_settings("normal"))).status.code == pb.OK


# --- heartbeats -----------------------------------------------------------------------------------------------------


async def test_a_heartbeat_before_the_settings_is_refused(either):
    async with either.client("beating") as client:
        assert await client.code(pb.HeartbeatRequest(client_type=pb.PRODUCER)) == "UNRECOGNIZED_CLIENT_TYPE"


async def test_a_heartbeat_after_a_change_of_the_group_brings_new_settings(front):
    await front.create_group("changed")
    async with front.client() as client, client.telemetry(consumer_settings("changed", "normal")) as stream:
        assert stream.settings.backoff_policy.max_attempts == 17
        await front.create_group("changed", retry_max_times=1, consume_message_orderly=True)
        reading = asyncio.ensure_future(stream.read())
        while not reading.done():  # the front asks the broker about a group every now and then
            await client.done(pb.HeartbeatRequest(group=resource("changed"), client_type=pb.SIMPLE_CONSUMER))
            await asyncio.sleep(0.02)
        changed = reading.result()
        assert changed.status.code == pb.OK
        assert changed.settings.backoff_policy.max_attempts == 2
        assert changed.settings.subscription.fifo


# --- streams --------------------------------------------------------------------------------------------------------


def is_producer(served, topic, client_id):
    return any(one.client_id == client_id for one in served.broker.services.clients.producer_clients(topic))


async def test_a_client_stays_registered_when_a_newer_stream_has_replaced_the_first(either):
    settings = producer_settings("normal")
    async with either.client("twice") as client:
        async with client.telemetry(settings) as first, client.telemetry(settings):
            first.call.cancel()
            await client.done(pb.HeartbeatRequest(client_type=pb.PRODUCER))
            await client.done(pb.SendMessageRequest(messages=[message("normal")]))
            assert is_producer(either, "normal", "twice")
        await until(lambda: not is_producer(either, "normal", "twice"))


async def test_a_client_that_says_goodbye_is_unregistered(either):
    async with either.client("leaving") as client, client.telemetry(producer_settings("normal")):
        assert is_producer(either, "normal", "leaving")
        await client.done(pb.NotifyClientTerminationRequest())
        await until(lambda: not is_producer(either, "normal", "leaving"))
        assert await client.code(pb.HeartbeatRequest(client_type=pb.PRODUCER)) == "UNRECOGNIZED_CLIENT_TYPE"


async def test_settings_after_a_goodbye_end_the_stream_and_register_nobody(either):
    async with either.client("back") as client, client.telemetry(producer_settings("normal")) as stream:
        await client.done(pb.NotifyClientTerminationRequest())
        await until(lambda: not is_producer(either, "normal", "back"))
        await stream.write(settings=producer_settings("normal"))
        assert await stream.end() is grpc.StatusCode.OK
        assert not is_producer(either, "normal", "back")
        async with client.telemetry(producer_settings("normal")):
            assert is_producer(either, "normal", "back")
        await until(lambda: not is_producer(either, "normal", "back"))


@pytest.mark.parametrize("client_id", ["", " "])
async def test_calls_without_a_client_id_are_refused(either, client_id):
    async with either.client(client_id) as client:
        assert await client.code(pb.HeartbeatRequest()) == "CLIENT_ID_REQUIRED"
        assert await client.code(receive_request("normal", "g")) == "CLIENT_ID_REQUIRED"
        async with client.telemetry() as stream:
            assert (await stream.read()).status.code == pb.CLIENT_ID_REQUIRED
            assert await stream.end() is grpc.StatusCode.OK


async def test_a_very_long_client_id_is_refused(either):
    async with either.client("c" * 256) as client:
        assert await client.code(pb.HeartbeatRequest()) == "BAD_REQUEST"


async def test_lite_topics_are_not_implemented(client):
    assert await client.code(pb.SyncLiteSubscriptionRequest()) == "NOT_IMPLEMENTED"

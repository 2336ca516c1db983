"""How gRPC clients look to an administrator, and what he can ask of them."""

import asyncio

import pytest

from pocketmq.admin.api import consumers, message_search
from pocketmq.client.versions import version_name
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting.dispatch import RemotingError
from tests.broker.running import until
from tests.proxy.grpc_client import consumer_settings, producer_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")


def push(group):
    return consumer_settings(group, "normal", pb.PUSH_CONSUMER, "a || b", user_agent=pb.UA(version="5.0.8"))


async def test_a_consumer_is_in_the_connections_of_its_group(either, client):
    async with client.telemetry(push("shown")):
        found = await consumers.connections(either.admin, "shown", either.broker_address)
        (one,) = found.connection_set
        assert (one.client_id, one.language, version_name(one.version)) == ("client", "JAVA", "V5_0_8")
        assert one.client_addr.startswith("127.0.0.1:")
        assert found.consume_type == "CONSUME_PASSIVELY"
        subscription = found.subscription_table["normal"]
        assert (subscription.sub_string, sorted(subscription.tags_set)) == ("a || b", ["a", "b"])


@pytest.mark.parametrize(
    ("language", "shown"),
    [("GOLANG", "GO"), ("PYTHON", "PYTHON"), ("DOT_NET", "DOTNET"), ("KLINGON", "OTHER"), ("", "OTHER")],
)
async def test_a_producer_is_in_the_connections_of_its_topic_with_its_language(either, language, shown):
    metadata = {"x-mq-language": language, "x-mq-client-version": "5.1.0"}
    async with either.client("made in", metadata=metadata) as client, client.telemetry(producer_settings("normal", "tags")):
        for topic in ("normal", "tags"):
            (one,) = await consumers.producers(either.admin, topic, topic)
            assert (one.client_id, str(one.language), version_name(one.version)) == ("made in", shown, "V5_1_0")
    registry = either.broker.services.clients
    await until(lambda: not registry.producer_clients("normal") and not registry.producer_clients("tags"))


async def test_a_client_of_the_broker_s_own_front_is_shown_with_its_address(front):
    async with front.client() as client, client.telemetry(push("addressed")):
        (one,) = (await consumers.connections(front.admin, "addressed", front.broker_address)).connection_set
        host, _, port = one.client_addr.rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) not in (0, front.port, front.broker.port)


async def running_info(either, group, jstack):
    return await consumers.running_info(either.admin, group, "client", jstack, either.broker_address)


async def test_running_info_shows_the_consumer(either, client):
    async with client.telemetry(push("running")):
        info = await running_info(either, "running", False)
    assert info["properties"]["PROP_CLIENT_VERSION"] == "5.0.8"
    assert consumers.is_push(info)
    assert [one["topic"] for one in info["subscriptionSet"]] == ["normal"]
    assert "jstack" not in info


async def test_running_info_with_stacks_asks_the_client_for_them(either, client):
    async with client.telemetry(push("stacks")) as stream:
        asking = asyncio.ensure_future(running_info(either, "stacks", True))
        nonce = (await stream.read()).print_thread_stack_trace_command.nonce
        await stream.write(thread_stack_trace=pb.ThreadStackTrace(nonce="another", thread_stack_trace="wrong"))
        trace = pb.ThreadStackTrace(nonce=nonce, thread_stack_trace="main at work")
        await stream.write(status=pb.Status(code=pb.OK), thread_stack_trace=trace)
        assert (await asking)["jstack"] == "main at work"


VERDICTS = {pb.OK: "CR_SUCCESS", pb.FAILED_TO_CONSUME_MESSAGE: "CR_LATER", pb.NOT_IMPLEMENTED: "CR_THROW_EXCEPTION"}


@pytest.mark.parametrize("code", VERDICTS)
async def test_a_consumer_can_be_made_to_consume_a_message(either, client, code):
    entry = (await client.send("normal", b"directly")).entries[0]
    (stored,) = await message_search.by_unique_key(either.admin, "normal", entry.message_id)
    async with client.telemetry(push("direct")) as stream:
        asking = asyncio.ensure_future(message_search.consume_directly(either.admin, "direct", "client", stored))
        command = (await stream.read()).verify_message_command
        assert (command.message.body, command.message.system_properties.message_id) == (b"directly", entry.message_id)
        result = pb.VerifyMessageResult(nonce=command.nonce)
        await stream.write(status=pb.Status(code=code, message="said so"), verify_message_result=result)
        verdict = await asking
    assert (verdict["consumeResult"], verdict["remark"]) == (VERDICTS[code], "said so")


async def test_a_consumer_that_leaves_while_it_is_asked_is_reported(either, client):
    async with client.telemetry(push("gone")) as stream:
        asking = asyncio.ensure_future(running_info(either, "gone", True))
        await stream.read()
        stream.call.cancel()
        with pytest.raises(RemotingError):
            await asking

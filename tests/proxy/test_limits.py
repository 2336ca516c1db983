"""Limits on what clients can take from a front."""

import asyncio
import time

import grpc
import pytest

from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import ack_request, consumer_settings, message, receive_request, resource, seconds
from tests.proxy.served import running_front

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEND = pb.SendMessageRequest(messages=[message("normal")])
HELD = receive_request("tags", "g", long_polling_timeout=seconds(20))


async def test_no_more_clients_than_allowed_are_served_until_one_leaves():
    async with (
        running_front({"grpc_max_clients": 2}) as served,
        served.client("1") as one,
        served.client("2") as two,
        served.client("3") as three,
    ):
        await one.done(SEND)
        await two.done(SEND)
        answer = await three.ask(SEND)
        assert answer.status.code == pb.TOO_MANY_REQUESTS
        assert "grpcMaxClients" in answer.status.message
        await one.done(SEND)
        await one.done(pb.NotifyClientTerminationRequest())
        await three.done(SEND)


async def test_new_clients_of_a_host_are_admitted_at_a_rate():
    async with running_front({"grpc_max_new_clients_per_second": 5}) as served, served.client("asks") as client:
        began_s = time.monotonic()
        calls = []
        for number in range(60):  # 50 are admitted at once
            client.metadata["x-mq-client-id"] = f"new-{number}"
            calls.append(client.start(SEND))
        assert [(await call).status.code for call in calls] == [pb.OK] * 60
        assert time.monotonic() - began_s > 1.5


async def test_a_client_has_no_more_calls_at_a_time_than_allowed():
    async with (
        running_front({"grpc_max_calls_per_client": 2}) as served,
        served.client() as client,
        client.telemetry(consumer_settings("g", "tags")),
    ):
        calls = [asyncio.ensure_future(client.ask(HELD)) for _ in range(2)]
        await until(lambda: served.broker.services.pops.polling.count == 2)
        answer = await client.ask(SEND)
        assert answer.status.code == pb.TOO_MANY_REQUESTS
        assert "grpcMaxCallsPerClient" in answer.status.message
        assert await client.code(HELD) == "TOO_MANY_REQUESTS"
        async with served.client("another") as another:
            await another.send("tags", b"m")
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await client.done(SEND)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_calls_that_a_client_cancels_count_until_the_broker_has_answered():
    async with (
        running_front({"grpc_max_calls_per_client": 2}) as served,
        served.client() as client,
        client.telemetry(consumer_settings("g", "tags")),
    ):
        pops = served.broker.services.pops.polling
        for count in (1, 2):
            call = client.start(HELD)
            reading = asyncio.ensure_future(call.read())
            await until(lambda count=count: pops.count == count)
            call.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert await client.code(HELD) == "TOO_MANY_REQUESTS"


async def test_a_consumer_with_many_messages_in_hand_gets_no_more_until_it_acknowledges_some():
    limits = {"grpc_max_messages_in_hand_per_client": 2, "grpc_client_consumer_min_long_polling_timeout_millis": 50}
    async with (
        running_front(limits) as served,
        served.client() as client,
        client.telemetry(consumer_settings("g", "tags", pb.PUSH_CONSUMER)),
    ):
        await client.send("tags", *[b"m"] * 3)
        found = []
        while len(found) < 2:
            found += (await client.receive("tags", "g", auto_renew=True, batch_size=1)).handles
        answer = await client.ask(receive_request("tags", "g", auto_renew=True))
        assert answer.status.code == pb.TOO_MANY_REQUESTS
        assert "grpcMaxMessagesInHandPerClient" in answer.status.message
        await client.done(ack_request("tags", "g", found[0]))
        assert len((await client.receive("tags", "g", auto_renew=True, batch_size=1)).messages) == 1


@pytest.mark.parametrize("size", [17 << 10, 1 << 20])
async def test_a_call_with_very_large_metadata_is_refused_and_others_are_served(front, size):
    async with front.client("large", metadata={"x-mq-namespace": "n" * size}) as client:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.ask(SEND)
        assert failure.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
    async with front.client() as client:
        await client.done(SEND)


async def test_a_call_that_is_larger_than_allowed_is_refused_and_others_are_served():
    async with (
        running_front({"grpc_max_inbound_message_size": 1 << 16}) as served,
        served.client() as client,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await client.send("normal", bytes(1 << 17))
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await client.send("normal", bytes(1 << 15))


async def test_an_unknown_rpc_is_not_implemented(front):
    async with front.client() as client:
        rpc = client._channel.unary_unary("/apache.rocketmq.v2.MessagingService/Nothing")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await rpc(b"", metadata=list(client.metadata.items()))
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_bytes_that_are_no_request_fail_alone(front):
    async with front.client() as client:
        rpc = client._channel.unary_unary("/apache.rocketmq.v2.MessagingService/Heartbeat")
        with pytest.raises(grpc.aio.AioRpcError):
            await rpc(b"\xff" * 100, metadata=list(client.metadata.items()))
        await client.done(SEND)


async def test_a_peer_that_speaks_no_http_is_disconnected(front):
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n" + bytes(1000))
    async with asyncio.timeout(30):
        while await reader.read(1000):
            pass
    writer.close()
    async with front.client() as client:
        await client.done(
            pb.QueryOffsetRequest(message_queue=pb.MessageQueue(topic=resource("normal"), broker={"name": "b"}))
        )

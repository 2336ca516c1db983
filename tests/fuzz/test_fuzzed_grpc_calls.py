"""Damaged gRPC calls over the network: the broker refuses them, logs no failure of its own, and serves the next client."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import grpc

from bench import apache, wire
from bench.grpc.client import GrpcClient
from bench.hostile.fuzzed import fuzzed_call
from bench.hostile.peer import NEIGHBOUR_TOPIC
from pocketmq.cli import processes
from tests.support.amount import cases

CALLS = cases(1_000, 100_000)
IN_FLIGHT = 64
HELD_S = 2.0
"""Deadline of a call: some ask the broker to wait for messages."""
SERVICE = "/apache.rocketmq.v2.MessagingService"
UNREADABLE = (grpc.StatusCode.INTERNAL, "Exception deserializing request!")
EXPECTED = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DEADLINE_EXCEEDED, UNREADABLE[0]}
Ends = Counter[tuple[grpc.StatusCode, str]]


def test_fuzzed_calls_are_refused_and_the_next_client_is_served(tmp_path: Path) -> None:
    namesrv = processes.start_namesrv(tmp_path / "namesrv")
    endpoint = f"127.0.0.1:{apache.free_port()}"
    settings = {"brokerName": "broker-a", "grpcServerPort": endpoint.rpartition(":")[2]}
    broker = processes.start_broker(tmp_path / "broker", namesrv.address, settings)
    try:
        wire.create_topic(broker.address, NEIGHBOUR_TOPIC, 4)
        ends = asyncio.run(_fuzz(endpoint))
        print(f"{ends.total():,} calls: {ends.most_common(5)}")
        assert ends.total() == CALLS
        assert {status for status, _ in ends} <= EXPECTED, ends
        assert {text for status, text in ends if status is UNREADABLE[0]} == {UNREADABLE[1]}
        assert sum(count for (status, _), count in ends.items() if status is grpc.StatusCode.OK) > CALLS // 2
        asyncio.run(_send(endpoint))
        assert broker.process.poll() is None
        assert "ERROR proxy" not in broker.out.read_text()  # a failure of the front itself
    finally:
        broker.stop()
        namesrv.stop()


async def _fuzz(endpoint: str) -> Ends:
    """Make CALLS calls, IN_FLIGHT at a time; return how many ended with each status and text."""
    ends: Ends = Counter()
    rng = random.Random(4711)
    calls = iter(range(CALLS))

    async def caller(channel: grpc.aio.Channel) -> None:
        for _ in calls:
            method, message = fuzzed_call(rng)
            metadata = [("x-mq-client-id", f"fuzz-{rng.randrange(20)}")]
            call = channel.stream_stream(f"{SERVICE}/{method}")(iter([message]), timeout=HELD_S, metadata=metadata)
            while await _is_answered(call):
                pass
            ends[await call.code(), await call.details()] += 1

    async with grpc.aio.insecure_channel(endpoint) as channel:
        await asyncio.gather(*(caller(channel) for _ in range(IN_FLIGHT)))
    return ends


async def _is_answered(call: grpc.aio.StreamStreamCall) -> bool:
    """Read one answer; False after the last one."""
    try:
        return await call.read() is not grpc.aio.EOF
    except grpc.aio.AioRpcError:
        return False


async def _send(endpoint: str) -> None:
    client = GrpcClient(endpoint, "healthy", NEIGHBOUR_TOPIC, None)
    try:
        await client.start()
        await client.send()
    finally:
        await client.close()

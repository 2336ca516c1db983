"""Damaged gRPC calls over the network: the broker refuses them, logs no failure of its own, and serves the next client."""

import asyncio
from pathlib import Path

from bench import apache, wire
from bench.grpc.client import GrpcClient
from bench.hostile.grpc_front import grpc_fuzzed_calls
from bench.hostile.peer import NEIGHBOUR_TOPIC, Peer
from pocketmq.cli import processes

SECONDS, BYTES_A_SECOND = 3.0, 300_000.0


def test_fuzzed_calls_are_refused_and_the_next_client_is_served(tmp_path: Path) -> None:
    namesrv = processes.start_namesrv(tmp_path / "namesrv")
    endpoint = f"127.0.0.1:{apache.free_port()}"
    settings = {"brokerName": "broker-a", "grpcServerPort": endpoint.rpartition(":")[2]}
    broker = processes.start_broker(tmp_path / "broker", namesrv.address, settings)
    try:
        wire.create_topic(broker.address, NEIGHBOUR_TOPIC, 4)
        peer = Peer(namesrv.address, broker.address, SECONDS, BYTES_A_SECOND, grpc=endpoint)
        grpc_fuzzed_calls(peer)
        peer.close_all()
        assert peer.sent > 0
        asyncio.run(_send(endpoint))
        assert broker.process.poll() is None
        assert "ERROR proxy" not in broker.out.read_text()  # a failure of the front itself
    finally:
        broker.stop()
        namesrv.stop()


async def _send(endpoint: str) -> None:
    client = GrpcClient(endpoint, "healthy", NEIGHBOUR_TOPIC, None)
    try:
        await client.start()
        await client.send()
    finally:
        await client.close()

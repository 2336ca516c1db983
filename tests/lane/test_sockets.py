"""Connections whose sockets the compiled lane reads and writes, of a broker with real clients."""

import asyncio
import contextlib
import gc
import itertools
import os
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pocketmq import lane
from pocketmq.broker.broker import Broker
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.channels import WRITE_BUFFER_MAX
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.frame import FrameBuffer
from tests.broker.data_path import TOPIC, send_header
from tests.broker.running import connected, create_topic, running_broker, until
from tests.lane.twins import needs_lane
from tests.patience import PATIENCE_S

pytestmark = needs_lane
RESET = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which a close is a reset."""


PAUSE_S = 50e-6


@pytest.fixture
def compiled() -> Any:
    return lane.compiled_lane()[0]


@pytest.fixture
def socket_pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    pairs = [socket.socketpair() for _ in range(40)]
    yield pairs
    for one in itertools.chain.from_iterable(pairs):
        one.close()


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setenv(lane.VARIABLE, "1")
    async with running_broker(store={"mapped_file_size_commit_log": 64 << 20}) as broker:
        async with connected() as client:
            await create_topic(client, broker, TOPIC)
        yield broker


def send(opaque: int, body: bytes = b"x") -> bytes:
    """Return the frame of an ordinary send, which the lane serves except for the first one of a queue."""
    return b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, send_header(), body, opaque))


class Client:
    """A client whose socket is the test's own."""

    def __init__(self, broker: Broker) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.setblocking(False)
        self._port, self._frames = broker.port, FrameBuffer()
        self.opaques: list[int] = []
        """Opaques of the answers, in the order of their arrival."""

    async def connect(self) -> "Client":
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", self._port))
        return self

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read(self, count: int) -> bool:
        """Read until there are so many answers; return False if the connection ends before."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.opaques) < count:
                data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
                if not data:
                    return False
                for kind, header, _ in self._frames.feed(data):
                    self.opaques.append(decode_header(kind, header).opaque)
        return True

    async def ask(self, opaque: int) -> None:
        await self.send(send(opaque))
        assert await self.read(len(self.opaques) + 1)

    def channel(self, broker: Broker) -> Channel:
        port = self.socket.getsockname()[1]
        assert broker.services.channels is not None
        (found,) = [one for one in broker.services.channels.open if one.remote_port == port]
        return found


@contextlib.asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[Client]:
    """A client that has got its first answer, so that the lane serves the next ones."""
    client = await Client(broker).connect()
    await client.ask(0)
    yield client
    client.socket.close()


def stored(broker: Broker) -> int:
    return broker.services.store.commit_log.tail.queue_offsets[TOPIC, 0]


async def test_slow_reader_gets_all_answers_in_order_and_is_not_read_meanwhile(broker):
    async with client_of(broker) as client:
        channel, count = client.channel(broker), 40_000
        sending = asyncio.ensure_future(client.send(b"".join(map(send, range(1, count + 1)))))
        await until(lambda: channel._is_paused)
        served = stored(broker)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert stored(broker) == served < count, "the requests of a peer that does not read its answers wait"
        assert channel._transport.get_write_buffer_size() < 2 * WRITE_BUFFER_MAX
        assert await client.read(count + 1)
        await sending
        assert client.opaques == list(range(count + 1))
        assert not channel._is_paused


async def test_reset_while_answers_wait_ends_only_that_connection(broker):
    async with client_of(broker) as client, client_of(broker) as other:
        channel = client.channel(broker)
        sending = asyncio.ensure_future(client.send(b"".join(map(send, range(1, 40_000)))))
        await until(lambda: channel._is_paused)
        sending.cancel()
        await asyncio.wait({sending})
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        client.socket.close()
        await until(lambda: not channel.is_open)
        assert channel.is_closed_by_peer
        await other.ask(1)


async def test_peer_that_ends_its_half_gets_the_answers_to_what_it_sent(broker):
    async with client_of(broker) as client:
        channel, count = client.channel(broker), 2_000
        sending = asyncio.ensure_future(client.send(b"".join(map(send, range(1, count + 1)))))
        assert await client.read(count // 2)
        await sending
        client.socket.shutdown(socket.SHUT_WR)
        assert await client.read(count + 1)
        assert not await client.read(count + 2), "the broker closes then"
        await until(lambda: not channel.is_open)
        assert channel.is_closed_by_peer and client.opaques == list(range(count + 1))


async def test_request_in_parts_among_requests_of_others(broker):
    async with client_of(broker) as client, client_of(broker) as other:
        frame = send(7)
        for at in range(1, len(frame), 13):
            await client.send(frame[:at])
            await other.ask(8)
            await client.send(frame[at:])
            assert await client.read(len(client.opaques) + 1)
        assert set(client.opaques) == {0, 7}


async def test_last_data_of_a_peer_counts_although_its_channel_did_not_see_it(broker):
    async with client_of(broker) as client:
        channel = client.channel(broker)
        await client.ask(1)
        before = channel.last_active
        await client.ask(2)
        assert broker.services.channels is not None
        broker.services.channels._reap()
        assert channel.last_active > before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Let the process have more descriptors; return the number of connections for which they suffice."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield min(2_500, (hard - 500) // 2) if hard != resource.RLIM_INFINITY else 2_500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_thousands_of_connections_leave_no_descriptors(broker, many_descriptors):
    async with client_of(broker) as stays:
        gc.collect()  # those of earlier tests
        before = descriptors()
        for is_reset in (False, True):
            clients = [await Client(broker).connect() for _ in range(many_descriptors)]
            for client in clients:
                await client.send(send(1))
            for client in clients:
                assert await client.read(1)
            assert len(broker.services.channels.open) == many_descriptors + 1
            for client in clients:
                if is_reset:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.socket.close()
            await until(lambda: len(broker.services.channels.open) == 1)
            await asyncio.sleep(0.01)
        await stays.ask(1)
        assert descriptors() <= before


def test_few_ready_sockets_of_many_busy_ones_wait_for_others_to_be_served_with(
    compiled: Any, socket_pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    """The CPU of a turn of the loop is shared by the messages that it serves."""
    sockets = compiled.Sockets(1 << 20)
    for served, _ in socket_pairs:
        sockets.start(sockets.add(served.fileno()), b"")

    def waited_s(now_s: float) -> float:
        began_s = time.perf_counter()
        sockets.wait(now_s)
        return time.perf_counter() - began_s

    for _, peer in socket_pairs:
        peer.send(b"x")
    assert min(waited_s(1.0) for _ in range(20)) < PAUSE_S, "none was busy before"
    while sockets.has_ready:
        sockets.next()
    socket_pairs[0][1].send(b"x")
    assert min(waited_s(1.006) for _ in range(20)) > PAUSE_S
    assert min(waited_s(2.0) for _ in range(20)) < PAUSE_S, "none is busy any more"

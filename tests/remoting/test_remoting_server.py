"""RemotingServer on real sockets."""

import asyncio
import ssl

import pytest

from pocketmq.remoting import channel as channel_module
from pocketmq.remoting.command import Response, decode_header, encode_request
from pocketmq.remoting.dispatch import Deferred, Route, routes
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.hosts import plain_host
from pocketmq.runtime.turn import Phase
from tests.patience import PATIENCE_S

ECHO, HOLD, BIG, ASK_BACK = 1, 2, 3, 4

BOTH_TRANSPORTS = True


def table(held=None):
    def hold(services, request):
        held.append((request.body, Deferred()))
        return held[-1][1]

    return routes(
        Route(ECHO, NoHeader, lambda services, request: Response(body=request.body)),
        Route(HOLD, NoHeader, hold),
        Route(BIG, NoHeader, lambda services, request: Response(body=b"x" * 1_000_000)),
    )


class Raw:
    """Peer that sends raw bytes and collects frames."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.frames = reader, writer, FrameBuffer()

    @classmethod
    async def connect(cls, address):
        host, port = address.split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def send(self, code, body=b"", opaque=0, **options):
        self.writer.write(b"".join(encode_request(code, None, body, opaque, **options)))

    async def read(self, count):
        """Return (opaque, code, body) of the next `count` frames."""
        got = []
        while len(got) < count:
            data = await asyncio.wait_for(self.reader.read(65536), PATIENCE_S)
            assert data, "the server closed the connection"
            got += self.frames.feed(data)
        return [(decode_header(kind, header).opaque, decode_header(kind, header).code, body) for kind, header, body in got]

    async def closed(self):
        """Return whether the server closes without sending another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(), PATIENCE_S) == b""
        except ConnectionError:
            return True


@pytest.fixture
async def echo(remoting):
    held = []
    server, address = await remoting.serve(table(held))
    raw = await Raw.connect(address)
    yield server, raw, held
    raw.writer.close()


async def test_pipelined_requests_are_answered_in_order(echo):
    _, raw, _ = echo
    for opaque in range(200):
        raw.send(ECHO, b"%d" % opaque, opaque)
    assert await raw.read(200) == [(opaque, 0, b"%d" % opaque) for opaque in range(200)]


async def test_both_serialisations_on_one_connection(echo):
    _, raw, _ = echo
    raw.send(ECHO, b"json", 1)
    raw.send(ECHO, b"binary", 2, serialize_type=1)
    assert await raw.read(2) == [(1, 0, b"json"), (2, 0, b"binary")]


async def test_oneway_request_gets_no_answer(echo):
    _, raw, _ = echo
    raw.send(ECHO, b"", 1, oneway=True)
    raw.send(99, b"", 2, oneway=True)
    raw.send(ECHO, b"", 3)
    assert await raw.read(1) == [(3, 0, b"")]


@pytest.mark.parametrize("garbage", [b"\xff" * 8, b"\0\0\0\3\0\0\0\0", b"\0\0\0\6\0\0\0\2{]", b"\0\0\0\6\5\0\0\2{}"])
async def test_invalid_bytes_close_the_connection_without_an_answer(echo, garbage):
    server, raw, _ = echo
    raw.writer.write(garbage)
    assert await raw.closed()
    assert not server.channels.open


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PRI"])
async def test_http_client_gets_an_explanation_and_is_logged_once(remoting, caplog, method):
    _, address = await remoting.serve(table())
    for _ in range(3):
        raw = await Raw.connect(address)
        raw.writer.write(f"{method} /metrics HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await asyncio.wait_for(raw.reader.read(), PATIENCE_S)).decode()
        assert answer.startswith("HTTP/1.1 400 Bad Request\r\n")
        assert "RocketMQ's remoting protocol, not HTTP" in answer
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1 and "it speaks HTTP, but this port serves RocketMQ clients" in said[0]


async def test_a_tls_client_at_a_port_without_certificate_gets_an_alert(remoting, caplog):
    _, address = await remoting.serve(table())
    host, port = address.split(":")
    with pytest.raises(ssl.SSLError, match="(?i)alert"):
        await asyncio.wait_for(asyncio.open_connection(host, int(port), ssl=ssl.create_default_context()), PATIENCE_S)
    assert "it starts a TLS handshake, but this server has no certificate (tls.server.certPath)" in caplog.text


async def test_requests_before_invalid_bytes_are_answered(echo):
    _, raw, _ = echo
    raw.send(ECHO, b"good", 1)
    assert await raw.read(1) == [(1, 0, b"good")]
    raw.writer.write(b"\0\0\0\6\0\0\0\2{]")
    assert await raw.closed()


async def test_answers_before_invalid_bytes_wait_for_the_work_of_the_turn(echo, monkeypatch):
    server, raw, _ = echo
    order, write = [], channel_module.Channel.write
    server.channels.turn.add(Phase.DISPATCH, lambda: order.append("dispatched"))
    monkeypatch.setattr(channel_module.Channel, "write", lambda channel: (order.append("written"), write(channel)))
    raw.writer.write(b"".join(encode_request(ECHO, None, b"good", 1)) + b"\0\0\0\6\0\0\0\2{]")
    assert await raw.read(1) == [(1, 0, b"good")]
    assert await raw.closed()
    assert order[0] == "dispatched"


async def test_deferred_answer_is_sent_on_completion_unless_the_connection_closed(echo, remoting):
    server, raw, held = echo
    raw.send(HOLD, b"a", 1)
    raw.send(HOLD, b"b", 2)
    raw.send(ECHO, b"c", 3)
    assert await raw.read(1) == [(3, 0, b"c")]
    held[1][1].complete(Response(body=b"second"))
    assert await raw.read(1) == [(2, 0, b"second")]
    raw.writer.close()
    await remoting.until(lambda: not server.channels.open)
    held[0][1].complete(Response(body=b"nobody hears it"))


async def test_peer_with_too_many_held_requests_is_not_read_until_some_are_answered(echo, remoting, monkeypatch):
    monkeypatch.setattr(channel_module, "DEFERRED_MAX", 4)
    _, raw, held = echo
    for opaque in range(4):
        raw.send(HOLD, b"", opaque)
    await remoting.until(lambda: len(held) == 4)
    raw.send(ECHO, b"", 100)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(raw.reader.read(1), 0.1)
    held[0][1].complete(Response())
    assert sorted(await raw.read(2)) == [(0, 0, b""), (100, 0, b"")]


async def test_reading_stops_for_a_peer_that_does_not_read(echo, remoting):
    server, raw, _ = echo
    count = 64
    for opaque in range(count):
        raw.send(BIG, b"", opaque)
    await remoting.until(lambda: any(channel._is_paused for channel in server.channels.open))
    assert [opaque for opaque, _, body in await raw.read(count) if len(body) == 1_000_000] == list(range(count))


async def test_idle_connections_are_closed_and_busy_ones_stay(remoting):
    server, address = await remoting.serve(table(), idle_s=3)  # on a busy machine the busy one is idle for seconds, too
    idle, busy = await Raw.connect(address), await Raw.connect(address)
    for raw in (idle, busy):
        raw.send(ECHO, b"", 1)
        assert await raw.read(1) == [(1, 0, b"")]
    assert len(server.channels.open) == 2
    closing = asyncio.ensure_future(idle.closed())
    opaque = 1
    while not closing.done():
        opaque += 1
        busy.send(ECHO, b"", opaque)
        assert await busy.read(1) == [(opaque, 0, b"")]
        await asyncio.wait({closing}, timeout=0.02)
    assert await closing
    assert len(server.channels.open) == 1
    busy.writer.close()


async def test_server_can_send_requests_to_its_client(remoting):
    channels = []
    asked = routes(Route(ASK_BACK, NoHeader, lambda s, r: channels.append(r.channel) or Response()))
    _, address = await remoting.serve(asked)
    answering = routes(Route(40, NoHeader, lambda s, r: Response(body=b"from the client: " + r.body)))
    client = remoting.client(answering)
    await client.call(address, ASK_BACK)
    answer = await channels[0].invoke(40, None, b"hello", 2.0)
    assert answer.body == b"from the client: hello"
    assert channels[0].remote_address.startswith("127.0.0.1:")
    assert channels[0].host_bytes[:4] == bytes([127, 0, 0, 1])


async def test_each_port_refuses_its_own_codes(remoting):
    server, address = await remoting.serve(table())
    port = await server.listen("127.0.0.1", 0, refused=frozenset({ECHO}))
    client = remoting.client()
    assert (await client.invoke(address, ECHO)).code == 0
    assert (await client.invoke(f"127.0.0.1:{port}", ECHO)).code == 3


async def test_port_in_use_is_an_os_error(remoting):
    _, address = await remoting.serve(table())
    with pytest.raises(OSError):
        await remoting.serve(table(), port=int(address.split(":")[1]))


async def test_close_sends_ready_answers(remoting):
    server, address = await remoting.serve(table())
    raw = await Raw.connect(address)
    raw.send(BIG, b"", 1)
    await remoting.until(lambda: server.channels.open and next(iter(server.channels.open)).last_active)
    reading = asyncio.ensure_future(raw.read(1))
    await remoting.until(lambda: reading.done())
    await server.close()
    assert len((await reading)[0][2]) == 1_000_000
    assert await raw.closed()


async def test_close_waits_until_answers_are_sent(remoting):
    answer, served = Response(body=bytes(12_000_000)), []
    server, address = await remoting.serve(routes(Route(BIG, NoHeader, lambda s, r: served.append(r.opaque) or answer)))
    raw = await Raw.connect(address)
    raw.send(BIG, b"", 1)
    await remoting.until(lambda: server.channels.open and next(iter(server.channels.open))._is_paused)
    closing = asyncio.ensure_future(server.close())
    await asyncio.sleep(0)
    assert not closing.done()
    assert [len(body) for _, _, body in await raw.read(1)] == [12_000_000] and served == [1]
    assert await raw.closed()
    await closing


async def test_close_does_not_wait_for_a_peer_that_does_not_read(remoting, monkeypatch):
    monkeypatch.setattr("pocketmq.remoting.server.CLOSE_MAX_S", 0.1)
    server, address = await remoting.serve(table())
    raw = await Raw.connect(address)
    for opaque in range(12):
        raw.send(BIG, b"", opaque)
    await remoting.until(lambda: server.channels.open and next(iter(server.channels.open))._is_paused)
    async with asyncio.timeout(PATIENCE_S):
        await server.close()
    assert not server.channels.open
    raw.writer.close()


@pytest.mark.parametrize(
    ("host", "plain"),
    [("127.0.0.1", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::1"), ("::1", "::1")],
)
def test_plain_host_has_no_ipv4_prefix_and_no_zone(host, plain):
    assert plain_host(host) == plain

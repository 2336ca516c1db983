"""The HTTP/2 server below gRPC: frames in any pieces, windows, and peers that violate the protocol or do not read."""

import asyncio
import gzip
import random
import time

import pytest

from bench.hostile import http2
from pocketmq.proxy.http2 import paced, port
from pocketmq.proxy.http2.hpack import encoded
from pocketmq.proxy.proto import messaging_pb2 as pb
from tests.broker.running import until
from tests.proxy.grpc_client import endpoints, producer_settings, queue_of, resource, seconds
from tests.proxy.http2_client import connected
from tests.proxy.served import running_front

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTE = pb.QueryRouteRequest(topic=resource("normal"), endpoints=endpoints()).SerializeToString()
OK = encoded(b"grpc-status", b"0")
STREAMS = range(1, 257, 2)
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED, COMPRESSION, CALM = 1, 3, 6, 7, 9, 11


def route(stream, client="c"):
    return http2.call(stream, "QueryRoute", ROUTE, x_mq_client_id=client)


async def ends_of(peer, count):
    """Return the header blocks with which the next calls end."""
    found = []
    while len(found) < count:
        answer = await peer.frame()
        if answer.kind == http2.HEADERS and answer.flags & http2.END_STREAM:
            found.append(answer.content)
    return set(found)


def status(code):
    return encoded(b"grpc-status", b"%d" % code)


async def test_frames_may_arrive_byte_by_byte(front):
    async with connected(front.port) as peer:
        for byte in http2.begin() + route(1):
            peer.send(bytes((byte,)))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert OK in await peer.end_of(1)


async def test_calls_of_one_write_are_all_answered(front):
    async with connected(front.port) as peer:
        peer.send(http2.begin(), *(route(stream) for stream in STREAMS))
        assert await ends_of(peer, len(STREAMS)) == {OK}


async def test_an_answer_is_sent_as_far_as_the_window_of_its_call_allows(front):
    async with connected(front.port) as peer:
        peer.send(http2.begin(window=7), route(1))
        first = await peer.until(http2.DATA, 1)
        size = 5 + int.from_bytes(first.content[1:5], "big")
        assert len(first.content) == 7
        peer.send(http2.window_update(1, 1))
        assert len((await peer.until(http2.DATA, 1)).content) == 1
        peer.send(http2.settings(window=1000))
        assert len((await peer.until(http2.DATA, 1)).content) == size - 8
        assert OK in await peer.end_of(1)


async def test_a_client_that_does_not_read_its_answers_keeps_only_some_of_its_calls_running(front):
    front_port = front.broker._front._http2
    async with connected(front.port) as peer:
        half = len(STREAMS) // 2
        peer.send(http2.begin(window=0), *(route(stream) for stream in STREAMS[:half]))
        await until(lambda: front_port.blocked_count >= paced.BLOCKED_MAX)
        peer.send(*(route(stream) for stream in STREAMS[half:]), http2.frame(http2.PING, 0, 0, bytes(8)))
        await peer.until(http2.PING)
        assert front_port.blocked_count <= half
        peer.send(http2.settings(window=1 << 20))
        assert await ends_of(peer, len(STREAMS)) == {OK}
    assert front_port.blocked_count == 0


async def test_a_call_whose_answer_is_not_read_is_ended_once_too_many_are_not(front, monkeypatch):
    monkeypatch.setattr(port, "BLOCKED_MAX", 3)
    async with connected(front.port) as peer, connected(front.port) as other:
        other.send(http2.begin(window=0), route(1))
        await until(lambda: front.broker._front._http2.blocked_count == 1)
        peer.send(http2.begin(window=0), *(route(stream) for stream in (1, 3, 5)))
        assert int.from_bytes((await peer.until(http2.RST_STREAM, 1)).content, "big") == http2.CANCEL
        other.send(http2.window_update(1, 1000))
        assert OK in await other.end_of(1)


async def test_a_client_that_does_not_read_its_telemetry_stream_is_ended_with_a_log_line(monkeypatch, caplog):
    monkeypatch.setattr(port, "REAP_S", 0.1)
    async with running_front(slow_connection_seconds=1) as served, connected(served.port) as peer:
        settings = pb.TelemetryCommand(settings=producer_settings("normal")).SerializeToString()
        peer.send(http2.begin(window=0), http2.call(1, "Telemetry", settings, is_finished=False, x_mq_client_id="deaf"))
        await until(lambda: served.broker._front.front.client_count == 1)
        await peer.until(http2.RST_STREAM, 1)
        await until(lambda: served.broker._front.front.client_count == 0)
    assert any("has not read a message for 1 s" in record.getMessage() for record in caplog.records)


async def test_a_message_that_does_not_end_is_waited_for_a_limited_time(monkeypatch, caplog):
    monkeypatch.setattr(port, "REAP_S", 0.1)
    async with running_front(slow_connection_seconds=1) as served, connected(served.port) as peer:
        peer.send(http2.begin(), http2.call(1, "SendMessage", None), http2.frame(http2.DATA, 0, 1, b"\0\0\0\0\7x"))
        while await peer.frame() is not None:
            pass
    assert any("it sends its calls slower than" in record.getMessage() for record in caplog.records)


async def test_a_silent_client_is_asked_and_closed_if_it_does_not_answer(monkeypatch):
    monkeypatch.setattr(port, "REAP_S", 0.1)
    monkeypatch.setattr(port, "PING_AFTER_S", 0.1)
    async with running_front() as served, connected(served.port) as peer:
        peer.send(http2.begin(), route(1))
        asked = await peer.until(http2.PING)
        peer.send(http2.frame(http2.PING, http2.ACK, 0, asked.content))
        await peer.until(http2.PING)  # it is asked again, as it was silent again
        monkeypatch.setattr(port, "PING_ANSWER_S", 0.1)
        while await peer.frame() is not None:
            pass


async def test_compressed_messages_are_read_up_to_the_limit_of_a_call():
    async with running_front({"grpc_max_inbound_message_size": 1 << 16}) as served, connected(served.port) as peer:

        def call(stream, data):
            head = http2.call(stream, "QueryRoute", None, x_mq_client_id="c", grpc_encoding="gzip")
            body = b"\1" + len(data).to_bytes(4, "big") + data
            return head + http2.frame(http2.DATA, http2.END_STREAM, stream, body)

        peer.send(http2.begin(), call(1, gzip.compress(ROUTE)))
        assert OK in await peer.end_of(1)
        peer.send(call(3, gzip.compress(bytes(1 << 20))))
        assert status(8) in await peer.end_of(3)
        peer.send(call(5, b"no gzip"), call(7, gzip.compress(ROUTE)[:-9]))
        assert status(13) in await peer.end_of(5)
        assert status(13) in await peer.end_of(7)
        peer.send(http2.call(9, "QueryRoute", ROUTE, x_mq_client_id="c", grpc_encoding="snappy"))
        assert status(12) in await peer.end_of(9)


async def test_a_call_ends_at_its_deadline(front):
    pull = pb.PullMessageRequest(
        group=resource("g"), message_queue=queue_of("normal"), offset=1 << 20, long_polling_timeout=seconds(20)
    ).SerializeToString()
    async with connected(front.port) as peer:
        began_s = time.monotonic()
        asked = http2.call(1, "Telemetry", None, is_finished=False, x_mq_client_id="c", grpc_timeout="300m")
        peer.send(http2.begin(), asked, http2.call(3, "PullMessage", pull, x_mq_client_id="c", grpc_timeout="bad"))
        assert status(13) in await peer.end_of(3)
        assert status(4) in await peer.end_of(1)
        assert 0.2 < time.monotonic() - began_s < 10


async def test_more_calls_at_a_time_than_allowed_are_refused_and_may_be_repeated():
    async with running_front({"grpc_max_streams_per_connection": 2}) as served, connected(served.port) as peer:
        held = [http2.call(stream, "Telemetry", None, is_finished=False, x_mq_client_id="c") for stream in (1, 3)]
        peer.send(http2.begin(), *held, route(5))
        assert int.from_bytes((await peer.until(http2.RST_STREAM, 5)).content, "big") == REFUSED
        peer.send(http2.reset(1), route(7))
        assert OK in await peer.end_of(7)


BROKEN = {
    "no preface": (b"GET / HTTP/1.1\r\nHost: here.or.there\r\n\r\n", PROTOCOL_ERROR),
    "a frame too large": (http2.begin() + (1 << 15).to_bytes(3, "big") + bytes(6), FRAME_SIZE_ERROR),
    "data of no call": (http2.begin() + http2.frame(http2.DATA, 0, 1, b"x"), PROTOCOL_ERROR),
    "a reset of no call": (http2.begin() + http2.reset(1), PROTOCOL_ERROR),
    "a call of a server": (http2.begin() + http2.frame(http2.HEADERS, http2.END_HEADERS, 2, b"\x82"), PROTOCOL_ERROR),
    "headers of stream 0": (http2.begin() + http2.frame(http2.HEADERS, http2.END_HEADERS, 0, b"\x82"), PROTOCOL_ERROR),
    "a push": (http2.begin() + http2.frame(5, 0, 1, b"x"), PROTOCOL_ERROR),
    "headers that are interrupted": (
        http2.begin() + http2.frame(http2.HEADERS, 0, 1, b"\x82") + http2.frame(http2.PING, 0, 0, bytes(8)),
        PROTOCOL_ERROR,
    ),
    "a continuation of nothing": (http2.begin() + http2.frame(http2.CONTINUATION, 4, 1, b"\x82"), PROTOCOL_ERROR),
    "a window too large": (http2.begin() + http2.window_update(0, (1 << 31) - 1), FLOW_CONTROL_ERROR),
    "an initial window too large": (http2.begin() + http2.settings(window=1 << 31), FLOW_CONTROL_ERROR),
    "a short ping": (http2.begin() + http2.frame(http2.PING, 0, 0, b"x"), FRAME_SIZE_ERROR),
    "short settings": (http2.begin() + http2.frame(http2.SETTINGS, 0, 0, b"x"), FRAME_SIZE_ERROR),
    "an unknown field": (http2.begin() + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff"), COMPRESSION),
    "a table too large": (http2.begin() + http2.frame(http2.HEADERS, 4, 1, b"\x3f\xff\xff\x01"), COMPRESSION),
    "a padding too large": (http2.begin() + http2.frame(http2.HEADERS, 0xC, 1, b"\x20\x82"), PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
async def test_a_peer_that_violates_the_protocol_is_told_why_and_closed_alone(front, case):
    sent, code = BROKEN[case]
    async with connected(front.port) as peer, connected(front.port) as other:
        peer.send(sent)
        assert await peer.went_away() in (code, -1)  # the reset of a connection may overtake it
        other.send(http2.begin(), route(1))
        assert OK in await other.end_of(1)


async def test_random_frames_leave_a_port_that_serves_others(front):
    rng = random.Random("frames")
    for _ in range(60):
        async with connected(front.port) as peer:
            peer.send(http2.begin())
            for _ in range(20):
                content = rng.choice((rng.randbytes(rng.randrange(40)), route(1)[9:], bytes(8)))
                peer.send(http2.frame(rng.randrange(12), rng.randrange(256), rng.choice((0, 1, 1, 2, 3)), content))
            peer.send(b"" if rng.random() < 0.5 else rng.randbytes(100))
            peer.writer.write_eof()
            while await peer.frame() is not None:
                pass
    async with connected(front.port) as other:
        other.send(http2.begin(), route(1))
        assert OK in await other.end_of(1)

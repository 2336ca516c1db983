"""Limits on the memory, connections and descriptors that a hostile peer can use, on real sockets."""

import asyncio
import contextlib
import json
import logging
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pocketmq.remoting.channels import NotReading
from pocketmq.remoting.command import Response, decode_header, encode_request
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.frame import FrameBuffer, frame_head
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.limits import ConnectionLimits
from tests.patience import PATIENCE_S
from tests.remoting.test_remoting_server import ECHO, HOLD, Raw, table

MIB = 1 << 20
PUSHED = 40

BOTH_TRANSPORTS = True


async def unfinished(address, size, sent):
    """Open a connection that has sent part of a frame."""
    raw = await Raw.connect(address)
    raw.writer.write(frame_head(0, 2, size) + b"x" * sent)
    return raw


async def echoes(raw, opaque=1):
    raw.send(ECHO, b"here", opaque)
    return await raw.read(1) == [(opaque, 0, b"here")]


def only(server):
    (channel,) = server.channels.open
    return channel


# --- unfinished frames ----------------------------------------------------------------------------------------------


async def test_unfinished_frames_have_a_total_limit_and_other_peers_are_served(remoting):
    server, address = await remoting.serve(table(), limits=ConnectionLimits(max_unfinished_frame_bytes=16 * MIB))
    healthy = await Raw.connect(address)
    attackers = [await unfinished(address, 8 * MIB, 7 * MIB) for _ in range(8)]
    await remoting.until(lambda: len(server.channels.open) <= 3)
    held = sum(channel._frames.held for channel in server.channels.open)
    assert held <= 16 * MIB
    assert await echoes(healthy)
    healthy.send(ECHO, b"y" * 4 * MIB, 2)
    assert len((await healthy.read(1))[0][2]) == 4 * MIB, "a large frame that makes progress is not dropped"
    for one in (*attackers, healthy):
        one.writer.close()


def test_single_bytes_do_not_allocate_an_object_each():
    frames = FrameBuffer()
    assert frames.feed(frame_head(0, 0, 100_000)) == []
    for _ in range(99_999):
        assert frames.feed(b"x") == []
    assert len(frames._chunks) <= 2
    assert frames.feed(b"y") == [(0, b"", b"x" * 99_999 + b"y")]
    assert frames.held == 0


async def test_connection_with_a_too_slow_frame_is_closed(remoting, caplog):
    limits = ConnectionLimits(slow_connection_seconds=1, min_connection_bytes_per_second=1000)
    server, address = await remoting.serve(table(), limits=limits)
    slow, healthy = await unfinished(address, 1000, 1), await Raw.connect(address)
    closing = asyncio.ensure_future(slow.closed())
    opaque, end = 0, asyncio.get_running_loop().time() + PATIENCE_S
    while not closing.done():
        assert asyncio.get_running_loop().time() < end, "the connection stays open although it sends single bytes"
        with contextlib.suppress(ConnectionError):
            slow.writer.write(b"x")
        opaque += 1
        assert await echoes(healthy, opaque)
        await asyncio.wait({closing}, timeout=0.05)
    assert await closing
    assert "it sends its unfinished frame slower than 1000 bytes a second" in caplog.text
    healthy.writer.close()


async def test_slow_frame_above_the_minimum_rate_arrives(remoting):
    limits = ConnectionLimits(slow_connection_seconds=1, min_connection_bytes_per_second=1000)
    _, address = await remoting.serve(table(), limits=limits)
    raw = await Raw.connect(address)
    data = b"".join(encode_request(ECHO, None, b"z" * 50_000, 1))
    for start in range(0, len(data), 1000):
        raw.writer.write(data[start : start + 1000])
        await asyncio.sleep(0.05)
    assert await raw.read(1) == [(1, 0, b"z" * 50_000)]
    raw.writer.close()


async def test_connection_without_a_first_request_is_closed(remoting):
    server, address = await remoting.serve(table(), limits=ConnectionLimits(slow_connection_seconds=1))
    healthy, silent = await Raw.connect(address), await Raw.connect(address)
    assert await echoes(healthy)
    assert await silent.closed()
    assert await echoes(healthy, 2)
    healthy.writer.close()


# --- answers that are not read --------------------------------------------------------------------------------------


async def test_large_answers_to_pipelined_requests_do_not_fill_memory(remoting):
    served = []
    big = routes(Route(3, NoHeader, lambda s, r: served.append(1) or Response(body=bytes(MIB))))
    server, address = await remoting.serve(big)
    raw = await Raw.connect(address)
    request = b"".join(encode_request(3, None, b"", 1))
    count = 300
    raw.writer.write(request * count)
    await remoting.until(lambda: server.channels.open and only(server)._is_paused)
    assert len(served) < 40, "further requests wait until the peer reads"
    assert only(server)._transport.get_write_buffer_size() < 40 * MIB
    total = 0
    while total < count:
        total += len(await raw.read(1))
    assert len(served) == count
    raw.writer.close()


async def pushing(remoting, limits=None):
    channels = []
    asked = routes(
        Route(4, NoHeader, lambda s, r: channels.append(r.channel) or Response()),
        Route(3, NoHeader, lambda s, r: Response(body=bytes(MIB))),
    )
    server, address = await remoting.serve(asked, limits=limits)
    raw = await Raw.connect(address)
    raw.send(4)
    await raw.read(1)
    return server, raw, channels[0]


async def test_peer_that_does_not_read_notifications_is_dropped(remoting):
    _, raw, channel = await pushing(remoting)
    for _ in range(1000):
        channel.invoke_oneway(PUSHED, None, b"n" * 50_000)
        await asyncio.sleep(0)
    assert channel._transport.get_write_buffer_size() < 8 * MIB
    with pytest.raises(NotReading):
        await channel.invoke(PUSHED, None, b"", 5.0)
    raw.writer.close()


async def test_notifications_within_one_turn_count_as_unsent_bytes(remoting):
    _, raw, channel = await pushing(remoting)
    for _ in range(1000):
        channel.invoke_oneway(PUSHED, None, b"n" * 50_000)
    assert channel.unsent_bytes < 8 * MIB
    raw.writer.close()


async def test_peer_that_reads_too_slowly_is_dropped(remoting, caplog):
    server, raw, _ = await pushing(remoting, ConnectionLimits(slow_connection_seconds=1))
    raw.writer.transport.pause_reading()
    for opaque in range(40):
        raw.send(3, b"", opaque)
    await remoting.until(lambda: only(server)._is_paused)
    await remoting.until(lambda: not server.channels.open)
    assert "it reads its answers slower than 1024 bytes a second" in caplog.text
    raw.writer.close()


async def test_closed_connection_ends_even_if_its_peer_never_reads(remoting):
    server, raw, channel = await pushing(remoting, ConnectionLimits(slow_connection_seconds=1))
    raw.writer.transport.pause_reading()
    for opaque in range(40):
        raw.send(3, b"", opaque)
    await remoting.until(lambda: channel._is_paused)
    channel.close()
    await remoting.until(lambda: not server.channels.open)
    raw.writer.close()


async def test_unread_answers_of_all_connections_have_a_total_limit(remoting, caplog):
    server, address = await remoting.serve(
        routes(
            Route(3, NoHeader, lambda s, r: Response(body=bytes(MIB))),
            Route(ECHO, NoHeader, lambda s, r: Response(body=r.body)),
        ),
        limits=ConnectionLimits(max_unsent_bytes=16 * MIB),
    )
    healthy, attackers = await Raw.connect(address), []
    assert await echoes(healthy)
    for _ in range(40):
        raw = await Raw.connect(address)
        raw.writer.transport.pause_reading()
        for opaque in range(20):
            raw.send(3, b"", opaque)
        attackers.append(raw)
    await remoting.until(lambda: sum(c.unsent_bytes for c in server.channels.open) > 8 * MIB)
    await remoting.until(lambda: "maxUnsentBytes" in caplog.text)
    await remoting.until(lambda: sum(c.unsent_bytes for c in server.channels.open) <= 16 * MIB)
    assert await echoes(healthy, 2)
    for one in (*attackers, healthy):
        one.writer.close()


async def test_answer_that_cannot_be_written_closes_only_its_connection(remoting):
    held = []
    server, address = await remoting.serve(table(held))
    poisoned, healthy = await Raw.connect(address), await Raw.connect(address)
    poisoned.send(HOLD, b"", 1)
    healthy.send(HOLD, b"", 2)
    await remoting.until(lambda: len(held) == 2)
    held[0][1].complete(Response(body=["no buffer"]))
    held[1][1].complete(Response(body=b"good"))
    assert await healthy.read(1) == [(2, 0, b"good")]
    assert await poisoned.closed()
    healthy.writer.close()


async def test_all_close_listeners_run_even_if_one_fails(remoting):
    server, raw, channel = await pushing(remoting)
    told = []
    channel.on_close(lambda channel: 1 / 0)
    channel.on_close(told.append)
    raw.writer.close()
    await remoting.until(lambda: told == [channel])


# --- connections ----------------------------------------------------------------------------------------------------


async def test_connections_above_the_limit_are_closed_and_logged_once(remoting, caplog):
    server, address = await remoting.serve(table(), limits=ConnectionLimits(max_connections=3))
    kept = [await Raw.connect(address) for _ in range(3)]
    for one in kept:
        assert await echoes(one)
    for _ in range(5):
        refused = await Raw.connect(address)
        assert await refused.closed()
    assert sum("maxConnections" in record.getMessage() for record in caplog.records) == 1
    for one in kept:
        assert await echoes(one, 2)
    kept.pop().writer.close()
    await remoting.until(lambda: len(server.channels.open) == 2)
    again = await Raw.connect(address)
    assert await echoes(again)
    for one in (*kept, again):
        one.writer.close()


async def test_at_the_limit_the_oldest_silent_connection_makes_room(remoting, caplog):
    server, address = await remoting.serve(table(), limits=ConnectionLimits(max_connections=4))
    client = await Raw.connect(address)
    assert await echoes(client)
    silent = [await Raw.connect(address) for _ in range(3)]
    late = await Raw.connect(address)
    assert await echoes(late)
    assert await silent[0].closed()
    assert await echoes(silent[2]), "the newest stays"
    assert await echoes(client, 2), "a client that has spoken stays"
    assert "(maxConnections, RLIMIT_NOFILE), and it is the oldest that has said nothing" in caplog.text
    for one in (client, late, silent[2]):
        one.writer.close()


def test_connection_limit_leaves_descriptors_for_the_store(monkeypatch):
    limits = ConnectionLimits(max_connections=5000)
    for soft_limit, kept, expected in [(1024, 640, 384), (20_000, 640, 5000), (256, 640, 64), (-1, 640, 5000)]:
        soft = resource.RLIM_INFINITY if soft_limit < 0 else soft_limit
        monkeypatch.setattr(resource, "getrlimit", lambda which, soft=soft: (soft, soft))
        assert limits.connection_count_max(kept) == expected


SERVER = """
import asyncio, resource, sys
from tests.remoting.in_process import in_process
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.runtime import log
import uvloop
async def main():
    async with in_process() as parts:
        table = routes(Route(1, NoHeader, lambda s, r: Response(body=r.body)))
        server, address = await parts.serve(table)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # fewer than the server expects
        print(address, flush=True)
        await asyncio.Event().wait()
log.setup()
uvloop.run(main())
"""


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def test_server_recovers_after_running_out_of_descriptors(remoting):
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    connections = []
    try:
        host, port = process.stdout.readline().strip().split(":")
        healthy = await Raw.connect(f"{host}:{port}")
        assert await echoes(healthy)
        for _ in range(100):
            connections.append(socket.create_connection((host, int(port)), PATIENCE_S))
        before = cpu_s(process.pid)
        end = time.monotonic() + 2
        opaque = 1
        while time.monotonic() < end:
            opaque += 1
            assert await echoes(healthy, opaque)
            await asyncio.sleep(0.05)
        assert cpu_s(process.pid) - before < 1, "the server uses the CPU in a busy loop"
        for one in connections:
            one.close()
        async with asyncio.timeout(PATIENCE_S):
            late = await Raw.connect(f"{host}:{port}")
            assert await echoes(late)
    finally:
        for one in connections:
            one.close()
        process.kill()
        _, err = process.communicate()
    assert err.count("cannot accept connections") == 1
    healthy.writer.close()
    late.writer.close()


@pytest.fixture(autouse=True)
def _log_lines(caplog):
    caplog.set_level(logging.INFO)


# --- headers --------------------------------------------------------------------------------------------------------


async def test_header_above_the_limit_is_refused_and_its_connection_goes_on(remoting):
    _, address = await remoting.serve(table(), limits=ConnectionLimits(max_header_bytes=65_536))
    raw = await Raw.connect(address)
    header = json.dumps({"code": ECHO, "extFields": {"x": "y" * 70_000}, "opaque": 2}).encode()
    raw.writer.write(frame_head(0, len(header), 0) + header)
    ((_, answer, _),) = raw.frames.feed(await raw.reader.read(65_536))
    answer = decode_header(0, answer)
    assert (answer.code, answer.opaque) == (1, 2)
    assert answer.remark == f"header of {len(header)} bytes, limit (maxHeaderBytes) 65536"
    raw.send(ECHO, b"x" * 200_000, 3)
    assert len((await raw.read(1))[0][2]) == 200_000, "the header limit does not apply to bodies"
    raw.writer.close()


async def test_silent_connections_take_no_channel_and_are_dropped_after_a_time(remoting, caplog):
    server, address = await remoting.serve(table([]), limits=ConnectionLimits(slow_connection_seconds=1))
    silent = [await Raw.connect(address) for _ in range(20)]
    talking = await Raw.connect(address)
    assert await echoes(talking)
    assert len(server.channels.open) == 1
    assert all(await asyncio.gather(*(one.closed() for one in silent)))
    assert await echoes(talking, 2)
    assert "it sent nothing for 1 s (slowConnectionSeconds)" in caplog.text
    talking.writer.close()

"""Connections with slow requests get a limited share of the loop, so that others are served too."""

import time

from pocketmq.remoting.command import Response, encode_request
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.header import NoHeader
from tests.remoting.test_remoting_server import ECHO, Raw, table

SLOW = 90
COUNT = 20
"""Requests of a connection: many more than it may have served before another one is answered."""

BOTH_TRANSPORTS = True


def slow_table(served):
    def slow(services, request):
        end_s = time.thread_time() + 0.012
        while time.thread_time() < end_s:
            pass
        served.append(request.opaque)
        return Response(body=request.body)

    return table() | {SLOW: Route(SLOW, NoHeader, slow)}


def slow_requests(count, body=b""):
    return b"".join(b"".join(encode_request(SLOW, None, body, opaque)) for opaque in range(count))


async def served_when_answered(raw, served, opaque):
    """Return how many slow requests are served before another connection gets its answer."""
    raw.send(ECHO, b"here", opaque)
    assert await raw.read(1) == [(opaque, 0, b"here")]
    return len(served)


async def test_pipelined_slow_requests_do_not_block_the_loop(remoting):
    for body in (b"", b"x" * 4_000):
        served = []
        _, address = await remoting.serve(slow_table(served))
        attacker, healthy = await Raw.connect(address), await Raw.connect(address)
        attacker.writer.write(slow_requests(COUNT, body))
        assert await served_when_answered(healthy, served, 1) <= 8
        assert [opaque for opaque, _, _ in await attacker.read(COUNT)] == list(range(COUNT)), "all are served in the end"
        attacker.writer.close()
        healthy.writer.close()


async def test_slow_requests_of_many_connections_leave_half_of_the_time_to_others(remoting):
    served = []
    _, address = await remoting.serve(slow_table(served))
    healthy, attackers = await Raw.connect(address), [await Raw.connect(address) for _ in range(10)]
    for attacker in attackers:
        attacker.writer.write(slow_requests(COUNT // 2))
    # The first request of each connection is served at once, whenever it arrives.
    await remoting.until(lambda: served.count(0) == len(attackers))
    counts = []
    for opaque in range(2, 9):
        before = len(served)
        counts.append(await served_when_answered(healthy, served, opaque) - before)
    # Beside load the kernel itself brings some requests late.
    assert sorted(counts)[len(counts) // 2] <= 3, counts
    assert len(served) < len(attackers) * COUNT // 2, "slow requests are still waiting"
    for attacker in attackers:
        assert [opaque for opaque, _, _ in await attacker.read(COUNT // 2)] == list(range(COUNT // 2))
        attacker.writer.close()
    healthy.writer.close()


async def test_slow_connection_closed_while_waiting_does_not_delay_others(remoting):
    served = []
    server, address = await remoting.serve(slow_table(served))
    gone, stays = await Raw.connect(address), await Raw.connect(address)
    for raw in (gone, stays):
        raw.writer.write(slow_requests(COUNT))
    await remoting.until(lambda: len(served) >= 2)
    gone.writer.transport.abort()
    assert [opaque for opaque, _, _ in await stays.read(COUNT)] == list(range(COUNT))
    await remoting.until(lambda: len(server.channels.open) == 1)
    stays.writer.close()


async def served_beside_floods(remoting, connections, requests):
    """Return how many requests of flooding connections are served before one request of an older connection."""
    served, is_asked = [], []

    def slow(services, request):
        end_s = time.thread_time() + 0.0005
        while time.thread_time() < end_s:
            pass
        if not is_asked:
            is_asked.append(healthy.send(ECHO, b"here", 1))
        served.append(request.opaque)
        return Response()

    _, address = await remoting.serve(table() | {SLOW: Route(SLOW, NoHeader, slow)})
    healthy = await Raw.connect(address)
    healthy.send(ECHO, b"first", 0)
    assert await healthy.read(1) == [(0, 0, b"first")]
    attackers = [await Raw.connect(address) for _ in range(connections)]
    for attacker in attackers:
        attacker.writer.write(slow_requests(requests))
    assert await healthy.read(1) == [(1, 0, b"here")]
    count = len(served)
    for attacker in attackers:
        assert [opaque for opaque, _, _ in await attacker.read(requests)] == list(range(requests))
        attacker.writer.close()
    healthy.writer.close()
    return count


async def test_simultaneous_requests_of_many_connections_do_not_add_up(remoting):
    """One connection's requests need little time of the event loop; those of 100 connections together need 0.6 s."""
    assert await served_beside_floods(remoting, connections=100, requests=12) <= 60


async def test_waiting_peer_that_reads_is_served_before_peers_that_do_not(remoting):
    served, body = [], bytes(400_000)
    answer = Route(SLOW, NoHeader, lambda services, request: served.append(request.channel) or Response(body=body))
    server, address = await remoting.serve(table() | {SLOW: answer})
    share = server.channels.share
    reader, deaf = await Raw.connect(address), await Raw.connect(address)
    deaf.writer.transport.pause_reading()
    deaf.writer.write(slow_requests(2))
    await remoting.until(lambda: len(served) == 2)
    deaf_channel = served[0]
    reader.send(ECHO, b"here", 1)
    assert await reader.read(1) == [(1, 0, b"here")]
    (reader_channel,) = server.channels.open - {deaf_channel}
    assert deaf_channel.is_costly
    assert deaf_channel.unread_bytes > 0 == reader_channel.unread_bytes
    share._left_s = 0.0  # this turn's share is used up
    for channel in (deaf_channel, reader_channel):
        channel.is_costly = True
        channel.data_received(slow_requests(1))
    share._next_turn()
    assert served[2] is reader_channel
    deaf.writer.close()
    reader.writer.close()

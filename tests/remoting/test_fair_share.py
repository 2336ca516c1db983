"""Connections whose requests take long beside others: both are served, none holds the loop."""

import time

from pocketmq.remoting.command import Response, encode_request
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.header import NoHeader
from tests.remoting.test_remoting_server import ECHO, Raw, table

SLOW = 90
COUNT = 40


def slow_table(served):
    def slow(services, request):
        end_s = time.monotonic() + 0.012
        while time.monotonic() < end_s:
            pass
        served.append(request.opaque)
        return Response(body=request.body)

    return table() | {SLOW: Route(SLOW, NoHeader, slow)}


def slow_requests(count, body=b""):
    return b"".join(b"".join(encode_request(SLOW, None, body, opaque)) for opaque in range(count))


async def served_when_answered(raw, served, opaque):
    """How many slow requests are served by the time that another connection has its answer."""
    raw.send(ECHO, b"here", opaque)
    assert await raw.read(1) == [(opaque, 0, b"here")]
    return len(served)


async def test_slow_requests_that_come_together_do_not_hold_the_loop(remoting):
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
        attacker.writer.write(slow_requests(COUNT))
    await served_when_answered(healthy, served, 1)
    for opaque in range(2, 8):
        before = len(served)
        assert await served_when_answered(healthy, served, opaque) - before <= 3
    for attacker in attackers:
        assert [opaque for opaque, _, _ in await attacker.read(COUNT)] == list(range(COUNT))
        attacker.writer.close()
    healthy.writer.close()


async def test_a_slow_connection_that_closes_while_it_waits_does_not_keep_others_from_their_turn(remoting):
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

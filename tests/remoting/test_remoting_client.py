"""RemotingClient against a server in this process."""

import asyncio
import contextlib
import socket

import pytest

from pocketmq.remoting import client as client_module
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import NoHeader

ECHO, HOLD, REFUSE, CLOSE = 1, 2, 3, 4


@pytest.fixture
async def served(remoting):
    """Yield (client, server, address, held requests by body)."""
    held = {}

    def hold(services, request):
        held[request.body] = Deferred()
        return held[request.body]

    def refuse(services, request):
        raise RemotingError(17, "no such thing")

    table = routes(
        Route(ECHO, NoHeader, lambda services, request: Response(body=request.body)),
        Route(HOLD, NoHeader, hold),
        Route(REFUSE, NoHeader, refuse),
        Route(CLOSE, NoHeader, lambda services, request: request.channel.close()),
    )
    server, address = await remoting.serve(table)
    return remoting.client(), server, address, held


async def test_answers_in_any_order_match_their_requests(served, remoting):
    client, _, address, held = served
    tasks = {body: asyncio.ensure_future(client.call(address, HOLD, None, body)) for body in (b"a", b"b", b"c")}
    await remoting.until(lambda: len(held) == 3)
    for body in (b"b", b"c", b"a"):
        held[body].complete(Response(body=b"for " + body))
    assert {body: (await task).body for body, task in tasks.items()} == {b"a": b"for a", b"b": b"for b", b"c": b"for c"}


async def test_one_connection_serves_all_requests_to_an_address(served):
    client, server, address, _ = served
    await asyncio.gather(*(client.call(address, ECHO, None, b"%d" % n) for n in range(50)))
    assert len(server.channels.open) == 1


async def test_missing_answer_is_a_timeout_and_a_late_one_is_dropped(served):
    client, _, address, held = served
    with pytest.raises(TimeoutError, match=r"code 2 within 0\.05 s"):
        await client.call(address, HOLD, None, b"x", 0.05)
    held[b"x"].complete(Response(body=b"late"))
    assert (await client.call(address, ECHO, None, b"next")).body == b"next"


async def test_call_raises_a_refusal_and_invoke_returns_it(served):
    client, _, address, _ = served
    with pytest.raises(RemotingError, match="no such thing") as refusal:
        await client.call(address, REFUSE)
    assert refusal.value.code == 17
    assert (await client.invoke(address, REFUSE)).code == 17


async def test_requests_in_flight_fail_when_the_connection_closes(served, remoting):
    client, _, address, held = served
    waiting = asyncio.ensure_future(client.invoke(address, HOLD, None, b"x"))
    await remoting.until(lambda: held)
    await client.invoke_oneway(address, CLOSE)
    with pytest.raises(ChannelClosed):
        await waiting


async def test_client_reconnects_after_a_broken_connection(served, remoting):
    client, server, address, _ = served
    await client.call(address, ECHO)
    broken = await client.channel(address)
    await client.invoke_oneway(address, CLOSE)
    await remoting.until(lambda: not broken.is_open)
    assert (await client.call(address, ECHO, None, b"again")).body == b"again"
    await remoting.until(lambda: len(server.channels.open) == 1)


async def test_refused_connection_is_an_os_error(served, remoting):
    client, server, address, _ = served
    await server.close()
    with pytest.raises(OSError):
        await client.call(address, ECHO)


async def test_connection_that_is_not_accepted_is_a_timeout(served, monkeypatch):
    client, *_ = served
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT_S", 0.05)
    with socket.socket() as deaf, contextlib.ExitStack() as others:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(3):  # fill its accept queue
            other = others.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(deaf.getsockname())
        with pytest.raises(TimeoutError):
            await client.call(f"127.0.0.1:{deaf.getsockname()[1]}", ECHO)


async def test_close_fails_waiting_requests(served, remoting):
    client, _, address, held = served
    waiting = asyncio.ensure_future(client.invoke(address, HOLD, None, b"x"))
    await remoting.until(lambda: held)
    await client.close()
    with pytest.raises(ChannelClosed):
        await waiting

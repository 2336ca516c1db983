"""LocalClient: requests to servers of the same process, with the behaviour of a connection over the network."""

import asyncio

import pytest

from pocketmq.remoting.channels import WRITE_BUFFER_MAX, ChannelClosed
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.header import NoHeader
from pocketmq.remoting.local_client import LocalClient
from pocketmq.remoting.signature import Sender
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn

ECHO, HOLD, REFUSE, CLOSE, ASK = 1, 2, 3, 4, 5


@pytest.fixture
async def served(remoting):
    """Yield (client, server, address, held requests by body)."""
    held = {}
    loop = asyncio.get_running_loop()

    def hold(services, request):
        held[request.body] = Deferred()
        return held[request.body]

    def refuse(services, request):
        raise RemotingError(17, "no such thing")

    def ask(services, request):
        """Answer with what the client answers."""
        answer = Deferred()
        asked = request.channel.invoke(ECHO, None, request.body)
        asked.add_done_callback(lambda done: answer.complete(Response(body=done.result().body)))
        return answer

    table = routes(
        Route(ECHO, NoHeader, lambda services, request: Response(body=request.body)),
        Route(HOLD, NoHeader, hold),
        Route(REFUSE, NoHeader, refuse),
        Route(CLOSE, NoHeader, lambda services, request: request.channel.close()),
        Route(ASK, NoHeader, ask),
    )
    server, address = await remoting.serve(table)
    of_client = routes(Route(ECHO, NoHeader, lambda services, request: Response(body=b"client: " + request.body)))
    client = LocalClient(Turn(loop), Timers(SystemClock(), loop), {address: server}, of_client).in_the_name_of(
        Sender(peer=("10.1.2.3", 4567)), None
    )
    yield client, server, address, held
    await client.close()


async def test_one_connection_without_a_socket_serves_all_requests(served):
    client, server, address, _ = served
    answers = await asyncio.gather(*(client.call(address, ECHO, None, b"%d" % n) for n in range(50)))
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(50)]
    (channel,) = server.channels.open
    assert channel.remote_address == "10.1.2.3:4567"
    assert (await client.channel(address)).remote_address == address


async def test_answers_in_any_order_match_their_requests(served, remoting):
    client, _, address, held = served
    tasks = {body: asyncio.ensure_future(client.call(address, HOLD, None, body)) for body in (b"a", b"b", b"c")}
    await remoting.until(lambda: len(held) == 3)
    for body in (b"b", b"c", b"a"):
        held[body].complete(Response(body=b"for " + body))
    assert {body: (await task).body for body, task in tasks.items()} == {b"a": b"for a", b"b": b"for b", b"c": b"for c"}


async def test_a_refusal_a_timeout_and_an_unknown_address(served):
    client, _, address, _ = served
    with pytest.raises(RemotingError, match="no such thing") as refused:
        await client.call(address, REFUSE)
    assert refused.value.code == 17
    with pytest.raises(TimeoutError, match=r"code 2 within 0\.05 s"):
        await client.call(address, HOLD, None, b"x", 0.05)
    with pytest.raises(ConnectionRefusedError, match="elsewhere:1 is not served by this process"):
        await client.call("elsewhere:1", ECHO)


async def test_servers_send_requests_to_the_client(served):
    client, _, address, _ = served
    assert (await client.call(address, ASK, None, b"hello")).body == b"client: hello"


async def test_a_connection_closed_by_the_server_is_opened_again(served):
    client, server, address, _ = served
    with pytest.raises(ChannelClosed):
        await client.call(address, CLOSE)
    assert (await client.call(address, ECHO, None, b"again")).body == b"again"
    assert len(server.channels.open) == 1


async def test_a_closed_client_ends_its_connection_at_the_server(served, remoting):
    client, server, address, held = served
    waiting = asyncio.ensure_future(client.call(address, HOLD, None, b"x"))
    await remoting.until(lambda: held)
    (channel,) = server.channels.open
    ended = []
    channel.on_close(ended.append)
    await client.close()
    with pytest.raises(ChannelClosed):
        await waiting
    await remoting.until(lambda: ended)
    assert channel.is_closed_by_peer
    assert not server.channels.open


async def test_a_stopped_server_refuses(served):
    client, server, address, _ = served
    await client.call(address, ECHO)
    await server.close()
    with pytest.raises(ConnectionRefusedError):
        await client.call(address, ECHO)


async def test_a_client_that_does_not_read_pauses_its_server(served, remoting):
    client, server, address, _ = served
    near = await client.channel(address)
    body = b"x" * (WRITE_BUFFER_MAX + 1)
    near.suspend_reading(60.0)
    answer = asyncio.ensure_future(client.call(address, ECHO, None, body))
    await remoting.until(lambda: server.channels.open)
    (far,) = server.channels.open
    await remoting.until(lambda: not far.is_writable)
    assert not answer.done()
    near._go_on_reading(~0)
    assert (await answer).body == body
    assert far.is_writable

"""Servers and clients in this process, on free ports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

from pocketmq.broker.lane.sockets import LaneSockets
from pocketmq.lane import compiled_lane
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.server import RemotingServer
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from tests.patience import PATIENCE_S


async def until(condition: Callable[[], object], deadline_s: float = PATIENCE_S) -> None:
    """Wait for a condition, checked in each loop turn; fail after the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end, f"condition not met after {deadline_s} s"
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def in_process(*, in_lane: bool = False) -> AsyncIterator[SimpleNamespace]:
    """`await serve(table, services, ...)` -> (server, address); `client(table)` -> RemotingClient; closed at the end.

    `in_lane`: plain connections of servers are read and written by the compiled lane.
    """
    loop = asyncio.get_running_loop()
    timers, made = Timers(SystemClock(), loop), []

    async def serve(table, services=None, port=0, tls=None, **options):
        turn = Turn(loop)
        server = RemotingServer(services, table, Channels(turn, timers, is_server=True, **options), tls)
        if in_lane:
            sockets = compiled_lane()[0].Sockets
            server.channels.use(LaneSockets(lambda sockets, now_s: sockets.next(), sockets, turn, timers.clock))
        made.append(server)
        port = await server.listen("127.0.0.1", port)
        return server, f"127.0.0.1:{port}"

    def client(table=None, services=None, tls=None):
        made.append(RemotingClient(Turn(loop), timers, table, services, tls))
        return made[-1]

    yield SimpleNamespace(serve=serve, client=client, until=until)
    for one in reversed(made):
        await one.close()

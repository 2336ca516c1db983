"""100,000 hostile frames: no crash, no hang, a healthy client beside them unharmed.

A table of routes to attack is a row of TABLES: its services, its routes, and a question with its answer's code for the
healthy client.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import uvloop
from fuzzing import attack, hostile_frames
from in_process import in_process

from namesrv.config import NamesrvConfig
from namesrv.handlers import ROUTES, NamesrvServices
from namesrv.kv_config import KVConfigManager
from namesrv.route_info import RouteInfoManager
from remoting.codes import RequestCode
from remoting.dispatch import Route
from remoting.header import CommandHeader, NoHeader
from runtime.clock import SystemClock

FRAMES = 100_000
LATENCY_MAX_S = 2.0


class Target(NamedTuple):
    """What is attacked."""

    services: Callable[[], Any]
    table: dict[int, Route]
    question: tuple[int, CommandHeader]


def namesrv_services() -> NamesrvServices:
    return NamesrvServices(NamesrvConfig(), RouteInfoManager(SystemClock()), KVConfigManager(None), lambda changes: None)


TABLES = {
    "namesrv": Target(namesrv_services, ROUTES, (RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader())),
}


class Failures(logging.Handler):
    """What handlers raised without meaning to, once each."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.seen.add(f"{record.getMessage().split(' from ')[0]}: {error!r}")


@pytest.fixture
def failures():
    handler, logger = Failures(), logging.getLogger()
    level = logger.level
    others, logger.handlers[:] = logger.handlers[:], [handler]
    logger.setLevel(logging.ERROR)
    yield handler.seen
    logger.handlers[:] = others
    logger.setLevel(level)


async def serve_under_attack(target: Target) -> None:
    async with in_process() as parts:
        server, address = await parts.serve(target.table, target.services())
        client, loop = parts.client(), asyncio.get_running_loop()
        attacking = asyncio.ensure_future(attack(address, hostile_frames(seed=4711, codes=list(target.table)), FRAMES))
        asked, slowest_s = 0, 0.0
        while not attacking.done():
            began = loop.time()
            answer = await client.call(address, *target.question)
            slowest_s = max(slowest_s, loop.time() - began)
            asked += 1
            assert answer.body
            await asyncio.wait({attacking}, timeout=0.01)
        await attacking
        await parts.until(lambda: len(server.channels.open) == 1)  # the healthy client's own
    assert asked > 100
    assert slowest_s < LATENCY_MAX_S


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.timeout(180)
def test_hostile_frames_harm_nobody_else(name, failures):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_under_attack(TABLES[name]))
    assert failures == set()

"""Tens of thousands of hostile frames cause no crash or hang, and a healthy client of the same server is served.

Each attacked server is a row of TARGETS: its factory, its request codes, and a request for the healthy client.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

import pytest
import uvloop

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.handlers import ROUTES as BROKER_ROUTES
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.handlers import ROUTES as NAMESRV_ROUTES
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.remoting.fuzzing import attack, hostile_frames
from tests.remoting.in_process import in_process
from tests.support.amount import cases

FRAMES = cases(12_000, 100_000)
CPU_MAX_S = 1.0
"""Limit of the CPU time of the event loop from a request to its answer."""
SLOW_S = 3600
"""The servers close no slow or idle connection: on a busy machine the attackers themselves are slow."""
PATIENT = {"slow_connection_seconds": SLOW_S, "server_channel_max_idle_time_seconds": SLOW_S}


class Target(NamedTuple):
    """Attacked server: factory, served codes, and a request whose answer has a body."""

    make: Callable[[], NameServer | Broker]
    codes: Collection[int]
    question: RequestCode


def namesrv() -> NameServer:
    return NameServer(NamesrvConfig(listen_port=0, kv_config_path="", **PATIENT))


def broker() -> Broker:
    store = MessageStoreConfig("/store", mapped_file_size_commit_log=8 << 20, max_hash_slot_num=1000, max_index_num=5000)
    config = BrokerConfig(namesrv_addr=None, broker_name="b", listen_port=0, **PATIENT)
    return Broker(config, store, MemoryDisk())


TARGETS = {
    "namesrv": Target(namesrv, NAMESRV_ROUTES, RequestCode.GET_BROKER_CLUSTER_INFO),
    "broker": Target(broker, BROKER_ROUTES, RequestCode.GET_BROKER_RUNTIME_INFO),
}


class Failures(logging.Handler):
    """Log handler that collects each distinct unexpected error once."""

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


@contextlib.asynccontextmanager
async def running(server):
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def serve_under_attack(target: Target) -> None:
    server = target.make()
    async with running(server) as address, in_process() as parts:
        client = parts.client()
        frames = hostile_frames(seed=4711, codes=list(target.codes))
        attacking = asyncio.ensure_future(attack(address, frames, FRAMES // len(TARGETS)))
        asked, slowest_s = 0, 0.0
        while not attacking.done():
            began_s = time.thread_time()
            answer = await client.call(address, target.question)
            slowest_s = max(slowest_s, time.thread_time() - began_s)
            asked += 1
            assert answer.body
        await attacking
        await parts.until(lambda: len(server._server.channels.open) == 1)  # the healthy client's
    assert asked > 100
    assert slowest_s < CPU_MAX_S


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(180)
def test_hostile_frames_do_not_affect_a_healthy_client(name, failures):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_under_attack(TARGETS[name]))
    assert failures == set()

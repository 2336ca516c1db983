"""Whole brokers and name servers in the test's event loop, on free ports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.proxy.config import GrpcConfig
from pocketmq.remoting.bodies import TopicRouteData, decode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import Route
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, GetRouteInfoRequestHeader
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk
from tests.patience import PATIENCE_S

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_hash_slot_num": 100, "max_index_num": 1000}


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail after a deadline."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def running_namesrv(**config: Any) -> AsyncIterator[NameServer]:
    server = NameServer(NamesrvConfig(listen_port=0, kv_config_path="", **config))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def running_broker(
    *name_servers: NameServer | str,
    disk: Disk | None = None,
    clock: Clock | None = None,
    store: dict[str, Any] | None = None,
    tls: TlsConfig | None = None,
    grpc_config: GrpcConfig | None = None,
    **config: Any,
) -> AsyncIterator[Broker]:
    """Run a broker registered with `name_servers` (servers or addresses), in memory unless a disk is given."""
    addresses = [one if isinstance(one, str) else f"127.0.0.1:{one.port}" for one in name_servers]
    settings = {"broker_name": "b", "listen_port": 0, "namesrv_addr": ";".join(addresses) or None, **config}
    store_config = MessageStoreConfig(**{"store_path_root_dir": "/store", **SMALL, **(store or {})})
    broker = Broker(BrokerConfig(**settings), store_config, disk or MemoryDisk(), clock, tls, grpc_config=grpc_config)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


@contextlib.asynccontextmanager
async def connected(table: dict[int, Route] | None = None) -> AsyncIterator[RemotingClient]:
    """Run a client; `table` holds its routes for requests from brokers."""
    loop = asyncio.get_running_loop()
    client = RemotingClient(Turn(loop), Timers(SystemClock(), loop), table)
    try:
        yield client
    finally:
        await client.close()


async def ask(
    client: RemotingClient, server: Broker | NameServer, code: int, header: CommandHeader | None = None, body: bytes = b""
) -> RemotingCommand:
    return await client.invoke(f"127.0.0.1:{server.port}", code, header, body, 15.0)


async def create_topic(client: RemotingClient, broker: Broker, topic: str, queue_nums: int = 4) -> RemotingCommand:
    header = CreateTopicRequestHeader(topic, "TBW102", queue_nums, queue_nums, 6, "SINGLE_TAG")
    return await ask(client, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def route(client: RemotingClient, server: NameServer, topic: str) -> TopicRouteData | None:
    """Return the topic's route at a name server, or None."""
    answer = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
    return None if answer.code else decode_body(TopicRouteData, answer.body)

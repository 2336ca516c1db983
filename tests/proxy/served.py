"""Fronts in the test's event loop: a broker's own one, and `mqproxy` before the same broker."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.api import groups, topics
from pocketmq.admin.api.client import AdminClient
from pocketmq.broker.broker import Broker
from pocketmq.client.access import PLAIN, Access
from pocketmq.proxy.cluster_proxy import ClusterProxy
from pocketmq.proxy.config import GrpcConfig, ProxyConfig
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.remoting.tls import TlsConfig
from tests.broker.running import running_broker, running_namesrv
from tests.proxy.grpc_client import GrpcClient

BROKER = "b"
TOPICS = {"normal": None, "fifo": "FIFO", "delay": "DELAY", "transaction": "TRANSACTION", "mixed": "MIXED", "tags": None}
"""Topics of every front, with the type of messages that each takes."""
ORDERED = "ordered"
"""Group of every front that consumes in order."""


@dataclass
class Served:
    """A front, the broker behind it, and an administrator of the broker."""

    port: int
    broker: Broker
    name_server: str
    admin: AdminClient

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    def client(self, client_id: str = "client", **how: Any) -> GrpcClient:
        """Return a client; enter it."""
        return GrpcClient(self.port, client_id, **how)

    async def create_topic(self, name: str, kind: str | None = None, perm: int = 6, reads: int = 4, writes: int = 4) -> None:
        attributes = None if kind is None else f"+message.type={kind}"
        await topics.create_topic(self.admin, self.broker_address, TopicConfig(name, reads, writes, perm), attributes)

    async def create_group(self, name: str, **fields: Any) -> None:
        await groups.create_group(self.admin, self.broker_address, SubscriptionGroupConfig(name, **fields))


@contextlib.asynccontextmanager
async def running_front(
    grpc: dict[str, Any] | None = None, tls: TlsConfig | None = None, access: Access = PLAIN, **broker: Any
) -> AsyncIterator[Served]:
    """Run a name server and a broker with a front; `grpc` are settings of the front, `broker` of the broker.

    `access` is the administrator's.
    """
    config = GrpcConfig(grpc_server_port=0, **(grpc or {}))
    settings = {"recall_message_enable": True, "broker_name": BROKER, **broker}
    async with (
        running_namesrv() as namesrv,
        running_broker(namesrv, tls=tls, grpc_config=config, **settings) as one,
        AdminClient([f"127.0.0.1:{namesrv.port}"], access) as admin,
    ):
        served = Served(int(one.grpc_line.strip().rpartition(":")[2]), one, f"127.0.0.1:{namesrv.port}", admin)
        for name, kind in TOPICS.items():
            await served.create_topic(name, kind)
        await served.create_group(ORDERED, consume_message_orderly=True)
        yield served


@contextlib.asynccontextmanager
async def running_proxy(served: Served, tls: TlsConfig | None = None, **config: Any) -> AsyncIterator[Served]:
    """Run `mqproxy` before the broker of another front."""
    settings = {"grpc_server_port": 0, "namesrv_addr": served.name_server, **config}
    proxy = ClusterProxy(ProxyConfig(**settings), tls or TlsConfig())
    try:
        await proxy.start()
        yield Served(proxy.port, served.broker, served.name_server, served.admin)
    finally:
        await proxy.stop()

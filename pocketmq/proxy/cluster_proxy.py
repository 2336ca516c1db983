"""ClusterProxy: the front as a process of its own, over all brokers that the name servers know."""

import asyncio
import os
from pathlib import Path

from pocketmq.client.client_instance import addresses_of
from pocketmq.proxy.clients.asked import ROUTES
from pocketmq.proxy.clients.upstream import ClusterUpstream
from pocketmq.proxy.config import ProxyConfig
from pocketmq.proxy.front import Front
from pocketmq.proxy.plain_accounts import signers_of_file
from pocketmq.proxy.server import GrpcServer
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.fair_share import FairShare
from pocketmq.remoting.tls import TlsConfig, client_tls
from pocketmq.runtime.clock import SystemClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.turn import Turn
from pocketmq.store.format.delay_level import DelayLevels

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


class ClusterProxy:
    """The process; `port` is set by `start`."""

    def __init__(self, config: ProxyConfig, tls: TlsConfig) -> None:
        self.port = 0
        self.config, self._tls = config, tls
        self.server: GrpcServer
        self._is_made = False

    async def start(self) -> None:
        """Listen. Raises StartError."""
        config, loop = self.config, asyncio.get_running_loop()
        self._tls.read_config_file()
        try:
            addresses = addresses_of(config.namesrv_addr or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER)
            DelayLevels(config.message_delay_level)
        except ValueError as error:
            raise StartError(f"namesrvAddr or messageDelayLevel: {error}") from None
        tls = client_tls(self._tls) if config.use_tls else None
        timers = Timers(SystemClock(), loop)
        brokers = RemotingClient(Turn(loop), timers, ROUTES, tls=tls)
        signer_of = signers_of_file(_accounts_file()) if config.acl_enable else None
        front = Front(config, ClusterUpstream(brokers, addresses), signer_of)
        self.server = GrpcServer(front, config, self._tls, timers, FairShare(timers))
        self._is_made = True
        self.port = await self.server.start(config.bind_address)

    async def stop(self) -> None:
        """Stop serving, and unregister all clients."""
        if self._is_made:
            await self.server.stop()


def _accounts_file() -> Path:
    home = os.environ.get("RMQ_PROXY_HOME") or os.environ.get("ROCKETMQ_HOME") or "."
    return Path(home, "conf", "plain_acl.yml")

"""NameServer: construction, start and stop."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from pocketmq.namesrv.config import UPDATE_RULES, NamesrvConfig, check, kept_file
from pocketmq.namesrv.handlers import ADMIN_CODES, REGISTER_CODES, ROUTES, NamesrvServices
from pocketmq.namesrv.kv_config import KVConfigManager
from pocketmq.namesrv.route_info import RouteInfoManager
from pocketmq.remoting.allow_list import restricted
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.route import NotifyMinBrokerIdChangeRequestHeader
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.tls import TLS_FILES_S, TlsConfig, TlsMode, client_tls, server_tls
from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.runtime.config_updates import ConfigUpdates
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.lifecycle import StartError, listening
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.turn import Turn

log = logging.getLogger("namesrv")

UNDER_WAY_MAX: Final = 256
TIMEOUT_S: Final = 1.0


class NameServer:
    """A name server. `port` is set by `start`."""

    def __init__(
        self, config: NamesrvConfig, clock: Clock | None = None, tls_config: TlsConfig | None = None,
        more_configs: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """`more_configs`: further configs whose keys are shown to tools (GET_NAMESRV_CONFIG)."""
        self.config = config
        self._tls_config = tls_config or TlsConfig()
        self._more_configs = more_configs
        self.port = 0
        self._clock = clock or SystemClock()
        self.routes = RouteInfoManager(self._clock, config)
        self._server: RemotingServer | None = None
        self._notifier: MinBrokerNotifier | None = None
        self._housekeeping: list[Timer] = []
        self._writer = ThreadPoolExecutor(1, "config-writer")
        self._tables = TableWriter(self._writer)

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return 0 if self._server is None else len(self._server.channels.open)

    async def start(self) -> None:
        """Load the key-value config and listen. Raises StartError."""
        config = self.config
        check(config)
        kv_config = KVConfigManager(config, self._tables)
        try:
            kv_config.load()
        except (OSError, ValueError) as error:
            raise StartError(f"kvConfigPath: {reason(error)}") from error
        self._tls_config.read_config_file()
        tls = server_tls(self._tls_config)
        loop = asyncio.get_running_loop()
        timers = Timers(self._clock, loop)
        config_path = Path(config.config_store_path) if config.config_store_path else kept_file(config)
        updates = ConfigUpdates([config, self._tls_config, *self._more_configs], UPDATE_RULES, config_path, self._tables)
        updates.applied = self._config_changed
        services = NamesrvServices(config, self.routes, kv_config, updates)
        idle_s = config.server_channel_max_idle_time_seconds
        table = restricted(ROUTES, ADMIN_CODES, "adminAllow", config.admin_allow, log)
        table = restricted(table, REGISTER_CODES, "registerAllow", config.register_allow, log)
        # Its connection may hang; when it works again, the broker registers anew at once and learns that it is superseded.
        self.routes.superseded.subscribe(lambda channel: loop.call_soon(channel.close))
        turn = Turn(loop)
        self._server = RemotingServer(services, table, Channels(turn, timers, idle_s, limits=config, is_server=True), tls)
        if config.notify_min_broker_id_changed:
            of_client = client_tls(self._tls_config) if self._tls_config.mode is TlsMode.ENFORCING else None
            self._notifier = MinBrokerNotifier(RemotingClient(turn, timers, tls=of_client))
            self.routes.min_broker_id_changed.subscribe(self._notifier.notify)
        with listening(config.bind_address, config.listen_port, "listenPort"):
            self.port = await self._server.listen(config.bind_address, config.listen_port)
        self._housekeeping = [timers.every(config.scan_not_active_broker_interval / 1000, self.expire)]
        if tls is not None:
            self._housekeeping.append(timers.every(TLS_FILES_S, tls.certificates.reload))

    async def stop(self) -> None:
        """Close all connections. May be called without `start`."""
        for timer in self._housekeeping:
            timer.cancel()
        await self._tables.drain()
        if self._notifier is not None:
            await self._notifier.stop()
        if self._server is not None:
            await self._server.close()
        await self._tables.drain()
        self._writer.shutdown()

    def expire(self) -> None:
        """Remove silent brokers and close their connections."""
        for channel in self.routes.expire():
            channel.close()

    def _config_changed(self, values: dict[str, Any], prepared: None) -> None:
        assert self._server is not None
        self._server.channels.idle_s = self.config.server_channel_max_idle_time_seconds


class MinBrokerNotifier:
    """Notifies brokers that the smallest id of their broker name has changed (NOTIFY_MIN_BROKER_ID_CHANGE).

    Brokers also ask for it every second, so a notification is sent only once. It has a connection of its own, which is
    closed afterwards, because the address is whatever a broker has registered. Notifications beyond UNDER_WAY_MAX are not
    sent.
    """

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._failures = RefusalLog(log)

    def notify(self, change: NotifyMinBrokerIdChangeRequestHeader, addresses: Iterable[str]) -> None:
        """Notify the brokers at `addresses`; an older notification to one of them that is still under way is cancelled."""
        log.info("broker name %s: the smallest id is now %d", change.broker_name, change.min_broker_id)
        for address in addresses:
            if (older := self._under_way.pop(address, None)) is not None:
                older.cancel()
            if len(self._under_way) < UNDER_WAY_MAX:
                task = self._under_way[address] = asyncio.ensure_future(self._send(address, change))
                task.add_done_callback(partial(self._sent, address))

    async def _send(self, address: str, header: NotifyMinBrokerIdChangeRequestHeader) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._client.invoke(address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header, timeout_s=TIMEOUT_S)
        except (OSError, TimeoutError, ValueError) as error:
            why = f"broker {address} cannot be notified of the smallest broker id ({reason(error)}); it will query it"
            self._failures.refused(address, why)

    def _sent(self, address: str, task: "asyncio.Task[None]") -> None:
        if self._under_way.get(address) is task:
            del self._under_way[address]
            self._client.disconnect(address)

    async def stop(self) -> None:
        """Cancel the notifications under way and close all connections."""
        for task in tuple(self._under_way.values()):
            task.cancel()
        await self._client.close()

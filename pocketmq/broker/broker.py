"""The broker process: starts the parts that `broker.wiring` builds, and stops them.

Order matters in both directions. At start the ports open only when a send would succeed, and the broker registers with the
name servers last. At stop it unregisters first, then closes the connections of clients, and closes the store when nothing
writes to it any more.
"""

import asyncio
import logging
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pocketmq.broker import wiring
from pocketmq.broker.access.access_table import needs_admin
from pocketmq.broker.access.access_validator import access_validator, guard
from pocketmq.broker.config import BrokerConfig, check
from pocketmq.broker.config_updates import KEPT_FILE
from pocketmq.broker.ha.slave_role import routes_of_slave
from pocketmq.broker.handlers import ROUTES
from pocketmq.broker.lane import use_lane
from pocketmq.broker.services import Services
from pocketmq.broker.startup.ports import reserve_ports, share
from pocketmq.broker.startup.priority import run_in_real_time
from pocketmq.broker.stats.stats import SAMPLE_STEP_S
from pocketmq.broker.wiring.measuring import samplers
from pocketmq.lane import LaneMissing, compiled_lane
from pocketmq.proxy.config import GrpcConfig
from pocketmq.remoting.allow_list import restricted
from pocketmq.remoting.channels import Channels
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.limits import DESCRIPTORS_KEPT
from pocketmq.remoting.server import RemotingServer
from pocketmq.remoting.tls import TLS_FILES_S, ReloadingContext, ServerTls, TlsConfig, client_tls, server_tls
from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.lifecycle import StartError, listening
from pocketmq.runtime.table_writer import TableWriter
from pocketmq.runtime.timers import Timer
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import NO_ROOM, Disk, StoreError, no_room
from pocketmq.store.disk.file_disk import FileDisk

if TYPE_CHECKING:
    from pocketmq.proxy.server import GrpcServer

log = logging.getLogger("broker")

CLIENT_SCAN_S: Final = 10.0
FILTERS_S: Final = 10.0
ACL_FILES_S: Final = 1.0
"""Interval at which the ACL files are checked for changes."""
FLUSH_POLL_S: Final = 0.005
PULL_AGAIN_S: Final = 0.1
"""Time allowed for a client to send its next pull after the answer to its held pull: a round trip."""
FLUSH_TIMEOUT_S: Final = 10.0
VIP_PORT_REFUSED: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))


class Broker:
    """One broker. `port`, `fast_port` (None: off) and `services` are set by `start`."""

    def __init__(
        self, config: BrokerConfig, store_config: MessageStoreConfig, disk: Disk | None = None, clock: Clock | None = None,
        tls_config: TlsConfig | None = None, config_file: Path | None = None, more_configs: Sequence[Any] = (),
        grpc_config: GrpcConfig | None = None,
    ) -> None:  # fmt: skip
        """`config_file`: where changes of the config are written. None: `config/broker.properties` of a store on disk.
        `more_configs`: further configs whose keys are shown to tools. Without `grpc_config` there is no gRPC port."""
        self.config = config
        self.store_config = store_config
        self.port = 0
        self.fast_port: int | None = None
        self.services: Services
        self._tls_config = tls_config or TlsConfig()
        config.settle_tls(self._tls_config.mode)
        self._tls: ServerTls | None = None
        self._name_server_tls: ReloadingContext | None = None
        self._master_tls: ReloadingContext | None = None
        self._clock = clock or SystemClock()
        self._disk = disk or FileDisk()
        self._config_file = config_file
        self.grpc_config = grpc_config or GrpcConfig()
        self._front: GrpcServer | None = None
        self._more_configs = (self._tls_config, self.grpc_config, *more_configs)
        if config_file is None and isinstance(self._disk, FileDisk):
            self._config_file = Path(store_config.store_path(KEPT_FILE))
        self._server: RemotingServer | None = None
        self._is_built = self._is_serving = False
        self._housekeeping: list[Timer] = []
        # Writes files for which the loop must not wait. One thread, so that they are written in the order given.
        self._writer = ThreadPoolExecutor(1, "config-writer")
        self._tables = TableWriter(self._writer)

    @property
    def address(self) -> str:
        """The advertised address `host:port`."""
        return self.services.broker_address

    @property
    def connection_count(self) -> int:
        """Number of open connections of clients."""
        return 0 if self._server is None else len(self._server.channels.open)

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, listen, register. Raises StartError with a message that says what to correct."""
        config = self.config
        check(config, self.store_config)
        self._load_certificates()
        with listening(config.bind_address, config.listen_port, "listenPort"):
            reserved = reserve_ports(config.bind_address, config.listen_port)
        try:
            port = int(reserved[0].getsockname()[1])
            services = self._build(port)
            services.store.start()
            await self._listen(services, reserved)
            await self._listen_for_slaves(services)
            await self._take_over(services)
        finally:
            for held in reserved:
                held.close()
        self._is_serving = True
        wiring.start(services)
        if services.ha_client is not None:
            services.ha_client.start()
        self._keep_house(services)
        if config.real_time_priority:
            run_in_real_time(config.real_time_priority)
        await services.registration.start()
        await self._serve_grpc(services)

    async def _serve_grpc(self, services: Services) -> None:
        """Open the port for gRPC clients if it is configured. Raises StartError."""
        if self.grpc_config.grpc_server_port is None or self.store_config.is_slave or self._server is None:
            return
        try:
            from pocketmq.broker.grpc_front import grpc_server
        except ImportError as missing:
            raise StartError("grpcServerPort: protobuf is not installed: pip install 'pocketmq[grpc]'") from missing
        self._front = grpc_server(services, self._server, self.grpc_config, self._tls_config)
        await self._front.start(self.config.bind_address)

    @property
    def grpc_line(self) -> str:
        """The line that names the gRPC port; empty without one."""
        return "" if self._front is None else f"gRPC: {self.address.rpartition(':')[0]}:{self._front.port}\n"

    def _build(self, port: int) -> Services:
        with self._start_errors():
            self.services = wiring.build(
                self.config, self.store_config, self._disk, self._clock, asyncio.get_running_loop(),
                port=port, tables=self._tables, name_server_tls=self._name_server_tls, master_tls=self._master_tls,
                config_file=self._config_file, more_configs=self._more_configs,
            )  # fmt: skip
            self._is_built = True
            if self.services.pre_online is None:
                wiring.recover(self.services)
        return self.services

    @contextmanager
    def _start_errors(self) -> Iterator[None]:
        """Raise StartError for the errors of a start."""
        try:
            yield
        except (StoreError, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                path = error.filename or self.store_config.store_path_root_dir
                raise StartError(no_room(self._disk, path, "files needed to start", error)) from error
            raise StartError(self._error_text(error)) from error

    def _error_text(self, error: Exception) -> str:
        if not isinstance(error, OSError) or error.filename is None:
            return reason(error)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            return f"storePathRootDir={self.store_config.store_path_root_dir}: {error.filename} is a file, expected a folder"
        return f"{reason(error)} (storePathRootDir={self.store_config.store_path_root_dir})"

    async def _take_over(self, services: Services) -> None:
        """Take over the progress of a slave that acted as master; until then no message is stored."""
        if services.pre_online is None:
            return
        services.store.commit_log.refuse("pre-online", "the broker is not online yet: it takes over its slaves' progress")
        await services.pre_online.run()
        with self._start_errors():
            wiring.recover(services)
        services.store.commit_log.refuse("pre-online", None)

    def _load_certificates(self) -> None:
        self._tls_config.read_config_file()
        self._tls = server_tls(self._tls_config)
        if self.config.use_tls:
            self._name_server_tls = client_tls(self._tls_config)
        if self.config.ha_use_tls and self.store_config.is_slave:
            self._master_tls = client_tls(self._tls_config)

    async def _listen(self, services: Services, reserved: list[socket.socket]) -> None:
        config, port = self.config, int(reserved[0].getsockname()[1])
        idle_s = config.server_channel_max_idle_time_seconds
        table = routes_of_slave(ROUTES) if self.store_config.is_slave else ROUTES
        validator = access_validator(services)
        table = table if validator is None else guard(table, validator)
        table = restricted(table, filter(needs_admin, ROUTES), "adminAllow", config.admin_allow, log)
        kept = DESCRIPTORS_KEPT + services.store.open_files.count_max
        size_max = config.frame_size(self.store_config.max_message_size)
        turn, timers = services.turn, services.timers
        channels = Channels(turn, timers, idle_s, limits=config, is_server=True, frame_size_max=size_max)
        self._server, services.channels = RemotingServer(services, table, channels, self._tls, kept), channels
        if validator is None and not self.store_config.is_slave:
            self._use_lane(services, size_max)
        share(reserved)
        with listening(config.bind_address, port, "listenPort"):
            self.port = await self._server.listen(config.bind_address, port)
        if len(reserved) > 1:
            # Another process that binds the same port may have begun to listen before this broker.
            with suppress(OSError):
                self.fast_port = await self._server.listen(config.bind_address, port - 2, VIP_PORT_REFUSED)
        if self.fast_port is None:
            log.warning("port %d (listenPort - 2) is not available: the VIP channel is off", port - 2)

    def _use_lane(self, services: Services, frame_size_max: int) -> None:
        """Serve ordinary sends in the compiled lane, if there is one. Raises StartError."""
        try:
            lane, state = compiled_lane()
        except (LaneMissing, ValueError) as error:
            raise StartError(str(error)) from None
        log.info("compiled lane: %s", state)
        if lane is not None and self._server is not None:
            use_lane(self._server.channels, services, lane, frame_size_max)

    async def _listen_for_slaves(self, services: Services) -> None:
        """Open the port for slaves. If it is the default port and in use already, no port for slaves is advertised."""
        if services.ha is None:
            return
        set_port, tls = self.store_config.ha_listen_port, self._ha_tls()
        port = set_port or (self.port + 1 if self.config.listen_port else 0)
        try:
            await services.ha.start(self.config.bind_address, port, tls)
        except StartError as error:
            if set_port:
                raise
            log.warning("no slave can be served: %s", error)
        services.registration.serve_slaves_at(services.ha.port)

    def _ha_tls(self) -> ServerTls | None:
        """Return the TLS settings of the port for slaves. Raises StartError."""
        if self._tls is None:
            if self.config.ha_use_tls:
                raise StartError("haUseTLS=true: tls.server.certPath and tls.server.keyPath must name a certificate")
            return None
        return ServerTls(bool(self.config.ha_use_tls), self._tls.certificates, "haUseTLS is true")

    def _keep_house(self, services: Services) -> None:
        every, slices = services.timers.every, services.slices
        offsets_s = self.config.flush_consumer_offset_interval / 1000
        self._housekeeping = [
            every(offsets_s, self._persist_offsets),
            every(FILTERS_S, lambda: services.filters.persist_in(self._writer)),
            every(self.store_config.clean_resource_interval / 1000, self._clean),
            every(CLIENT_SCAN_S, services.clients.scan),
            every(CLIENT_SCAN_S, services.locks.expire),
            every(SAMPLE_STEP_S, lambda: slices.start(services.stats.sampling())),
            every(1.0, services.stats.sample_tps),
            *samplers(services),
        ]
        if not self.store_config.is_slave:
            self._housekeeping += [
                every(self.store_config.flush_delay_offset_interval / 1000, self._persist_delays),
                every(self.store_config.timer_flush_interval_ms / 1000, lambda: services.delays.mark_in(self._writer)),
            ]
        if (acting_master := services.acting_master) is not None:
            self._housekeeping.append(every(1.0, lambda: acting_master.persist_in(self._writer)))
        for certificates in (None if self._tls is None else self._tls.certificates, self._name_server_tls, self._master_tls):
            if certificates is not None:
                self._housekeeping.append(every(TLS_FILES_S, certificates.reload))
        if services.permissions is not None:
            self._housekeeping.append(every(ACL_FILES_S, services.permissions.reload))

    def _persist_offsets(self) -> None:
        if not self.store_config.is_slave:
            self.services.transactions.persist()
        self.services.offsets.persist_in(self._writer)
        self.services.pops.orders.persist_in(self._writer)

    def _persist_delays(self) -> None:
        # Cancelled messages first: they are not looked up any more once the progress on the disk has passed them.
        self.services.delay_cancelled.persist_in(self._writer)
        self.services.schedule.persist_in(self._writer)

    def _clean(self) -> None:
        try:
            self.services.store.clean()
        except OSError:
            log.exception("cannot clean the store; trying again")
        # Records that had no room in their queues are dispatched at the end of a turn, and no other turn may come for long.
        self.services.turn.arm()

    # --- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop cleanly. Harmless when the broker is not started, or only partly."""
        for timer in self._housekeeping:
            timer.cancel()
        if self._front is not None:
            await self._front.stop()
        if self._is_serving:
            await self.services.registration.stop()
            if self.services.acting_master is not None:
                await self.services.acting_master.stop()
            wiring.stop(self.services)
            if self.services.ha is not None:
                self.services.ha.begin_stop()
            await self._release_pulls()
            await self._flush()
            await self._tables.drain()
        if self._is_built:
            if self.services.slave_synchronize is not None:
                self.services.slave_synchronize.stop()
            if self.services.ha_client is not None:
                await self.services.ha_client.stop()
            if self.services.ha is not None:
                self.services.ha.stop()
                if self.services.ha.has_successor:  # its slaves may have sent consumers back here until now
                    await asyncio.sleep(PULL_AGAIN_S)
            await self.services.client.close()
        if self._server is not None:
            await self._server.close()
        await self._tables.drain()
        self._writer.shutdown()
        if self._is_serving:
            wiring.close(self.services)
        elif self._is_built:
            self.services.store.shutdown()
        self._is_built = self._is_serving = False

    async def _release_pulls(self) -> None:
        """Answer held pulls before their connections close, and refuse the pulls that follow at once."""
        if self.services.holds.stop():
            self.services.turn.run()
            await asyncio.sleep(PULL_AGAIN_S)

    async def _flush(self) -> None:
        """Sync the log: senders that wait for it are answered, and delay offsets may be written."""
        store, clock = self.services.store, self._clock
        self.services.turn.run()
        end_offset = store.max_physical_offset
        store.request_sync(end_offset)
        deadline_s = clock.monotonic() + FLUSH_TIMEOUT_S
        while store.flushed_offset < end_offset and store.writeable and clock.monotonic() < deadline_s:
            await asyncio.sleep(FLUSH_POLL_S)
        await asyncio.sleep(FLUSH_POLL_S)  # the flush thread reports through the loop
        self.services.gate.close()
        self.services.turn.run()

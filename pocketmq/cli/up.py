"""`pocketmq up`: a name server and a broker in one process, for development; with --cluster, a process for each server."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import click

from pocketmq import proxy
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.config_updates import KEPT_FILE
from pocketmq.broker.metrics.broker_source import BrokerSource
from pocketmq.cli import settings
from pocketmq.cli.up_command import BROKER_PORT_DISTANCE, GRPC_PORT_DISTANCE
from pocketmq.metrics.family import Source
from pocketmq.metrics.monitored import Monitored
from pocketmq.namesrv.config import KEPT_FILE as NAMESRV_KEPT_FILE
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.namesrv.namesrv_source import NamesrvSource
from pocketmq.proxy.config import GRPC_PORT
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime import lifecycle, log
from pocketmq.runtime.clock import SystemClock, VirtualClock
from pocketmq.runtime.command_line.commands import say, warn
from pocketmq.runtime.config import bind
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.log import LogConfig
from pocketmq.store.disk.memory_disk import MemoryDisk

BROKER_PORT = 10911
METRICS_PORT = 5557
"""The port of RocketMQ 5's metrics."""


class Both:
    """Both servers as one service: the name server starts first, so that the broker finds it; stopped in reverse order."""

    def __init__(
        self, namesrv: NameServer, broker_config: BrokerConfig, tls_config: TlsConfig, make_broker: Callable[[], Broker]
    ) -> None:
        """`make_broker` is called once `broker_config` has the address of the name server."""
        self.namesrv = namesrv
        self.broker: Broker | None = None
        self.broker_config = broker_config
        self._tls_config = tls_config
        self._make_broker = make_broker

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for this process."""
        host = self.namesrv.config.bind_address
        return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{self.namesrv.port}"

    @property
    def client_tls(self) -> TlsConfig | None:
        """TLS of this process' connections to the servers, as the broker uses it; None: they are plain."""
        return self._tls_config if self.broker_config.use_tls else None

    def sources(self) -> list[Source]:
        """Return the sources of both servers' metrics. The servers must be started."""
        assert self.broker is not None
        return [NamesrvSource(self.namesrv), BrokerSource(self.broker)]

    async def start(self) -> None:
        await self.namesrv.start()
        self.broker_config.namesrv_addr = self.namesrv_address
        self.broker = self._make_broker()
        await self.broker.start()

    async def stop(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
        await self.namesrv.stop()


def run(options: SimpleNamespace) -> int:
    """Run the servers until SIGTERM or Ctrl-C. Returns the exit code."""
    try:
        _check(options)
        if options.cluster or options.brokers is not None or options.slaves is not None:
            from pocketmq.cli import up_cluster  # imported only if needed, as it takes longer than the rest

            return up_cluster.run(options, BROKER_PORT if options.port is None else _broker_port(options.port))
        given = settings.read(options.config_file, options.set)
        both, where = _both(options, given)
        _set_up_logs(given)
    except ValueError as wrong:
        raise click.UsageError(str(wrong)) from wrong
    for warning in settings.warnings(given):
        warn(warning)
    service = _monitored(both, options.port, "metricsPort" in given)
    if options.console is None:
        return lifecycle.run(service, "pocketmq", lambda monitored: _say_ready(monitored, where))
    from pocketmq.cli.console_server import WithConsole, of_development

    with_console = WithConsole(service, lambda: of_development(options.console, both.namesrv_address, both.client_tls))
    return lifecycle.run(with_console, "pocketmq", lambda ready: _say_ready(service, where, ready.ready_line))


def _set_up_logs(given: dict[str, str]) -> None:
    """Begin to log as configured. Raises ValueError if the log file cannot be opened."""
    (config,), _ = bind([LogConfig], settings.part_of(given, [LogConfig]))
    try:
        log.setup_as(config, "broker.log", "WARNING")
    except OSError as error:
        raise ValueError(f"logDirectory={config.log_directory}: {reason(error)}") from error


def _monitored(both: Both, port: int | None, is_set: bool) -> Monitored[Both]:
    """Return the servers with one port for the metrics of both; unless it `is_set`, they also start if it is taken."""
    config = both.broker_config
    if not is_set:
        config.metrics_port = METRICS_PORT if port in (None, settings.NAMESRV_PORT) else port + 1 if port else 0
    return Monitored(both, config, lambda started: started.sources(), is_required=is_set)


def _check(options: SimpleNamespace) -> None:
    if options.memory and options.store:
        raise ValueError("--memory keeps no files and --store DIR does: use only one of them")
    if options.store and options.store.exists() and not options.store.is_dir():
        raise ValueError(f"--store {options.store}: this is a file, expected a folder")


def _both(options: SimpleNamespace, given: dict[str, str]) -> tuple[Both, str]:
    """Return the servers, and where the store is. Raises ValueError for invalid options."""
    root = (options.store or Path("pocketmq-store")).absolute()
    defaults = {"brokerName": "pocketmq", "mappedFileSizeCommitLog": str(settings.COMMIT_LOG_FILE_SIZE)}
    # Settings changed while the servers run are written to the file of -c, else to files beside the store.
    config_file = options.config_file.absolute() if options.config_file else None
    with_kept = not options.memory and config_file is None
    broker_keys = {
        **defaults,
        **(settings.kept(root / KEPT_FILE) if with_kept else {}),
        **settings.part_of(given, settings.BROKER_CLASSES),
        "listenPort": str(_broker_port(options.port)),
        "storePathRootDir": str(root),
    }
    namesrv_keys = {
        **(settings.kept(root / "namesrv" / NAMESRV_KEPT_FILE) if with_kept else {}),
        "configStorePath": str(config_file or ""),
        **settings.part_of(given, settings.NAMESRV_CLASSES),
        "listenPort": str(settings.NAMESRV_PORT if options.port is None else options.port),
        "kvConfigPath": "" if options.memory else str(root / "namesrv" / "kvConfig.json"),
    }
    (broker_config, store, tls, grpc), _ = bind(settings.BROKER_CLASSES, broker_keys)
    if "grpcServerPort" not in given:
        grpc.grpc_server_port = _grpc_port(options.port, broker_config.bind_address)
    (namesrv_config, _), _ = bind(settings.NAMESRV_CLASSES, namesrv_keys)
    if options.advertise:
        host, _, advertised_port = options.advertise.partition(":")
        if not host or (advertised_port and not (advertised_port.isdigit() and 0 < int(advertised_port) < 65536)):
            raise ValueError(f"--advertise {options.advertise}: expected HOST or HOST:PORT, such as 192.168.0.7")
        broker_config.bind_address = namesrv_config.bind_address = "0.0.0.0"
        broker_config.broker_ip1 = host
        broker_config.advertised_port = int(advertised_port) if advertised_port else None
    clock = VirtualClock(SystemClock().message_time_ms()) if options.test_clock else None
    namesrv = NameServer(namesrv_config, tls_config=tls)
    disk = MemoryDisk() if options.memory else None
    make_broker = partial(Broker, broker_config, store, disk, clock, tls, config_file=config_file, grpc_config=grpc)
    return Both(namesrv, broker_config, tls, make_broker), "memory" if options.memory else str(root)


def _broker_port(port: int | None) -> int:
    if port in (None, settings.NAMESRV_PORT):
        return BROKER_PORT
    return port + BROKER_PORT_DISTANCE if port else 0


def _grpc_port(port: int | None, host: str) -> int | None:
    """Return the port for gRPC clients; None without the extra for it, or if the port is taken."""
    if not proxy.is_installed():
        return None
    grpc_port = GRPC_PORT if port in (None, settings.NAMESRV_PORT) else port + GRPC_PORT_DISTANCE if port else 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, grpc_port))
        except OSError as error:
            warn(f"gRPC clients are not served: {host}:{grpc_port}: {reason(error)} (grpcServerPort sets another port)")
            return None
    return grpc_port


def _say_ready(monitored: Monitored[Both], where: str, console_line: str = "") -> None:
    both = monitored.service
    if both.broker is None:
        raise StartError("the broker is not running")
    address = both.namesrv_address
    if both.broker.config.bind_address == "0.0.0.0":
        _say_open(both)
    # One write, so that a program which waits for "boot success" finds all of it, also where output is not buffered.
    say(
        f"The Name Server boot success. address={address}\n"
        f"The broker[{both.broker.config.broker_name}] boot success. address={both.broker.address} store={where}\n"
        f"{both.broker.grpc_line}{monitored.ready_line}{console_line}"
        f"Try: pocketmq produce -n {address} TopicTest hello; pocketmq consume -n {address} TopicTest\n",
        end="",
    )


def _say_open(both: Both) -> None:
    """Warn of who can connect with `--advertise`."""
    assert both.broker is not None
    warn(
        f"both servers listen on all addresses of this machine (ports {both.namesrv.port} and {both.broker.port}); clients "
        f"connect to the broker at {both.broker.address}"
    )
    if not (both.broker.config.acl_enable or both.broker.config.authentication_enabled):
        warn(
            "there is no access control: anyone who reaches these ports may read, send and administer; use a firewall, or "
            "enable it (docs/security.md)"
        )

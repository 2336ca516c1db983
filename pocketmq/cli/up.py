"""`pocketmq up`: a name server and a broker in one process, for development; with --cluster, a process for each server."""

import argparse
import sys
from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli import settings
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.remoting.tls import TlsConfig
from pocketmq.runtime import lifecycle, log
from pocketmq.runtime.clock import Clock, SystemClock, VirtualClock
from pocketmq.runtime.config import bind
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk

BROKER_PORT = 10911
BROKER_PORT_DISTANCE = 10
"""The broker also uses its port - 2 (the VIP channel), so the distance keeps it clear of the name server's port."""


class Both:
    """Both servers as one service: the name server starts first, so that the broker finds it; stopped in reverse order."""

    def __init__(
        self,
        namesrv: NameServer,
        broker_config: BrokerConfig,
        store: MessageStoreConfig,
        tls: TlsConfig,
        disk: Disk | None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock
        self.namesrv = namesrv
        self.broker: Broker | None = None
        self._broker_config = broker_config
        self._store = store
        self._tls = tls
        self._disk = disk

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for this process."""
        host = self.namesrv.config.bind_address
        return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{self.namesrv.port}"

    async def start(self) -> None:
        await self.namesrv.start()
        self._broker_config.namesrv_addr = self.namesrv_address
        self.broker = Broker(self._broker_config, self._store, disk=self._disk, clock=self._clock, tls_config=self._tls)
        await self.broker.start()

    async def stop(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
        await self.namesrv.stop()


def run(options: argparse.Namespace) -> int:
    """Run the servers until SIGTERM or Ctrl-C. Returns the exit code."""
    try:
        _check(options)
        if options.cluster or options.brokers is not None or options.slaves is not None:
            from pocketmq.cli import up_cluster  # imported only if needed, as it takes longer than the rest

            return up_cluster.run(options, BROKER_PORT if options.port is None else _broker_port(options.port))
        given = settings.read(options.config_file, options.set)
        both, where = _both(options, given)
    except ValueError as wrong:
        for problem in str(wrong).splitlines():
            print(f"pocketmq up: {problem}", file=sys.stderr)
        return 2
    log.setup("WARNING")
    for warning in settings.warnings(given):
        print(f"pocketmq up: {warning}", file=sys.stderr)
    return lifecycle.run(both, "pocketmq up", lambda service: _say_ready(service, where))


def _check(options: argparse.Namespace) -> None:
    if options.memory and options.store:
        raise ValueError("--memory keeps no files and --store DIR does: use only one of them")
    if options.port is not None and not 0 <= options.port <= 65535 - BROKER_PORT_DISTANCE - 1:
        raise ValueError(f"--port must be 0 to {65535 - BROKER_PORT_DISTANCE - 1}, not {options.port}")


def _both(options: argparse.Namespace, given: dict[str, str]) -> tuple[Both, str]:
    """Return the servers, and where the store is. Raises ValueError for invalid options."""
    root = (options.store or Path("pocketmq-store")).absolute()
    defaults = {"brokerName": "pocketmq", "mappedFileSizeCommitLog": str(settings.COMMIT_LOG_FILE_SIZE)}
    broker_keys = {
        **defaults,
        **settings.part_of(given, settings.BROKER_CLASSES),
        "listenPort": str(_broker_port(options.port)),
        "storePathRootDir": str(root),
    }
    namesrv_keys = {
        **settings.part_of(given, settings.NAMESRV_CLASSES),
        "listenPort": str(settings.NAMESRV_PORT if options.port is None else options.port),
        "kvConfigPath": "" if options.memory else str(root / "namesrv" / "kvConfig.json"),
    }
    (broker_config, store, tls), _ = bind(settings.BROKER_CLASSES, broker_keys)
    (namesrv_config, _), _ = bind(settings.NAMESRV_CLASSES, namesrv_keys)
    if options.advertise:
        host, _, advertised_port = options.advertise.partition(":")
        if not host or (advertised_port and not (advertised_port.isdigit() and 0 < int(advertised_port) < 65536)):
            raise ValueError(f"--advertise must be HOST or HOST:PORT, not {options.advertise!r}")
        broker_config.bind_address = namesrv_config.bind_address = "0.0.0.0"
        broker_config.broker_ip1 = host
        broker_config.advertised_port = int(advertised_port) if advertised_port else None
    clock = VirtualClock(SystemClock().message_time_ms()) if options.test_clock else None
    namesrv = NameServer(namesrv_config, tls_config=tls)
    both = Both(namesrv, broker_config, store, tls, MemoryDisk() if options.memory else None, clock)
    return both, "memory" if options.memory else str(root)


def _broker_port(port: int | None) -> int:
    if port in (None, settings.NAMESRV_PORT):
        return BROKER_PORT
    return port + BROKER_PORT_DISTANCE if port else 0


def _say_ready(both: Both, where: str) -> None:
    if both.broker is None:
        raise StartError("the broker is not running")
    address = both.namesrv_address
    print(f"The Name Server boot success. address={address}")
    print(f"The broker[{both.broker.config.broker_name}] boot success. address={both.broker.address} store={where}")
    print(f"Try: pocketmq produce -n {address} TopicTest hello; pocketmq consume -n {address} TopicTest", flush=True)

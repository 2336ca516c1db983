"""`pocketmq up`: a name server and a broker in one process, for development."""

import argparse
import sys
from pathlib import Path

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.namesrv import NameServer
from pocketmq.runtime import lifecycle, log
from pocketmq.runtime.clock import Clock, SystemClock, VirtualClock
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.memory_disk import MemoryDisk

NAMESRV_PORT, BROKER_PORT = 9876, 10911
BROKER_PORT_DISTANCE = 10
"""The broker also uses its port - 2 (the VIP channel), so the distance keeps it clear of the name server's port."""
COMMIT_LOG_FILE_SIZE = 64 << 20
"""Size of log files, suitable for a development machine; Apache's default is 1 GiB."""


class Both:
    """Both servers as one service: the name server starts first, so that the broker finds it; stopped in reverse order."""

    def __init__(
        self,
        namesrv: NameServer,
        broker_config: BrokerConfig,
        store: MessageStoreConfig,
        disk: Disk | None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock
        self.namesrv = namesrv
        self.broker: Broker | None = None
        self._broker_config = broker_config
        self._store = store
        self._disk = disk

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for this process."""
        host = self.namesrv.config.bind_address
        return f"{'127.0.0.1' if host == '0.0.0.0' else host}:{self.namesrv.port}"

    async def start(self) -> None:
        await self.namesrv.start()
        self._broker_config.namesrv_addr = self.namesrv_address
        self.broker = Broker(self._broker_config, self._store, disk=self._disk, clock=self._clock)
        await self.broker.start()

    async def stop(self) -> None:
        if self.broker is not None:
            await self.broker.stop()
        await self.namesrv.stop()


def run(options: argparse.Namespace) -> int:
    """Run both servers until SIGTERM or Ctrl-C. Returns the exit code."""
    if options.memory and options.store:
        print("pocketmq up: --memory keeps no files and --store DIR does: use only one of them", file=sys.stderr)
        return 2
    try:
        broker_config = _broker_config(options)
    except ValueError as wrong:
        print(f"pocketmq up: {wrong}", file=sys.stderr)
        return 2
    log.setup("WARNING")
    root = (options.store or Path("pocketmq-store")).absolute()
    store = MessageStoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=COMMIT_LOG_FILE_SIZE)
    kept = "" if options.memory else str(root / "namesrv" / "kvConfig.json")
    namesrv = NameServer(
        NamesrvConfig(
            bind_address=broker_config.bind_address,
            listen_port=NAMESRV_PORT if options.port is None else options.port,
            kv_config_path=kept,
        )
    )
    clock = VirtualClock(SystemClock().message_time_ms()) if options.test_clock else None
    both = Both(namesrv, broker_config, store, MemoryDisk() if options.memory else None, clock)
    return lifecycle.run(both, "pocketmq up", lambda service: _say_ready(service, "memory" if options.memory else str(root)))


def _broker_config(options: argparse.Namespace) -> BrokerConfig:
    """Return the broker's configuration. Raises ValueError for invalid options."""
    port = options.port
    if port is not None and not 0 <= port <= 65535 - BROKER_PORT_DISTANCE - 1:
        raise ValueError(f"--port must be 0 to {65535 - BROKER_PORT_DISTANCE - 1}, not {port}")
    if port in (None, NAMESRV_PORT):
        broker_port = BROKER_PORT
    else:
        broker_port = port + BROKER_PORT_DISTANCE if port else 0
    config = BrokerConfig(broker_name="pocketmq", listen_port=broker_port)
    if options.advertise:
        host, _, advertised_port = options.advertise.partition(":")
        if not host or (advertised_port and not (advertised_port.isdigit() and 0 < int(advertised_port) < 65536)):
            raise ValueError(f"--advertise must be HOST or HOST:PORT, not {options.advertise!r}")
        config.bind_address, config.broker_ip1 = "0.0.0.0", host
        config.advertised_port = int(advertised_port) if advertised_port else None
    return config


def _say_ready(both: Both, where: str) -> None:
    if both.broker is None:
        raise StartError("the broker is not running")
    address = both.namesrv_address
    print(f"The Name Server boot success. address={address}")
    print(f"The broker[{both.broker.config.broker_name}] boot success. address={both.broker.address} store={where}")
    print(f"Try: pocketmq produce -n {address} TopicTest hello; pocketmq consume -n {address} TopicTest", flush=True)

"""`python -m broker`, also installed as `mqbroker`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq.runtime.command_line import server_arguments

if TYPE_CHECKING:
    from pocketmq.broker.broker import Broker
    from pocketmq.broker.metrics.broker_source import BrokerSource
    from pocketmq.store.disk.memory_disk import MemoryDisk

PROGRAM = "mqbroker"
DESCRIPTION = "Run a RocketMQ broker."


def main(argv: Sequence[str] | None = None) -> None:
    """Run a broker until a signal stops it, and exit the process with the exit code of `lifecycle.run`."""
    arguments = server_arguments.parse(PROGRAM, DESCRIPTION, argv, is_broker=True)
    with server_arguments.many_imports():
        from pocketmq.broker.broker import Broker
        from pocketmq.broker.config import IGNORED_KEYS, BrokerConfig
        from pocketmq.broker.config_updates import KEPT_FILE
        from pocketmq.metrics import running
        from pocketmq.proxy.config import GrpcConfig
        from pocketmq.remoting.tls import TlsConfig
        from pocketmq.runtime import pid_file
        from pocketmq.runtime.clock import SystemClock, VirtualClock
        from pocketmq.runtime.log import LogConfig
        from pocketmq.store.config import MessageStoreConfig

        kept = None if arguments.memory else Path(MessageStoreConfig().store_path(KEPT_FILE))
        declared = [BrokerConfig, MessageStoreConfig, TlsConfig, LogConfig, GrpcConfig]
        config, store_config, tls_config, log_config, grpc_config = server_arguments.configure(
            PROGRAM, arguments, declared, IGNORED_KEYS, kept
        )
    server_arguments.set_up_logs(PROGRAM, log_config, "broker.log")
    clock = VirtualClock(SystemClock().message_time_ms()) if arguments.test_clock else None
    file = None if arguments.config_file is None else arguments.config_file.absolute()
    disk = _memory_disk() if arguments.memory else None
    broker = Broker(
        config, store_config, disk, clock, tls_config, config_file=file, more_configs=[log_config], grpc_config=grpc_config
    )
    with pid_file.registered(PROGRAM, "memory" if arguments.memory else store_config.store_path_root_dir):
        exit_code = running.run(broker, PROGRAM, config, _say_ready, _load_source)
    sys.exit(exit_code)


def _memory_disk() -> "MemoryDisk":
    from pocketmq.store.disk.memory_disk import MemoryDisk

    return MemoryDisk()


def _load_source() -> "type[BrokerSource]":
    from pocketmq.broker.metrics.broker_source import BrokerSource

    return BrokerSource


def _say_ready(broker: "Broker", metrics_line: str) -> None:
    name, address = broker.config.broker_name, broker.address
    name_servers = broker.config.namesrv_addr
    known = f" and name server is {name_servers}" if name_servers else ""
    ready = f"The broker[{name}, {address}] boot success. serializeType=JSON{known}, address={address}"
    print(f"{metrics_line}{broker.grpc_line}{ready}", flush=True)


if __name__ == "__main__":
    main()

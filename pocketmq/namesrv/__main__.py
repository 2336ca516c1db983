"""`python -m namesrv`, also installed as `mqnamesrv`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketmq.runtime.command_line import server_arguments
from pocketmq.runtime.process_start import use_c_allocator

if TYPE_CHECKING:
    from pocketmq.metrics.monitored import Monitored
    from pocketmq.namesrv.namesrv import NameServer

PROGRAM = "mqnamesrv"
DESCRIPTION = "Run a RocketMQ name server."


def main(argv: Sequence[str] | None = None) -> None:
    """Run a name server until it is told to stop; the process ends with lifecycle's exit code.

    Without `argv`, as a command, it uses the C library's allocator: a name server gains too little from the interpreter's
    faster one to be worth the memory that it keeps.
    """
    if argv is None:
        use_c_allocator()
    arguments = server_arguments.parse(PROGRAM, DESCRIPTION, argv)
    with server_arguments.many_imports():
        from pocketmq.namesrv.config import NamesrvConfig, kept_file
        from pocketmq.namesrv.namesrv import NameServer
        from pocketmq.remoting.tls import TlsConfig
        from pocketmq.runtime import lifecycle, pid_file
        from pocketmq.runtime.apache_keys import NAMESRV_KEYS
        from pocketmq.runtime.log import LogConfig

        kept = kept_file(NamesrvConfig())
        declared = [NamesrvConfig, TlsConfig, LogConfig]
        config, tls_config, log_config = server_arguments.configure(PROGRAM, arguments, declared, NAMESRV_KEYS, kept)
    if arguments.config_file is not None:
        config.config_store_path = str(arguments.config_file.absolute())
    server_arguments.set_up_logs(PROGRAM, log_config, "namesrv.log")
    with pid_file.registered(PROGRAM, config.kv_config_path):
        server = NameServer(config, tls_config=tls_config, more_configs=[log_config])
        if config.metrics_port is None:
            exit_code = lifecycle.run(server, PROGRAM, _say_ready)
        else:
            exit_code = lifecycle.run(_monitored(server), PROGRAM, _say_monitored_ready)
    sys.exit(exit_code)


def _monitored(server: "NameServer") -> "Monitored[NameServer]":
    """Return the server with the port for metrics, whose modules are loaded only where it is used."""
    from pocketmq.metrics.monitored import Monitored
    from pocketmq.namesrv.namesrv_source import NamesrvSource

    return Monitored(server, server.config, lambda one: [NamesrvSource(one)])


def _say_monitored_ready(monitored: "Monitored[NameServer]") -> None:
    print(monitored.ready_line, end="")
    _say_ready(monitored.service)


def _say_ready(server: "NameServer") -> None:
    address = f"{server.config.bind_address}:{server.port}"
    print(f"The Name Server boot success. serializeType=JSON, address={address}", flush=True)


if __name__ == "__main__":
    main()

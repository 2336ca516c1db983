"""`python -m namesrv`, also installed as `mqnamesrv`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketmq.runtime.command_line import server_arguments
from pocketmq.runtime.process_start import use_c_allocator

if TYPE_CHECKING:
    from pocketmq.namesrv.namesrv import NameServer
    from pocketmq.namesrv.namesrv_source import NamesrvSource

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
        from pocketmq.metrics import running
        from pocketmq.namesrv.config import NamesrvConfig, kept_file
        from pocketmq.namesrv.namesrv import NameServer
        from pocketmq.remoting.tls import TlsConfig
        from pocketmq.runtime import pid_file
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
        exit_code = running.run(server, PROGRAM, config, _say_ready, _load_source)
    sys.exit(exit_code)


def _load_source() -> "type[NamesrvSource]":
    from pocketmq.namesrv.namesrv_source import NamesrvSource

    return NamesrvSource


def _say_ready(server: "NameServer", metrics_line: str) -> None:
    address = f"{server.config.bind_address}:{server.port}"
    print(f"{metrics_line}The Name Server boot success. serializeType=JSON, address={address}", flush=True)


if __name__ == "__main__":
    main()

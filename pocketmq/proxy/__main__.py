"""`python -m pocketmq.proxy`, also installed as `mqproxy`: the gRPC front before the brokers of a name server."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pocketmq.metrics import running
from pocketmq.proxy.config import GRPC_PORT, IGNORED_KEYS, ProxyConfig, ProxyMode
from pocketmq.runtime import config_file
from pocketmq.runtime.command_line import commands
from pocketmq.runtime.command_line.option_types import Addresses, WholeNumber
from pocketmq.runtime.config import ConfigError, bind
from pocketmq.runtime.error_text import reason
from pocketmq.runtime.log import LogConfig, setup_as

if TYPE_CHECKING:
    from pocketmq.proxy.cluster_proxy import ClusterProxy
    from pocketmq.proxy.proxy_source import ProxySource

PROGRAM = "mqproxy"


def mqproxy() -> commands.Command:
    """Declare the command line."""
    options: list[click.Parameter] = [
        click.Option(
            ["-pc", "--proxyConfigPath", "config_path"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Config file: JSON as in Apache's rmq-proxy.json, or key=value lines.",
        ),
        click.Option(
            ["-n", "--namesrvAddr", "namesrv_addr"],
            type=Addresses(may_be_empty=True),
            help="Name servers, such as '192.168.0.1:9876;192.168.0.2:9876' (key namesrvAddr, else $NAMESRV_ADDR).",
        ),
        click.Option(
            ["-pm", "--proxyMode", "proxy_mode"],
            type=click.Choice(["cluster", "local"], case_sensitive=False),
            help="cluster: before all brokers of the name servers; local is the broker's key grpcServerPort.",
        ),
        click.Option(["--port"], type=WholeNumber(0, 65535), help="Port to listen on, 0: a free one (key grpcServerPort)."),
    ]
    return commands.Command(
        PROGRAM,
        help="Serve gRPC clients of RocketMQ 5, over the brokers of a name server.",
        params=options,
        examples=f"{PROGRAM} -n 127.0.0.1:9876",
        notes="Exit codes: 0 stopped by a signal; 1 could not start or stop; 2 wrong command line or config file.",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run a front until a signal stops it, and exit the process with the exit code of `lifecycle.run`."""
    options = commands.parse(mqproxy(), PROGRAM, list(sys.argv[1:] if argv is None else argv))
    try:
        properties = _read(options["config_path"])
        for key, option in (("namesrvAddr", "namesrv_addr"), ("grpcServerPort", "port"), ("proxyMode", "proxy_mode")):
            if options[option] is not None:
                properties[key] = str(options[option])
        from pocketmq.remoting.tls import TlsConfig

        (config, tls, log_config), report = bind([ProxyConfig, TlsConfig, LogConfig], properties, IGNORED_KEYS)
        if config.proxy_mode is ProxyMode.LOCAL:
            raise ValueError("proxyMode=local: set grpcServerPort in the broker's config instead, which serves gRPC itself")
        setup_as(log_config, "proxy.log")
    except (OSError, ValueError) as error:
        for problem in error.problems if isinstance(error, ConfigError) else (reason(error),):
            print(f"{PROGRAM}: error: {problem}", file=sys.stderr)
        sys.exit(2)
    for line in report.lines():
        print(f"{PROGRAM}: warning: {line}", file=sys.stderr)
    if config.grpc_server_port is None:
        config.grpc_server_port = GRPC_PORT
    try:
        from pocketmq.proxy.cluster_proxy import ClusterProxy
    except ImportError:
        print(f"{PROGRAM}: error: protobuf is not installed: pip install 'pocketmq[grpc]'", file=sys.stderr)
        sys.exit(1)
    proxy = ClusterProxy(config, tls)
    sys.exit(running.run(proxy, PROGRAM, config, _say_ready, _load_source))


def _load_source() -> "type[ProxySource]":
    from pocketmq.proxy.proxy_source import ProxySource

    return ProxySource


def _say_ready(proxy: "ClusterProxy", metrics_line: str) -> None:
    print(f"{metrics_line}The proxy boot success. address={proxy.config.bind_address}:{proxy.port}", flush=True)


def _read(path: Path | None) -> dict[str, str]:
    """Return the keys of a config file as text. Raises OSError or ValueError."""
    if path is None:
        return {}
    if path.suffix != ".json":
        return config_file.read(path)
    try:
        values = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a JSON object")
    return {key: _text(value) for key, value in values.items() if value is not None}


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, dict, list)) else str(value)


if __name__ == "__main__":
    main()

"""Command lines of `pocketmq up` and `pocketmq console`; the servers are imported when they run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from pocketmq.cli.server_options import SERVER_OPTIONS, option
from pocketmq.runtime.command_line.commands import Command
from pocketmq.runtime.command_line.option_types import WholeNumber
from pocketmq.runtime.command_line.server_command import MEMORY_HELP, TEST_CLOCK_HELP

BROKER_PORT_DISTANCE = 10
"""Distance between the ports of name server and broker. The broker also uses its port - 2 (the VIP channel)."""
CONSOLE_PORT = "8088"
GRPC_PORT_DISTANCE = 20
"""Distance between the name server's port and the one for gRPC clients."""


@click.command(
    cls=Command,
    help="Run a name server and a broker in one process, or with --cluster or --brokers a process for each server of a "
    "cluster. Ctrl-C stops them.",
    examples="""
pocketmq up --memory
pocketmq up --store ~/store --set autoCreateTopicEnable=false
pocketmq up --cluster 2m-2s-sync
pocketmq up --memory --console
pocketmq up --advertise 192.168.0.7
""",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65535 - GRPC_PORT_DISTANCE),
    help="The name server's port (9876; the broker's is then 10911, that for gRPC clients 8081). With another N the broker "
    "takes N + 10 and gRPC N + 20, with 0 all get free ports.",
)
@click.option("--memory", is_flag=True, help=MEMORY_HELP)
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the store (./pocketmq-store).")
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="The broker's address for clients on other machines; both servers then listen on all addresses.",
)
@click.option("--test-clock", is_flag=True, help=TEST_CLOCK_HELP)
@click.option(
    "-c",
    "--config-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings of broker and name server, key=value lines.",
)
@click.option(
    "--set", multiple=True, metavar="KEY=VALUE", help="One setting, such as enablePropertyFilter=true; repeatable."
)
@click.option(
    "--cluster",
    metavar="LAYOUT",
    help="Run a process for each server of a layout of RocketMQ's tutorial: 2m-noslave, 2m-2s-async, 2m-2s-sync.",
)
@click.option("--brokers", type=WholeNumber(), help="Run a cluster of N masters, each in its own process.")
@click.option("--slaves", type=WholeNumber(), help="Give each of these masters N slaves.")
@click.option(
    "--console",
    is_flag=False,
    flag_value=CONSOLE_PORT,
    type=WholeNumber(0, 65535),
    metavar="[PORT]",
    help="Serve a console that may change things, on a port of this machine (8088; 0: a free one).",
)
def up(**values: Any) -> int:
    """Run servers until SIGTERM or Ctrl-C."""
    from pocketmq.runtime.command_line.server_arguments import many_imports

    with many_imports():
        from pocketmq.cli import up as command
    return command.run(SimpleNamespace(**values))


@click.command(
    cls=Command,
    help="Show a cluster in the browser: brokers, topics, consumer groups, messages, accounts and settings. It changes "
    "nothing unless it is started with --write. Ctrl-C stops it.",
    examples="""
pocketmq console -n 127.0.0.1:9876
pocketmq console -n 10.0.0.5:9876 --write --port 8090
""",
    params=[
        *SERVER_OPTIONS,
        option("--host", metavar="ADDRESS", help="Address to listen on (127.0.0.1; key bindAddress)."),
        option("--port", type=WholeNumber(0, 65535), help="Port to listen on, 0: a free one (8088; key consolePort)."),
        option("--write", is_flag=True, help="Allow changes (key consoleWrite=true)."),
        option(
            "-c",
            "--config-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Settings of the console, key=value lines (docs/console.md).",
        ),
    ],
)
def console(**values: Any) -> int:
    """Serve a console until SIGTERM or Ctrl-C."""
    from pocketmq.cli import console_server

    return console_server.run(SimpleNamespace(**values))

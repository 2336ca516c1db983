"""Command line of `pocketmq console`; the console is imported when it runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from pocketmq.cli.server_options import SERVER_OPTIONS, option
from pocketmq.runtime.command_line.commands import Command
from pocketmq.runtime.command_line.option_types import WholeNumber


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

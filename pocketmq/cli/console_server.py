"""`pocketmq console`, and the console of `pocketmq up --console`."""

from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from pocketmq.cli.server_options import access_of
from pocketmq.runtime import config_file, lifecycle
from pocketmq.runtime.command_line.commands import CommandError, say, warn
from pocketmq.runtime.config import bind
from pocketmq.runtime.lifecycle import StartError
from pocketmq.runtime.log import LogConfig, setup_as

if TYPE_CHECKING:
    from pocketmq.console.server import ConsoleServer


def run(options: SimpleNamespace) -> int:
    """Serve the console. Returns the exit code."""
    try:
        properties = {} if options.config_file is None else config_file.read(options.config_file)
        properties.update(_given(options, properties))
        access = access_of(options)
        server_class = _server_class()
        from pocketmq.console.config import ConsoleConfig

        (config, log_config), report = bind([ConsoleConfig, LogConfig], properties)
        setup_as(log_config, "console.log", "WARNING")
        server = server_class(config, access)
    except (ValueError, OSError) as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except StartError as failure:
        raise CommandError(str(failure)) from failure
    for line in report.lines():
        warn(line)
    return lifecycle.run(server, "pocketmq", lambda ready: say(_ready_line(ready, config.console_write)))


def _given(options: SimpleNamespace, properties: dict[str, str]) -> dict[str, str]:
    """Return the keys that options set. The name servers of the config file give way to `-n` only."""
    given = {"bindAddress": options.host, "consolePort": options.port, "consoleWrite": "true" if options.write else None}
    is_default = click.get_current_context().get_parameter_source("namesrv") is click.core.ParameterSource.DEFAULT
    if not (is_default and properties.get("namesrvAddr")):
        given["namesrvAddr"] = options.namesrv
    return {key: str(value) for key, value in given.items() if value is not None}


def _server_class() -> "type[ConsoleServer]":
    """Import the console. Raises CommandError without its libraries."""
    try:
        from pocketmq.console.server import ConsoleServer
    except ImportError as missing:
        raise CommandError(f"{missing.name} is not installed: pip install 'pocketmq[console]'") from missing
    return ConsoleServer


def _ready_line(server: "ConsoleServer", can_write: bool) -> str:
    return f"The console boot success. address={server.url} ({'changes are allowed' if can_write else 'read-only'})"

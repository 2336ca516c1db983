"""`pocketmq console`, and the console of `pocketmq up --console`."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from pocketmq.cli.server_options import access_of
from pocketmq.runtime import config_file, lifecycle
from pocketmq.runtime.command_line.commands import CommandError, say, warn
from pocketmq.runtime.config import bind
from pocketmq.runtime.lifecycle import Service, StartError
from pocketmq.runtime.log import LogConfig, setup_as

if TYPE_CHECKING:
    from pocketmq.console.server import ConsoleServer, ConsoleThread
    from pocketmq.remoting.tls import TlsConfig


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
    return lifecycle.run(server, "pocketmq", lambda ready: say(ready_line(ready, config.console_write)))


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


def of_development(port: int, namesrv_address: str, tls: "TlsConfig | None" = None) -> "ConsoleThread":
    """Return a console for the servers of `pocketmq up`, which may change things. Raises CommandError or StartError.

    `tls` None: its connections to the servers are plain.
    """
    server_class = _server_class()
    from pocketmq.client.access import Access
    from pocketmq.console.config import ConsoleConfig
    from pocketmq.console.server import ConsoleThread

    config = ConsoleConfig(namesrv_addr=namesrv_address, console_port=port, console_write=True)
    return ConsoleThread(server_class(config, Access(tls=tls)))


class WithConsole:
    """Servers with a console beside them, as one service."""

    def __init__(self, service: Service, make_console: "Callable[[], ConsoleThread]") -> None:
        """`make_console` is called once the service is started. Raises CommandError without the console's libraries."""
        _server_class()
        self._service = service
        self._make_console = make_console
        self._console: ConsoleThread | None = None

    @property
    def ready_line(self) -> str:
        """The line that names the console's address."""
        return "" if self._console is None else ready_line(self._console.server, can_write=True) + "\n"

    async def start(self) -> None:
        await self._service.start()
        self._console = self._make_console()
        self._console.start()

    async def stop(self) -> None:
        if self._console is not None:
            # In a thread, because the console finishes its pages, which ask the servers of this event loop.
            await asyncio.to_thread(self._console.stop)
        await self._service.stop()


def ready_line(server: "ConsoleServer", can_write: bool) -> str:
    return f"The console boot success. address={server.url} ({'changes are allowed' if can_write else 'read-only'})"

"""The console's HTTP server: as a service of a process of its own, or in a thread beside other servers."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pocketmq.client.access import Access
from pocketmq.client.loop_thread import LoopThread
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.console import Console
from pocketmq.console.pages import MENU, MENU_OF, ROUTES
from pocketmq.console.security import Protection
from pocketmq.console.view import View
from pocketmq.runtime import lifecycle
from pocketmq.runtime.lifecycle import StartError

CONNECTIONS_MAX: Final = 200
"""Maximum number of connections; further ones are answered with 503."""
_STATIC: Final = Path(__file__).parent / "static"
_HEAD_SIZE_MAX: Final = 32 << 10
_KEEP_ALIVE_S: Final = 20
_STOP_MAX_S: Final = 3
_IDLE_CHECK_S: Final = 60.0


class ConsoleServer:
    """A console as a service for `lifecycle.run`. The port is bound when it is made, so that a taken one is told at once."""

    def __init__(self, config: ConsoleConfig, access: Access) -> None:
        """Raises StartError if the port cannot be bound."""
        self._config, self._access = config, access
        family = socket.AF_INET6 if ":" in config.bind_address else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with lifecycle.listening(config.bind_address, config.console_port, "consolePort"):
            self._socket.bind((config.bind_address, config.console_port))
        config.console_port = self._socket.getsockname()[1]
        self._server: _Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """The console's address for a browser on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self._config.bind_address, self._config.bind_address)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{self._config.console_port}/"

    async def start(self) -> None:
        console = Console(self._config, self._access)
        config = uvicorn.Config(
            make_app(console),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_MAX_S,
            h11_max_incomplete_event_size=_HEAD_SIZE_MAX,
            http="h11",
        )
        self._server = _Server(config)
        work = self._serve(console, self._server), _end_idle(console), console.sampler.run()
        self._tasks = [asyncio.create_task(one) for one in work]
        while not self._server.started:
            if self._tasks[0].done():
                raise StartError(f"the console cannot serve {self.url}")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._server is None:
            self._socket.close()
            return
        self._server.should_exit = True
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _serve(self, console: Console, server: "_Server") -> None:
        try:
            await server.serve([self._socket])
        finally:
            await console.close()


def make_app(console: Console) -> Starlette:
    """Return the console as an ASGI application: its routes and middleware."""
    app = Starlette(
        routes=[*ROUTES, Route("/health", _health), Mount("/static", StaticFiles(directory=_STATIC))],
        middleware=[Middleware(Protection, hosts=console.hosts, refusals=console.refusals)],
        exception_handlers={HTTPException: _not_served},
    )
    app.state.console = console
    console.templates.globals.update(menu=MENU, menu_of=MENU_OF)
    return app


async def _health(request: Request) -> Response:
    """Answer that the console runs, without asking any server."""
    return PlainTextResponse("ok\n")


async def _not_served(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    view = View(request)
    return view.error(failure.status_code, view.text("error.not_found" if failure.status_code == 404 else "error.method"))


class _Server(uvicorn.Server):
    """uvicorn's server without handlers of signals, which `lifecycle` has."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _end_idle(console: Console) -> None:
    while True:
        await asyncio.sleep(_IDLE_CHECK_S)
        await console.accounts.end_idle()


class ConsoleThread:
    """A console in a thread with an event loop of its own, so that its pages never delay the servers of this process."""

    def __init__(self, server: ConsoleServer) -> None:
        self.server = server
        self._thread = LoopThread("console")

    def start(self) -> None:
        """Start to serve. Raises StartError."""
        try:
            self._thread.call(self.server.start())
        except Exception as failure:
            self._thread.close()
            raise StartError(f"the console cannot serve {self.server.url}: {failure}") from failure

    def stop(self) -> None:
        """Stop to serve, and wait until the thread has ended."""
        if self._thread.is_open:
            self._thread.call(self.server.stop())
            self._thread.close()

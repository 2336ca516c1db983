"""Monitored: a service with a port for `/metrics`, `/health/live` and `/health/ready`.

The port opens before the service starts, as recovery may take long, and closes after it has stopped.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Generator, Sequence
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from pocketmq.metrics.config import MetricsConfig
from pocketmq.metrics.family import Source
from pocketmq.metrics.loop_monitor import STUCK_S, LoopMonitor, LoopStuck, on_loop
from pocketmq.metrics.page import Page
from pocketmq.runtime.http_server import HttpRequest, HttpResponse, HttpServer
from pocketmq.runtime.lifecycle import Service, StartError, listening

log = logging.getLogger("metrics")

READY_MAX_S: Final = 2.0
"""Maximum time for the event loop to report whether the servers are ready."""

S = TypeVar("S", bound=Service)


class Monitored(Generic[S]):
    """Runs `service`, and serves its metrics and health at metricsPort, if that is set. `port` is set by `start`."""

    def __init__(
        self, service: S, config: MetricsConfig, sources: Callable[[S], Sequence[Source]], *,
        is_required: bool = True, stuck_s: float = STUCK_S,
    ) -> None:  # fmt: skip
        """`sources` returns the servers of the started service. `is_required`: the start fails without the port."""
        self.service = service
        self.port: int | None = None
        self._config = config
        self._sources_of = sources
        self._is_required = is_required
        self._stuck_s = stuck_s
        self._state = "starting"
        self._http: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop
        self._monitor: LoopMonitor
        self._page: Page

    @property
    def url(self) -> str | None:
        """The address of the port for this machine; None: it is off."""
        host = self._config.metrics_host
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        return None if self.port is None else f"http://{shown}:{self.port}"

    @property
    def ready_line(self) -> str:
        """The line about the port that a server prints at its start; empty without a port."""
        return "" if self.url is None else f"Metrics: {self.url}/metrics, health: {self.url}/health/ready\n"

    async def start(self) -> None:
        """Open the port, then start the service. Raises StartError."""
        if self._config.metrics_port is not None:
            self._open(self._config.metrics_host, self._config.metrics_port)
        await self.service.start()
        if self._http is not None:
            self._page.sources = self._sources_of(self.service)
            self._monitor.start()
        self._state = "serving"

    def _open(self, host: str, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._monitor = LoopMonitor(self._loop)
        self._page = Page(self._loop, self._monitor)
        routes = {"/metrics": self._metrics, "/health/live": self._live, "/health/ready": self._ready}
        http = HttpServer("metricsPort", log, routes)
        try:
            with listening(host, port, "metricsPort"):
                http.start(host, port)
        except StartError as error:
            http.close()
            if self._is_required:
                raise
            log.warning("no metrics: %s", error)
            return
        self._http, self.port = http, http.port

    async def stop(self) -> None:
        """Stop the service, then close the port."""
        self._state = "stopping"
        try:
            await self.service.stop()
        finally:
            if self._http is not None:
                self._monitor.stop()
                self._http.close()

    # --- requests, served by the thread of the port -----------------------------------------------------------------

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        content_type, body = await self._page.text(request.accept)
        return HttpResponse(body, content_type)

    async def _live(self, request: HttpRequest) -> HttpResponse:
        """Answer whether the process is alive; a stuck event loop counts only while it is serving."""
        silence_s = self._monitor.silence_s
        if self._state == "serving" and silence_s > self._stuck_s:
            return _answer("stuck", [f"the event loop has been blocked for {silence_s:.0f} s"])
        return _answer("live" if self._state == "serving" else self._state)

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        """Answer whether the servers can take requests."""
        if self._state != "serving":
            return _answer("not ready", [f"the process is {self._state}"])
        try:
            problems, _ = await on_loop(self._loop, self._problems(), READY_MAX_S)
        except LoopStuck as stuck:
            problems = [str(stuck)]
        return _answer("not ready", problems) if problems else _answer("ready")

    def _problems(self) -> Generator[None, None, list[str]]:
        found: list[str] = []
        for source in self._page.sources:
            found += source.problems()
            yield
        return found


def _answer(status: str, problems: Sequence[str] = ()) -> HttpResponse:
    document = {"status": status, **({"problems": list(problems)} if problems else {})}
    code = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return HttpResponse(json.dumps(document, ensure_ascii=False).encode() + b"\n", "application/json", code)

"""The console as an ASGI application: its routes and middleware."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pocketmq.console.console import Console
from pocketmq.console.pages import MENU, MENU_OF, ROUTES
from pocketmq.console.security import Protection
from pocketmq.console.view import View

_STATIC = Path(__file__).parent / "static"


def make_app(console: Console) -> Starlette:
    """Return the application of a console."""
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
    view = View(request.app.state.console, request)
    return view.error(failure.status_code, view.text("error.not_found" if failure.status_code == 404 else "error.method"))

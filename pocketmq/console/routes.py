"""Declaration of pages and actions: the functions of `pages` that answer GET and POST.

    ROUTES = (page("/topics", show_topics), action("/topics/create", create_topic))

An action is refused unless the console may write, and unless its form comes from one of the console's own pages.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pocketmq.admin.api.client import AdminError, is_of_access
from pocketmq.console.forms import WrongInput, read_form
from pocketmq.console.security import is_same_origin
from pocketmq.console.view import SignInNeeded, View
from pocketmq.remoting.dispatch import RemotingError

log = logging.getLogger("console")

Answer = Callable[[View], Awaitable[Response]]

_FAILURES: Final = (AdminError, RemotingError, WrongInput, OSError, TimeoutError, ValueError)


def page(path: str, answer: Answer) -> Route:
    """Declare a page, which changes nothing."""

    async def serve(request: Request) -> Response:
        return await _answered(View(request), answer)

    return Route(path, serve, methods=["GET"], name=path)


def action(path: str, answer: Answer, *, needs_write: bool = True) -> Route:
    """Declare a change, which a form requests. `needs_write` False: a read-only console makes it, too."""

    async def serve(request: Request) -> Response:
        view = View(request)
        if needs_write and not view.can_write:
            return _refused(view, path, "refused.read_only")
        if not is_same_origin(request):
            return _refused(view, path, "refused.origin")
        try:
            view.form = await read_form(request)
        except WrongInput as wrong:
            return view.failed(wrong)
        except ClientDisconnect:
            return Response(status_code=400)
        if not view.console.tokens.is_valid(view.browser_cookie, view.form.text("csrf")):
            return _refused(view, path, "refused.token")
        return await _answered(view, answer)

    return Route(path, serve, methods=["POST"], name=path)


async def _answered(view: View, answer: Answer) -> Response:
    try:
        return await answer(view)
    except SignInNeeded:
        return _sign_in(view)
    except _FAILURES as failure:
        if is_of_access(failure) and not view.account.name:
            return _sign_in(view)
        return view.failed(failure)
    except Exception as failure:
        log.exception("a page failed: %s", view.request.url.path)
        return view.error(500, view.text("error.internal", kind=type(failure).__name__))


def _sign_in(view: View) -> Response:
    """Return the answer to a browser without an account; after the sign-in it gets the page that it asked for.

    A browser that follows a link of another site does not send the cookie of its session. It is told to open the page again,
    and then sends it.
    """
    request = view.request
    then = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method == "GET" and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return view.render("again.html", then=then)
    return view.redirect("/sign-in", then=then if request.method == "GET" else "/")


def _refused(view: View, path: str, key: str) -> Response:
    why = key.removeprefix("refused.")
    view.console.refusals.refused((key, view.peer), f"refused POST {path} from {view.peer}: {why}")
    return view.error(403, view.text(key))

"""Sign-in and sign-out, and the choice of the language."""

import math
from typing import Final

from starlette.responses import RedirectResponse, Response

from pocketmq.console.accounts import SignInRefused
from pocketmq.console.routes import action, page
from pocketmq.console.texts import LANGUAGES
from pocketmq.console.view import View


async def show(view: View) -> Response:
    return view.render("sign_in.html", then=_local(view.query.get("then", "/")), access_key="", why="")


async def sign_in(view: View) -> Response:
    access_key, then = view.form.text("accessKey"), _local(view.form.text("then", "/"))
    failed, peer = view.console.failed_sign_ins, view.peer
    # A turn is taken before the brokers are asked, so that sign-ins at the same time count, too.
    wait_s = math.ceil(failed.take(peer))
    if wait_s:
        view.console.refusals.refused(("sign-ins", peer), f"refused a sign-in from {peer}: too many failed before")
        why = view.text("sign_in.too_many", seconds=wait_s)
        answer = view.render("sign_in.html", 429, then=then, access_key=access_key, why=why)
        answer.headers["retry-after"] = str(wait_s)
        return answer
    try:
        session_id = await view.console.accounts.sign_in(access_key, view.form.text("secretKey"))
    except SignInRefused:
        view.console.refusals.refused(("sign-in", peer), f"refused a sign-in from {peer} as {access_key[:100]!r}")
        return view.render("sign_in.html", 403, then=then, access_key=access_key, why=view.text("sign_in.refused"))
    except Exception:
        failed.give_back(peer)
        raise
    failed.give_back(peer)
    answer = RedirectResponse(then, 303)
    view.set_cookie(answer, view.console.session_cookie, session_id)
    return answer


async def sign_out(view: View) -> Response:
    await view.console.accounts.sign_out(view.request.cookies.get(view.console.session_cookie, ""))
    answer = view.redirect("/sign-in")
    answer.delete_cookie(view.console.session_cookie, httponly=True, samesite="strict")
    return answer


async def choose_language(view: View) -> Response:
    answer = RedirectResponse(_local(view.query.get("then", "/")), 303)
    language = view.query.get("to", "")
    if language in LANGUAGES:
        view.set_cookie(answer, "language", language)
    return answer


def _local(path: str) -> str:
    """Return a path of the console; the first page for anything else, such as the address of another site."""
    is_local = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_local else "/"


ROUTES: Final = (
    page("/sign-in", show),
    action("/sign-in", sign_in, needs_write=False),
    action("/sign-out", sign_out, needs_write=False),
    page("/language", choose_language),
)

"""A request of a browser: its query and form, the servers that it asks, and the page that answers it.

    async def show_topic(view: View) -> Response:
        topic = view.required("name")
        states = await view.ask_each(await view.admin.brokers(), lambda at: queue_status_at(view.admin, at, topic))
        return view.render("topic.html", topic=topic, states=states)

A broker that does not answer, or refuses, costs the page its part: `ask` returns None, and the page says which broker it was
and why. A failure outside of `ask`, such as of the name server, makes the answer a page with the error alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pocketmq.admin.api.client import AdminClient, AdminError, Unreachable, described, is_of_access
from pocketmq.console.accounts import Account
from pocketmq.console.console import Console
from pocketmq.console.forms import Form, WrongInput
from pocketmq.console.security import new_cookie
from pocketmq.console.tables import Column, Row, Table
from pocketmq.console.texts import LANGUAGES, language_of, text
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError

log = logging.getLogger("console")

T = TypeVar("T")

CONCURRENT_MAX: Final = 16
"""Maximum number of requests to servers at a time for one page."""
_DONE: Final = "done."


class Failure(NamedTuple):
    """A server that did not answer, or refused."""

    server: str
    text: str


class SignInNeeded(Exception):
    """A broker asks for an account, and the browser is not signed in."""


class View:
    """One request. `form`: the fields of an action, empty for a page."""

    def __init__(self, request: Request) -> None:
        self.console: Console = request.app.state.console
        self.request = request
        self.query: Mapping[str, str] = request.query_params
        self.form = Form([])
        self.failures: list[Failure] = []
        self.language = language_of(request.cookies.get("language"), request.headers.get("accept-language", ""))
        self._turns = asyncio.Semaphore(CONCURRENT_MAX)
        self._new_visitor = ""

    # The browser

    @cached_property
    def account(self) -> Account:
        """The account that is signed in."""
        return self.console.accounts.of(self.request.cookies.get(self.console.session_cookie, ""))

    @property
    def link(self) -> str:
        """Path and query of the page, by which it can be opened again."""
        query = urlencode(self.query_without())
        return f"{self.request.url.path}?{query}" if query else self.request.url.path

    def query_without(self, *keys: str) -> dict[str, str]:
        """Return the query of the page without some keys, and without what was done before."""
        return {key: value for key, value in self.query.items() if key not in (*keys, "done")}

    @property
    def peer(self) -> str:
        """The address of the client, for the log and for limits."""
        return self.request.client.host if self.request.client else "an unknown address"

    @property
    def can_write(self) -> bool:
        return self.console.config.console_write

    @property
    def csrf_token(self) -> str:
        """The token that forms of this page carry; the first one gives the browser a cookie."""
        cookie = self.browser_cookie
        if not cookie:
            cookie = self._new_visitor = self._new_visitor or new_cookie()
        return self.console.tokens.of(cookie)

    @property
    def browser_cookie(self) -> str:
        """The cookie by which the browser is known: of its session, or of its first form."""
        session = self.request.cookies.get(self.console.session_cookie, "")
        if session and self.account.name:
            return session
        return self.request.cookies.get(self.console.visitor_cookie, "")

    def required(self, name: str) -> str:
        """Return a value of the query that a page cannot do without. Raises WrongInput."""
        value = self.query.get(name, "")
        if not value:
            raise WrongInput("wrong.empty", field=name)
        return value

    def text(self, key: str, /, **values: object) -> str:
        """Return a text in the browser's language."""
        return text(self.language, key, **values)

    # The servers

    @cached_property
    def admin(self) -> AdminClient:
        """A client that acts in the account's name."""
        return self.account.client.again()

    async def ask(self, server: str, work: Awaitable[T], timeout_s: float | None = None) -> T | None:
        """Return what a server answers; None if it does not, which the page then says.

        `timeout_s`: for all of the work, twice that of a request if it is not given. Raises SignInNeeded.
        """
        limit_s = self.console.config.console_request_timeout_seconds * 2 if timeout_s is None else timeout_s
        try:
            async with self._turns, asyncio.timeout(limit_s):
                return await work
        except TimeoutError:
            self._failed(server, self.text("failure.timeout", seconds=limit_s))
        except (AdminError, RemotingError, ValueError) as failure:
            if is_of_access(failure) and not self.account.name:
                raise SignInNeeded from None
            self._failed(server, described(failure))
        except (LookupError, TypeError, AttributeError) as failure:
            log.warning("an answer of %s has an unexpected form: %s: %s", server, type(failure).__name__, failure)
            self._failed(server, self.text("failure.form", kind=type(failure).__name__))
        return None

    async def ask_each(self, servers: Mapping[str, str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Ask some servers, whose addresses are given by name, at the same time; return the answers by name.

        A server with a failure is left out, and not asked again for this page.
        """
        known = {failure.server for failure in self.failures}
        asked = {name: address for name, address in servers.items() if name not in known}
        answers = await asyncio.gather(*(self.ask(name, work(address)) for name, address in asked.items()))
        return {name: answer for name, answer in zip(asked, answers, strict=True) if answer is not None}

    async def ask_all(self, part: str, works: Sequence[Callable[[], Awaitable[T]]]) -> list[T | None]:
        """Do many pieces of work within the time of one `ask`; return the results.

        A result is None where the work failed or was not done in time, which the page says of its `part`.
        """
        results: list[T | None] = [None] * len(works)
        failures: list[AdminError | RemotingError] = []
        turns = asyncio.Semaphore(CONCURRENT_MAX)

        async def do(number: int) -> None:
            async with turns:
                try:
                    results[number] = await works[number]()
                except (AdminError, RemotingError) as failure:
                    failures.append(failure)

        async def do_all() -> None:
            await asyncio.gather(*map(do, range(len(works))))
            if failures:
                raise failures[0]

        await self.ask(part, do_all())
        return results

    def _failed(self, server: str, why: str) -> None:
        failure = Failure(server, why)
        if failure not in self.failures:
            self.failures.append(failure)

    # The answer

    def table(self, columns: tuple[Column, ...], rows: list[Row], name: str = "", descending: bool = False) -> Table[Row]:
        """Return a list of the page, which the query of its link filters, sorts and divides."""
        return Table(self.request.url.path, self.query, columns, rows, name, descending)

    def render(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """Return a page."""
        done = self.query.get("done", "")
        page = self.console.templates.get_template(template).render(
            view=self,
            t=self.text,
            url=url,
            path=self.request.url.path,
            languages=LANGUAGES,
            done=self.text(_DONE + done) if (_DONE + done) in self.console.done_keys else "",
            **values,
        )
        answer = HTMLResponse(page, status)
        if self._new_visitor:
            self.set_cookie(answer, self.console.visitor_cookie, self._new_visitor)
        return answer

    def redirect(self, path: str, done: str = "", /, **query: object) -> Response:
        """Return the answer to a form: the browser gets a page, which says what was `done` (a text `done.NAME`)."""
        return RedirectResponse(url(path, **query, **({"done": done} if done else {})), 303)

    def failed(self, failure: Exception) -> Response:
        """Return the page about a request that cannot be served."""
        if isinstance(failure, WrongInput):
            return self.error(failure.status, self.text(failure.key, **failure.values))
        if isinstance(failure, RemotingError) and failure.code == ResponseCode.TOPIC_NOT_EXIST:
            return self.error(404, described(failure))
        status = 504 if isinstance(failure, (Unreachable, TimeoutError)) else 403 if is_of_access(failure) else 502
        return self.error(status, described(failure))

    def error(self, status: int, why: str) -> Response:
        """Return a page with an error alone."""
        return self.render("error.html", status, why=why)

    def set_cookie(self, answer: Response, name: str, value: str) -> None:
        """Give the browser a cookie that scripts and other sites do not get."""
        is_secure = self.request.headers.get("x-forwarded-proto", self.request.url.scheme) == "https"
        answer.set_cookie(name, value, httponly=True, samesite="strict", path="/", secure=is_secure)


def url(path: str, /, **query: object) -> str:
    """Return a link; values that are None or empty are left out."""
    given = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path

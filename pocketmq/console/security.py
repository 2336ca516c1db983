"""Protection of the console in browsers: which hosts it answers to, where changes may come from, and what pages may load.

Any web page can let a browser send requests to a console on the same machine. So the console refuses names by which a
foreign domain leads to this machine (DNS rebinding), a change needs a token that only the console's own pages have, and
pages run no script and no style but the console's files.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pocketmq.runtime.refusal_log import RefusalLog

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_TOKEN_BYTES: Final = 32


class Protection:
    """ASGI middleware: refuses foreign hosts, and adds the headers that protect a page to each answer."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], refusals: RefusalLog) -> None:
        """`hosts`: the names that are allowed besides localhost and IP addresses."""
        self._app = app
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_static = scope["path"].startswith("/static/")

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                headers.update(_HEADERS)
                headers["cache-control"] = "no-cache" if is_static else "no-store"
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not self._is_allowed(host):
            self._refusals.refused("host", f"refused a request for the host {host[:100]!r}: consoleHosts does not have it")
            refusal = PlainTextResponse("this host name is not allowed: see the key consoleHosts", 421)
            await refusal(scope, receive, send_protected)
            return
        await self._app(scope, receive, send_protected)

    def _is_allowed(self, host: str) -> bool:
        """Return whether a Host header names this console: an address cannot be rebound, a name can."""
        name = host_name(host)
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def host_name(host: str) -> str:
    """Return the name or address of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_same_origin(request: Request) -> bool:
    """Return whether a request was caused by one of the console's own pages, as far as the browser says so."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    return site in ("same-origin", "none") and (origin is None or origin.partition("://")[2] == request.headers.get("host"))


class Tokens:
    """Tokens of forms, one for each browser: the HMAC of the cookie by which the console knows the browser."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_TOKEN_BYTES)

    def of(self, cookie: str) -> str:
        return hmac.new(self._key, cookie.encode(), "sha256").hexdigest()

    def is_valid(self, cookie: str, token: str) -> bool:
        """Return whether a form came from a page that was made for the browser with this cookie."""
        return bool(cookie) and hmac.compare_digest(self.of(cookie).encode(), token.encode())


def new_cookie() -> str:
    """Return a value that cannot be guessed."""
    return secrets.token_urlsafe(_TOKEN_BYTES)

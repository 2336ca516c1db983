"""HttpServer: answers GET requests in a thread of its own, so also while the event loop of the process is stuck.

Its peers are not trusted: connections, the size of a request's head and the time for each step have limits, nothing of a
request but its path and its Accept header is used, and each connection serves one request.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from pocketmq.runtime.admission import Admission
from pocketmq.runtime.refusal_log import RefusalLog

CONNECTIONS_MAX: Final = 32
HEAD_SIZE_MAX: Final = 8192
"""Maximum bytes of a request line with its headers."""
HEAD_MAX_S: Final = 5.0
"""Maximum time for the head of a request to arrive."""
ANSWER_MAX_S: Final = 30.0
"""Maximum time to generate an answer."""
SEND_MAX_S: Final = 15.0
"""Maximum time for a client to receive an answer."""
LINGER_S: Final = 1.0
"""Time given to a refused client to read the answer before its connection is reset."""
STOP_MAX_S: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    """The parts of a request that are used."""

    path: str
    accept: str


class HttpResponse(NamedTuple):
    """Answer to a request."""

    body: bytes
    content_type: str = _TEXT
    status: HTTPStatus = HTTPStatus.OK


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpServer:
    """Server of the `routes`, path -> handler. Handlers run on the event loop of the server's thread."""

    def __init__(
        self, name: str, log: logging.Logger, routes: Mapping[str, Handler], *, head_max_s: float = HEAD_MAX_S
    ) -> None:
        """`name`: the config key of the port, with which the lines of `log` begin."""
        self.port = 0
        self._name = name
        self._log = log
        self._routes = routes
        self._head_max_s = head_max_s
        self._admission = Admission(log, CONNECTIONS_MAX, f"the limit of {name}")
        self._refused = RefusalLog(log, name)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name}-http", daemon=True)
        self._listening: socket.socket | None = None

    def start(self, host: str, port: int) -> None:
        """Listen on `host` and `port` (0: any free one; see `port`). Raises OSError."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        self._listening = socket.create_server(address[:2], family=family, backlog=CONNECTIONS_MAX)
        self.port = int(self._listening.getsockname()[1])
        self._thread.start()

    def close(self) -> None:
        """Close the port and all connections. May be called without `start`, and twice."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the thread has just ended
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(STOP_MAX_S)
        elif not self._loop.is_closed():
            self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:
            self._log.exception("%s: the port is closed", self._name)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listening, limit=HEAD_SIZE_MAX)
        await self._stopping.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        is_admitted = self._admission.has_room(_peer(writer))
        self._admission.count += 1
        if is_admitted:
            self._admission.is_stranger(task, _peer(writer), task.cancel)
        try:
            await self._answer_one(reader, writer, is_admitted=is_admitted)
        except (OSError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception:
            self._log.exception("%s: a request failed", self._name)
            writer.transport.abort()
        finally:
            self._admission.count -= 1
            self._admission.has_spoken(task)

    async def _answer_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_admitted: bool
    ) -> None:  # fmt: skip
        is_head = False
        try:
            if not is_admitted:
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{CONNECTIONS_MAX} requests are being answered")
            method, request = await self._read(reader)
            self._admission.has_spoken(asyncio.current_task())
            is_head = method == "HEAD"
            response, is_refused = await self._response(request), False
        except _Refused as refusal:
            self._refused.refused(refusal.status, f"{_peer(writer)}: {refusal}")
            response, is_refused = HttpResponse(f"{refusal}\n".encode(), status=refusal.status), True
        writer.write(_head(response))
        if not is_head:
            writer.write(response.body)
        async with asyncio.timeout(SEND_MAX_S):
            await writer.drain()
            if is_refused and writer.can_write_eof():
                # A connection that is closed with unread bytes is reset, and its peer may lose the answer.
                writer.write_eof()
                await self._linger(reader)
            writer.close()
            await writer.wait_closed()

    async def _linger(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while await reader.read(HEAD_SIZE_MAX):
                    pass

    async def _read(self, reader: asyncio.StreamReader) -> tuple[str, HttpRequest]:
        """Read the head of a request. Raises _Refused."""
        try:
            async with asyncio.timeout(self._head_max_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            why = f"no complete request within {self._head_max_s:g} s"
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, why) from None
        except asyncio.LimitOverrunError:
            why = f"the request has more than {HEAD_SIZE_MAX} bytes"
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why) from None
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise ConnectionResetError("the client sent nothing") from None
            raise _Refused(HTTPStatus.BAD_REQUEST, "the request is incomplete") from None
        first, *lines = head.decode("latin-1").split("\r\n")
        parts = first.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            *some, last = self._routes
            raise _Refused(HTTPStatus.BAD_REQUEST, f"this port speaks HTTP/1.1: {', '.join(some)} and {last}")
        method, target, _ = parts
        if method not in ("GET", "HEAD"):
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
        accept = ""
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip().lower() == "accept":
                accept = value.strip()
        return method, HttpRequest(target.partition("?")[0], accept)

    async def _response(self, request: HttpRequest) -> HttpResponse:
        handler = self._routes.get(request.path)
        if handler is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"not found: this port serves {', '.join(self._routes)}")
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                return await handler(request)
        except TimeoutError:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"no answer within {ANSWER_MAX_S:g} s") from None


def _head(response: HttpResponse) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if response.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _peer(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if peer else "a closed connection"

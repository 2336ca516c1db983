"""The HTTP server of metricsPort: its answers, and limits on the resources that a hostile client can use."""

import asyncio
import contextlib
import logging
import socket
import time

import pytest

from pocketmq.runtime import http_server
from pocketmq.runtime.http_server import CONNECTIONS_MAX, HEAD_SIZE_MAX, HttpResponse, HttpServer
from tests.patience import PATIENCE_S

LOG = logging.getLogger("metrics")


@pytest.fixture
def server():
    async def hello(request):
        return HttpResponse(f"hello, {request.accept}".encode())

    async def broken(request):
        raise KeyError("x")

    started = HttpServer("metricsPort", LOG, {"/hello": hello, "/broken": broken}, head_max_s=2.0)
    started.start("127.0.0.1", 0)
    yield started
    started.close()


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE_S)


def answer(connection):
    """Return everything that is received until the connection ends."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


def ask(server, text):
    with connect(server) as connection:
        connection.sendall(text.encode())
        return answer(connection)


def test_a_get_is_answered_and_the_connection_closed(server):
    head, _, body = ask(server, "GET /hello?x=1 HTTP/1.1\r\nHost: x\r\nACCEPT: text/plain\r\n\r\n").partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}" in head.split("\r\n")
    assert body == "hello, text/plain"


def test_a_head_request_gets_no_body(server):
    head, _, body = ask(server, "HEAD /hello HTTP/1.0\r\n\r\n").partition("\r\n\r\n")
    assert "Content-Length: 7" in head and body == ""


@pytest.mark.parametrize(
    ("request_text", "status", "said"),
    [
        ("POST /hello HTTP/1.1\r\n\r\n", 405, "only GET and HEAD are served"),
        ("GET /secret HTTP/1.1\r\n\r\n", 404, "not found: this port serves /hello, /broken"),
        ("GET\r\n\r\n", 400, "speaks HTTP/1.1"),
        ("GET /hello HTTP/2\r\n\r\n", 400, "speaks HTTP/1.1"),
        ("GET /hello HTTP/1.1\r\nx: " + "y" * HEAD_SIZE_MAX + "\r\n\r\n", 431, f"more than {HEAD_SIZE_MAX} bytes"),
        ("GET /hello HTTP/1.1\r\n", 408, "no complete request within 2 s"),
    ],
)
def test_error_answers_state_the_problem(server, request_text, status, said):
    found = ask(server, request_text)
    assert found.startswith(f"HTTP/1.1 {status} ")
    assert said in found


def test_failed_request_does_not_affect_the_next(server):
    assert ask(server, "GET /broken HTTP/1.1\r\n\r\n") == ""
    assert ask(server, "GET /hello HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 200 ")


def test_requests_being_answered_are_limited(server):
    released = asyncio.Event()

    async def slow(request):
        await released.wait()
        return HttpResponse(b"")

    server._routes["/slow"] = slow
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(connect(server)).sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        deadline_s = time.monotonic() + PATIENCE_S
        while server._admission._strangers or server._admission.count < CONNECTIONS_MAX:
            assert time.monotonic() < deadline_s
        assert ask(server, "GET /hello HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 503 ")
        server._loop.call_soon_threadsafe(released.set)
        while not (found := ask(server, "GET /hello HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 200 "):
            assert time.monotonic() < deadline_s, found


@pytest.mark.parametrize("begin", [b"", b"GET /hello"])
def test_slow_connections_do_not_keep_a_probe_out(server, begin):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(server)) for _ in range(CONNECTIONS_MAX + 8)]
        for connection in slow:
            connection.sendall(begin)
        for _ in range(3):
            assert ask(server, "GET /hello HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 200 ")
        assert answer(slow[0]) == "", "the oldest was dropped"
        slow[-1].sendall((b"" if begin else b"GET /hello") + b" HTTP/1.1\r\n\r\n")
        assert answer(slow[-1]).startswith("HTTP/1.1 200 "), "not the newest"


def test_a_client_that_reads_nothing_is_dropped(server, monkeypatch):
    monkeypatch.setattr(http_server, "SEND_MAX_S", 0.5)
    big = b"x" * (64 << 20)

    async def much(request):
        return HttpResponse(big)

    server._routes["/much"] = much
    with connect(server) as connection:
        connection.sendall(b"GET /much HTTP/1.1\r\n\r\n")
        deadline_s = time.monotonic() + PATIENCE_S
        while server._admission.count != 1 and time.monotonic() < deadline_s:
            time.sleep(0.01)
        while server._admission.count:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        assert len(answer(connection)) < len(big)


def test_closing_ends_the_thread_and_frees_the_port():
    server = HttpServer("metricsPort", LOG, {})
    server.start("127.0.0.1", 0)
    with connect(server) as silent:
        server.close()
        assert answer(silent) == ""
    assert not server._thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        connect(server)
    server.close()


async def test_requests_are_answered_while_the_event_loop_is_blocked(server):
    # The event loop of this test is blocked by the request itself.
    assert asyncio.get_running_loop().is_running()
    assert ask(server, "GET /hello HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 200 ")

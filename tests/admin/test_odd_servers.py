"""mqadmin with a server that gives invalid answers: it prints one line on standard error and ends."""

import json
import socketserver
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.conftest import Mqadmin


class OddServer(socketserver.ThreadingTCPServer):
    """Answers every request with the same fields and body; without fields it closes the connection."""

    daemon_threads = True
    fields: dict[str, Any] | None = None
    body = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Answers(socketserver.StreamRequestHandler):
    server: OddServer

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(struct.unpack(">I", size)[0])
            header_size = struct.unpack(">I", frame[:4])[0] & 0xFFFFFF
            request = json.loads(frame[4 : 4 + header_size])
            if self.server.fields is None:
                return
            answer = {
                "code": 0,
                "flag": 1,
                "language": "JAVA",
                "version": 401,
                "opaque": request["opaque"],
                **self.server.fields,
            }
            header = json.dumps(answer).encode()
            self.wfile.write(
                struct.pack(">II", 4 + len(header) + len(self.server.body), len(header)) + header + self.server.body
            )


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with OddServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"5",
    b'{"brokerAddrTable":5}',
    b'{"topicList":{}}',
    b"{" * 5000,
    b"\xff\xfe",
    b'{"a":[1,2]}',
]


@pytest.mark.parametrize("body", BODIES, ids=[repr(body[:20]) for body in BODIES])
def test_an_unexpected_body_is_reported_in_one_line(alone: Mqadmin, odd: OddServer, body: bytes) -> None:
    odd.fields, odd.body = {}, body
    for command in (
        ("clusterList",),
        ("topicList",),
        ("topicStatus", "-t", "T"),
        ("brokerStatus", "-b", odd.address),
        ("getAclConfig", "-b", odd.address),
        ("haStatus", "-b", odd.address),
        ("exportMetadata", "-b", odd.address, "-t", "-f", "/dev/null"),
        ("wipeWritePerm", "-b", "broker-a"),
        ("updateOrderConf", "-t", "T", "-m", "get"),
        ("clusterAclConfigVersion", "-b", odd.address),
    ):
        printed = alone(*command, "-n", odd.address)
        assert "Traceback" not in printed.err
        assert printed.err.count("\n") <= 1, printed.err
        if not body.startswith(b'{"'):  # an object without the known fields is an empty list
            assert printed.err or printed.out, command


def test_a_remark_cannot_control_the_terminal(alone: Mqadmin, odd: OddServer) -> None:
    odd.fields = {"code": 1, "remark": "no\x1b[2J\x07 \x9b31m"}
    printed = alone("topicList", "-n", odd.address)
    assert printed.err == "mqadmin: error: CODE: 1  DESC: no?[2J? ?31m\n"


def test_a_server_that_closes_the_connection(alone: Mqadmin, odd: OddServer) -> None:
    printed = alone("topicList", "-n", odd.address, "--json")
    assert printed.exit_code == 1
    assert odd.address in printed.json["error"]["message"]

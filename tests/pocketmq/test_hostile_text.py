"""Tags, keys, bodies and answers of servers can neither control the terminal nor act as markup, in all commands."""

import ast
import asyncio
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.text import Text

import pocketmq
from pocketmq.admin.tool import main as mqadmin
from pocketmq.cli.main import main
from pocketmq.cli.processes import Server, start_broker, start_namesrv
from pocketmq.client.message import Message
from pocketmq.client.producer import Producer
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.spark_analytics.__main__ import main as spark_analytics
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S
from tests.support.commands import call

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[/x][red]:warning:"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MARKUP = "[/x][red]:warning:"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """A name server, and a broker that has hostile messages: one to be consumed, one delayed."""
    folder = tmp_path_factory.mktemp("hostile")
    namesrv = start_namesrv(folder)
    broker = start_broker(folder, namesrv.address, {"mappedFileSizeCommitLog": str(1 << 20), "brokerName": "b"})

    async def send() -> None:
        async with Producer(namesrv.address, "p") as producer:
            for properties in ({"a": HOSTILE}, {"TIMER_DELAY_SEC": "3600", "a": HOSTILE, "UNIQ_KEY": "U"}):
                # A send that is given up and repeated would store the message twice.
                message = Message("T", HOSTILE.encode(), HOSTILE, HOSTILE, properties=properties)
                await producer.send(message, timeout_s=PATIENCE_S)

    try:
        asyncio.run(send())
        yield namesrv, broker
    finally:
        broker.stop()
        namesrv.stop()


MAINS: dict[str, Callable[[list[str]], object]] = {
    "pocketmq": main, "pocketmq.admin": mqadmin, "pocketmq.spark_analytics": spark_analytics,
}  # fmt: skip


def shown(program: str, *arguments: object) -> str:
    """Return what a command writes into its pipes."""
    done = call(MAINS[program], *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "pocketmq consume T --from-start --count 1",
        "pocketmq delay ls",
        "pocketmq delay show U",
        "pocketmq delay ls --json",
        "pocketmq.admin printMsg -t T",
        "pocketmq.admin printMsg -t T --json",
    ],
)
def test_commands_that_ask_servers(servers: tuple[Server, Server], arguments: str) -> None:
    text = shown(*arguments.split(), "-n", servers[0].address)
    assert MARKUP in text
    assert not CONTROL.search(text), text


@pytest.mark.parametrize("arguments", ["show", "show --json"])
def test_dead_letters(servers: tuple[Server, Server], arguments: str) -> None:
    with Connection(servers[1].address) as connection:
        (sent,) = (one for queue_id in range(4) for one in connection.read_queue("T", queue_id, "Dead"))
        connection.send_back("Dead", sent, -1)
    text = shown("pocketmq", "dlq", *arguments.split(), "Dead", "-n", servers[0].address)
    assert MARKUP in text
    assert not CONTROL.search(text), text


@pytest.mark.parametrize("arguments", ["dump --format table --body text", "dump --body text", "explain"])
def test_commands_that_read_a_store(servers: tuple[Server, Server], arguments: str) -> None:
    command, *options = arguments.split()
    root = Path(servers[1].out).parent / "store"
    place = f"{root}:0" if command == "explain" else str(root)
    text = shown("pocketmq", "store", command, place, *options)
    assert MARKUP in text
    assert not CONTROL.search(text), text


def test_json_has_the_exact_text(servers: tuple[Server, Server]) -> None:
    command = [sys.executable, "-P", "-m", "pocketmq", "delay", "ls", "--json", "-n", servers[0].address]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    (message,) = map(json.loads, done.stdout.decode().splitlines())
    assert message["tags"] == HOSTILE
    assert not CONTROL.search(done.stdout.decode())


@pytest.mark.spark
@pytest.mark.parametrize("arguments", ["report --engine direct", "audit --engine direct", "trace"])
def test_commands_that_analyse_a_store(servers: tuple[Server, Server], arguments: str, tmp_path: Path) -> None:
    command, *options = arguments.split()
    root = Path(servers[1].out).parent / "store"
    options += {"report": ["--out", str(tmp_path)], "trace": ["U"]}.get(command, [])
    text = shown("pocketmq.spark_analytics", command, root, *options)
    assert command != "trace" or MARKUP in text
    assert not CONTROL.search(text), text


def test_styles_of_our_own_reach_a_terminal() -> None:
    out = io.StringIO()
    Printer(file=out, force_terminal=True, color_system="standard").print(Text(HOSTILE, "bold"), HOSTILE)
    assert MARKUP in out.getvalue()
    assert not CONTROL.search(out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", ""))
    assert "\x1b[1m" in out.getvalue()


def test_all_commands_print_by_the_printer() -> None:
    """Modules without a command of their own, and the servers' ready lines, are not looked at."""
    package = Path(pocketmq.__file__).parent
    own = package / "runtime" / "command_line"
    places = []
    for folder in ("admin", "cli", "client", "runtime/command_line", "spark_analytics", "store_tools"):
        for path in (package / folder).rglob("*.py"):
            if path in (own / "commands.py", own / "printer.py", own / "server_arguments.py"):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "print",
                    "click.echo",
                    "Console",
                    "sys.stdout.write",
                ):
                    places.append(f"{path}:{node.lineno}")
    assert not places

"""`pocketmq console` and `pocketmq up --console`: address, settings, stop by a signal, and errors of the start."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from pocketmq.cli.processes import Server, start_up
from tests.patience import PATIENCE_S

PROGRAM = [sys.executable, "-P", "-m", "pocketmq"]
ADDRESS = re.compile(r"The console boot success\. address=(http://\S+/) \((.*)\)")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_up(tmp_path_factory.mktemp("up"), "--memory", "--console", "0")
    yield running
    assert running.stop() == 0


def test_up_serves_a_console_that_may_change_things(up):
    url, mode = ADDRESS.search(up.out.read_text()).groups()
    assert mode == "changes are allowed"
    page = httpx.get(f"{url}topics")
    assert page.status_code == 200
    assert "/topics/create" in page.text


@pytest.mark.parametrize("servers", [("--memory",), ("--brokers", "1")], ids=["one process", "cluster"])
def test_the_console_of_up_connects_by_tls_if_the_servers_demand_it(tmp_path, servers):
    tls = ("--set", "tls.server.mode=enforcing", "--set", "tls.test.mode.enable=true")
    store = () if servers == ("--memory",) else ("--store", str(tmp_path / "store"))
    running = start_up(tmp_path, *servers, *store, "--console", "0", *tls)
    try:
        url, _ = ADDRESS.search(running.out.read_text()).groups()
        page = httpx.get(f"{url}topics?all=1")
        assert "TBW102" in page.text
    finally:
        running.stop()


def test_the_console_runs_by_its_file_until_a_signal(up, tmp_path):
    config = tmp_path / "console.conf"
    config.write_text(f"namesrvAddr={up.address}\nconsoleWrite=true\nconsolePort=8088\nconsoleSesionsMax=3\n")
    command = [*PROGRAM, "console", "-c", str(config), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        url, mode = ADDRESS.search(running.stdout.readline()).groups()
        assert mode == "changes are allowed"
        assert httpx.get(f"{url}health").text == "ok\n"
        assert httpx.get(url).status_code == 200
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
        assert "did you mean consoleSessionsMax?" in running.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--port", "{taken}"], 1, "the port is taken"),
        (["--port", "99999"], 2, "--port 99999"),
        (["-c", "/no/such/file"], 2, "/no/such/file"),
        (["--host", "no such host", "--port", "0"], 1, "cannot listen"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, code, error):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [word.format(taken=taken.getsockname()[1]) for word in arguments]
        ended = subprocess.run([*PROGRAM, "console", *given], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == code
    assert error in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_console_is_not_imported_by_the_other_commands():
    script = "import pocketmq.cli.up, sys; print(sorted({'starlette', 'uvicorn', 'jinja2'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.stdout.strip() == "[]"

"""The `pocketmq` command as a user runs it: servers are processes on free ports, and so is one command of each kind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.main import main
from tests.patience import PATIENCE_S
from tests.support.commands import call


def pocketmq(*arguments: str, text: str = "", timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout_s)


class Up:
    """A running `pocketmq up`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.out = folder / "up.out"
        with open(self.out, "wb") as out:
            command = [sys.executable, "-m", "pocketmq", "up", "--port", "0", *arguments]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        deadline = time.monotonic() + PATIENCE_S
        while len(self.ready_addresses()) < 2:
            assert self.process.poll() is None and time.monotonic() < deadline, self.out.read_text()
            time.sleep(0.01)
        self.namesrv, self.broker = self.ready_addresses()

    def ready_addresses(self) -> list[str]:
        return re.findall(r"boot success.*address=(\S+:\d+)\s", self.out.read_text())

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("up")
    server = Up(folder, "--memory")
    try:
        yield server
    finally:
        assert server.stop() == 0
        assert [path.name for path in folder.iterdir()] == ["up.out"]  # --memory leaves no files


def test_produced_message_is_consumed(up: Up) -> None:
    sent = pocketmq("produce", "T", "hello", "wor[ld]", "-n", up.namesrv, "--tag", "a", "--key", "k1")
    assert sent.returncode == 0, sent.stderr
    assert [line.split()[0] for line in sent.stdout.splitlines()] == ["SEND_OK", "SEND_OK"]
    got = pocketmq("consume", "T", "-n", up.namesrv, "--from-start", "--count", "2", "--timeout", "20")
    assert got.returncode == 0, got.stderr
    assert sorted(line.split()[-1] for line in got.stdout.splitlines()) == ["hello", "wor[ld]"]
    assert "tag=a key=k1" in got.stdout


def test_lines_of_standard_input_are_sent_as_messages(up: Up) -> None:
    sent = pocketmq("produce", "Lines", "-n", up.namesrv, text="one\ntwo\n")
    assert len(sent.stdout.splitlines()) == 2
    got = pocketmq("consume", "Lines", "-n", up.namesrv, "--from-start", "--count", "2", "--timeout", "20")
    assert sorted(line.split()[-1] for line in got.stdout.splitlines()) == ["one", "two"]


def test_consume_fails_below_its_count_and_waits_for_delayed_messages(up: Up) -> None:
    assert call(main, "produce", "Later", "later", "-n", up.namesrv, "--delay-level", "1").returncode == 0
    # The topic exists already, but the message has not been delivered yet.
    early = call(
        main, "consume", "Later", "-n", up.namesrv, "--from-start", "--count", "9", "--timeout", "3", "--group", "g"
    )
    assert (early.returncode, early.stdout.split()[-1:]) == (1, ["later"])


def test_consume_continues_at_the_offset_of_its_group(up: Up) -> None:
    call(main, "produce", "Twice", "first", "-n", up.namesrv)
    again = ["consume", "Twice", "-n", up.namesrv, "--group", "kept", "--count", "1", "--timeout", "20"]
    assert call(main, *again, "--from-start").stdout.split()[-1] == "first"
    call(main, "produce", "Twice", "second", "-n", up.namesrv)
    assert call(main, *again).stdout.split()[-1] == "second"


def test_error_for_an_unknown_topic_shows_how_to_create_it(up: Up) -> None:
    failed = pocketmq("consume", "Nowhere", "-n", up.namesrv)
    assert failed.returncode == 1
    assert failed.stderr == "pocketmq: error: topic 'Nowhere' does not exist; `pocketmq produce Nowhere hello` creates it\n"


def test_store_survives_a_restart(tmp_path: Path) -> None:
    for body in ("before", "after"):
        server = Up(tmp_path, "--store", "kept")
        try:
            assert call(main, "produce", "T", body, "-n", server.namesrv).returncode == 0
            expected = ["before"] if body == "before" else ["before", "after"]
            count = str(len(expected))
            got = call(main, "consume", "T", "-n", server.namesrv, "--from-start", "--count", count, "--timeout", "20")
            assert sorted(line.split()[-1] for line in got.stdout.splitlines()) == sorted(expected)
        finally:
            assert server.stop() == 0
    assert (tmp_path / "kept" / "commitlog").is_dir()


def test_error_for_a_dead_name_server_names_its_address() -> None:
    with socket.socket() as taken:  # bound but not listening, so connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        failed = pocketmq("produce", "T", "hello", "-n", address)
    assert failed.returncode == 1
    assert address in failed.stderr and "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "--port", "70000"], "--port 70000: expected a whole number from 0 to 65515"),
        (["up", "--memory", "--store", "x"], "use only one of them"),
        (["up", "--advertise", "host:port"], "--advertise host:port: expected HOST or HOST:PORT"),
        (["produce", "T", "x", "--delay-level", "19"], "--delay-level 19: expected a whole number from 0 to 18"),
        (["produce", "T", "x", "--count", "0"], "--count 0: expected a whole number not below 1"),
        (["fly"], "unknown command 'fly'"),
        ([], "no command is given"),
    ],
)
def test_invalid_arguments_are_reported(arguments: list[str], said: str) -> None:
    failed = call(main, *arguments)
    assert (failed.returncode, said in failed.stderr) == (2, True), failed.stderr


def test_help_does_not_import_the_servers() -> None:
    code = (
        "import sys; sys.argv = ['pocketmq', '--help']\n"
        "from pocketmq.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'asyncio', 'msgspec', 'rich', 'broker', 'numpy', 'pyspark'} & sys.modules.keys()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert shown.stdout.splitlines()[-1] == "[]"
    assert "pocketmq up --memory" in shown.stdout

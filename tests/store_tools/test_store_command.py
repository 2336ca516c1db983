"""Command line of `pocketmq store`: most commands in this process, and each kind of end also as a process."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli.main import main
from pocketmq.runtime.clock import VirtualClock
from tests.store_tools.made_stores import NOW_MS, flip, made, opened
from tests.support.commands import call

COMMANDS = ("verify", "dump", "explain", "repair", "export", "import")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("command") / "store", 60)


def run(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    return call(main, "store", *arguments, text=text)


def run_process(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq", "store", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)


def test_help_has_examples_and_all_commands() -> None:
    above = run("--help")
    assert above.returncode == 0 and all(command in above.stdout for command in COMMANDS) and "Examples:" in above.stdout
    assert "Exit codes:" in run("verify", "--help").stdout
    listed = subprocess.run([sys.executable, "-m", "pocketmq", "--help"], capture_output=True, text=True, timeout=60)
    assert "store" in listed.stdout


def test_verify_output_and_exit_codes(root: Path, tmp_path: Path) -> None:
    valid = run("verify", root)
    assert (valid.returncode, valid.stdout.splitlines()[-1], valid.stderr) == (0, "valid", "")
    found = json.loads(run("verify", root, "--json", "--workers", 2).stdout)
    assert (found["exitCode"], found["records"], found["units"], found["findings"]) == (0, 72, 72, [])
    damaged = made(tmp_path / "store", 20)
    flip(damaged / "commitlog" / f"{0:020}", 115)
    told = run_process("verify", damaged)
    assert told.returncode == 1 and f"damage: {damaged}/commitlog/{0:020}:0: " in told.stdout
    assert "the log is damaged" in told.stdout


def test_verify_shows_progress_on_a_terminal(root: Path) -> None:
    above, below = pty.openpty()
    command = [sys.executable, "-m", "pocketmq", "store", "verify", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=below, env={**os.environ, "TERM": "xterm"})
    os.close(below)
    shown = b""
    try:
        while part := os.read(above, 4096):
            shown += part
    except OSError:
        pass  # reading fails once the last writer has closed the terminal
    os.close(above)
    assert process.wait(60) == 0 and b"verify" in shown and b"kB" in shown


def test_dump_and_explain(root: Path) -> None:
    rows = [json.loads(line) for line in run("dump", root, "--topic", "Topic1", "--queue-offset", "2:4").stdout.splitlines()]
    assert {row["queueOffset"] for row in rows} == {2, 3}
    assert len(run("dump", root, "--limit", "7", "--format", "table").stdout.splitlines()) == 8
    drawn = run("explain", f"{root}:{rows[0]['physicalOffset']}")
    assert drawn.returncode == 0 and "points at it" in drawn.stdout
    # A reader that closes the pipe early ends the command without an error message.
    piped = f"{sys.executable} -m pocketmq store dump {root} | head -1"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.parametrize(("signal_number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_dump_without_output(root: Path, signal_number: int, exit_code: int) -> None:
    command = [sys.executable, "-m", "pocketmq", "store", "dump", str(root), "--body", "hex"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"{"  # it has begun, and is blocked by the full pipe
    process.send_signal(signal_number)
    process.stdout.close()
    assert (process.wait(60), process.stderr.read() if process.stderr else b"?") == (exit_code, b"")


OWNER = """
import concurrent.futures, multiprocessing, os, signal, sys, types
from pocketmq.store_tools.check import log_check

if __name__ == "__main__":
    plan = types.SimpleNamespace(root=sys.argv[1], commit_log_folder=sys.argv[1] + "/commitlog")
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(1, context, log_check._begin_worker, (plan,))
    assert pool.submit(os.getpid).result() != os.getpid()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_parent_is_killed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "owner.py").write_text(OWNER)
    # The worker inherits this pipe, so end-of-file means that it has ended too.
    done = subprocess.run([sys.executable, tmp_path / "owner.py", root], stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_export_and_import(root: Path, tmp_path: Path) -> None:
    text = run("export", root, "--topic", "Topic0")
    assert text.returncode == 0 and "30 records exported" in text.stderr
    told = run_process("import", tmp_path / "copy", "-", "--keep-times", text=text.stdout)
    assert told.returncode == 0 and "30 records imported, 0 refused" in told.stderr
    assert run("verify", tmp_path / "copy").returncode == 0
    refused = run("import", tmp_path / "copy", "-", text="{}\n")
    assert refused.returncode == 1 and "line 1 refused: bodyBase64 is missing" in refused.stderr


def test_a_store_in_use_is_read_but_not_written(tmp_path: Path) -> None:
    root = made(tmp_path / "store", 30)
    store = opened(root, VirtualClock(NOW_MS))
    try:
        seen = json.loads(run_process("verify", root, "--json").stdout)
        assert (seen["exitCode"], seen["running"]) == (0, True)
        for command in (("repair", root, "--yes"), ("import", root, "-")):
            refused = run_process(*command)
            assert (
                refused.returncode == 3 and "a broker is running on" in refused.stderr and "stop it first" in refused.stderr
            )
    finally:
        store.shutdown()
    repaired = run("repair", root, "--yes")
    assert repaired.returncode == 0 and repaired.stdout.splitlines()[-1] == "valid"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("verify", "/nowhere"), 3, "there is no folder /nowhere: give the store's root"),
        (("verify", "/usr"), 3, "is not a store: there is no folder /usr/commitlog"),
        (("verify", __file__), 3, "is a file: give the store's root"),
        (("import", "/nowhere/store", "/nowhere/file"), 3, "cannot read /nowhere/file: No such file"),
        (("dump", "{root}", "--from", "soon"), 64, "--from soon: expected a time such as"),
        (("dump", "{root}", "--queue-offset", "a:b"), 64, "--queue-offset a:b: expected A:B"),
        (("dump", "{root}", "--limit", "-1"), 64, "--limit -1: expected a whole number not below 0"),
        (("verify", "{root}", "--delay-level", "1s 2x"), 64, "level 2 is '2x'"),
        (("verify", "{root}", "--workers", "-1"), 64, "--workers"),
        (("explain", "{root}"), 64, "is not a valid place: expected ROOT:PHYSICAL_OFFSET"),
        (("explain", "{root}:999999999"), 64, "not 999999999"),
    ],
)
def test_user_errors_are_explained(root: Path, arguments: tuple[str, ...], exit_code: int, said: str) -> None:
    told = run(*(argument.format(root=root) for argument in arguments))
    assert (told.returncode, told.stdout) == (exit_code, "") and said in told.stderr and "Traceback" not in told.stderr

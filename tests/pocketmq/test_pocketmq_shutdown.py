"""`mqshutdown` finds our servers and no other processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli.shutdown import is_server, main, running


@pytest.mark.parametrize(
    ("command_line", "kind"),
    [
        (["python", "-m", "broker", "-n", "127.0.0.1:9876"], "broker"),
        (["/usr/bin/python3.11", "-X", "-m", "broker"], "broker"),
        (["/x/.venv/bin/python3", "/x/.venv/bin/mqbroker", "-c", "broker.conf"], "broker"),
        (["python3", "-u", "-m", "namesrv"], "namesrv"),
        (["python3", "/usr/local/bin/mqnamesrv"], "namesrv"),
    ],
)
def test_servers_are_recognised_by_command_line(command_line: list[str], kind: str) -> None:
    assert is_server(command_line, kind)
    assert not is_server(command_line, "namesrv" if kind == "broker" else "broker")


@pytest.mark.parametrize(
    "command_line",
    [
        [],
        ["bash", "-c", "python -m broker"],
        ["vim", "broker"],
        ["java", "-cp", "x", "org.apache.rocketmq.broker.BrokerStartup"],
        ["python", "-m", "pytest", "tests/broker", "-m", "broker"],
        ["python", "tool.py", "-m", "broker"],
        ["python", "-m", "brokers"],
    ],
)
def test_other_processes_are_not_recognised(command_line: list[str]) -> None:
    assert not is_server(command_line, "broker")


def test_running_reads_proc(tmp_path: Path) -> None:
    for pid, words in {"11": ["python", "-m", "broker"], "12": ["python", "-m", "namesrv"], "13": []}.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (tmp_path / "14").mkdir()  # a process that ended between listing and reading
    (tmp_path / "sys").mkdir()
    assert list(running("broker", tmp_path)) == [11]
    assert list(running("namesrv", tmp_path)) == [12]


def test_server_receives_sigterm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr("pocketmq.cli.shutdown.running", lambda kind: iter([child.pid]))
    try:
        with pytest.raises(SystemExit) as ended:
            main(["broker"])
        assert ended.value.code == 0
        assert child.wait(10) == -signal.SIGTERM
    finally:
        child.kill()
    assert f"Send shutdown request to mqbroker({child.pid}) OK" in capsys.readouterr().out


def test_shutdown_without_servers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.cli.shutdown.running", lambda kind: iter([]))
    with pytest.raises(SystemExit) as ended:
        main(["namesrv"])
    assert ended.value.code == "No mqnamesrv running."


def test_own_process_is_not_found() -> None:
    assert os.getpid() not in [*running("broker"), *running("namesrv")]

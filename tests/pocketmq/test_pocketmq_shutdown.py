"""`mqshutdown` stops this user's brokers and name servers, and no other process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli import processes
from pocketmq.runtime import pid_file
from tests.patience import PATIENCE_S

HOST = os.uname().nodename


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POCKETMQ_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def mqshutdown(kind: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pocketmq.cli.shutdown", kind], capture_output=True, text=True, timeout=60)


def test_brokers_on_two_stores_are_stopped_and_reported(tmp_path: Path, run_folder: Path) -> None:
    namesrv = processes.start_namesrv(tmp_path / "namesrv")
    brokers = [
        processes.start_broker(tmp_path / name, namesrv.address, {"brokerName": name}) for name in ("first", "second")
    ]
    try:
        stopped = mqshutdown("broker")
        assert stopped.returncode == 0, stopped.stderr
        for name, broker in zip(("first", "second"), brokers, strict=True):
            assert f"The mqbroker({broker.process.pid}) is running on {tmp_path / name / 'store'}..." in stopped.stdout
            assert f"Send shutdown request to mqbroker({broker.process.pid}) OK" in stopped.stdout
            assert not (tmp_path / name / "store" / "abort").exists(), "it has stopped cleanly by now"
            assert broker.process.wait(PATIENCE_S) == 0
        assert namesrv.process.poll() is None
        assert mqshutdown("namesrv").returncode == 0
        assert namesrv.process.wait(PATIENCE_S) == 0
    finally:
        for server in (*brokers, namesrv):
            server.stop()
    assert list(run_folder.iterdir()) == []
    assert (mqshutdown("broker").returncode, mqshutdown("namesrv").returncode) == (255, 255)


def test_absence_of_running_servers_is_reported(run_folder: Path) -> None:
    ended = mqshutdown("namesrv")
    assert (ended.returncode, ended.stdout) == (255, "No mqnamesrv running.\n")


def test_another_projects_broker_module_is_not_stopped(tmp_path: Path) -> None:
    (tmp_path / "broker.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    with subprocess.Popen([sys.executable, "-m", "broker"], cwd=tmp_path, stdout=subprocess.PIPE, env=_plain()) as foreign:
        try:
            assert foreign.stdout is not None and foreign.stdout.readline() == b"up\n"
            assert mqshutdown("broker").returncode == 255
            assert foreign.poll() is None
        finally:
            foreign.kill()


def test_process_with_the_pid_of_a_killed_broker_is_not_stopped(run_folder: Path) -> None:
    run_folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        left = run_folder / f"mqbroker.{HOST}.{other.pid}"
        left.write_text("/store")
        assert mqshutdown("broker").returncode == 255
        assert other.poll() is None
        assert not left.exists()
        other.communicate(b"\n")
        assert other.returncode == 0


def test_killed_broker_is_not_reported_as_running(tmp_path: Path, run_folder: Path) -> None:
    broker = processes.start_broker(tmp_path / "broker", "")
    assert [path.name for path in run_folder.iterdir()] == [f"mqbroker.{HOST}.{broker.process.pid}"]
    broker.process.kill()
    broker.process.wait()
    assert mqshutdown("broker").stdout == "No mqbroker running.\n"
    assert list(run_folder.iterdir()) == []


def test_server_that_ended_after_it_was_found_gets_no_signal(run_folder: Path) -> None:
    run_folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as reused:
        path = run_folder / f"mqbroker.{HOST}.{reused.pid}"
        path.touch()
        assert not pid_file.RunningServer(reused.pid, "/store", path).terminate()
        reused.communicate(b"\n")
        assert reused.returncode == 0


def test_servers_of_other_machines_that_share_the_home_are_left_alone(run_folder: Path) -> None:
    run_folder.mkdir()
    theirs = run_folder / "mqbroker.elsewhere.1"
    theirs.write_text("/store")
    assert mqshutdown("broker").returncode == 255
    assert theirs.exists()


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCKETMQ_RUN", str(tmp_path / "file"))
    with pid_file.registered("mqbroker", "/store"):
        assert "mqbroker has no pid file, so mqshutdown will not find it" in caplog.text


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

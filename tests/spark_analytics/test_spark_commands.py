"""Commands of `python -m pocketmq.spark_analytics`: arguments, exit codes and signals."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.spark_analytics import __main__
from pocketmq.spark_analytics.__main__ import main

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{folder}/absent"], "error: no store at {folder}/absent: no such file or folder"),
        (["{folder}"], "error: no commit log in {folder}: neither a folder"),
        (["{folder}/new"], "error: the commit log of {folder}/new has no files"),
        (["{folder}/new", "--delay-level", "1s 5x"], "5x"),
    ],
)
def test_bad_arguments_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    assert main(["report", *(argument.format(folder=tmp_path) for argument in arguments)]) == 2
    assert says.format(folder=tmp_path) in capsys.readouterr().err


class EndedSession:
    """Test double of a session whose use sends SIGTERM to this process; the command must not continue after it."""

    class sparkContext:
        @staticmethod
        def statusTracker() -> None:
            return None

    def __getattr__(self, name: str) -> Any:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError(f"went on to {name} after SIGTERM")


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--out", "out", "--engine", "spark"],
        ["export", "--out", "out"],
        ["audit", "--engine", "spark"],
        ["trace", "shared-0", "--scan", "--engine", "spark"],
    ],
    ids=lambda a: a[0],
)
def test_sigterm_ends_every_command(
    golden_stores: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(__main__, "local_session", lambda *arguments, **settings: EndedSession())
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main([arguments[0], str(golden_stores["v4_clean"]), *arguments[1:]])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 128 + signal.SIGTERM
    said = capfd.readouterr()
    assert said.out == "" and "Error" not in said.err
    # Nothing is left that a later run would take for data.
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], ["lock"])


def test_sigterm_ends_the_report(golden_stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS")  # use the command's own JVM options
    with subprocess.Popen(
        [sys.executable, "-m", "pocketmq.spark_analytics", "report", str(golden_stores["v4_clean"]), "--out", "out"]
        + ["--engine", "spark"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("reading:"):
                break
        process.send_signal(signal.SIGTERM)
        # The JVM also holds the pipe, so reading to the end waits for both processes.
        rest = process.stderr.read()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert "Traceback" not in rest
    assert not (tmp_path / "out").exists()


def test_damage_is_reported_without_stack_traces(
    command: Callable[..., int], golden_stores: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden_stores["v4_clean"], store)
    path = min((store / "commitlog").iterdir())
    path.write_bytes(path.read_bytes()[:5000] + b"\xff" * 200 + path.read_bytes()[5200:])
    assert command("export", store, "--out", tmp_path / "out") == 1
    said = capfd.readouterr().err
    assert "error: [ROCKETMQ_DAMAGED_RECORD] damaged record at physical offset 4910" in said
    assert "\tat " not in said and "Traceback" not in said


def test_lines_in_a_pipe_are_not_wrapped(
    command: Callable[..., int], golden_stores: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("trace", golden_stores["v4_clean"], "shared-0") == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 120

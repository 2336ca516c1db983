"""Projects whose tests use a kit: copied to a folder of the test, and run with their toolchain."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import toolchain
from tests.pocketmq.test_killed_parent import children, until_ended
from tests.pocketmq.test_testing_page import PAGE as TESTING_PAGE
from tests.pocketmq.test_testing_page import examples

ROOT = Path(__file__).parents[3]
KITS = ROOT / "kits"
TIMEOUT_S = 600


def program(folder: Path) -> Path:
    """Write a program `pocketmq` that runs these sources."""
    path = folder / "pocketmq"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m pocketmq "$@"\n')
    path.chmod(0o755)
    return path


def project(name: str, folder: Path) -> Path:
    """Copy a project of the tests, and return the copy."""
    return Path(shutil.copytree(Path(__file__).parent / name, folder / name))


def example(language: str) -> str:
    """Return the first example of docs/testing.md in a language."""
    return examples(TESTING_PAGE, language)[0]


def run(*command: str | Path, cwd: Path, env: Mapping[str, str]) -> str:
    """Run a program, which must succeed; return its output."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def check_end_with_parent(command: Sequence[str], folder: Path, program: Path) -> None:
    """Check that a server ends with a process that is killed. That process prints its broker's address and waits.

    The helper in it finds the server's program on the PATH.
    """
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "POCKETMQ": ""}
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as parent:
        try:
            assert parent.stdout is not None
            line = parent.stdout.readline()
            assert re.fullmatch(r"127\.0\.0\.1:\d+\n", line), line + parent.stdout.read()
            pids = children(parent.pid)
            assert len(pids) == 1
        finally:
            parent.send_signal(signal.SIGKILL)
    until_ended(pids)


def maven_repository() -> Path:
    """Return a local repository of the tests, beside the user's, into which nothing of these sources gets."""
    return toolchain.CACHE / "interop" / "m2"

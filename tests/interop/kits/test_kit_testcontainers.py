"""PocketMQContainer with testcontainers from PyPI, in place of a container engine one that starts processes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.interop import toolchain
from tests.interop.kits import running

PACKAGE = "testcontainers==4.15.0"


def libraries() -> Path:
    """Return the folder with testcontainers and its dependencies."""

    def install(target: Path) -> None:
        options = ("-q", "--disable-pip-version-check", "--only-binary=:all:", "--target", target)
        toolchain.run(sys.executable, "-m", "pip", "install", *options, PACKAGE)

    return toolchain.made_once(toolchain.CACHE / "interop" / PACKAGE.replace("==", "-"), PACKAGE, install)


def test_a_project_s_tests_use_the_container(tmp_path: Path) -> None:
    folder = running.project("containers", tmp_path)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(running.ROOT), str(libraries())])}
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temp'}"]
    done = subprocess.run(
        [*command, "container_story.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=running.TIMEOUT_S
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr

"""The Go helper, in a module with RocketMQ's client."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.drivers import needed
from tests.interop.kits import running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A module that requires the helper's, with `replace`."""
    with needed("Go helper"):
        toolchain.require_go()
    folder = running.project("go", tmp_path)
    for change in ("-require=pocketmq.org/kit@v0.0.0", f"-replace=pocketmq.org/kit={running.KITS / 'go'}"):
        running.run("go", "mod", "edit", change, cwd=folder, env={})
    (folder / "page_test.go").write_text(running.example("go"))
    return folder


def test_a_project_s_tests_use_the_helper(project: Path, tmp_path: Path) -> None:
    env = {"POCKETMQ": str(running.program(tmp_path)), "HOME": str(tmp_path), **_folders_of_go()}
    shown = running.run("go", "test", "-count=1", "-v", "./...", cwd=project, env=env)
    assert len(re.findall(r"^--- PASS", shown, re.MULTILINE)) == 6, shown


def test_the_server_ends_with_a_killed_process(project: Path, tmp_path: Path) -> None:
    running.run("go", "build", "-o", "held-server", "./held", cwd=project, env={})
    running.check_end_with_parent([str(project / "held-server")], project, running.program(tmp_path))


def test_the_helper_is_formatted_and_needs_the_standard_library_only() -> None:
    with needed("Go helper"):
        toolchain.require_go()
    folder = running.KITS / "go"
    assert running.run("gofmt", "-l", ".", cwd=folder, env={}) == ""
    running.run("go", "vet", "./...", cwd=folder, env={})
    assert "require" not in (folder / "go.mod").read_text()


def _folders_of_go() -> dict[str, str]:
    """Return the folders of Go's caches: the client's log is written below $HOME, which the test moves."""
    names = ("GOPATH", "GOCACHE", "GOMODCACHE")
    values = subprocess.run(["go", "env", *names], capture_output=True, text=True, check=True, timeout=60).stdout.split()
    return dict(zip(names, values, strict=True))

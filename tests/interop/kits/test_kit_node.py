"""The Node helper, in a project with RocketMQ's gRPC client and `node --test`."""

import re
import shutil
from pathlib import Path

import pytest

from tests.interop.drivers import needed
from tests.interop.grpc import installs
from tests.interop.kits import running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project in which the helper is installed."""
    with needed("Node helper"):
        modules = installs.node_modules()
    folder = running.project("node", tmp_path)
    (folder / "node_modules").mkdir()
    for path in modules.iterdir():
        (folder / "node_modules" / path.name).symlink_to(path)
    shutil.copytree(running.KITS / "node", folder / "node_modules" / "pocketmq-test")
    return folder


def test_a_project_s_tests_use_the_helper(project: Path, tmp_path: Path) -> None:
    env = {"POCKETMQ": str(running.program(tmp_path)), "HOME": str(tmp_path)}
    (project / "page.test.js").write_text(running.example("js"))
    shown = running.run("node", "--test", "shop.test.js", "page.test.js", cwd=project, env=env)
    assert re.search(r"^# pass 6$", shown, re.MULTILINE) and re.search(r"^# fail 0$", shown, re.MULTILINE), shown


def test_the_server_ends_with_a_killed_process(project: Path, tmp_path: Path) -> None:
    running.check_end_with_parent(["node", "held.mjs"], project, running.program(tmp_path))


def test_the_package_contains_what_it_needs() -> None:
    with needed("Node helper"):
        installs.node_modules()
    folder = running.KITS / "node"
    packed = running.run("npm", "pack", "--dry-run", "--json", cwd=folder, env={"npm_config_loglevel": "error"})
    for path in folder.iterdir():
        assert f'"path": "{path.name}"' in packed
    assert "dependencies" not in (folder / "package.json").read_text()

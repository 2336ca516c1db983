"""deploy/systemd: the units start installed programs with options that exist, and leave them time to stop."""

import re
import shutil
import subprocess

import pytest

from pocketmq.runtime.command_line.server_arguments import CONFIG_FILE
from pocketmq.runtime.lifecycle import STOP_MAX_S
from tests.deploy.dockerfile import DEPLOY

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def settings(path):
    rows = re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a key comes twice"
    return dict(rows)


def test_there_is_a_unit_for_each_server():
    names = [path.stem for path in UNITS]
    assert names == ["pocketmq-broker@", "pocketmq-console", "pocketmq-namesrv", "pocketmq-proxy"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_an_installed_program_with_its_config_file(path):
    program, *command, option, file = settings(path)["ExecStart"].split()
    installed = (DEPLOY.parent / "pyproject.toml").read_text()
    assert f"\n{program.removeprefix('/opt/pocketmq/bin/')} = " in installed
    assert command == (["console"] if "console" in path.name else [])
    assert option == ("-pc" if "proxy" in path.name else CONFIG_FILE[0])
    assert file.startswith("/etc/pocketmq/")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_writes_only_its_state_and_its_settings(path):
    unit = settings(path)
    assert unit["ProtectSystem"] == "strict"
    assert unit.get("ReadWritePaths") == (None if "console" in path.name else "-/etc/pocketmq")
    assert unit["Environment"] == f"HOME=%S/{unit['StateDirectory']}"
    assert unit["User"] == "pocketmq" and unit["CapabilityBoundingSet"] == ""


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_waits_for_a_clean_stop_and_does_not_repeat_a_wrong_start(path):
    unit = settings(path)
    assert int(unit["TimeoutStopSec"]) > STOP_MAX_S
    assert unit["RestartPreventExitStatus"] == "2"


def test_the_user_of_the_units_is_declared():
    assert "\nu pocketmq " in (DEPLOY / "systemd/pocketmq.sysusers").read_text()
    assert " root pocketmq\n" in (DEPLOY / "systemd/pocketmq.tmpfiles").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_in_a_unit(path, tmp_path):
    copy = tmp_path / path.name.replace("@", "@a")
    copy.write_text(re.sub(r"/opt/pocketmq/bin/\w+", "/bin/true", path.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    about_it = [line for line in done.stderr.splitlines() if copy.name in line]
    assert about_it == []

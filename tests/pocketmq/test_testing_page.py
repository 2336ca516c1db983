"""docs/testing.md: its examples for pytest run, its list of fixtures is complete, and the sample workflow is one."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from pocketmq import pytest_plugin

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"


def examples(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_for_pytest_run(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(examples(PAGE, "python")[0])
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'temp'}"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_every_fixture_is_described() -> None:
    text = Path(pytest_plugin.__file__).read_text()
    fixtures = re.findall(r"^@pytest\.fixture.*\ndef (\w+)", text, re.MULTILINE)
    assert len(fixtures) == 6
    assert [name for name in fixtures if f"| `{name.removeprefix('_')}` |" not in PAGE.read_text()] == []


def test_every_job_of_the_sample_workflow_installs_pocketmq_before_its_tests() -> None:
    workflow = yaml.safe_load((ROOT / "kits" / "github-actions" / "tests.yml").read_text())
    assert set(workflow["jobs"]) == {"python", "java", "go", "node"}
    for job in workflow["jobs"].values():
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert commands[0].startswith("pip install 'pocketmq[grpc]'") and len(commands) >= 2

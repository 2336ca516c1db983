"""The JUnit 5 extension, built into a local repository, in a project with RocketMQ's client."""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.drivers import needed
from tests.interop.kits import running
from tests.support.amount import cases

MAVEN = ("mvn", "-q", "-B", f"-Dmaven.repo.local={running.maven_repository()}")
ENV = {"MAVEN_OPTS": toolchain.QUICK_JVM}


@contextmanager
def installed(folder: Path) -> Iterator[Path]:
    """Build the extension and install it; yield its folder of classes. Another test's build waits until the end."""
    kit = Path(shutil.copytree(running.KITS / "junit5", folder / "kit", ignore=shutil.ignore_patterns("target")))
    running.maven_repository().mkdir(parents=True, exist_ok=True)
    with (running.maven_repository() / "kit.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running.run(*MAVEN, "install", cwd=kit, env=ENV)
        yield kit / "target" / "classes"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with needed("JUnit 5"):
        toolchain.require_java()
    with installed(tmp_path_factory.mktemp("junit5")) as folder:
        yield folder


@pytest.mark.parametrize("version", cases(["5.5.0"], ["4.9.4", "5.5.0"]))
def test_a_project_s_tests_use_the_extension(classes: Path, tmp_path: Path, version: str) -> None:
    project = running.project("junit5", tmp_path)
    (project / "src" / "test" / "java" / "shop" / "PageTest.java").write_text(running.example("java"))
    env = {**ENV, "POCKETMQ": str(running.program(tmp_path))}
    options = f"-Drocketmq.version={version}", f"-DargLine=-Duser.home={tmp_path} {toolchain.QUICK_JVM}"
    running.run(*MAVEN, "test", *options, cwd=project, env=env)
    reports = [path.read_text() for path in (project / "target" / "surefire-reports").glob("*.txt")]
    counts = [re.search(r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0", report) for report in reports]
    assert sum(int(count[1]) for count in counts if count) == 8, reports


def held(classes: Path) -> list[str]:
    """Return the command of a program that starts a server outside JUnit."""
    return ["java", *toolchain.QUICK_JVM.split(), "-cp", str(classes), str(Path(__file__).parent / "junit5" / "Held.java")]


def test_the_server_ends_with_a_killed_jvm(classes: Path, tmp_path: Path) -> None:
    running.check_end_with_parent(held(classes), tmp_path, running.program(tmp_path))


def test_failures_to_start_say_why(classes: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no memory left\nexit 3\n")
    broken.chmod(0o755)
    for program, said in (
        (broken, "ended; it printed:\nno memory left"),
        (tmp_path / "none", "install PocketMQ, or set POCKETMQ"),
    ):
        env = {**os.environ, "POCKETMQ": str(program)}
        with subprocess.Popen(
            held(classes), cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as java:
            try:
                assert java.stdout is not None
                text = ""
                while said not in text and (line := java.stdout.readline()):
                    text += line
                assert said in text
            finally:
                java.kill()

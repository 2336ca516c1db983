"""The tours of examples/grpc, as users start them: official gRPC clients at a broker's gRPC port."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.drivers import needed
from tests.interop.grpc import installs
from tests.interop.grpc.fronts import Front
from tests.interop.servers import CLUSTER_NAME, JAVA_OPTIONS, ROOT
from tests.patience import PATIENCE_S
from tests.support.amount import cases

TOURS = toolchain.EXAMPLES / "grpc"
COUNTS = {"TourNormal": 20, "TourFifo": 10, "TourTransaction": 3, "TourDelayed": 3}


def _python(home: Path) -> tuple[list[str | Path], dict[str, str]]:
    return [sys.executable, TOURS / "python" / "tour.py"], {"PYTHONPATH": str(installs.python_packages())}


def _node(home: Path) -> tuple[list[str | Path], dict[str, str]]:
    return ["node", TOURS / "node" / "tour.js"], {"NODE_PATH": str(installs.node_modules())}


def _java(home: Path) -> tuple[list[str | Path], dict[str, str]]:
    class_path = toolchain.project_class_path(TOURS / "java")
    return ["java", *JAVA_OPTIONS, "-Xmx256m", f"-Duser.home={home}", "-cp", class_path, "tour.Tour"], {}


def _go(home: Path) -> tuple[list[str | Path], dict[str, str]]:
    return [toolchain.project_binary(TOURS / "go")], {}


LANGUAGES: dict[str, Callable[[Path], tuple[list[str | Path], dict[str, str]]]] = {
    "python": _python,
    "node": _node,
    "java": _java,
    "go": _go,
}
"""Language -> function that builds its tour, and returns the command and more variables of its environment."""


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A broker with a gRPC port and the topics of the tours."""
    running = Front("broker", tmp_path_factory.mktemp("grpc-examples"))
    try:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = ["sh", TOURS / "create_topics.sh", running.cluster.namesrv_address, CLUSTER_NAME]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("language", cases(["go", "node"], list(LANGUAGES)))
def test_a_tour_receives_all_that_it_sends(language: str, front: Front, tmp_path: Path) -> None:
    with needed(f"gRPC client {language}"):
        command, more = LANGUAGES[language](tmp_path)
    environment = {**os.environ, **more, "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, front.endpoint], env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    for what in ("SENT", "CONSUMED"):
        assert {row[1]: int(row[2]) for row in rows if row[0] == what} == COUNTS
    late_ms = [int(row[1]) for row in rows if row[0] == "LATE"]
    assert len(late_ms) == COUNTS["TourDelayed"]
    assert min(late_ms) >= 0

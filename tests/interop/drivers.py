"""The tested client libraries, and their running drivers."""

import itertools
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.interop import toolchain
from tests.interop.driver import Driver
from tests.interop.servers import JAVA_OPTIONS, Cluster, Pocketmq
from tests.patience import PATIENCE_S
from tests.support.amount import cases

CLIENTS = ("java_4_9_4", "java_5_5_0", "go_v2")
CPP = "cpp"
with_cpp = pytest.mark.parametrize("client_name", (*CLIENTS, CPP), scope="session")
"""Marks tests that also run with the C++ client, because its C interface has all that they need."""
EACH_LANGUAGE = cases(("java_5_5_0", "go_v2"), CLIENTS)
"""Clients of tests that start servers of their own. 4.9.4's Java client runs all tests with the shared servers, too."""
each_language = pytest.mark.parametrize("client_name", EACH_LANGUAGE, scope="session")
SKIPPED: set[str] = set()  # reasons, for the summary


def toolchain_missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI must have it", pytrace=False)
    SKIPPED.add(reason)
    pytest.skip(reason)


@contextmanager
def needed(client: str) -> Iterator[None]:
    """Skips the test, or fails it in CI, when the toolchain of a client library is missing."""
    try:
        yield
    except toolchain.ToolchainMissing as missing:
        toolchain_missing(f"{client}: {missing}")


class Drivers:
    """Starts the driver of a client library, once for each name server; raises `ToolchainMissing`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[str, str], Driver] = {}
        self._numbers = itertools.count()

    def get(self, client: str, cluster: Cluster) -> Driver:
        key = (client, cluster.namesrv_address)
        if key not in self._running or self._running[key].has_ended:
            self._running[key] = self.another(client, cluster)
        return self._running[key]

    def another(self, client: str, cluster: Cluster, **more_env: str) -> Driver:
        """Starts a separate process, which the caller must close or kill."""
        home = self._folder / f"{client}-{next(self._numbers)}"
        env = {**os.environ, "HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "error", **more_env}
        if client == CPP:
            env["PYTHONPATH"] = str(toolchain.cpp_package())
        return Driver([*self._command(client, home), cluster.namesrv_address, cluster.broker_name], home, env)

    def close(self, cluster: Cluster | None = None) -> None:
        for key in [key for key in self._running if cluster is None or key[1] == cluster.namesrv_address]:
            self._running.pop(key).close()

    @staticmethod
    def _command(client: str, home: Path) -> list[str | Path]:
        if client == "go_v2":
            return [toolchain.go_driver()]
        if client == CPP:
            return [sys.executable, Path(__file__).with_name("cpp_driver.py")]
        version = toolchain.JAVA_VERSIONS[client]
        class_path = f"{toolchain.java_classes(version)}:{toolchain.jars(version)}/*"

        def command(home: Path, classes: str) -> list[str | Path]:
            return ["java", *JAVA_OPTIONS, "-Xmx256m", classes, f"-Duser.home={home}", "-cp", class_path, "Driver"]

        def record(target: Path) -> None:
            _use(command(target / "home", toolchain.recording(target)), target / "home")

        return command(home, toolchain.class_archive(client, class_path, record))


def _use(command: list[str | Path], home: Path) -> None:
    """Send and consume with a driver at servers of its own."""
    cluster = Cluster(home, Pocketmq())
    try:
        cluster.start_broker()
        driver = Driver([*command, cluster.namesrv_address, cluster.broker_name], home, {**os.environ, "HOME": str(home)})
        driver.start_producer("p")
        driver.send("p", "T", ["body"])
        driver.start_consumer("c", "G", "T")
        driver.wait_for("c", 1)
        driver.close(PATIENCE_S)
    finally:
        cluster.close()
    shutil.rmtree(home)

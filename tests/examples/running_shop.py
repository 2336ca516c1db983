"""The shop of examples/shop as its users start it: six processes, a broker whose clock is advanced, and a database."""

import contextlib
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from examples.shop import audit
from pocketmq.cli import child_process
from pocketmq.cli.child_process import Process
from pocketmq.testing import PocketMQ

ROOT = Path(__file__).parents[2]
SERVICES = ("stock", "coupon", "balance", "order", "payment", "points")
PATIENCE_S = 60.0


class RunningShop:
    """The services, whose output is in `folder`, on one database."""

    def __init__(self, mq: PocketMQ, database: str, folder: Path) -> None:
        self.mq, self.database, self._folder = mq, database, folder
        self._port = free_port()
        self._processes: dict[str, Process] = {}
        self._starts = Counter[str]()
        folder.mkdir(parents=True, exist_ok=True)
        for service in SERVICES:
            self.start(service)
        for service in SERVICES:
            self.wait_ready(service)

    @property
    def payment_url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def output(self, service: str) -> str:
        return (self._folder / f"{service}.log").read_text(errors="replace")

    def start(self, service: str) -> None:
        options = ["--namesrv", self.mq.namesrv_address, "--database", self.database]
        if service == "payment":
            options += ["--port", str(self._port)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self._folder / f"{service}.log").open("ab") as out:
            command = [sys.executable, "-m", f"examples.shop.{service}", *options]
            self._processes[service] = child_process.start_program(command, stdout=out, stderr=out, env=environment)
        self._starts[service] += 1

    def wait_ready(self, service: str) -> None:
        ready = f"{service} is ready"
        until(lambda: self.output(service).count(ready) >= self._starts[service], lambda: self.output(service)[-2000:])

    def kill(self, service: str) -> None:
        self._processes[service].kill()
        self._processes[service].wait()

    def restart(self, service: str) -> None:
        self.kill(service)
        self.start(service)
        self.wait_ready(service)

    def close(self) -> list[int]:
        """End the services by SIGTERM; return their exit codes."""
        for process in self._processes.values():
            process.terminate()
        try:
            return [process.wait(PATIENCE_S) for process in self._processes.values()]
        finally:
            for process in self._processes.values():
                process.kill()

    def books(self) -> audit.Books:
        return audit.read(self.database)

    def problems(self) -> list[str]:
        return list(audit.problems(self.books()))

    def come_to_rest(self) -> list[str]:
        """Wait until the books are balanced; return what is still wrong when patience ends."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self.problems())
        return self.problems()


def until(is_so: Callable[[], bool], shown: Callable[[], object] = str, patience_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < end_s, shown()
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

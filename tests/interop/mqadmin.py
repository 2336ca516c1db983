"""The real mqadmin, with many commands in one JVM, because starting a JVM takes far longer than a command."""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote

from pocketmq.cli import child_process
from tests.interop.servers import JAVA_OPTIONS, Cluster, Pocketmq, write_logback
from tests.interop.toolchain import class_archive, mqadmin_class_path, recording
from tests.patience import PATIENCE_S


class Mqadmin:
    def __init__(self, home: Path, version: str = "4.9.4", recorded: Path | None = None, **more_env: str) -> None:
        """`recorded`: a folder into which the JVM writes an archive of its classes; by default it loads them from one."""
        self.home = home
        self.version = version
        write_logback(home, "tools")
        class_path = mqadmin_class_path(version)
        classes = recording(recorded) if recorded else class_archive(f"mqadmin-{version}", class_path, self._record)
        command = ["java", *JAVA_OPTIONS, "-Xmx256m", classes, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
                   "-cp", class_path, "MqadminShell"]  # fmt: skip
        self._errors = (home / "mqadmin.err").open("wb")
        self._lock = threading.Lock()
        self._process = child_process.start_program(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, cwd=home,
            env={**os.environ, "ROCKETMQ_HOME": str(home), **more_env},
        )  # fmt: skip

    def _record(self, target: Path) -> None:
        home = target / "home"
        cluster = Cluster(home, Pocketmq())
        shell = Mqadmin(home, self.version, target)
        try:
            cluster.start_broker()
            shell.run(cluster.namesrv_address, "updateTopic", "-b", cluster.broker_address, "-t", "T")
            for command in ("topicStatus", "topicRoute"):
                shell.run(cluster.namesrv_address, command, "-t", "T")
        finally:
            shell.close(PATIENCE_S)
            cluster.close()
        shutil.rmtree(home)

    def run(self, namesrv_address: str, command: str, *arguments: str) -> str:
        """Runs a command and returns its output, including stack traces. Commands of all threads run one at a time."""
        return self.run_for_exit_code(namesrv_address, command, *arguments)[1]

    def ask(self, namesrv_address: str, command: str, *arguments: str) -> str:
        """As `run`, for a command that changes nothing: it runs again if a server did not answer within mqadmin's own limit.

        Beside a heavy load that limit, a second or two, is short.
        """
        deadline = time.monotonic() + PATIENCE_S
        while "RemotingTimeoutException" in (printed := self.run(namesrv_address, command, *arguments)):
            if time.monotonic() > deadline:
                break
        return printed

    def run_for_exit_code(self, namesrv_address: str, command: str, *arguments: str) -> tuple[int, str]:
        """As `run`, but also returns the exit code that a separate process would have had."""
        with self._lock:
            return self._run([command, "-n", namesrv_address, *arguments])

    def _run(self, words: list[str]) -> tuple[int, str]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(" ".join(quote(word, safe="") for word in words).encode() + b"\n")
        self._process.stdin.flush()
        printed: list[bytes] = []
        for line in self._process.stdout:
            if line.startswith(b"\0"):
                return int(line[1:]), b"".join(printed).decode(errors="replace").strip("\n")
            printed.append(line)
        raise RuntimeError(f"mqadmin {words[0]} ended its JVM: {b''.join(printed)!r}")

    def close(self, timeout_s: float = 10) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

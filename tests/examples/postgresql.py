"""A private PostgreSQL server in a temporary folder, for tests. It ends with this process."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from pocketmq.cli import child_process
from tests.examples.running_shop import free_port, until


class ToolchainMissing(Exception):
    """PostgreSQL's programs are not installed."""


def programs() -> Path:
    """Return the folder of initdb and postgres: the newest of Debian's, else that on the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name), reverse=True)
    if found := shutil.which("initdb"):
        folders.append(Path(found).resolve().parent)
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return folder
    raise ToolchainMissing("PostgreSQL is not installed (Debian, Ubuntu: apt-get install postgresql)")


class Postgresql:
    """A running server. PostgreSQL refuses to run as root, who starts it as the user `nobody`."""

    def __init__(self) -> None:
        self._programs, self._port = programs(), free_port()
        self._temporary = tempfile.TemporaryDirectory(prefix="pocketmq-postgresql-")
        self._folder = Path(self._temporary.name)
        self._options: dict[str, Any] = {"cwd": self._folder, "stdin": subprocess.DEVNULL}
        self._as_user: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            # setpriv, because that user need not be allowed to run this Python. A change of user cancels the end with the
            # parent, so setpriv asks for it again.
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            self._as_user = ["setpriv", *ids, "--pdeathsig=KILL"]
        settings = ["-U", "shop", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        initdb = [*self._as_user, str(self._programs / "initdb"), "-D", "data", *settings]
        subprocess.run(initdb, check=True, timeout=120, stdout=subprocess.DEVNULL, **self._options)
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://shop@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers. After `kill` it first waits for its orphaned processes."""
        until(self._is_started, self.output, patience_s=60)

    def _is_started(self) -> bool:
        command = [*self._as_user, str(self._programs / "postgres"), "-D", "data", "-p", str(self._port), "-h", "127.0.0.1"]
        with (self._folder / "output").open("ab") as out:
            self._process = child_process.start_program(
                [*command, "-k", "", "-F"], stdout=out, stderr=subprocess.STDOUT, **self._options
            )
        until(lambda: self._process.poll() is not None or self._answers(), self.output)
        return self._process.poll() is None

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def output(self) -> str:
        return (self._folder / "output").read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._temporary.cleanup()

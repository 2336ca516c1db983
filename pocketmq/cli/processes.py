"""Name server and broker as two child processes on free ports, for the demonstration, benches and tests.

Functions start a server, wait for its ready line, and stop it. If this process is killed, the servers are killed too.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketmq.cli import child_process, kept_settings
from pocketmq.cli.child_process import Process
from pocketmq.cli.kept_settings import NOTHING_KEPT, Kept
from pocketmq.cli.patience import Patience
from pocketmq.runtime.error_text import reason_of
from pocketmq.runtime.lifecycle import STOP_MAX_S

READY_IDLE_S = 30.0
READY_MAX_S = 3600.0
"""A server that recovers a large store works for long before it is ready."""
# `-P` keeps the current folder off the import path, so that a user's broker.py is not imported.
_MODULES = {"namesrv": "pocketmq.namesrv", "broker": "pocketmq.broker", "pocketmq": "pocketmq"}
_READY = re.compile(r"boot success.*?\baddress=(\S+?:\d+)")
_METRICS = re.compile(r"^Metrics: (http\S+)/metrics", re.MULTILINE)


class NotReady(RuntimeError):
    """A server ended, or did not become ready in time; the message contains its output."""


@dataclass
class Server:
    """A ready server process; its output goes to the file `out`."""

    name: str
    address: str
    process: Process
    out: Path
    boot_seconds: float
    metrics_url: str | None = None
    """Address of its port for metrics, if it has one."""
    kept: Kept = NOTHING_KEPT

    def stop(self, seconds: float = STOP_MAX_S + 10) -> int:
        """Send SIGTERM, then SIGKILL if it does not end in time. Returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def start_namesrv(
    folder: Path, *, port: int = 0, settings: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> Server:
    """Start `python -m pocketmq.namesrv`, with its files in `folder`. Raises NotReady.

    Settings changed while it ran last (updateNamesrvConfig) apply unless `settings` have the key.

    `port` 0: a free one. `prefix`: a command that runs the process elsewhere, such as `ip netns exec NAME`.
    """
    defaults = {"kvConfigPath": str(folder.absolute() / "kvConfig.json")}
    return _start_configured("namesrv", folder, defaults, settings or {}, ["--port", str(port)], prefix)


def start_broker(
    folder: Path,
    namesrv_address: str,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    prefix: Sequence[str] = (),
) -> Server:
    """Start `python -m pocketmq.broker` with its store in `folder`/store and additional `settings`. Raises NotReady.

    Changed settings, `port` and `prefix` as for `start_namesrv`.
    """
    store = folder.absolute() / "store"
    defaults = {
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    return _start_configured(
        "broker", folder, defaults, settings or {}, ["--port", str(port), "-n", namesrv_address], prefix
    )


def start_up(folder: Path, *arguments: str) -> Server:
    """Start `pocketmq up` with free ports; the address is the name server's. Raises NotReady."""
    return _start("pocketmq", folder, "up", "--port", "0", *arguments)


def _start_configured(
    name: str,
    folder: Path,
    defaults: Mapping[str, str],
    given: Mapping[str, str],
    arguments: Sequence[str],
    prefix: Sequence[str],
) -> Server:
    path = folder / f"{name}.conf"
    try:
        kept = kept_settings.write(path, defaults, given)
    except (OSError, ValueError) as error:
        raise NotReady(f"{name} was not started: {reason_of(str(path), error)}") from error
    server = _start(name, folder, *arguments, "-c", str(path), prefix=prefix)
    server.kept = kept
    return server


def _start(name: str, folder: Path, *arguments: str, prefix: Sequence[str] = ()) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=f"{name}-", suffix=".out", delete=False) as out:
        began = time.monotonic()
        process = child_process.start([*prefix, sys.executable, "-P", "-m", _MODULES[name], *arguments], out)
    path = Path(out.name)
    patience = Patience(process.pid, READY_IDLE_S, READY_MAX_S)
    while not patience.is_over():
        output = path.read_text(errors="replace")
        if ready := _READY.search(output):
            metrics = _METRICS.search(output)
            return Server(name, ready[1], process, path, time.monotonic() - began, metrics and metrics[1])
        if process.poll() is not None:
            break
        time.sleep(0.002)
    if process.poll() is None:
        process.kill()
    process.wait()
    shown = path.read_text(errors="replace")[-2000:]
    raise NotReady(f"{name} did not become ready within {time.monotonic() - began:.0f} s; it printed:\n{shown}")

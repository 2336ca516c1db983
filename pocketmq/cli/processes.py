"""Name server and broker as child processes on free ports, for clusters, the demonstration, benches and tests.

A `Launch` starts a server, waits for its ready line, and can do so again on the same folder. If this process is killed, the
servers are killed too.

The config file of a server is written at each start, without losing the settings that it changed in there while it ran
(`updateBrokerConfig`). Comments record the settings written at the start, to recognise a change as a difference from them,
and earlier changes, including those that a given setting replaces.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pocketmq.cli import child_process
from pocketmq.cli.child_process import Process
from pocketmq.runtime import atomic_file, config_file, properties_file
from pocketmq.runtime.error_text import reason_of
from pocketmq.runtime.lifecycle import STOP_MAX_S

READY_IDLE_S: Final = 30.0
READY_MAX_S: Final = 3600.0
"""A server that recovers a large store works for long before it is ready."""
_READY: Final = re.compile(r"boot success.*?\baddress=(\S+?:\d+)")
_GRPC: Final = re.compile(r"^gRPC: (\S+)", re.MULTILINE)
_METRICS: Final = re.compile(r"^Metrics: (http\S+)/metrics", re.MULTILINE)
_HEAD: Final = "# Written at each start, from the options of the program that starts the server.\n"
_GIVEN: Final = "# given at the start: "
_CHANGED: Final = "# changed while the server ran: "
WORK_SHARE: Final = 0.01
"""Share of a CPU above which a process works; one that waits in a loop uses less."""
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


class NotReady(RuntimeError):
    """A server ended, or did not become ready in time; the message contains its output."""


@dataclass(frozen=True)
class Kept:
    """Settings that were changed while a server ran: those that apply at this start, and those replaced by given ones."""

    applied: Mapping[str, str]
    replaced: Mapping[str, str]


NOTHING_KEPT: Final = Kept({}, {})


@dataclass
class Server:
    """A ready server process; its output goes to the file `out`."""

    name: str
    address: str
    process: Process
    out: Path
    boot_seconds: float
    grpc_address: str | None = None
    """Address of the port for gRPC clients, if the server has one."""
    metrics_url: str | None = None
    """Address of the port for metrics, if the server has one."""
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


@dataclass(frozen=True)
class Launch:
    """How a server process is started: with its config file and its output in `folder`."""

    module: str
    folder: Path
    arguments: Sequence[str]
    defaults: Mapping[str, str] | None
    """Settings that are replaced by those changed while it ran, which the given ones replace. None: no config file."""
    prefix: Sequence[str] = ()
    """A command that runs the process elsewhere, such as `ip netns exec NAME`."""

    def start(self, settings: Mapping[str, str] | None = None) -> Server:
        """Start the server with these settings, and wait until it is ready. Raises NotReady."""
        name = self.module.rpartition(".")[2]
        config, kept = self.folder / f"{name}.conf", NOTHING_KEPT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.defaults is not None:
                kept = _write_config(config, self.defaults, settings or {})
        except (OSError, ValueError) as error:
            raise NotReady(f"{name} was not started: {reason_of(str(config), error)}") from error
        with tempfile.NamedTemporaryFile("wb", dir=self.folder, prefix=f"{name}-", suffix=".out", delete=False) as out:
            began = time.monotonic()
            # `-P` keeps the current folder off the import path, so that a user's broker.py is not imported.
            command = [*self.prefix, sys.executable, "-P", "-m", self.module, *self.arguments]
            process = child_process.start(command + ([] if self.defaults is None else ["-c", str(config)]), out)
        path = Path(out.name)
        patience = Patience(process.pid, READY_IDLE_S, READY_MAX_S)
        while not patience.is_over():
            output = path.read_text(errors="replace")
            if ready := _READY.search(output):
                grpc, metrics = (found and found[1] for found in (_GRPC.search(output), _METRICS.search(output)))
                return Server(name, ready[1], process, path, time.monotonic() - began, grpc, metrics, kept)
            if process.poll() is not None:
                break
            time.sleep(0.002)
        if process.poll() is None:
            process.kill()
        process.wait()
        shown = path.read_text(errors="replace")[-2000:]
        raise NotReady(f"{name} did not become ready within {time.monotonic() - began:.0f} s; it printed:\n{shown}")


def start_namesrv(folder: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> Server:
    """Start a name server with its files in `folder`. `port` 0: a free one. Raises NotReady."""
    defaults = {"kvConfigPath": str(folder.absolute() / "kvConfig.json")}
    return Launch("pocketmq.namesrv", folder, ["--port", str(port)], defaults).start(settings)


def start_broker(
    folder: Path,
    namesrv_address: str,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    prefix: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Server:
    """Start a broker with its store in `folder`/store and additional `settings` and `options` of its command.

    `port` 0: a free one. Raises NotReady.
    """
    store = folder.absolute() / "store"
    defaults = {
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    arguments = ["--port", str(port), "-n", namesrv_address, *options]
    return Launch("pocketmq.broker", folder, arguments, defaults, prefix).start(settings)


def start_up(folder: Path, *arguments: str) -> Server:
    """Start `pocketmq up` with free ports; the address is the name server's. Raises NotReady."""
    return Launch("pocketmq", folder, ["up", "--port", "0", *arguments], None).start()


def _write_config(path: Path, defaults: Mapping[str, str], given: Mapping[str, str]) -> Kept:
    """Write the config file of a server. Changes made while it ran replace `defaults`, and `given` replaces both.

    Raises OSError, or ValueError if there is a file that is no properties file.
    """
    changed = _changed_settings(path)
    settings = {**defaults, **changed, **given}
    lines = [_HEAD, *_lines(_CHANGED, changed), *_lines(_GIVEN, settings), properties_file.dumps(settings)]
    atomic_file.replace(path, "".join(lines).encode())
    applied = {key: value for key, value in changed.items() if settings[key] == value}
    return Kept(applied, {key: value for key, value in changed.items() if key not in applied})


def _lines(mark: str, settings: Mapping[str, str]) -> list[str]:
    return [mark + properties_file.dumps({key: value}) for key, value in settings.items()]


def _changed_settings(path: Path) -> dict[str, str]:
    """Return the settings changed since the file was last written, and those changed earlier."""
    if not path.exists():
        return {}
    text = properties_file.decode(path.read_bytes())
    if not text.startswith(_HEAD):
        return {}  # not written here
    given, earlier = _marked(_GIVEN, text), _marked(_CHANGED, text)
    return {**earlier, **{key: value for key, value in config_file.parse(text).items() if given.get(key) != value}}


def _marked(mark: str, text: str) -> dict[str, str]:
    lines = (line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark))
    return properties_file.loads("\n".join(lines))


class Patience:
    """Patience with a process and its descendants: it ends after `idle_s` without work, or after `total_s`."""

    def __init__(self, pid: int, idle_s: float, total_s: float) -> None:
        self._pid, self._idle_s = pid, idle_s
        now_s = time.monotonic()
        self._end_s, self._look_s, self._used_s = now_s + total_s, now_s + idle_s, 0.0

    def is_over(self) -> bool:
        """Return whether to give up. Without /proc only `total_s` counts."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return now_s >= self._end_s
        used_s = cpu_seconds(self._pid)
        is_idle = used_s is not None and used_s - self._used_s < self._idle_s * WORK_SHARE
        self._look_s, self._used_s = now_s + self._idle_s, used_s or 0.0
        return is_idle or now_s >= self._end_s


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time used by a process and its descendants, also those that have ended; None without /proc."""
    used: dict[int, tuple[int, int]] = {}  # pid -> parent, ticks
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        used[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    if not used:
        return None
    return sum(ticks for own, (_, ticks) in used.items() if _descends(own, pid, used)) / _TICKS_A_SECOND


def _descends(pid: int, ancestor: int, used: dict[int, tuple[int, int]]) -> bool:
    while pid != ancestor and pid in used:
        pid = used[pid][0]
    return pid == ancestor

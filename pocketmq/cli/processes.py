"""Name server and broker as two child processes on free ports, for the demonstration, benches and tests.

Functions start a server, wait for its ready line, and stop it.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketmq.runtime import properties_file

READY_SECONDS_MAX = 30.0
# `-P` keeps the current folder off the import path, so that a user's broker.py is not imported.
_MODULES = {"namesrv": "pocketmq.namesrv", "broker": "pocketmq.broker", "pocketmq": "pocketmq"}
_READY = re.compile(r"boot success.*?\baddress=(\S+?:\d+)")


class NotReady(RuntimeError):
    """A server ended, or did not become ready in time; the message contains its output."""


@dataclass
class Server:
    """A ready server process; its output goes to the file `out`."""

    name: str
    address: str
    process: "subprocess.Popen[bytes]"
    out: Path
    boot_seconds: float

    def stop(self, seconds: float = 20.0) -> int:
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

    `port` 0: a free one. `prefix`: a command that runs the process elsewhere, such as `ip netns exec NAME`.
    """
    config = {"kvConfigPath": str(folder.absolute() / "kvConfig.json"), **(settings or {})}
    path = _write_config(folder / "namesrv.conf", config)
    return _start("namesrv", folder, "--port", str(port), "-c", path, prefix=prefix)


def start_broker(
    folder: Path,
    namesrv_address: str,
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    prefix: Sequence[str] = (),
) -> Server:
    """Start `python -m pocketmq.broker` with its store in `folder`/store and additional `settings`. Raises NotReady.

    `port` and `prefix` as for `start_namesrv`.
    """
    store = folder.absolute() / "store"
    config = {
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        **(settings or {}),
    }
    path = _write_config(folder / "broker.conf", config)
    return _start("broker", folder, "--port", str(port), "-n", namesrv_address, "-c", path, prefix=prefix)


def start_up(folder: Path, *arguments: str) -> Server:
    """Start `pocketmq up` with free ports; the address is the name server's. Raises NotReady."""
    return _start("pocketmq", folder, "up", "--port", "0", *arguments)


def _write_config(path: Path, config: Mapping[str, str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(properties_file.dumps(config))
    return str(path)


def _start(name: str, folder: Path, *arguments: str, prefix: Sequence[str] = ()) -> Server:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=f"{name}-", suffix=".out", delete=False) as out:
        began = time.monotonic()
        process = subprocess.Popen(
            [*prefix, sys.executable, "-P", "-m", _MODULES[name], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C at the terminal reaches only the caller, which stops both in order
        )
    path = Path(out.name)
    while time.monotonic() - began < READY_SECONDS_MAX:
        if ready := _READY.search(path.read_text(errors="replace")):
            return Server(name, ready[1], process, path, time.monotonic() - began)
        if process.poll() is not None:
            break
        time.sleep(0.002)
    if process.poll() is None:
        process.kill()
    process.wait()
    shown = path.read_text(errors="replace")[-2000:]
    raise NotReady(f"{name} did not become ready within {READY_SECONDS_MAX:.0f} s; it printed:\n{shown}")

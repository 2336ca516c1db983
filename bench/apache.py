"""Apache RocketMQ from Maven Central, started as a peer for benches and comparisons.

    jars("4.9.4")                         -> folder with its jars, downloaded once
    with started("4.9.4", folder) as peer: -> name server and broker on free ports; peer.broker_address, peer.store

Jars are cached in ${POCKETMQ_CACHE:-~/.cache/pocketmq}/peer/VERSION/lib. Requires a JRE (tested with 17) and Maven.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pocketmq.cli import child_process

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>pocketmq</groupId><artifactId>peer</artifactId><version>1</version><dependencies>{}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId>"
    "<version>{}</version></dependency>"
)
# 4.9.4 was written for Java 8: it uses JDK internals to map and unmap its files.
_JAVA_OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
]
_LOGBACK = """<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>{}</file><encoder>
<pattern>%d %p %m%n</pattern></encoder></appender><root level="INFO"><appender-ref ref="F"/></root></configuration>
"""
_BOOT_SECONDS_MAX = 60


class ApacheError(RuntimeError):
    """Apache's RocketMQ is not available or did not start; the message tells what to do."""


def available() -> str | None:
    """Return what is missing to run Apache's RocketMQ on this machine, or None."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not found (Debian: apt-get install default-jdk-headless maven)" if missing else None


def cache_folder() -> Path:
    return Path(os.environ.get("POCKETMQ_CACHE") or Path.home() / ".cache" / "pocketmq")


def jars(version: str) -> Path:
    """Return the folder with the jars of broker, name server, tools and client. Raises ApacheError.

    The folder gets its name only once it is complete, so several processes may call this at the same time.
    """
    folder = cache_folder() / "peer" / version
    if folder.exists() and not list(folder.glob("lib/rocketmq-broker-*.jar")):
        folder = folder.with_name(f"{version}-server")  # the tests keep only the client of 5.5.0 in the other folder
    if folder.exists():
        return folder / "lib"
    if (missing := available()) is not None:
        raise ApacheError(missing)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{version}.draft-"))
    try:
        parts = ["broker", "namesrv", "tools", "client"] + (["proxy"] if version >= "5" else [])
        (draft / "pom.xml").write_text(_POM.format("".join(_DEPENDENCY.format(p, version) for p in parts)))
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        done = subprocess.run(copy, cwd=draft, capture_output=True, text=True)
        if done.returncode != 0:
            raise ApacheError(f"Maven could not fetch RocketMQ {version}: {(done.stdout + done.stderr)[-800:]}")
        with contextlib.suppress(OSError):  # another process was faster
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder / "lib"


@dataclass
class Apache:
    """A running name server and broker of Apache's; `store` is the broker's store."""

    folder: Path
    namesrv_address: str
    broker_address: str
    namesrv: subprocess.Popen[bytes]
    broker: subprocess.Popen[bytes]
    boot_seconds: float

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def stop(self) -> None:
        """Stop both like `mqshutdown`: the broker leaves a cleanly closed store."""
        for process in (self.broker, self.namesrv):
            terminate(process)


@dataclass
class Slave:
    """A running slave of Apache's."""

    folder: Path
    address: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        terminate(self.process)


def terminate(process: "subprocess.Popen[bytes]", seconds: float = 30) -> None:
    """Send SIGTERM, then SIGKILL if the process does not end; return once it has ended."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_line(path: Path, pattern: str, process: "subprocess.Popen[bytes]", seconds: float) -> re.Match[str]:
    """Return the first match of `pattern` in a process's output; raise ApacheError with the output if there is none."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = path.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found
        if process.poll() is not None:
            break
        time.sleep(0.002)
    raise ApacheError(f"{path.name} never showed {pattern!r}; it shows: {path.read_text(errors='replace')[-1500:]}")


def start(version: str, folder: Path, broker_overrides: Mapping[str, str] | None = None, heap: str = "1g") -> Apache:
    """Start Apache's name server and broker in `folder`; raises ApacheError if they do not start."""
    lib = jars(version)
    folder = folder.absolute()
    for tries_left in reversed(range(3)):  # a port may be taken between the check and the bind
        try:
            return _start(lib, folder, dict(broker_overrides or {}), heap)
        except ApacheError:
            if not tries_left:
                raise
    raise AssertionError


@contextlib.contextmanager
def started(version: str, folder: Path, broker_overrides: Mapping[str, str] | None = None) -> Iterator[Apache]:
    peer = start(version, folder, broker_overrides)
    try:
        yield peer
    finally:
        peer.stop()


def start_slave(version: str, folder: Path, master: Apache, broker_overrides: Mapping[str, str] | None = None) -> Slave:
    """Start a slave of `master` in `folder`; raises ApacheError if it does not start."""
    folder = folder.absolute()
    port = free_port(neighbours=(-2, 1))
    role = {"brokerId": "1", "brokerRole": "SLAVE"}
    _configure(folder, port, master.namesrv_address, {**role, **(broker_overrides or {})})
    process, _ = _java(jars(version), folder, "broker", "1g", "org.apache.rocketmq.broker.BrokerStartup")
    return Slave(folder, f"127.0.0.1:{port}", process)


def _configure(folder: Path, broker_port: int, namesrv_address: str, overrides: Mapping[str, str]) -> None:
    """Write the broker's and the logs' configuration."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("namesrv", "broker"):
        (folder / "conf" / f"logback_{name}.xml").write_text(_LOGBACK.format(folder / f"{name}.log"))
    config = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "namesrvAddr": namesrv_address,
        "brokerIP1": "127.0.0.1",
        "listenPort": str(broker_port),
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        "enablePropertyFilter": "true",
        **overrides,
    }
    (folder / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in config.items()))


def _start(lib: Path, folder: Path, overrides: dict[str, str], heap: str) -> Apache:
    namesrv_port, broker_port = free_port(), free_port(neighbours=(-2, 1))
    namesrv_address = f"127.0.0.1:{namesrv_port}"
    _configure(folder, broker_port, namesrv_address, overrides)
    (folder / "namesrv.conf").write_text(f"listenPort={namesrv_port}\n")
    namesrv, _ = _java(lib, folder, "namesrv", "256m", "org.apache.rocketmq.namesrv.NamesrvStartup")
    try:
        broker, seconds = _java(lib, folder, "broker", heap, "org.apache.rocketmq.broker.BrokerStartup")
    except ApacheError:
        terminate(namesrv)
        raise
    return Apache(folder, namesrv_address, f"127.0.0.1:{broker_port}", namesrv, broker, seconds)


def _java(lib: Path, folder: Path, name: str, heap: str, main: str) -> "tuple[subprocess.Popen[bytes], float]":
    """Start the name server or the broker; return its process and the seconds until `boot success`."""
    command = ["java", *_JAVA_OPENS, f"-Xms{heap}", f"-Xmx{heap}", f"-Duser.home={folder}"]
    command += ["-cp", f"{folder}/conf:{lib}/*", main, "-c", str(folder / f"{name}.conf")]
    began = time.monotonic()
    with open(folder / f"{name}.out", "wb") as out:
        environment = os.environ | {"ROCKETMQ_HOME": str(folder)}
        process = child_process.start_program(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        wait_for_line(folder / f"{name}.out", "boot success", process, _BOOT_SECONDS_MAX)
    except ApacheError:
        terminate(process)
        raise
    return process, time.monotonic() - began


def free_port(neighbours: tuple[int, ...] = ()) -> int:
    """Return a free port whose neighbours are free, too (Apache's broker also uses port-2 and port+1)."""
    while True:
        with contextlib.ExitStack() as taken:
            first = taken.enter_context(socket.socket())
            first.bind(("", 0))
            port: int = first.getsockname()[1]
            try:
                for step in neighbours:
                    taken.enter_context(socket.socket()).bind(("", port + step))
            except (OSError, OverflowError):
                continue
            return port

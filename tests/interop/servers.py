"""A name server and a broker as separate processes: PocketMQ's, or Apache's to verify a test's expectations and to exchange
stores with it.

PocketMQ gets its ports from the kernel. Apache's broker opens three related ports (listenPort, -2, +1) and cannot report
them, so that a free triple must be found for it.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from pocketmq.cli import child_process
from tests.interop.toolchain import class_archive, jars, recording
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
CLUSTER_NAME = "InteropCluster"
BROKER_NAME = "broker-interop"
COMMIT_LOG_FILE_SIZE = 16 << 20
APACHE_BESIDE = (-2, 1)  # its fast port and its HA port
POCKETMQ_BESIDE = (1,)  # its HA port
UNUSED_ADDRESS = "127.0.0.1:1"
START_ATTEMPTS = 5
TRANSIENT_START_ERRORS = "BindException", '"localHost" is null'
"""Errors after which Apache's broker is started again: another process took one of its ports, or another test removed a
network interface while the broker listed them."""
_PORTS = (15_000, 32_000)
_ports_given: dict[int, socket.socket] = {}
"""Sockets for UDP on the given ports: they show other test processes that the ports are given."""
_ports_lock = threading.Lock()
JAVA_OPTIONS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xlog:disable",
    "-Xlog:all=warning:stderr",  # the standard output belongs to the program
)
AT_5: dict[str, object] = {"transactionMetricFlushInterval": 200, "timerFlushIntervalMs": 60_000}
"""Settings of Apache's 5.x brokers. With the default transactionMetricFlushInterval they loop without a pause for ten
seconds; with the default timerFlushIntervalMs they compare the whole timer wheel with its file each second, which takes a
quarter of a core. A clean stop saves the timers in any case."""
WITHOUT_TIMERS: dict[str, object] = {"timerWheelEnable": "false"}
"""Settings of a broker without timer messages. With them, 5.x prepares a wheel of 37 MiB at each start, and goes over it."""
SAVING_TIMERS: dict[str, object] = {"timerFlushIntervalMs": 1000}
"""Settings of a broker whose saved timers a test waits for; the next one on the store needs none of them."""
WITHOUT_TLS = {"tls.server.mode": "disabled"}
"""Setting of an Apache server whose clients do not use TLS. Without it, the server generates a key and a certificate at each
start, which takes several times as long as the rest of the start."""


class ServerProcess:
    """One running server; its output goes to a file, in which its ready line is awaited."""

    def __init__(
        self, command: list[str], log: Path, env: dict[str, str] | None = None, ready: str = "boot success"
    ) -> None:
        """`ready` is the text that it prints when it is ready."""
        self.log = log
        self._ready = ready
        with log.open("wb") as output:
            self._process = child_process.start_program(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=env
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> str:
        """Waits for the ready line and returns it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = self.log.read_text(errors="replace")
            for line in text.splitlines():
                if self._ready in line.lower() and text.endswith("\n"):
                    return line
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.log.stem} ended with {self._process.returncode} at start:\n{text[-4000:]}")
            time.sleep(0.01)
        self.kill()
        raise TimeoutError(f"{self.log.stem} printed no {self._ready!r} in {PATIENCE_S} s:\n{text[-4000:]}")

    def stop(self) -> None:
        """Sends SIGTERM, as `kill` and containers do, and waits for a clean end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


class Flavour(Protocol):
    """Start commands of one implementation."""

    name: str

    def start_namesrv(self, folder: Path, tls: dict[str, object]) -> tuple[ServerProcess, str]: ...

    def start_broker(
        self, folder: Path, namesrv_address: str, config: dict[str, object], port: int | None
    ) -> tuple[ServerProcess, str]: ...


class Pocketmq:
    name = "pocketmq"

    def start_namesrv(self, folder: Path, tls: dict[str, object]) -> tuple[ServerProcess, str]:
        # The default path is in the user's home, so that the servers of all tests would share the file.
        kv_config = folder / "namesrv" / "kvConfig.json"
        config = _write_config(folder / "namesrv.conf", {"listenPort": 0, "kvConfigPath": kv_config, **tls})
        process = ServerProcess([sys.executable, "-m", "namesrv", "-c", str(config)], folder / "namesrv.log")
        return process, _address_of(process.wait_ready())

    def start_broker(
        self, folder: Path, namesrv_address: str, config: dict[str, object], port: int | None
    ) -> tuple[ServerProcess, str]:
        if port is None or not all(_is_free(port + distance) for distance in (0, *POCKETMQ_BESIDE)):
            port = _free_port(POCKETMQ_BESIDE)  # a new port: clients learn it from the route
        path = _write_config(folder / "broker.conf", {**config, "listenPort": port})
        command = [sys.executable, "-m", "broker", "-n", namesrv_address, "-c", str(path)]
        process = ServerProcess(command, folder / "broker.log")
        return process, _address_of(process.wait_ready())


class Apache:
    """Name server and broker of 4.9.4 or of 5.5.0."""

    name = "apache"

    def __init__(self, version: str = "4.9.4", recorded: Path | None = None) -> None:
        """`recorded`: a folder into which each JVM writes an archive of its classes; by default it loads them from one."""
        self.version = version
        self.is_4 = version.startswith("4.")
        self._recorded = recorded

    def start_namesrv(self, folder: Path, tls: dict[str, object]) -> tuple[ServerProcess, str]:
        port = _free_port(beside=())
        config = _write_config(folder / "namesrv.conf", {"listenPort": port, **tls})
        process = self._start(folder, "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", config, tls)
        process.wait_ready()
        return process, f"127.0.0.1:{port}"

    def start_broker(
        self, folder: Path, namesrv_address: str, config: dict[str, object], port: int | None
    ) -> tuple[ServerProcess, str]:
        for attempt in range(START_ATTEMPTS):
            if port is None or not all(_is_free(port + distance) for distance in (0, *APACHE_BESIDE)):
                port = _free_port(APACHE_BESIDE)  # a new port: clients learn it from the route
            items = {**({} if self.is_4 else AT_5), **config, "listenPort": port, "namesrvAddr": namesrv_address}
            path = _write_config(folder / "broker.conf", items)
            process = self._start(folder, "broker", "org.apache.rocketmq.broker.BrokerStartup", path, config)
            try:
                process.wait_ready()
                return process, f"127.0.0.1:{port}"
            except RuntimeError as error:
                if not any(text in str(error) for text in TRANSIENT_START_ERRORS) or attempt == START_ATTEMPTS - 1:
                    raise
                port = None
        raise AssertionError("not reached")

    def _start(self, folder: Path, name: str, main_class: str, config: Path, items: dict[str, object]) -> ServerProcess:
        write_logback(folder, name, self.version)
        class_path = f"{jars(self._libraries(name))}/*"
        heap = ("-Xms512m", "-Xmx512m") if name == "broker" else ("-Xms64m", "-Xmx128m")
        if not any(key.startswith("tls.") for key in items):
            items = {**items, **WITHOUT_TLS}
        classes = recording(self._recorded) if self._recorded else self._archive(name, class_path)
        command = ["java", *JAVA_OPTIONS, *heap, classes, f"-Duser.home={folder}",
                   f"-Drmq.logback.configurationFile={folder}/conf/logback_{name}.xml",
                   *(f"-D{key}={value}" for key, value in items.items() if key.startswith(("tls.", "rocketmq."))),
                   "-cp", class_path, main_class, "-c", str(config)]  # fmt: skip
        return ServerProcess(command, folder / f"{name}.log", {**os.environ, "ROCKETMQ_HOME": str(folder)})

    def _libraries(self, name: str) -> str:
        return self.version if self.is_4 else f"{self.version}-{name}"

    def _archive(self, name: str, class_path: str) -> str:
        """Return the option for the archive of a server's classes."""

        def record(target: Path) -> None:
            home, recorded = target / "home", Apache(self.version, target)
            home.mkdir()
            if name == "namesrv":
                server, _ = recorded.start_namesrv(home, {})
            else:
                paths: dict[str, object] = {"storePathRootDir": home / "store", "storePathCommitLog": home / "store" / "log"}
                server, _ = recorded.start_broker(home, UNUSED_ADDRESS, paths, None)
            server.stop()
            shutil.rmtree(home)

        return class_archive(f"{name}-{self.version}", class_path, record)


def start_proxy(folder: Path, namesrv_address: str, **more: object) -> tuple[ServerProcess, str]:
    """Starts Apache's proxy 5.5.0 (gRPC to clients, remoting to the brokers of a name server); returns its address.

    `more`: settings of the proxy.
    """
    port = _free_port(beside=(1,))
    config = {"rocketMQClusterName": CLUSTER_NAME, "namesrvAddr": namesrv_address, "proxyMode": "CLUSTER",
              "grpcServerPort": port, "remotingListenPort": port + 1, "transactionHeartbeatPeriodSecond": 2,
              **more}  # fmt: skip
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "rmq-proxy.json").write_text(json.dumps(config))
    command = ["java", *JAVA_OPTIONS, "-Xmx256m", f"-Duser.home={folder}", "-cp", f"{jars('5.5.0-proxy')}/*",
               "org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(folder / "conf" / "rmq-proxy.json")]  # fmt: skip
    homes = {"RMQ_PROXY_HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
    process = ServerProcess(command, folder / "proxy.log", {**os.environ, **homes}, "startup successfully")
    process.wait_ready()
    return process, f"127.0.0.1:{port}"


FLAVOURS: dict[str, type[Pocketmq] | type[Apache]] = {"pocketmq": Pocketmq, "apache": Apache}


class Cluster:
    """A name server and one broker on a store under ``folder``."""

    def __init__(
        self,
        folder: Path,
        flavour: Flavour,
        tls: dict[str, object] | None = None,
        joins: "Cluster | None" = None,
        **config: object,
    ) -> None:
        """`joins`: a cluster whose name server this broker registers with; without it, a name server is started."""
        self.folder = folder
        self.store = folder / "store"
        self.flavour = flavour
        self.config = {**config, **(tls or {})}
        self.broker_name = str(config.get("brokerName", BROKER_NAME))
        self.broker: ServerProcess | None = None
        self.broker_address = ""
        folder.mkdir(parents=True, exist_ok=True)
        if joins:
            self.namesrv, self.namesrv_address = joins.namesrv, joins.namesrv_address
        else:
            self.namesrv, self.namesrv_address = flavour.start_namesrv(folder, tls or {})

    def start_broker(self, flavour: Flavour | None = None) -> None:
        """Starts the broker on the store, on the port it had before if there was one."""
        config = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": self.broker_name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "mappedFileSizeCommitLog": COMMIT_LOG_FILE_SIZE,
            **self.config,
        }
        port = int(self.broker_address.rpartition(":")[2]) if self.broker_address else None
        self.broker, self.broker_address = (flavour or self.flavour).start_broker(
            self.folder, self.namesrv_address, config, port
        )

    def stop_broker(self) -> None:
        if self.broker:
            self.broker.stop()

    def kill_broker(self) -> None:
        if self.broker:
            self.broker.kill()

    def close(self) -> None:
        """Ends both servers at once; their store is discarded."""
        self.kill_broker()
        self.namesrv.kill()


def auth_settings(folder: Path) -> dict[str, object]:
    """Return the settings of a broker that checks requests against users and ACLs of 5.x.

    Without the providers 5.5.0 has no users and ACLs; without the path it keeps them in the user's home.
    """
    providers = {
        f"{kind.lower()}MetadataProvider": f"org.apache.rocketmq.auth.{kind.lower()}.provider.Local{kind}MetadataProvider"
        for kind in ("Authentication", "Authorization")
    }
    enabled = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    return {**enabled, **providers, "authConfigPath": folder / "auth"}


def _address_of(ready_line: str) -> str:
    found = re.search(r"address=([\w.\-]+:\d+)", ready_line)
    if not found:
        raise RuntimeError(f"the ready line names no address=HOST:PORT: {ready_line!r}")
    return found.group(1)


def _write_config(path: Path, items: dict[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in items.items()))
    return path


def write_logback(home: Path, name: str, version: str = "4.9.4") -> None:
    """Write a configuration that logs warnings and errors to ``<name>-server.log``.

    4.x reads it from ``$ROCKETMQ_HOME/conf`` and does not start without it; 5.x gets its path, and has logback under another
    package name.
    """
    package = "ch.qos.logback" if version.startswith("4.") else "org.apache.rocketmq.logging.ch.qos.logback"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / f"logback_{name}.xml").write_text(
        f'<configuration><appender name="F" class="{package}.core.FileAppender">'
        f"<file>{home}/{name}-server.log</file><encoder><pattern>%d %p %logger %m%n</pattern></encoder></appender>"
        '<root level="WARN"><appender-ref ref="F"/></root></configuration>\n'
    )


def _free_port(beside: tuple[int, ...]) -> int:
    """Returns an unused port whose neighbours at the given distances are free, too; each port is returned only once.

    It is below the kernel's ephemeral range, because a starting JVM binds it only some seconds later, and a broker that
    stops for a moment must find its port free again.
    """
    for _ in range(1000):
        port = random.randrange(*_PORTS)
        wanted = {port + distance for distance in (0, *beside)}
        with _ports_lock:
            if all(_is_free(one) for one in wanted) and _reserve(wanted):
                return port
    raise RuntimeError("no free group of ports found")


def _reserve(ports: set[int]) -> bool:
    """Return whether this process reserved the ports; none if another, or an earlier call, has one of them."""
    taken: dict[int, socket.socket] = {}
    for port in ports:
        taken[port] = socket.socket(type=socket.SOCK_DGRAM)
        try:
            taken[port].bind(("127.0.0.1", port))
        except OSError:
            for one in taken.values():
                one.close()
            return False
    _ports_given.update(taken)
    return True


def _is_free(port: int) -> bool:
    """Return whether Java could listen on the port on all addresses. Closed connections in TIME_WAIT do not prevent it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except (OSError, OverflowError):
            return False
        return True

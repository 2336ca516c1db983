"""The servers that are compared, started in a folder: all processes that serve a gRPC client, without the name server."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import apache
from bench.servers import OURS_WARM_SHARE
from pocketmq.cli import child_process, processes

VERSION = "5.5.0"
_PROXY_HEAP = "512m"
_PROXY_SECONDS_MAX = 60.0
_BROKER = {"transactionMetricFlushInterval": "200", "timerFlushIntervalMs": "60000"}
"""Settings without which Apache's broker uses up to a core for files that have not changed, which would count as the cost of
messages."""


@dataclass
class Serving:
    """Running servers: where gRPC and remoting clients connect, and the processes whose CPU and memory count."""

    endpoint: str
    broker: str
    pids: Sequence[int]
    stop: Callable[[], object]
    namesrv: str = ""


@dataclass(frozen=True)
class Side:
    """A column of the table. `warm_share`: share of the warm-up that it needs."""

    name: str
    start: Callable[[Path], Serving]
    warm_share: float = 1.0


def start_ours(folder: Path) -> Serving:
    """Start PocketMQ's name server and broker. Raises processes.NotReady."""
    namesrv = processes.start_namesrv(folder)
    try:
        port = apache.free_port()
        broker = processes.start_broker(folder, namesrv.address, {"brokerName": "broker-a", "grpcServerPort": str(port)})
    except processes.NotReady:
        namesrv.stop()
        raise
    return Serving(
        f"127.0.0.1:{port}", broker.address, [broker.process.pid], lambda: (broker.stop(), namesrv.stop()), namesrv.address
    )


def start_theirs(folder: Path) -> Serving:
    """Start Apache's name server, broker and proxy. Raises ApacheError."""
    peer = apache.start(VERSION, folder, _BROKER)
    try:
        proxy, port = _start_proxy(folder.absolute(), peer.namesrv_address)
    except apache.ApacheError:
        peer.stop()
        raise
    pids = [proxy.pid, peer.broker.pid]
    return Serving(f"127.0.0.1:{port}", peer.broker_address, pids, lambda: (apache.terminate(proxy), peer.stop()))


def _start_proxy(folder: Path, namesrv: str) -> tuple[child_process.Process, int]:
    port = apache.free_port(neighbours=(1,))
    config = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": namesrv,
        "proxyMode": "CLUSTER",
        "grpcServerPort": port,
        "remotingListenPort": port + 1,
    }
    path = folder / "conf" / "rmq-proxy.json"
    path.write_text(json.dumps(config))
    command = ["java", f"-Xms{_PROXY_HEAP}", f"-Xmx{_PROXY_HEAP}", f"-Duser.home={folder}"]
    command += ["-cp", f"{folder}/conf:{apache.jars(VERSION)}/*", "org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(path)]
    homes = {"RMQ_PROXY_HOME": str(folder), "ROCKETMQ_HOME": str(folder)}
    with (folder / "proxy.out").open("wb") as out:
        process = child_process.start_program(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | homes
        )
    try:
        apache.wait_for_line(folder / "proxy.out", "startup successfully", process, _PROXY_SECONDS_MAX)
    except apache.ApacheError:
        apache.terminate(process)
        raise
    return process, port


SIDES = (Side("PocketMQ", start_ours, OURS_WARM_SHARE), Side(f"Apache {VERSION}", start_theirs))


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU time that processes have used. Raises OSError if one has ended."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)  # the id of a process's clock, see clock_getcpuclockid(3)

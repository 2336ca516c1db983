"""A cluster of processes on this machine: a name server, masters and their slaves.

`pocketmq up --cluster` runs one, and the fixture `pocketmq_cluster_factory` gives one to tests, which kill, pause, stop and
cut off its brokers.
"""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final, Self, TypeVar

from pocketmq.cli import settings as setting_files
from pocketmq.cli.processes import Server, start_broker, start_namesrv
from pocketmq.runtime.log import LogConfig

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
CLUSTER_NAME: Final = "DefaultCluster"
BROKERS_MAX: Final = 20
SLAVES_MAX: Final = 5
PORT_DISTANCE: Final = 10
"""Distance between the ports of two brokers; each also uses the ports next to its own (VIP channel, slaves)."""


@dataclass(frozen=True)
class Layout:
    """Numbers of masters and slaves of a cluster. `brokers` counts broker names, `slaves` the slaves of each."""

    brokers: int
    slaves: int
    master_role: str = "ASYNC_MASTER"

    def members(self) -> "list[Member]":
        """Return the brokers, each master before its slaves, with the names of the tutorial's configurations."""
        return [
            Member(f"broker-{ascii_lowercase[number]}", broker_id, "SLAVE" if broker_id else self.master_role)
            for number in range(self.brokers)
            for broker_id in range(self.slaves + 1)
        ]


LAYOUTS: Final = {
    "2m-noslave": Layout(2, 0),
    "2m-2s-async": Layout(2, 1),
    "2m-2s-sync": Layout(2, 1, "SYNC_MASTER"),
}
"""The configurations of RocketMQ's tutorial."""


@dataclass(frozen=True)
class Member:
    """A broker of a cluster."""

    broker_name: str
    broker_id: int
    role: str

    @property
    def label(self) -> str:
        """`broker-a` for a master, `broker-a-s` for its slave, `broker-a-s2` for its second slave."""
        if self.broker_id == 0:
            return self.broker_name
        return f"{self.broker_name}-s{self.broker_id if self.broker_id > 1 else ''}"


class Network:
    """The network of a cluster: all processes listen on 127.0.0.1, and nothing can be cut off. `label`: `Member.label`."""

    namesrv_host = LOOPBACK
    """The address to which the name server binds."""

    def prefix(self, label: str) -> Sequence[str]:
        """Return the command that starts the broker's process in the network, such as `ip netns exec NAME`; may be empty."""
        return ()

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        """Return the settings of the broker's addresses. `master`: label of a slave's master."""
        return {}

    def namesrv_address(self, label: str, address: str) -> str:
        """Return the address at which the broker reaches the name server."""
        return address

    def listen_port(self, label: str, port: int) -> int:
        """Return the port that the broker is to listen on; `port`: the port chosen by the cluster, 0 for a free one."""
        return port

    def grpc_address(self, label: str, address: str) -> str:
        """Return the address at which clients reach the broker's gRPC port, which is at `address`."""
        return address

    def cut(self, label: str) -> None:
        """Cut the broker off; without effect if it is cut off already."""
        raise RuntimeError("brokers on the loopback interface cannot be cut off; make the cluster with partitions=True")

    def join(self, label: str) -> None:
        """Connect the broker again; without effect if it is connected."""

    def close(self) -> None:
        """Remove all interfaces and proxies of the network."""


class Node:
    """A broker process of a running cluster."""

    def __init__(self, member: Member, cluster: "ProcessCluster", folder: Path, port: int, number: int) -> None:
        """`folder` holds its store, its configuration and its output. `port` 0: a free one, kept over restarts.

        `number`: 1 for the first broker of the cluster.
        """
        self.member = member
        self.number = number
        self.folder = folder
        self._cluster = cluster
        self._port = port
        self._grpc_port = "0"
        self._server: Server | None = None

    @property
    def address(self) -> str:
        """The broker's address for clients."""
        return self.server.address

    @property
    def grpc_address(self) -> str | None:
        """The broker's address for gRPC clients; None without `grpcServerPort`."""
        address = self.server.grpc_address
        return address and self._cluster.network.grpc_address(self.member.label, address)

    @property
    def pid(self) -> int:
        return self.server.process.pid

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while the broker runs."""
        return self.server.process.poll()

    @property
    def output(self) -> Path:
        """The file with the broker's output."""
        return self.server.out

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the broker (again) on the same store and ports. Raises NotReady.

        `settings` replace those of the cluster until its next start.
        """
        network, label = self._cluster.network, self.member.label
        own = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": self.member.broker_name,
            "brokerId": str(self.member.broker_id),
            "brokerRole": self.member.role,
            **network.broker_settings(label, self.member.broker_name if self.member.broker_id else None),
            **self._cluster.settings_of(self.number, setting_files.BROKER_CLASSES, label),
            **(settings or {}),
        }
        if own.get("grpcServerPort") == "0":
            own["grpcServerPort"] = self._grpc_port
        namesrv_address = network.namesrv_address(label, self._cluster.namesrv_address)
        port = network.listen_port(label, self._port)
        options = self._cluster.broker_options
        prefix = network.prefix(label)
        self._server = start_broker(self.folder, namesrv_address, own, port=port, prefix=prefix, options=options)
        self._port = port or int(self._server.address.rpartition(":")[2])
        self._grpc_port = (self._server.grpc_address or ":0").rpartition(":")[2]

    def stop(self) -> int:
        """Stop the broker by SIGTERM and return its exit code."""
        self.resume()
        return self.server.stop()

    def kill(self) -> None:
        """Kill the broker by SIGKILL."""
        self.server.process.kill()
        self.server.process.wait()

    def pause(self) -> None:
        """Suspend the broker (SIGSTOP), like a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the broker run again (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def partition(self) -> None:
        """Cut off clients, name server and other brokers: no connection is refused, but nothing is transmitted."""
        self._cluster.network.cut(self.member.label)

    def heal(self) -> None:
        """Undo `partition`."""
        self._cluster.network.join(self.member.label)

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.process.poll() is None

    @property
    def server(self) -> Server:
        """The running process. Raises RuntimeError before the first start."""
        if self._server is None:
            raise RuntimeError(f"{self.member.label} was not started")
        return self._server

    def _signal(self, number: int) -> None:
        if self.is_running:
            self.server.process.send_signal(number)


class ProcessCluster:
    """A name server and the brokers of a layout, as child processes. A context manager, which starts and stops it."""

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        *,
        namesrv_port: int = 0,
        broker_port: int = 0,
        settings: Mapping[str, str] | None = None,
        network: Network | None = None,
        broker_options: Sequence[str] = (),
    ) -> None:
        """Files are in a folder per process in `folder`. Ports 0: free ones; else brokers are PORT_DISTANCE apart.

        `settings` apply to all servers that have these keys; `settings_of` adapts them to each server. `broker_options`:
        options of every broker's command.
        """
        self.folder = folder
        self.broker_options = broker_options
        self._namesrv_port = namesrv_port
        self._settings = settings or {}
        self.network = network or Network()
        self._namesrv: Server | None = None
        self.nodes: dict[str, Node] = {}
        """Brokers by label; masters before their slaves."""
        for number, member in enumerate(layout.members(), 1):
            port = broker_port + (number - 1) * PORT_DISTANCE if broker_port else 0
            self.nodes[member.label] = Node(member, self, folder / member.label, port, number)

    def settings_of(self, number: int, declared: Iterable[type[Any]], label: str) -> dict[str, str]:
        """Return the settings of a server: of the name server (number 0), or of a broker.

        `metricsPort` is the port of the name server, and the brokers get the ports after it; `grpcServerPort` is the port of
        the first broker; 0: free ports. In `logDirectory` each server has a folder.
        """
        own = setting_files.part_of(self._settings, (*declared, LogConfig))
        for key, distance in (("metricsPort", number), ("grpcServerPort", number - 1)):
            if int(own.get(key) or 0):
                own[key] = str(int(own[key]) + distance)
        if own.get("logDirectory"):
            own["logDirectory"] = str(Path(own["logDirectory"]).absolute() / label)
        return own

    @property
    def namesrv_address(self) -> str:
        """Address of the name server for clients."""
        assert self._namesrv is not None, "not started"
        return self._namesrv.address

    @property
    def servers(self) -> dict[str, Server]:
        """The running servers by label, the name server first."""
        assert self._namesrv is not None, "not started"
        return {"namesrv": self._namesrv, **{label: node.server for label, node in self.nodes.items()}}

    @property
    def masters(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.member.broker_id == 0]

    @property
    def slaves(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.member.broker_id != 0]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the name server, then masters, then slaves, and return when all are ready. Raises NotReady."""
        own = {
            "bindAddress": self.network.namesrv_host,
            **self.settings_of(0, setting_files.NAMESRV_CLASSES, "namesrv"),
        }
        self._namesrv = start_namesrv(self.folder / "namesrv", port=self._namesrv_port, settings=own)
        for nodes in (self.masters, self.slaves):
            _at_once(Node.start, nodes)

    def stop(self) -> int:
        """Stop masters, then slaves, which copy the rest of the logs, then the name server. Returns the worst exit code."""
        codes = [0]
        for nodes in (self.masters, self.slaves):
            codes += _at_once(Node.stop, [node for node in nodes if node.is_running])
        if self._namesrv is not None:
            codes.append(self._namesrv.stop())
        self.network.close()
        return max(abs(code) for code in codes)


def _at_once(work: Callable[[Node], T], nodes: Sequence[Node]) -> list[T]:
    """Do the work for all nodes at the same time; return the results."""
    with ThreadPoolExecutor(max(len(nodes), 1)) as threads:
        return list(threads.map(work, nodes))

"""Networks of a cluster of processes: the loopback interface, and two in which a test cuts brokers off.

`NamespaceNetwork` gives each broker a network namespace of Linux, with an address of its own on a bridge; it needs root.
`ProxyNetwork` puts a proxy before each port and needs no privileges; but a slave that is cut off still copies the tables of
its master, because the master cannot tell its connection from a client's.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Final, Protocol

from pocketmq.cli.tcp_proxy import TcpProxy

LOOPBACK: Final = "127.0.0.1"


class Network(Protocol):
    """Interface of a network for `ProcessCluster`. `label` names a broker (`Member.label`)."""

    namesrv_host: str
    """The address to which the name server binds."""

    def prefix(self, label: str) -> Sequence[str]:
        """Return the command that starts the broker's process in the network, such as `ip netns exec NAME`; may be empty."""

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        """Return the settings of the broker's addresses. `master`: label of a slave's master."""

    def namesrv_address(self, label: str, address: str) -> str:
        """Return the address at which the broker reaches the name server."""

    def listen_port(self, label: str, port: int) -> int:
        """Return the port that the broker is to listen on; `port`: the port chosen by the cluster, 0 for a free one."""

    def cut(self, label: str) -> None:
        """Cut the broker off; without effect if it is cut off already."""

    def join(self, label: str) -> None:
        """Connect the broker again; without effect if it is connected."""

    def close(self) -> None:
        """Remove all interfaces and proxies of the network."""


class LoopbackNetwork:
    """All processes listen on 127.0.0.1. Nothing can be cut off."""

    namesrv_host = LOOPBACK

    def prefix(self, label: str) -> Sequence[str]:
        return ()

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        return {}

    def namesrv_address(self, label: str, address: str) -> str:
        return address

    def listen_port(self, label: str, port: int) -> int:
        return port

    def cut(self, label: str) -> None:
        raise RuntimeError("brokers on the loopback interface cannot be cut off; make the cluster with partitions=True")

    def join(self, label: str) -> None:
        return None

    def close(self) -> None:
        return None


class NamespaceNetwork(LoopbackNetwork):
    """Each broker has a network namespace, connected to a bridge, through which it reaches name server and clients.

    A broker that is cut off gets no packets and no errors, as with a broken switch: connections stay open on both sides.
    """

    def __init__(self) -> None:
        """Create the bridge. Raises OSError if this process may not."""
        # Interface names have at most 15 characters.
        self._name = f"pmq{secrets.token_hex(3)}"
        self._subnet = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
        self._labels: list[str] = []
        self.namesrv_host = f"{self._subnet}.1"
        _ip("link", "add", self._name, "type", "bridge")
        try:
            _ip("addr", "add", f"{self.namesrv_host}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
        except OSError:
            self.close()
            raise

    @staticmethod
    def is_possible() -> bool:
        """Return whether this process may create network namespaces."""
        if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
            return False
        try:
            network = NamespaceNetwork()
            try:
                network.prefix("probe")
            finally:
                network.close()
        except OSError:
            return False
        return True

    def prefix(self, label: str) -> Sequence[str]:
        if label not in self._labels:
            self._make(label)
        return ("ip", "netns", "exec", self._namespace(label))

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        self.prefix(label)
        return {"bindAddress": self._host(label), "brokerIP1": self._host(label)}

    def cut(self, label: str) -> None:
        _ip("link", "set", self._interface(label), "down")

    def join(self, label: str) -> None:
        _ip("link", "set", self._interface(label), "up")

    def close(self) -> None:
        for label in self._labels:
            with contextlib.suppress(OSError):
                _ip("netns", "del", self._namespace(label))
        with contextlib.suppress(OSError):
            _ip("link", "del", self._name)
        self._labels.clear()

    def _make(self, label: str) -> None:
        self._labels.append(label)
        space, outside = self._namespace(label), self._interface(label)
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", self._name, "up")
        for command in (
            ("addr", "add", f"{self._host(label)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", space, *command)

    def _number(self, label: str) -> int:
        return self._labels.index(label) + 2

    def _host(self, label: str) -> str:
        return f"{self._subnet}.{self._number(label)}"

    def _namespace(self, label: str) -> str:
        return f"{self._name}-{self._number(label)}"

    def _interface(self, label: str) -> str:
        return f"{self._name}-{self._number(label)}"


class ProxyNetwork(LoopbackNetwork):
    """Brokers on 127.0.0.1 that are reached, and reach others, through proxies of their own."""

    def __init__(self) -> None:
        self._proxies: dict[tuple[str, str], TcpProxy] = {}
        self._ha_ports: dict[str, int] = {}

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        if label not in self._ha_ports:
            self._ha_ports[label] = _free_port()
        self._proxy(label, "slaves").target = (LOOPBACK, self._ha_ports[label])
        settings = {
            "advertisedPort": str(self._proxy(label, "clients").port),
            "haListenPort": str(self._ha_ports[label]),
        }
        if master is not None:
            to_master = self._proxy(label, "master")
            to_master.target = (LOOPBACK, self._proxy(master, "slaves").port)
            settings["haMasterAddress"] = f"{LOOPBACK}:{to_master.port}"
        return settings

    def namesrv_address(self, label: str, address: str) -> str:
        proxy = self._proxy(label, "namesrv")
        proxy.target = _host_and_port(address)
        return f"{LOOPBACK}:{proxy.port}"

    def listen_port(self, label: str, port: int) -> int:
        chosen = port or _free_port()
        self._proxy(label, "clients").target = (LOOPBACK, chosen)
        return chosen

    def cut(self, label: str) -> None:
        for (owner, _), proxy in self._proxies.items():
            if owner == label:
                proxy.cut()

    def join(self, label: str) -> None:
        for (owner, _), proxy in self._proxies.items():
            if owner == label:
                proxy.join()

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()

    def _proxy(self, label: str, purpose: str) -> TcpProxy:
        if (label, purpose) not in self._proxies:
            self._proxies[label, purpose] = TcpProxy()
        return self._proxies[label, purpose]


def partitionable() -> Network:
    """Return a network whose brokers can be cut off: namespaces if this process may make them, else proxies."""
    return NamespaceNetwork() if NamespaceNetwork.is_possible() else ProxyNetwork()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        return int(listening.getsockname()[1])


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _ip(*arguments: str) -> None:
    """Run `ip` of iproute2. Raises OSError with its message."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")

"""Networks of a cluster of processes in which a test cuts brokers off.

`NamespaceNetwork` gives each broker a network namespace of Linux, with an address of its own on a bridge; it needs root.
`ProxyNetwork` puts a proxy before each port and needs no privileges; but a slave that is cut off still copies the tables of
its master, because the master cannot tell its connection from a client's.
"""

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Final

from pocketmq.cli.cluster import LOOPBACK, Network
from pocketmq.testing.tcp_proxy import TcpProxy, free_port

_NAME_PREFIX: Final = "pocket"
"""Beginning of the names of bridges; interface names have at most 15 characters, of which a broker's number needs 4."""


class NamespaceNetwork(Network):
    """Each broker has a network namespace, connected to a bridge, through which it reaches name server and clients.

    A broker that is cut off gets no packets and no errors, as with a broken switch: connections stay open on both sides.

    An abstract Unix socket with the bridge's name shows that it is in use. The kernel closes it with the process, so a
    bridge without such a socket was left by a process that was killed.
    """

    def __init__(self) -> None:
        """Create the bridge, after removal of those left by killed processes. Raises OSError if this process may not."""
        _remove_leftovers()
        self._name = f"{_NAME_PREFIX}{secrets.token_hex(3)[:5]}"
        self._owned = _own(self._name)
        self._subnet = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
        self._labels: list[str] = []
        self.namesrv_host = f"{self._subnet}.1"
        try:
            _ip("link", "add", self._name, "type", "bridge")
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
            with contextlib.closing(NamespaceNetwork()) as network:
                network.prefix("probe")
        except OSError:
            return False
        return True

    def prefix(self, label: str) -> Sequence[str]:
        if label not in self._labels:
            self._make(label)
        return ("ip", "netns", "exec", self._interface(label))

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        self.prefix(label)
        return {"bindAddress": self._host(label), "brokerIP1": self._host(label)}

    def cut(self, label: str) -> None:
        _ip("link", "set", self._interface(label), "down")

    def join(self, label: str) -> None:
        _ip("link", "set", self._interface(label), "up")

    def close(self) -> None:
        _remove(self._name)
        self._owned.close()
        self._labels.clear()

    def _make(self, label: str) -> None:
        self._labels.append(label)
        name = self._interface(label)
        _ip("netns", "add", name)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._name, "up")
        for command in (
            ("addr", "add", f"{self._host(label)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", name, *command)

    def _number(self, label: str) -> int:
        return self._labels.index(label) + 2

    def _host(self, label: str) -> str:
        return f"{self._subnet}.{self._number(label)}"

    def _interface(self, label: str) -> str:
        """Return the name of a broker's network namespace and of its interface at the bridge."""
        return f"{self._name}-{self._number(label)}"


class ProxyNetwork(Network):
    """Brokers on 127.0.0.1 that are reached, and reach other servers, through proxies of their own."""

    def __init__(self) -> None:
        self._proxies: dict[tuple[str, str], TcpProxy] = {}
        self._ha_ports: dict[str, int] = {}

    def broker_settings(self, label: str, master: str | None) -> dict[str, str]:
        if label not in self._ha_ports:
            self._ha_ports[label] = free_port(LOOPBACK)
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
        chosen = port or free_port(LOOPBACK)
        self._proxy(label, "clients").target = (LOOPBACK, chosen)
        return chosen

    def grpc_address(self, label: str, address: str) -> str:
        proxy = self._proxy(label, "grpc")
        proxy.target = _host_and_port(address)
        return f"{LOOPBACK}:{proxy.port}"

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


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _own(bridge: str) -> socket.socket:
    """Return a socket that shows that the bridge is in use. Raises OSError if another process uses it."""
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0{bridge}")
    except OSError:
        mark.close()
        raise
    return mark


def _remove_leftovers() -> None:
    """Remove bridges and namespaces of processes that were killed."""
    for line in _ip("-o", "link", "show", "type", "bridge").splitlines():
        name = line.split(": ")[1]
        if re.fullmatch(f"{_NAME_PREFIX}[0-9a-f]{{5}}", name):
            with contextlib.suppress(OSError), _own(name):
                _remove(name)


def _remove(bridge: str) -> None:
    """Remove the namespaces of a bridge, then the bridge itself: it shows that namespaces may be left."""
    spaces = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith(f"{bridge}-")]
    for command in (*(("netns", "del", space) for space in spaces), ("link", "del", bridge)):
        with contextlib.suppress(OSError):  # another process may have removed it
            _ip(*command)


def _ip(*arguments: str) -> str:
    """Run `ip` of iproute2 and return its output. Raises OSError with its message."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip() or done.returncode}")
    return done.stdout

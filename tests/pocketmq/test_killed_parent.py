"""A process that runs servers is killed by `kill -9`: its servers end too, and the next start removes what it left."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.testing.networks import NamespaceNetwork
from tests.pocketmq.test_process_cluster import members, until, up

ROOT = Path(__file__).parents[2]

KILLED_TEST = """
import os, signal
from pathlib import Path

def test_that_is_killed(pocketmq_cluster, pocketmq_cluster_factory):
    cluster = pocketmq_cluster_factory(brokers=2, partitions=True)
    cluster.nodes["broker-b"].pause()
    servers = [pocketmq_cluster._server, *cluster.servers.values()]
    Path("network").write_text(getattr(cluster.network, "_name", ""))
    Path("pids").write_text(" ".join(str(server.process.pid) for server in servers))
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_STARTER = """
import os, signal, sys, threading
from pathlib import Path
from bench import apache
from tests.interop.driver import Driver
from tests.interop.servers import ServerProcess

folder = Path(sys.argv[1])
pids = []

def start():
    pids.append(ServerProcess(["sleep", "600"], folder / "server.log").pid)
    pids.append(Driver(["sleep", "600"], folder, dict(os.environ))._process.pid)
    pids.append(apache._java(folder, folder, "broker", "64m", "Main")[0].pid)

thread = threading.Thread(target=start)
thread.start()
thread.join()
assert len(pids) == 3
for pid in pids:
    os.kill(pid, 0)
(folder / "pids").write_text(" ".join(map(str, pids)))
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Starts a server and a client as the tests do, and a server as the benchmarks do, in a thread that ends; is then killed."""


def stat(pid: int) -> list[str]:
    """Return the fields of a process's /proc file from its state on; none if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [] if fields[0] == "Z" else fields


def children(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if stat(pid)[1:2] == [str(parent)]]


def until_ended(pids: list[int]) -> None:
    until(lambda: not any(map(stat, pids)), f"the end of {pids}")


def networks() -> set[str]:
    """Return the names of bridges and network namespaces."""
    shown = [
        subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout.splitlines()
        for words in (["-o", "link", "show", "type", "bridge"], ["netns", "list"])
    ]
    return {line.split(": ")[1] for line in shown[0]} | {line.split()[0] for line in shown[1]}


def test_servers_end_with_up_and_the_next_finds_port_and_store_free(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "2", "--slaves", "1") as (process, _, address):
        pids = children(process.pid)
        assert len(pids) == 5, "a name server and four brokers"
        process.kill()
        until_ended(pids)
    host, _, port = address.rpartition(":")
    socket.create_server((host, int(port))).close()
    with up(tmp_path, "--brokers", "2", "--slaves", "1") as (_, _, address):
        assert members(address) == {"broker-a": ["0", "1"], "broker-b": ["0", "1"]}


def test_servers_of_the_fixtures_end_with_pytest_and_their_networks_are_removed(tmp_path: Path) -> None:
    (tmp_path / "test_killed.py").write_text(KILLED_TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temp'}"]
    done = subprocess.run([*command, "test_killed.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4
    until_ended(pids)
    if name := (tmp_path / "network").read_text():  # other networks may belong to tests that run now

        def is_removed() -> bool:
            NamespaceNetwork().close()
            return not [one for one in networks() if one.startswith(name)]

        until(is_removed, f"the removal of {name} by the next start, here or in another process")


def test_apache_s_servers_and_foreign_clients_end_with_the_tests_that_started_them(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho boot success\nexec sleep 600\n")
    java.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", KILLED_STARTER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until_ended([int(pid) for pid in (tmp_path / "pids").read_text().split()])


def test_network_in_use_is_kept_when_another_starts() -> None:
    if not NamespaceNetwork.is_possible():
        pytest.skip("network namespaces need root and iproute2")
    used = NamespaceNetwork()
    try:
        used.prefix("broker-a")
        own = {one for one in networks() if one.startswith(used._name)}
        NamespaceNetwork().close()
        assert own and networks() >= own
    finally:
        used.close()

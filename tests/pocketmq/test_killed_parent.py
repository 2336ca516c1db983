"""A process that runs servers is killed by `kill -9`: its servers end too, and the next start removes what it left."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.cli.network import NamespaceNetwork
from tests.pocketmq.test_process_cluster import members, until, up

KILLED_TEST = """
import os, signal
from pathlib import Path

def test_that_is_killed(pocketmq_cluster, pocketmq_cluster_factory):
    cluster = pocketmq_cluster_factory(brokers=2, partitions=True)
    cluster.nodes["broker-b"].pause()
    servers = [pocketmq_cluster._server, *cluster.servers.values()]
    Path("pids").write_text(" ".join(str(server.process.pid) for server in servers))
    os.kill(os.getpid(), signal.SIGKILL)
"""


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
    before = networks() if NamespaceNetwork.is_possible() else set()
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temp'}"]
    done = subprocess.run([*command, "test_killed.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 4
    until_ended(pids)
    if NamespaceNetwork.is_possible():
        left = networks() - before
        NamespaceNetwork().close()
        assert not left & networks()


def test_network_in_use_is_kept_when_another_starts() -> None:
    if not NamespaceNetwork.is_possible():
        pytest.skip("network namespaces need root and iproute2")
    used = NamespaceNetwork()
    try:
        used.prefix("broker-a")
        before = networks()
        NamespaceNetwork().close()
        assert networks() >= before
    finally:
        used.close()

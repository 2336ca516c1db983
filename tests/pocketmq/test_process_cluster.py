"""Clusters of processes: `pocketmq up --cluster`, its settings, the fixture, and the configurations of the tutorial."""

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketmq import Message, Producer
from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.cluster import LAYOUTS, Layout, Network, ProcessCluster
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.cli.main import main
from pocketmq.cli.processes import NotReady, start_broker, start_namesrv
from pocketmq.pytest_plugin import ClusterFactory, pocketmq_cluster_factory  # noqa: F401
from pocketmq.remoting.bodies import ClusterInfo, decode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime import properties_file
from pocketmq.testing.networks import NamespaceNetwork, ProxyNetwork
from tests.patience import PATIENCE_S
from tests.support.commands import call

CONF = Path(__file__).parents[2] / "conf"


def members(namesrv: str) -> dict[str, list[str]]:
    """Return the broker ids by broker name, from the name server."""

    async def ask() -> dict[str, list[str]]:
        async with ClusterAdmin(namesrv) as admin:
            answer = await admin.call(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        table = decode_body(ClusterInfo, answer.body).broker_addr_table
        return {name: sorted(str(one) for one in data.broker_addrs) for name, data in table.items()}

    return asyncio.run(ask())


def send_status(namesrv: str) -> str:
    """Return the status of a send, or the name of the exception that it raised."""

    async def send() -> str:
        async with Producer(namesrv, "p") as producer:
            return (await producer.send(Message("TopicTest", b"x"))).status

    try:
        return asyncio.run(send())
    except Exception as failure:
        return type(failure).__name__


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def up(folder: Path, *arguments: str) -> Iterator["tuple[subprocess.Popen[str], str, str]"]:
    """Run `pocketmq up` in `folder`; yield the process, its output until it was ready, and the name server's address."""
    command = [sys.executable, "-P", "-m", "pocketmq", "up", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        try:
            for line in process.stdout:
                said += line
                if line.startswith("Try: "):
                    break
            address = said.partition("boot success. address=")[2].split()
            assert address, said
            yield process, said, address[0]
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def test_up_runs_a_layout_of_the_tutorial_and_stops_it(tmp_path: Path) -> None:
    with up(tmp_path, "--cluster", "2m-2s-sync") as (process, said, address):
        assert [line.split()[:3] for line in said.splitlines()[1:5]] == [
            ["broker-a", "0", "SYNC_MASTER"],
            ["broker-a-s", "1", "SLAVE"],
            ["broker-b", "0", "SYNC_MASTER"],
            ["broker-b-s", "1", "SLAVE"],
        ]
        assert members(address) == {"broker-a": ["0", "1"], "broker-b": ["0", "1"]}
        until(lambda: send_status(address) == "SEND_OK", "both masters to have their slaves")
        pids = [int(line.split()[4]) for line in said.splitlines()[1:5]]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert (tmp_path / "pocketmq-store" / "broker-b-s" / "store").is_dir()


def test_up_takes_settings_from_a_file_and_options(tmp_path: Path) -> None:
    file = tmp_path / "my.conf"
    file.write_text("brokerName=from-file\nenablePropertyFilter=true\nuseEpollNativeSelector=true\n")
    with up(tmp_path, "--memory", "-c", str(file), "--set", "brokerName=by-option") as (_, said, address):
        assert "broker[by-option] boot success" in said
        assert "key useEpollNativeSelector: ignored: " in said

        async def config() -> bytes:
            async with ClusterAdmin(address) as admin:
                (broker,) = admin.brokers.values()
                answer = await admin.call(broker, RequestCode.GET_BROKER_CONFIG)
                return bytes(answer.body)

        assert b"enablePropertyFilter=true" in asyncio.run(config())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--set", "enablePropertFilter=true"], "unknown key enablePropertFilter; did you mean enablePropertyFilter?"),
        (["--set", "enablePropertyFilter=maybe"], "enablePropertyFilter=maybe: expected true or false"),
        (["--set", "enablePropertyFilter"], "--set enablePropertyFilter: expected key=value"),
        (["--set", "listenPort=1"], "listenPort: cannot be set here: use --port"),
        (["-c", "nowhere.conf"], "-c nowhere.conf: No such file or directory"),
        (["--cluster", "3m"], "--cluster 3m: expected one of 2m-noslave, 2m-2s-async, 2m-2s-sync"),
        (["--cluster", "2m-noslave", "--slaves", "1"], "omit --brokers and --slaves"),
        (["--cluster", "2m-noslave", "--memory"], "--memory is for a single broker, not for a cluster"),
        (["--brokers", "2", "--set", "metricsPort=65534"], "metricsPort=65534 leaves no ports for 2 brokers"),
        (["--brokers", "0"], "--brokers 0: expected a whole number from 1 to 20"),
        (
            ["--brokers", "2", "--set", "brokerRole=SLAVE"],
            "brokerRole: cannot be set here: the layout gives each broker its role",
        ),
    ],
)
def test_up_refuses_wrong_settings_before_it_starts_anything(
    arguments: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call(main, "up", "--port", "0", *arguments)
    assert done.returncode == 2 and error in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def broker_config(namesrv: str, changes: bytes = b"") -> dict[str, str]:
    """Change settings of the only broker, and return all."""

    async def ask() -> bytes:
        async with ClusterAdmin(namesrv) as admin:
            (broker,) = admin.brokers.values()
            if changes:
                await admin.call(broker, RequestCode.UPDATE_BROKER_CONFIG, None, changes)
            return bytes((await admin.call(broker, RequestCode.GET_BROKER_CONFIG)).body)

    return properties_file.loads(asyncio.run(ask()).decode())


def test_cluster_keeps_changed_settings_and_has_metrics_and_logs(tmp_path: Path) -> None:
    given = ("--brokers", "1", "--set", f"logDirectory={tmp_path / 'logs'}", "--set", "metricsPort=0")
    with up(tmp_path, *given) as (_, said, address):
        changed = broker_config(address, b"fileReservedTime=7\nautoCreateTopicEnable=false\nbrokerIP1=localhost\n")
        assert (changed["fileReservedTime"], changed["autoCreateTopicEnable"]) == ("7", "false")
        pages = dict(re.findall(r"^Metrics of (\S+): (http\S+)$", said, re.MULTILINE))
        assert list(pages) == ["namesrv", "broker-a"]
        with urllib.request.urlopen(pages["broker-a"], timeout=PATIENCE_S) as page:
            assert b"rocketmq_topic_number" in page.read()
    assert {file.relative_to(tmp_path / "logs").as_posix() for file in (tmp_path / "logs").rglob("*.log")} == {
        "namesrv/namesrv.log", "broker-a/broker.log",
    }  # fmt: skip
    with up(tmp_path, "--brokers", "1", "--set", "autoCreateTopicEnable=true") as (_, said, address):
        now = broker_config(address)
        assert [now[key] for key in ("fileReservedTime", "autoCreateTopicEnable", "brokerIP1")] == ["7", "true", "localhost"]
        assert "broker-a: settings changed at runtime apply: brokerIP1=localhost, fileReservedTime=7" in said
        replaced = (
            "settings changed at runtime do not apply, because this start sets other values: autoCreateTopicEnable=false"
        )
        assert f"broker-a: {replaced}" in said
        assert "Metrics" not in said
    with up(tmp_path, "--brokers", "1") as (_, said, address):
        assert broker_config(address)["autoCreateTopicEnable"] == "false", "it was given for one start only"


def test_metrics_ports_of_a_cluster_are_consecutive() -> None:
    cluster = ProcessCluster(Path("x"), Layout(2, 0), settings={"metricsPort": "5600", "metricsHost": "127.0.0.1"})
    ports = [cluster.settings_of(number, [BrokerConfig], "any")["metricsPort"] for number in range(3)]
    assert ports == ["5600", "5601", "5602"]


def test_settings_file_of_another_format_is_refused(tmp_path: Path) -> None:
    head = "# Written at each start, from the options of the program that starts the server.\n"
    (tmp_path / "broker.conf").write_text(f"{head}brokerIP1=127.0.0.1\nnosetting\n")
    with pytest.raises(NotReady, match=r"broker.conf: line \d+: not a properties file"):
        start_broker(tmp_path, "127.0.0.1:1")


def test_up_reports_a_broker_that_dies(tmp_path: Path) -> None:
    with up(tmp_path, "--brokers", "2") as (process, said, _):
        pid = next(int(line.split()[4]) for line in said.splitlines() if line.startswith("broker-b "))
        subprocess.run(["kill", "-9", str(pid)], check=True)
        assert process.stdout is not None
        assert "broker-b ended with exit code -9; see " in process.stdout.readline()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tutorial_configurations_match_those_of_up(layout: str) -> None:
    files = (CONF / layout).iterdir()
    assert {file.stem for file in files} == {member.label for member in LAYOUTS[layout].members()}
    for member in LAYOUTS[layout].members():
        keys = properties_file.load(CONF / layout / f"{member.label}.properties")
        assert keys["brokerClusterName"] == "DefaultCluster"
        found = keys["brokerName"], int(keys["brokerId"]), keys["brokerRole"]
        assert found == (member.broker_name, member.broker_id, member.role)


def test_tutorial_configuration_starts_with_only_its_paths_changed(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        namesrv = start_namesrv(tmp_path / "namesrv")
        stack.callback(namesrv.stop)
        for file in sorted((CONF / "2m-2s-async").iterdir()):
            broker = start_broker(tmp_path / file.stem, namesrv.address, properties_file.load(file))
            stack.callback(broker.stop)
        assert members(namesrv.address) == {"broker-a": ["0", "1"], "broker-b": ["0", "1"]}


def test_fixture_brokers_can_be_killed_stopped_and_started(pocketmq_cluster_factory: ClusterFactory) -> None:  # noqa: F811
    cluster = pocketmq_cluster_factory(slaves=1, role="SYNC_MASTER")
    master, slave = cluster.nodes["broker-a"], cluster.nodes["broker-a-s"]
    until(lambda: send_status(cluster.namesrv_address) == "SEND_OK", "the slave to be connected")
    slave.kill()
    assert slave.exit_code == -signal.SIGKILL
    until(lambda: send_status(cluster.namesrv_address) == "SLAVE_NOT_AVAILABLE", "the master to notice")
    slave.start()
    until(lambda: send_status(cluster.namesrv_address) == "SEND_OK", "the slave to be connected again")
    address = master.address
    assert master.stop() == 0
    master.start()
    assert master.address == address


@pytest.mark.parametrize("make", [NamespaceNetwork, ProxyNetwork])
def test_partitioned_slave_is_silent_and_catches_up_afterwards(make: Callable[[], Network], tmp_path: Path) -> None:
    if make is NamespaceNetwork and not NamespaceNetwork.is_possible():
        pytest.skip("network namespaces need root and iproute2")
    settings = {"slaveTimeout": "300", "haHousekeepingInterval": "5000", "haSendHeartbeatInterval": "500"}
    with ProcessCluster(tmp_path, Layout(1, 1, "SYNC_MASTER"), settings=settings, network=make()) as cluster:
        slave = cluster.nodes["broker-a-s"]
        until(lambda: send_status(cluster.namesrv_address) == "SEND_OK", "the slave to be connected")
        slave.partition()
        # The connection stays open, so the master waits for the slave in vain; later it gives the silent slave up.
        assert send_status(cluster.namesrv_address) == "FLUSH_SLAVE_TIMEOUT"
        until(lambda: send_status(cluster.namesrv_address) == "SLAVE_NOT_AVAILABLE", "the master to give the slave up")
        slave.heal()
        until(lambda: send_status(cluster.namesrv_address) == "SEND_OK", "the slave to be connected again")


async def test_brokers_on_loopback_cannot_be_partitioned(pocketmq_cluster_factory: ClusterFactory) -> None:  # noqa: F811
    cluster = pocketmq_cluster_factory()
    with pytest.raises(RuntimeError, match="partitions=True"):
        cluster.nodes["broker-a"].partition()


def test_slave_started_as_master_takes_over_from_a_hanging_master(pocketmq_cluster_factory: ClusterFactory) -> None:  # noqa: F811
    cluster = pocketmq_cluster_factory(slaves=1)
    master, slave = cluster.nodes["broker-a"], cluster.nodes["broker-a-s"]
    assert send_status(cluster.namesrv_address) == "SEND_OK"
    topics = slave.store / "config" / "topics.json"
    until(lambda: topics.exists() and "TopicTest" in topics.read_text(), "the slave has the tables")
    master.pause()
    slave.stop()
    slave.start({"brokerId": "0", "brokerRole": "ASYNC_MASTER"})
    assert send_status(cluster.namesrv_address) == "SEND_OK"
    master.resume()
    until(lambda: "which has taken over" in master.output.read_text(), "the former master takes no messages")
    assert send_status(cluster.namesrv_address) == "SEND_OK"

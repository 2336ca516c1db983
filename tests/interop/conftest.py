"""Tests of real clients against real servers.

``--server=pocketmq`` (the default) tests PocketMQ; ``--server=apache`` runs the same tests against Apache 4.9.4, to verify
their expectations. A missing JDK, Maven or Go is a failure with ``CI=true``, otherwise a skip that the summary lists.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.admin.api import client as admin_client
from tests.interop import toolchain
from tests.interop.driver import Driver
from tests.interop.drivers import CLIENTS, SKIPPED, Drivers, needed, toolchain_missing
from tests.interop.mqadmin import Mqadmin
from tests.interop.patience import wait
from tests.interop.servers import FLAVOURS, Apache, Cluster, Flavour
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

_GET_BROKER_CLUSTER_INFO = 106
TEST_TIMEOUT_S = 1200  # the first run downloads


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interop")
    group.addoption("--server", choices=sorted(FLAVOURS), default="pocketmq", help="servers used by the real clients")
    group.addoption("--exchange-rounds", type=int, default=1, help="how often a store goes from Apache to PocketMQ and back")
    group.addoption(
        "--write-golden", action="store_true", help="query Apache for the SQL92 results that other tests use, and save them"
    )
    group.addoption("--write-mqadmin-page", action="store_true", help="write docs/mqadmin.md from what happened")
    group.addoption("--grpc-fronts", help="gRPC fronts to test instead of the usual ones, by comma: see grpc/fronts.py")
    group.addoption("--kill-cycles", type=int, help="how often the broker is killed under load, instead of the usual times")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in sorted(SKIPPED):
        terminalreporter.write_line(f"INTEROP TESTS SKIPPED: {reason}", red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def patient_commands() -> Iterator[None]:
    """Commands in this process wait long for an answer: a JVM that has just started is slow beside a heavy load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admin_client, "TIMEOUT_S", PATIENCE_S)
        yield


@pytest.fixture(scope="session")
def flavour(pytestconfig: pytest.Config) -> Flavour:
    """The implementation under test."""
    name = pytestconfig.getoption("server", default="pocketmq")
    if name == "apache":
        need_java()
    return FLAVOURS[name]()


@pytest.fixture(scope="session")
def apache() -> Apache:
    need_java()
    return Apache()


def need_java() -> None:
    try:
        toolchain.require_java()
    except toolchain.ToolchainMissing as missing:
        toolchain_missing(str(missing))


@contextlib.contextmanager
def apache_cluster(folder: Path, version: str) -> Iterator[Cluster]:
    """Run servers of one version of Apache's, and wait until their broker is registered."""
    need_java()
    running = Cluster(folder, Apache(version))
    try:
        running.start_broker()
        with Connection(running.namesrv_address) as namesrv:  # 5.5.0 reports its start before it is registered
            address = running.broker_address.encode()
            registered = "the registration of the broker"
            wait(lambda: address in namesrv.ask(_GET_BROKER_CLUSTER_INFO, {}).body, registered, PATIENCE_S)
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The servers that most tests share; each test has topics and groups of its own."""
    running = Cluster(tmp_path_factory.mktemp("cluster"), flavour, enablePropertyFilter="true")
    try:
        running.start_broker()
        yield running
    finally:
        running.close()


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[Connection]:
    """A raw connection to the shared broker."""
    with Connection(cluster.broker_address) as opened:
        yield opened


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    running = Drivers(tmp_path_factory.mktemp("drivers"))
    yield running
    running.close()


@pytest.fixture(scope="session", params=CLIENTS)
def client_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def client(client_name: str, cluster: Cluster, drivers: Drivers) -> Driver:
    """A real client library, connected to the shared servers."""
    with needed(client_name):
        return drivers.get(client_name, cluster)


@pytest.fixture(scope="session")
def mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    need_java()
    shell = Mqadmin(tmp_path_factory.mktemp("mqadmin"))
    yield shell
    shell.close()


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Creates names of topics, groups and clients that are unique to the test."""
    test = request.node.name.replace("[", "-").replace("]", "").removeprefix("test_")
    return lambda what: f"{test}-{what}"


@pytest.fixture
def topic(connection: Connection, named: Callable[[str], str]) -> str:
    """A topic of four queues that is in the route. (Apache registers a topic created by a send only after the send.)"""
    name = named("topic")
    connection.create_topic(name, 4)
    return name

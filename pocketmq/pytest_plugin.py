"""Pytest fixtures: servers whose clock is advanced by the test and whose broker is killed by it, and clusters.

    def test_an_unpaid_order_is_cancelled(pocketmq, pocketmq_topic):
        shop = Shop(pocketmq.namesrv_address, pocketmq_topic)      any RocketMQ client, in any process
        shop.order("A1")
        pocketmq.advance("30m")                                    also: kill, stop, start, restart, pause, resume
        ...

Message time stands still until `advance`; heartbeats, timeouts and long polls use real time, since clients would otherwise
lose their connections. `pocketmq` is a new server for each test, empty, and `pocketmq_session` one for all tests of a
process, which a test shares by using a topic of its own. With pytest-xdist each worker process has its own.

    @pytest.mark.pocketmq(store="disk", partitions=True, settings={"flushDiskType": "SYNC_FLUSH"})
    @pytest.mark.pocketmq_topic(type="FIFO", queues=8)
    def test_orders_survive_a_dead_broker(pocketmq, pocketmq_topic): ...

`pocketmq_factory` makes servers with options in any fixture; `pocketmq_cluster_factory` makes masters and slaves:

    def test_orders_survive_a_dead_master(pocketmq_cluster_factory):
        cluster = pocketmq_cluster_factory(brokers=2, slaves=1, role="SYNC_MASTER")
        shop = Shop(namesrv=cluster.namesrv_address)
        cluster.nodes["broker-a"].kill()                           also: stop, start, pause, resume, partition, heal
        ...

Their parts are imported when they are used: this module is imported by every pytest of the environment.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from pocketmq.cli.cluster import ProcessCluster
    from pocketmq.testing.server import Clock, PocketMQ, Store, VirtualCluster

_MARKS = (
    "pocketmq(store='memory', clock='test', settings={}, partitions=False): options of the server `pocketmq` of a test",
    "pocketmq_topic(type='NORMAL', queues=4): message type and number of queues of the topic `pocketmq_topic` of a test",
)


def __getattr__(name: str) -> Any:
    if name != "VirtualCluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pocketmq.testing.server import VirtualCluster

    return VirtualCluster


def pytest_configure(config: pytest.Config) -> None:
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)


class PocketMQFactory(Protocol):
    """Starts servers, which run until the session ends."""

    def __call__(
        self,
        *,
        store: "Store" = "memory",
        clock: "Clock" = "test",
        settings: Mapping[str, str] | None = None,
        partitions: bool = False,
    ) -> "PocketMQ":
        """Return a running server: see `pocketmq.testing.PocketMQ`. Its `close` ends it earlier."""


@pytest.fixture(scope="session")
def pocketmq_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQFactory]:
    """Servers with options, for fixtures of any scope."""
    from pocketmq.testing.server import PocketMQ

    running: list[PocketMQ] = []

    def make(**options: Any) -> PocketMQ:
        server = PocketMQ(tmp_path_factory.mktemp("pocketmq"), **options)
        running.append(server)
        return server

    try:
        yield make
    finally:
        for server in running:
            server.close()


@pytest.fixture(name="pocketmq")
def _pocketmq(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[PocketMQ]":
    """A name server and a broker of this test, with the options of its mark `pocketmq`."""
    from pocketmq.testing.server import PocketMQ

    with PocketMQ(tmp_path_factory.mktemp("pocketmq"), **_options(request, "pocketmq")) as server:
        yield server


@pytest.fixture(scope="session")
def pocketmq_session(pocketmq_factory: PocketMQFactory) -> "PocketMQ":
    """A name server and a broker for all tests of this process. A conftest.py may replace it, to give it options."""
    return pocketmq_factory()


@pytest.fixture
def pocketmq_topic(request: pytest.FixtureRequest) -> str:
    """Name of a new topic, with the options of the mark `pocketmq_topic`.

    It is at the server `pocketmq` if the test uses that, else at `pocketmq_session`.
    """
    from pocketmq.testing.requests import new_name

    server: PocketMQ = request.getfixturevalue("pocketmq" if "pocketmq" in request.fixturenames else "pocketmq_session")
    return server.create_topic(new_name(request.node.name), **_options(request, "pocketmq_topic"))


def _options(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Return the keywords of the marks of a name; those nearer to the test replace those of its class and module."""
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(name))):
        if mark.args:
            raise pytest.UsageError(f"the options of the mark {name} are keywords: see `pytest --markers`")
        options.update(mark.kwargs)
    return options


@pytest.fixture
def pocketmq_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[VirtualCluster]":
    """A name server and a broker in one child process, with a clock that the test advances."""
    from pocketmq.testing.server import VirtualCluster

    with VirtualCluster(tmp_path_factory.mktemp("pocketmq")) as cluster:
        yield cluster


class ClusterFactory:
    """Starts clusters of processes, which run until the test ends."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self.running: list[ProcessCluster] = []

    def __call__(
        self,
        brokers: int = 1,
        slaves: int = 0,
        *,
        role: str = "ASYNC_MASTER",
        settings: Mapping[str, str] | None = None,
        partitions: bool = False,
    ) -> "ProcessCluster":
        """Return a running cluster of `brokers` masters with the given role, each with `slaves` slaves.

        `settings` are keys of broker and name server. `partitions`: whether brokers can be cut off, by network namespaces
        if this process may make them, else by proxies. Raises pocketmq.cli.processes.NotReady.
        """
        from pocketmq.cli.cluster import Layout, ProcessCluster
        from pocketmq.cli.settings import COMMIT_LOG_FILE_SIZE
        from pocketmq.testing.networks import partitionable

        given = {"mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_SIZE), **(settings or {})}
        network = partitionable() if partitions else None
        folder = self._folders.mktemp("pocketmq-cluster")
        cluster = ProcessCluster(folder, Layout(brokers, slaves, role), settings=given, network=network)
        self.running.append(cluster)
        cluster.start()
        return cluster


@pytest.fixture
def pocketmq_cluster_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    """Clusters of masters and slaves in child processes."""
    factory = ClusterFactory(tmp_path_factory)
    try:
        yield factory
    finally:
        for cluster in factory.running:
            cluster.stop()

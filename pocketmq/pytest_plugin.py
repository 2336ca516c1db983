"""Pytest fixtures: a broker whose clock is advanced by the test, and clusters whose brokers are killed by it.

    def test_an_unpaid_order_is_cancelled(pocketmq_cluster):
        shop = Shop(namesrv=pocketmq_cluster.namesrv_address)      any RocketMQ client, in any process
        shop.order("A1")
        pocketmq_cluster.advance("30m")
        ...

The store is in memory, so each test starts empty. Message time stands still until `advance`; heartbeats, timeouts and long
polls use real time, since clients would otherwise lose their connections.

    def test_orders_survive_a_dead_broker(pocketmq_cluster_factory):
        cluster = pocketmq_cluster_factory(brokers=2, slaves=1, role="SYNC_MASTER")
        shop = Shop(namesrv=cluster.namesrv_address)
        cluster.nodes["broker-a"].kill()                           also: stop, start, pause, resume, partition, heal
        ...
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import pytest

if TYPE_CHECKING:
    from pocketmq.cli.cluster import ProcessCluster
    from pocketmq.cli.cluster_admin import ClusterAdmin

T = TypeVar("T")


class VirtualCluster:
    """A running `pocketmq up --memory --test-clock` on free ports. Times are epoch ms."""

    def __init__(self, folder: Path) -> None:
        """Start it, with its output in `folder`. Raises pocketmq.cli.processes.NotReady."""
        from pocketmq.cli.processes import start_up

        self._server = start_up(folder, "--memory", "--test-clock")
        self.namesrv_address = self._server.address
        # Clients run in a separate loop: a test may itself run in a loop and wait for the answer without awaiting.
        self._threads = ThreadPoolExecutor(1, "pocketmq-cluster")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop both servers; their data is lost."""
        self._threads.shutdown()
        self._server.stop()

    @property
    def now_ms(self) -> int:
        """Return the current message time."""
        return self._run(self._read())

    def advance(self, duration: str | int | timedelta) -> int:
        """Advance the time by `30m`, `1h30m`, ms or a timedelta; return the new time.

        Messages that are due by then are in their topics on return.
        """
        return self._run(self._advance(_ms(duration)))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._threads.submit(asyncio.run, work).result()

    async def _read(self) -> int:
        from pocketmq.cli.clock import read_clock

        async with self._admin() as admin:
            (address,) = admin.brokers.values()
            return (await read_clock(admin, address)).now

    async def _advance(self, ms: int) -> int:
        from pocketmq.cli.clock import advance_clock

        async with self._admin() as admin:
            (address,) = admin.brokers.values()
            return (await advance_clock(admin, address, ms)).now

    def _admin(self) -> "ClusterAdmin":
        from pocketmq.cli.cluster_admin import ClusterAdmin

        return ClusterAdmin(self.namesrv_address)


def _ms(duration: str | int | timedelta) -> int:
    from pocketmq.cli.duration import parse_duration_ms

    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return parse_duration_ms(duration) if isinstance(duration, str) else duration


@pytest.fixture
def pocketmq_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    """A name server and a broker in a child process, with a clock that the test advances."""
    with VirtualCluster(tmp_path_factory.mktemp("pocketmq")) as cluster:
        yield cluster


class ClusterFactory(Protocol):
    """Starts clusters of processes, which run until the test ends."""

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


@pytest.fixture
def pocketmq_cluster_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterFactory]:
    """Clusters of masters and slaves in child processes."""
    from pocketmq.cli.cluster import Layout, ProcessCluster
    from pocketmq.cli.settings import COMMIT_LOG_FILE_SIZE
    from pocketmq.testing.networks import partitionable

    running: list[ProcessCluster] = []

    def make(
        brokers: int = 1,
        slaves: int = 0,
        *,
        role: str = "ASYNC_MASTER",
        settings: Mapping[str, str] | None = None,
        partitions: bool = False,
    ) -> ProcessCluster:
        given = {"mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_SIZE), **(settings or {})}
        network = partitionable() if partitions else None
        folder = tmp_path_factory.mktemp("pocketmq-cluster")
        cluster = ProcessCluster(folder, Layout(brokers, slaves, role), settings=given, network=network)
        running.append(cluster)
        cluster.start()
        return cluster

    try:
        yield make
    finally:
        for cluster in running:
            cluster.stop()

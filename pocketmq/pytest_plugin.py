"""Pytest fixture with a name server and a broker whose clock is advanced by the test.

    def test_an_unpaid_order_is_cancelled(pocketmq_cluster):
        shop = Shop(namesrv=pocketmq_cluster.namesrv_address)      any RocketMQ client, in any process
        shop.order("A1")
        pocketmq_cluster.advance("30m")
        ...

The store is in memory, so each test starts empty. Message time stands still until `advance`; heartbeats, timeouts and long
polls use real time, since clients would otherwise lose their connections.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

if TYPE_CHECKING:
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
    from pocketmq.cli.clock import parse_duration_ms

    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return parse_duration_ms(duration) if isinstance(duration, str) else duration


@pytest.fixture
def pocketmq_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCluster]:
    """A name server and a broker in a child process, with a clock that the test advances."""
    with VirtualCluster(tmp_path_factory.mktemp("pocketmq")) as cluster:
        yield cluster

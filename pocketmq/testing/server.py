"""The servers of a test: a name server and a broker in processes of their own, which the test kills, stops and cuts off; or
both in one process.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from pocketmq import proxy
from pocketmq.cli.cluster import Layout, Node, ProcessCluster
from pocketmq.cli.processes import start_up
from pocketmq.cli.settings import COMMIT_LOG_FILE_SIZE
from pocketmq.testing.networks import partitionable
from pocketmq.testing.requests import BrokerRequests

Store = Literal["memory", "disk"]
Clock = Literal["test", "system"]

_LAYOUT: Final = Layout(brokers=1, slaves=0)


class PocketMQ(BrokerRequests):
    """A running name server and broker on free ports, which the broker keeps when it starts again."""

    def __init__(
        self,
        folder: Path,
        *,
        store: Store = "memory",
        clock: Clock = "test",
        settings: Mapping[str, str] | None = None,
        partitions: bool = False,
    ) -> None:
        """Start both, with their files in `folder`. Raises pocketmq.cli.processes.NotReady.

        `store`: one in memory is empty after each start of the broker. `clock`: the test clock stands still until
        `advance`. `settings`: keys of broker and name server. `partitions`: whether the broker can be cut off, by a network
        namespace if this process may make one, else by proxies.
        """
        super().__init__()
        _check("store", store, ("memory", "disk"))
        _check("clock", clock, ("test", "system"))
        given = {
            "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_SIZE),
            **({"grpcServerPort": "0"} if proxy.is_installed() else {}),
            **(settings or {}),
        }
        options = [*(["--memory"] if store == "memory" else []), *(["--test-clock"] if clock == "test" else [])]
        network = partitionable() if partitions else None
        self._has_test_clock = clock == "test"
        self._reached_ms = 0
        self._cluster = ProcessCluster(folder, _LAYOUT, settings=given, network=network, broker_options=options)
        self._cluster.__enter__()

    def close(self) -> None:
        """Stop broker and name server."""
        self._end_requests()
        self._cluster.stop()

    @property
    def namesrv_address(self) -> str:
        return self._cluster.namesrv_address

    @property
    def broker_address(self) -> str:
        """The broker's address for clients."""
        return self._broker.address

    @property
    def grpc_address(self) -> str:
        """Address for gRPC clients; empty if the library protobuf is not installed."""
        return self._broker.grpc_address or ""

    @property
    def store(self) -> Path:
        """Folder of the store, for `store="disk"`."""
        return self._broker.store

    @property
    def output(self) -> Path:
        """The file with the broker's output since its last start."""
        return self._broker.output

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._broker.is_running

    def advance(self, duration: str | int | timedelta) -> int:
        self._reached_ms = super().advance(duration)
        return self._reached_ms

    advance.__doc__ = BrokerRequests.advance.__doc__

    def kill(self) -> None:
        """Kill the broker by SIGKILL. The name server goes on."""
        self._broker.kill()

    def stop(self) -> int:
        """Stop the broker by SIGTERM and return its exit code."""
        return self._broker.stop()

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the broker again on the same store and ports, with these additional settings. Raises NotReady.

        A test clock then goes on at the machine's time, or at the time to which it was advanced if that is later.
        """
        self._broker.start(settings)
        if self._has_test_clock and (missing_ms := self._reached_ms - self.now_ms) > 0:
            self.advance(missing_ms)

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop the broker and start it again."""
        self.stop()
        self.start(settings)

    def pause(self) -> None:
        """Suspend the broker (SIGSTOP), like a machine that hangs."""
        self._broker.pause()

    def resume(self) -> None:
        """Let the broker run again (SIGCONT)."""
        self._broker.resume()

    def partition(self) -> None:
        """Cut the broker off from clients and name server: no connection is refused, but nothing is transmitted.

        Raises RuntimeError unless the server was made with `partitions=True`.
        """
        self._broker.partition()

    def heal(self) -> None:
        """Undo `partition`."""
        self._broker.heal()

    @property
    def _broker(self) -> Node:
        (broker,) = self._cluster.nodes.values()
        return broker


class VirtualCluster(BrokerRequests):
    """A running `pocketmq up --memory --test-clock` on free ports."""

    def __init__(self, folder: Path) -> None:
        """Start it, with its output in `folder`. Raises pocketmq.cli.processes.NotReady."""
        super().__init__()
        self._server = start_up(folder, "--memory", "--test-clock")

    @property
    def namesrv_address(self) -> str:
        return self._server.address

    def close(self) -> None:
        """Stop both servers; their data is lost."""
        self._end_requests()
        self._server.stop()


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: expected {' or '.join(map(repr, allowed))}")

"""A name server and a broker in one process whose clock is advanced by the test."""

from pathlib import Path
from typing import Self

from pocketmq.cli.processes import start_up
from pocketmq.testing.requests import BrokerRequests


class VirtualCluster(BrokerRequests):
    """A running `pocketmq up --memory --test-clock` on free ports."""

    def __init__(self, folder: Path) -> None:
        """Start it, with its output in `folder`. Raises pocketmq.cli.processes.NotReady."""
        super().__init__()
        self._server = start_up(folder, "--memory", "--test-clock")

    @property
    def namesrv_address(self) -> str:
        return self._server.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop both servers; their data is lost."""
        self._end_requests()
        self._server.stop()

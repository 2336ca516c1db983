"""Requests that a test makes of its brokers, besides those of its clients: topics, and the test clock."""

import asyncio
import re
import secrets
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, Self, TypeVar

from pocketmq.admin.api import topics
from pocketmq.admin.api.client import AdminClient
from pocketmq.admin.api.delayed import advance_clock, read_clock
from pocketmq.cli.cluster_admin import ClusterAdmin
from pocketmq.cli.duration import parse_duration_ms
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.bodies import TopicConfig

T = TypeVar("T")

_NOT_IN_A_NAME: Final = re.compile(r"[^\w%|-]+", re.ASCII)
_NAME_LENGTH_MAX: Final = 127


class BrokerRequests:
    """Requests to the brokers that are registered at a name server. Times are epoch ms.

    Requests run in a thread of their own: a test may itself run in a loop, and then waits without awaiting.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "pocketmq-requests")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the servers."""
        raise NotImplementedError

    @property
    def namesrv_address(self) -> str:
        """Address of the name server, `HOST:PORT`."""
        raise NotImplementedError

    @property
    def now_ms(self) -> int:
        """Return the current message time."""
        return self._run(self._move_clock(None))

    def advance(self, duration: str | int | timedelta) -> int:
        """Advance the time by `30m`, `1h30m`, ms or a timedelta; return the new time.

        Messages that are due by then are in their topics on return. Raises RemotingError without a test clock.
        """
        return self._run(self._move_clock(_ms(duration)))

    def create_topic(self, name: str | None = None, type: str = "NORMAL", queues: int = 4) -> str:
        """Create a topic at every master, and return its name; None: a new name.

        `type` is RocketMQ's message.type: NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, MIXED. Raises RemotingError for
        another one.
        """
        name = new_name("topic") if name is None else name
        self._run(self._create_topic(TopicConfig(name, queues, queues), f"+message.type={type}"))
        return name

    def _end_requests(self) -> None:
        self._threads.shutdown()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._threads.submit(asyncio.run, work).result()

    async def _move_clock(self, ms: int | None) -> int:
        async with ClusterAdmin(self.namesrv_address) as admin:
            (address,) = admin.brokers.values()
            return (await (read_clock(admin, address) if ms is None else advance_clock(admin, address, ms))).now

    async def _create_topic(self, config: TopicConfig, attributes: str) -> None:
        async with AdminClient([self.namesrv_address]) as admin:
            for data in (await admin.cluster_info()).broker_addr_table.values():
                if (address := data.broker_addrs.get(MASTER_ID)) is not None:
                    await topics.create_topic(admin, address, config, attributes)


def new_name(stem: str) -> str:
    """Return a name of a topic or group that was not used before; characters that are not allowed in one become `-`."""
    end = f"-{secrets.token_hex(4)}"
    return _NOT_IN_A_NAME.sub("-", stem)[: _NAME_LENGTH_MAX - len(end)] + end


def _ms(duration: str | int | timedelta) -> int:
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    return parse_duration_ms(duration) if isinstance(duration, str) else duration

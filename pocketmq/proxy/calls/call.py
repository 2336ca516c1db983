"""Call: one rpc of a client, with all that its handler needs."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pocketmq.proxy.clients.session import Session
from pocketmq.proxy.clients.upstream import Upstream
from pocketmq.proxy.config import GrpcConfig

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One rpc. `deadline_ms`: time left until the client gives up, None if it set none. `now_ms`: the brokers' time."""

    session: Session
    config: GrpcConfig
    now_ms: Callable[[], int]
    deadline_ms: int | None = None
    client_version: str = ""

    @property
    def upstream(self) -> Upstream:
        return self.session.upstream


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all `work`, which runs at the same time; a single one runs without a task of its own."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)

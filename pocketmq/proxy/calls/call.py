"""Call: one rpc of a client, with all that its handler needs; and the table of the front's parts."""

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.proxy.clients.session import Session
from pocketmq.proxy.clients.upstream import Upstream
from pocketmq.proxy.config import GrpcConfig


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

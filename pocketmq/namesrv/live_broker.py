"""Live: the registration of a live broker, and the identity with which it registered."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pocketmq.namesrv.config import REGISTER_PERIOD_MAX_S
from pocketmq.namesrv.register_limits import SHOWN_SIZE_MAX
from pocketmq.remoting.bodies import DataVersion
from pocketmq.runtime.clock import Clock

LIVING_S: Final = REGISTER_PERIOD_MAX_S + 15.0
"""Silence after which another broker may take over the name, so that a hanging broker can be replaced."""


class BrokerIdentity(NamedTuple):
    """Identity of a broker, as it registers."""

    cluster: str
    broker_name: str
    address: str
    broker_id: int

    def __str__(self) -> str:
        cluster, name, address = (text[:SHOWN_SIZE_MAX] for text in (self.cluster, self.broker_name, self.address))
        return f"{cluster}/{name}/{self.broker_id} at {address}"


@dataclass(slots=True, eq=False)
class Live:
    """Registration of a live broker. Times in seconds of monotonic time."""

    identity: BrokerIdentity
    data_version: DataVersion
    ha_address: str
    filter_servers: list[str]
    channel: Any
    expired_s: float
    last_seen: float

    def is_living(self, clock: Clock) -> bool:
        """Whether no other broker may take over its name, id and address."""
        return clock.monotonic() <= self.last_seen + min(self.expired_s, LIVING_S)


def host_of(channel: Any) -> str | None:
    """Return the remote host of a connection."""
    return getattr(channel, "remote_host", None)

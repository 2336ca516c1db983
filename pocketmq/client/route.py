"""Topic routes: fetched from a name server, cached, and refreshed."""

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from pocketmq.client.consuming.allocation import queue_order
from pocketmq.errors import NameServerUnreachable
from pocketmq.remoting.bodies import BrokerData, MessageQueue, TopicRouteData, decode_body
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.runtime.error_text import reason_of

DEFAULT_TOPIC: Final = "TBW102"
"""Template topic: messages of a topic that does not exist yet are sent to this topic's brokers, which then create it."""
READ, WRITE = 4, 2
MASTER_ID: Final = "0"
QUEUES_MAX: Final = 65_536
"""Maximum number of queues of a topic: some 300 bytes of a route can name 2^31, each of which takes memory here."""
BROKERS_MAX: Final = 10_000
"""Maximum number of brokers in all routes of a client: each gets heartbeats over a connection of its own."""


class BrokerAddress(NamedTuple):
    """One broker of a broker name: its id as in the route, and its address."""

    broker_id: str
    address: str

    @property
    def is_slave(self) -> bool:
        return self.broker_id != MASTER_ID


def queues_of(topic: str, counts: Iterable[tuple[str, int]]) -> list[MessageQueue]:
    """Return the queues of a topic, given their number for each broker name. Raises RemotingError if they are too many."""
    rows = list(counts)
    count_total = sum(max(count, 0) for _, count in rows)
    _check_size(f"the route of topic {topic!r}", "queues", count_total, "QUEUES_MAX", QUEUES_MAX)
    return [MessageQueue(broker_name, queue_id, topic) for broker_name, count in rows for queue_id in range(count)]


def _check_size(what: str, units: str, value: int, name: str, limit: int) -> None:
    """Raise RemotingError if a server names more of something than a client holds."""
    if value > limit:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{what}: {value} {units}; {name}={limit} is the limit of a client")


async def ask_namesrv(
    remoting: RemotingClient, addresses: list[str], code: int, header: CommandHeader | None = None, timeout_s: float = 3.0
) -> tuple[str, RemotingCommand]:
    """Ask one name server after the other; return the first that answers, and its answer. Silent ones move to the end.

    Raises RemotingError for a refusal, NameServerUnreachable if none answers.
    """
    failures = []
    last: Exception | None = None
    for address in list(addresses):
        try:
            return address, await remoting.call(address, code, header, timeout_s=timeout_s)
        except (OSError, TimeoutError) as failure:
            failures.append(reason_of(address, failure))
            addresses.remove(address)
            addresses.append(address)
            last = failure
    raise NameServerUnreachable(
        f"no name server answers ({'; '.join(failures)}): check that one is running there, and that the address is right"
    ) from last


class Routes:
    """Queues and broker addresses by topic. `namesrv_addresses` are tried in turn, the last working one first."""

    def __init__(self, remoting: RemotingClient, namesrv_addresses: list[str]) -> None:
        if not namesrv_addresses:
            raise ValueError("no name server is given: use HOST:PORT, several separated by ';'")
        self._remoting = remoting
        self.namesrv_addresses = random.sample(namesrv_addresses, len(namesrv_addresses))
        self.by_topic: dict[str, TopicRouteData] = {}
        """The route of each topic that was requested."""
        self._brokers: dict[str, BrokerData] = {}
        self._sources: dict[str, str] = {}

    def masters(self) -> list[str]:
        """Names of the brokers with a master in any known route."""
        return [name for name, data in self._brokers.items() if MASTER_ID in data.broker_addrs]

    def heartbeat_addresses(self, with_slaves: bool) -> set[str]:
        """Addresses of the masters in all known routes, and of their slaves, which serve consumers only."""
        return {
            address
            for data in self._brokers.values()
            for broker_id, address in data.broker_addrs.items()
            if with_slaves or broker_id == MASTER_ID
        }

    def master(self, broker_name: str) -> BrokerAddress:
        """Return the master of a broker name. Raises RemotingError if no route has one (any more)."""
        data = self._brokers.get(broker_name)
        if data is None or MASTER_ID not in data.broker_addrs:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"broker {broker_name!r} has no master in any route")
        return BrokerAddress(MASTER_ID, data.broker_addrs[MASTER_ID])

    def brokers(self, broker_name: str, first_id: str = MASTER_ID) -> list[BrokerAddress]:
        """Return the master and slaves of a broker name: `first_id`, if it exists, then the other brokers from id 0 on.

        Raises RemotingError if no route has any.
        """
        data = self._brokers.get(broker_name)
        if data is None or not data.broker_addrs:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"broker {broker_name!r} is in no route")
        brokers = [BrokerAddress(*item) for item in data.broker_addrs.items()]
        # Ids are decimal numbers in text: of two, the longer one is the larger.
        return sorted(brokers, key=lambda one: (one.broker_id != first_id, len(one.broker_id), one.broker_id))

    def source(self, broker_name: str) -> str:
        """Return the address of the name server whose route last contained the broker."""
        return self._sources.get(broker_name, "unknown")

    async def route(self, topic: str) -> TopicRouteData:
        """Return the cached route, or fetch it. Raises RemotingError with TOPIC_NOT_EXIST, or NameServerUnreachable."""
        return self.by_topic.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRouteData:
        """Fetch the route from a name server."""
        header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        address, answer = await ask_namesrv(self._remoting, self.namesrv_addresses, code, header)
        try:
            route = decode_body(TopicRouteData, answer.body)
        except ValueError as wrong:
            remark = f"name server {address}: the route of topic {topic!r} cannot be read: {wrong}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from wrong
        brokers = self._brokers | {data.broker_name: data for data in route.broker_datas}
        count = sum(len(data.broker_addrs) for data in brokers.values())
        _check_size(f"the routes of name server {address}", "brokers", count, "BROKERS_MAX", BROKERS_MAX)
        self.by_topic[topic], self._brokers = route, brokers
        self._sources.update({data.broker_name: address for data in route.broker_datas})
        return route

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues; for a topic that does not exist yet, those that it will get (4 per broker)."""
        try:
            route, queues_max = await self.route(topic), None
        except RemotingError as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            route, queues_max = await self.refresh(DEFAULT_TOPIC), 4
        with_master = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
        counts = (
            (data.broker_name, min(data.write_queue_nums, queues_max or data.write_queue_nums))
            for data in route.queue_datas
            if data.perm & WRITE and data.broker_name in with_master
        )
        return queues_of(topic, counts)

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues, in the order that all clients of a group use."""
        route = await self.route(topic)
        counts = ((data.broker_name, data.read_queue_nums) for data in route.queue_datas if data.perm & READ)
        return sorted(queues_of(topic, counts), key=queue_order)

"""The brokers behind the front: routes, configurations and connections.

`LocalUpstream` is one broker in the same process, `ClusterUpstream` all brokers that name servers know. Both give each
client connections of its own, derived from `brokers`, and cache what they ask about topics and groups.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar

from pocketmq.client.route import MASTER_ID, ask_namesrv
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.remoting.bodies import (
    BrokerData,
    QueueData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
    decode_body,
)
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import GroupRequestHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader, TopicRequestHeader

FRESH_S: Final = 5.0
"""Time for which an answer about a topic or a group is used again."""
ENTRIES_MAX: Final = 20_000
_UNKNOWN: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
        ResponseCode.SYSTEM_ERROR,
    )
)
"""Answers after which a configuration counts as unknown: older brokers, and accounts that may not read it."""
V = TypeVar("V")


class _Fresh(Generic[V]):
    """Values by name, each for FRESH_S; the oldest give way to new ones. Those who ask at the same time share an answer."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._values: dict[str, tuple[float, V]] = {}
        self._asking: dict[str, asyncio.Task[V]] = {}

    async def get(self, name: str, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the value of a name, asked anew if it is not fresh. Failures are not kept."""
        found = self._values.get(name)
        if found is not None and found[0] > time.monotonic():
            return found[1]
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.ensure_future(self._ask(name, ask))
            asking.add_done_callback(lambda done: self._asked(name, done))
            return await asyncio.shield(asking)
        try:
            return await asyncio.shield(asking)
        except ChannelClosed:  # it was asked over the connection of another client, which has left
            return await ask()

    def _asked(self, name: str, done: asyncio.Task[V]) -> None:
        del self._asking[name]
        if not done.cancelled():
            done.exception()  # mark it as retrieved: all who waited may have been cancelled

    async def _ask(self, name: str, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        now_s = time.monotonic()
        value = await ask()
        self._values.pop(name, None)
        self._values[name] = now_s + self._fresh_s, value
        if len(self._values) > ENTRIES_MAX:
            del self._values[next(iter(self._values))]
        return value


class Upstream(ABC):
    """Base of both. `client` is always the connection in the asking client's name."""

    def __init__(
        self, brokers: RemotingClient, fresh_s: float = FRESH_S, metadata: RemotingClient | None = None
    ) -> None:  # fmt: skip
        """`metadata`: the connections over which configurations are asked; None: those in the client's name."""
        self.brokers, self._metadata = brokers, metadata
        self._routes: _Fresh[TopicRouteData] = _Fresh(fresh_s)
        self._topics: _Fresh[TopicConfig | None] = _Fresh(fresh_s)
        self._groups: _Fresh[SubscriptionGroupConfig | None] = _Fresh(fresh_s)

    @abstractmethod
    async def _ask_route(self, topic: str) -> TopicRouteData: ...

    async def close(self) -> None:
        """Close all connections."""
        await self.brokers.close()

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic. Raises Refusal if it has none, OSError if no name server answers."""
        try:
            return await self._routes.get(topic, lambda: self._ask_route(topic))
        except RemotingError as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise Refusal(pb.TOPIC_NOT_FOUND, f"no route of topic {topic}: create it first") from None

    async def address(self, topic: str, broker_name: str) -> str:
        """Return the address of a topic's broker: its master, else its slave with the lowest id. Raises Refusal."""
        for broker in (await self.route(topic)).broker_datas:
            if broker.broker_name == broker_name and broker.broker_addrs:
                return broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.items(), key=lambda one: int(one[0]))[1]
        raise Refusal(pb.INTERNAL_SERVER_ERROR, f"the route of topic {topic} has no broker {broker_name!r}")

    async def broker_at(self, topic: str, address: str) -> str:
        """Return the name of the broker of a topic at an address. Raises Refusal."""
        for broker in (await self.route(topic)).broker_datas:
            if address in broker.broker_addrs.values():
                return broker.broker_name
        raise Refusal(pb.INTERNAL_SERVER_ERROR, f"the route of topic {topic} has no broker at {address}")

    async def topic_config(self, client: RemotingClient, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic; None if its broker does not tell."""

        async def ask() -> TopicConfig | None:
            address = await self._any_address(topic)
            body = await self._asked(client, address, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
            return None if body is None else decode_body(TopicConfig, body)

        return await self._topics.get(topic, ask)

    async def group_config(self, client: RemotingClient, topic: str, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group at a broker of `topic`; None if it has none."""

        async def ask() -> SubscriptionGroupConfig | None:
            address = await self._any_address(topic)
            header = GroupRequestHeader(group)
            body = await self._asked(client, address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
            return None if body is None else decode_body(SubscriptionGroupConfig, body)

        return await self._groups.get(group, ask)

    async def _any_address(self, topic: str) -> str:
        route = await self.route(topic)
        return await self.address(topic, route.queue_datas[0].broker_name)

    async def _asked(
        self, client: RemotingClient, address: str, code: int, header: TopicRequestHeader | GroupRequestHeader
    ) -> bytes | None:
        try:
            return (await (self._metadata or client).call(address, code, header)).body
        except RemotingError as refusal:
            if refusal.code in _UNKNOWN:
                return None
            raise


class LocalUpstream(Upstream):
    """The broker in this process. `metadata` reads its configurations whatever the client may do."""

    def __init__(self, brokers: RemotingClient, metadata: RemotingClient, broker_name: str, address: str) -> None:
        super().__init__(brokers, 0.2, metadata)
        self._own, self._broker_name, self._address = metadata, broker_name, address

    async def close(self) -> None:
        await super().close()
        await self._own.close()

    async def _ask_route(self, topic: str) -> TopicRouteData:
        answer = await self._own.call(self._address, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        config = decode_body(TopicConfig, answer.body)
        counts = config.perm, config.read_queue_nums, config.write_queue_nums
        return TopicRouteData(
            [BrokerData(self._broker_name, broker_addrs={MASTER_ID: self._address})], [QueueData(self._broker_name, *counts)]
        )


class ClusterUpstream(Upstream):
    """All brokers that the name servers `addresses` know."""

    def __init__(self, brokers: RemotingClient, addresses: list[str]) -> None:
        super().__init__(brokers)
        self._addresses = addresses

    async def _ask_route(self, topic: str) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        _, answer = await ask_namesrv(self.brokers, self._addresses, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        route = decode_body(TopicRouteData, answer.body)
        if not route.queue_datas:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} has no queues")
        return route

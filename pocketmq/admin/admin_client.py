"""Requests of the admin tool: to name servers, to the brokers of a cluster, and to those of a topic's route.

    async with AdminClient(["127.0.0.1:9876"]) as admin:
        for address in await admin.masters("DefaultCluster"):
            await admin.broker(address, RequestCode.GET_BROKER_RUNTIME_INFO)

Servers may be PocketMQ's or Apache's. A refusal raises RemotingError with its code and remark, a server that cannot be
reached AdminError with its address.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeVar

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.bodies import Body, BrokerData, ClusterInfo, TopicRouteData, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Body as RawBody
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.runtime.error_text import reason

TIMEOUT_S: Final = 5.0
UNKNOWN_CLUSTER: Final = "Make sure the specified clusterName exists or the name server connected to is correct."

B = TypeVar("B", bound=Body)
T = TypeVar("T")


class AdminError(Exception):
    """The command cannot be completed; shown as one line."""


class Unreachable(AdminError):
    """A server cannot be connected to, or does not answer."""


class AdminClient:
    """Connections of one command. Enter it inside a running loop."""

    def __init__(self, namesrv_addresses: Sequence[str], access: Access = PLAIN) -> None:
        self.namesrv_addresses = list(namesrv_addresses)
        self.access = access
        self._remoting = access.client()
        self._cluster_info: ClusterInfo | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remoting.close()

    # Requests

    async def broker(
        self,
        address: str,
        code: int,
        header: CommandHeader | None = None,
        body: RawBody = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> RemotingCommand:
        """Send a request to one server, given as host:port. Raises RemotingError or Unreachable."""
        answer = await self.invoke(address, code, header, body, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(
                answer.code, answer.remark or f"{address} answered request code {code} with code {answer.code}"
            )
        return answer

    async def invoke(
        self,
        address: str,
        code: int,
        header: CommandHeader | None = None,
        body: RawBody = b"",
        timeout_s: float = TIMEOUT_S,
    ) -> RemotingCommand:
        """As `broker`, but return the answer whatever its code."""
        try:
            return await self._remoting.invoke(address, code, header, body, timeout_s)
        except TimeoutError:
            raise Unreachable(f"{address} does not answer request {code} within {timeout_s:g} s") from None
        except ValueError as wrong:
            raise AdminError(f"{address}: not an address of the form host:port ({wrong})") from None
        except OSError as failure:
            raise Unreachable(f"connect to [{address}] failed: {failure.strerror or failure}") from failure

    async def fetch(self, address: str, code: int, declared: type[B], header: CommandHeader | None = None) -> B:
        """Send a request to one server and decode the body of its answer."""
        return _decoded(address, declared, await self.broker(address, code, header))

    async def namesrv(self, code: int, header: CommandHeader | None = None) -> RemotingCommand:
        """Send a request to the first name server that can be reached."""
        failure: Unreachable | None = None
        for address in list(self.namesrv_addresses):
            try:
                return await self.broker(address, code, header)
            except Unreachable as unreachable:
                failure = failure or unreachable
        raise failure or AdminError("no name server is given: use -n host:port, several separated by ';'")

    async def fetch_from_namesrv(self, code: int, declared: type[B], header: CommandHeader | None = None) -> B:
        """Send a request to the first name server that can be reached, and decode the body of its answer."""
        return _decoded("name server", declared, await self.namesrv(code, header))

    async def every_namesrv(
        self, code: int, header: CommandHeader | None = None, body: RawBody = b""
    ) -> dict[str, RemotingCommand]:
        """Send a request to all name servers one by one; return the answers by address. Stops at the first failure."""
        return {address: await self.broker(address, code, header, body) for address in self.namesrv_addresses}

    # Clusters and routes

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and their brokers. They are fetched once per command."""
        if self._cluster_info is None:
            self._cluster_info = await self.fetch_from_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)
        return self._cluster_info

    @property
    def known_cluster_info(self) -> ClusterInfo | None:
        """The clusters and their brokers, if they were fetched already."""
        return self._cluster_info

    async def masters(self, cluster: str) -> list[str]:
        """Return the addresses of a cluster's masters. Raises AdminError if there is no such cluster."""
        return [address for _, broker_id, address in await self._members(cluster) if broker_id == MASTER_ID]

    async def masters_and_slaves(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of a cluster. Raises AdminError if there is no such cluster."""
        return [address for _, _, address in await self._members(cluster)]

    async def master_names(self, cluster: str) -> list[tuple[str, str]]:
        """Return (broker name, address) of a cluster's masters. Raises AdminError if there is no such cluster."""
        return [(name, address) for name, broker_id, address in await self._members(cluster) if broker_id == MASTER_ID]

    async def _members(self, cluster: str) -> list[tuple[str, str, str]]:
        info = await self.cluster_info()
        if cluster not in info.cluster_addr_table:
            raise AdminError(UNKNOWN_CLUSTER)
        return [
            (name, broker_id, address)
            for name in info.cluster_addr_table[cluster]
            for broker_id, address in sorted_addresses(info.broker_addr_table.get(name))
        ]

    async def clusters(self, cluster: str | None) -> list[str]:
        """Return the given cluster's name alone, or those of all clusters."""
        return [cluster] if cluster else list((await self.cluster_info()).cluster_addr_table)

    async def targets(self, broker: str | None, cluster: str | None, with_slaves: bool = False) -> list[str]:
        """Return the addresses meant by -b | -c: one broker, or a cluster's masters (and slaves)."""
        if broker is not None:
            return [broker]
        if cluster is None:
            raise AdminError("a broker (-b) or a cluster (-c) must be given")
        found = await (self.masters_and_slaves(cluster) if with_slaves else self.masters(cluster))
        if not found:
            raise AdminError(f"cluster {cluster} has no {'broker' if with_slaves else 'master'} that is registered")
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """Return a topic's route. Raises RemotingError with TOPIC_NOT_EXIST."""
        header = GetRouteInfoRequestHeader(topic.strip(), accept_standard_json_only=True)
        return await self.fetch_from_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)

    async def route_brokers(self, topic: str) -> dict[str, str]:
        """Return the addresses of the brokers in a topic's route, by broker name: the master's, or a slave's without one."""
        return {
            data.broker_name: chosen_address(data) for data in (await self.route(topic)).broker_datas if data.broker_addrs
        }


def sorted_addresses(data: BrokerData | None) -> list[tuple[str, str]]:
    """Return (broker id, address) of a broker name, the master first."""
    return [] if data is None else sorted(data.broker_addrs.items(), key=lambda item: (len(item[0]), item[0]))


def chosen_address(data: BrokerData) -> str:
    """Return the address that serves a broker name: the master's, otherwise that of any slave."""
    return data.broker_addrs.get(MASTER_ID) or random.choice(list(data.broker_addrs.values()))


async def each(addresses: Sequence[str], work: Callable[[str], Awaitable[T]]) -> dict[str, T]:
    """Do the work for one address after the other; return the results by address. Stops at the first failure."""
    return {address: await work(address) for address in addresses}


def _decoded(origin: str, declared: type[B], answer: RemotingCommand) -> B:
    try:
        return decode_body(declared, bytes(answer.body))
    except ValueError as wrong:
        raise AdminError(f"{origin}: the answer cannot be read: {wrong}") from None


def described(failure: BaseException) -> str:
    """Return the text of a failure: a refusal as `CODE: n  DESC: remark`, as Apache's tool shows it."""
    if isinstance(failure, RemotingError):
        return f"CODE: {int(failure.code)}  DESC: {failure.remark}"
    return reason(failure)

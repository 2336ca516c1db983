"""Requests of the admin tool: to name servers, to the brokers of a cluster, and to those of a topic's route.

    async with AdminClient(["127.0.0.1:9876"]) as admin:
        for address in await admin.masters("DefaultCluster"):
            await admin.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)

Servers may be PocketMQ's or Apache's. A refusal raises RemotingError with its code and remark, a server that cannot be
reached AdminError with its address.
"""

import contextlib
import random
import re
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import msgspec

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.consuming.allocation import queue_order
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import Body, BrokerData, ClusterInfo, MessageQueue, TopicRouteData, decode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import Body as RawBody
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.runtime import properties_file
from pocketmq.runtime.error_text import reason

TIMEOUT_S: Final = 5.0
UNKNOWN_CLUSTER: Final = "Make sure the specified clusterName exists or the name server connected to is correct."

_OF_ACCESS: Final = re.compile(
    "accesskey|aclexception|signature|authenticat|authoriz|has no permission|user:", re.IGNORECASE
)
"""Words in refusals by the access rules of 4.9 and 5.x; the code alone does not tell them from other refusals."""

B = TypeVar("B", bound=Body)


class AdminError(Exception):
    """The command cannot be completed; shown as one line."""


class Unreachable(AdminError):
    """A server cannot be connected to, or does not answer."""


class Where(NamedTuple):
    """The brokers meant by the options -b | -c: one address, or a cluster by name."""

    broker: str | None
    cluster: str | None


class Caller(Protocol):
    """Sends requests to servers: AdminClient, and others with its `call`."""

    async def call(
        self, address: str, code: int, header: CommandHeader | None = None, body: RawBody = b""
    ) -> RemotingCommand: ...


class AdminClient:
    """Connections of one command. Enter it inside a running loop."""

    def __init__(self, namesrv_addresses: Sequence[str], access: Access = PLAIN, timeout_s: float | None = None) -> None:
        """`timeout_s`: for each request without a time limit of its own; None: TIMEOUT_S."""
        self.namesrv_addresses = list(namesrv_addresses)
        self.access = access
        self.timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._remoting = access.client()
        self.known_cluster_info: ClusterInfo | None = None
        """The clusters and their brokers, if they were fetched already."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remoting.close()

    def again(self) -> Self:
        """Return a client for another command over the same connections, which fetches the clusters anew."""
        other = copy(self)
        other.known_cluster_info = None
        return other

    # Requests

    async def call(
        self,
        address: str,
        code: int,
        header: CommandHeader | None = None,
        body: RawBody = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request to one server, given as host:port. Raises RemotingError or Unreachable."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        with _failures_of(address, code, timeout_s):
            return await self._remoting.call(address, code, header, body, timeout_s)

    async def invoke(
        self, address: str, code: int, header: CommandHeader | None = None, timeout_s: float | None = None
    ) -> RemotingCommand:
        """As `call`, but return the answer whatever its code."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        with _failures_of(address, code, timeout_s):
            return await self._remoting.invoke(address, code, header, b"", timeout_s)

    async def fetch(self, address: str, code: int, declared: type[B], header: CommandHeader | None = None) -> B:
        """Send a request to one server and decode the body of its answer."""
        return _decoded(address, declared, await self.call(address, code, header))

    async def namesrv(self, code: int, header: CommandHeader | None = None) -> RemotingCommand:
        """Send a request to the first name server that can be reached."""
        failure: Unreachable | None = None
        for address in list(self.namesrv_addresses):
            try:
                return await self.call(address, code, header)
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
        return {address: await self.call(address, code, header, body) for address in self.namesrv_addresses}

    # Clusters and routes

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and their brokers. They are fetched once per command."""
        if self.known_cluster_info is None:
            self.known_cluster_info = await self.fetch_from_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)
        return self.known_cluster_info

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

    async def brokers(self, cluster: str | None = None, broker_name: str | None = None) -> dict[str, str]:
        """Return the address that serves each broker name: of all clusters, of one, or of one broker. Raises AdminError."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise AdminError(f"there is no cluster {cluster!r}; there are: {', '.join(sorted(info.cluster_addr_table))}")
        wanted = info.broker_addr_table if cluster is None else info.cluster_addr_table[cluster]
        found = {
            name: chosen_address(data)
            for name in sorted(wanted)
            if (data := info.broker_addr_table.get(name)) is not None and data.broker_addrs
        }
        if broker_name is not None and broker_name not in found:
            raise AdminError(f"there is no broker {broker_name!r}; there are: {', '.join(found)}")
        if not found:
            raise AdminError("no broker is registered with the name server")
        return found if broker_name is None else {broker_name: found[broker_name]}

    async def targets(self, where: Where, with_slaves: bool = False) -> list[str]:
        """Return the addresses meant by -b | -c: one broker, or a cluster's masters (and slaves)."""
        if where.broker is not None:
            return [where.broker]
        if where.cluster is None:
            raise AdminError("a broker (-b) or a cluster (-c) must be given")
        found = await (self.masters_and_slaves(where.cluster) if with_slaves else self.masters(where.cluster))
        if not found:
            raise AdminError(f"cluster {where.cluster} has no {'broker' if with_slaves else 'master'} that is registered")
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """Return a topic's route. Raises RemotingError with TOPIC_NOT_EXIST."""
        header = GetRouteInfoRequestHeader(topic.strip(), accept_standard_json_only=True)
        return await self.fetch_from_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)

    async def route_brokers(self, topic: str) -> dict[str, str]:
        """Return the addresses of the brokers in a topic's route, by broker name: the master's, or a slave's without one."""
        return addresses_by_name(await self.route(topic))


def sorted_addresses(data: BrokerData | None) -> list[tuple[str, str]]:
    """Return (broker id, address) of a broker name, the master first."""
    return [] if data is None else sorted(data.broker_addrs.items(), key=lambda item: (len(item[0]), item[0]))


def chosen_address(data: BrokerData) -> str:
    """Return the address that serves a broker name: the master's, otherwise that of any slave."""
    return data.broker_addrs.get(MASTER_ID) or random.choice(list(data.broker_addrs.values()))


def addresses_by_name(route: TopicRouteData) -> dict[str, str]:
    """Return the address that serves each broker name of a route."""
    return {data.broker_name: chosen_address(data) for data in route.broker_datas if data.broker_addrs}


@contextlib.contextmanager
def _failures_of(address: str, code: int, timeout_s: float) -> Iterator[None]:
    """Raise AdminError or Unreachable with the address in place of the failures of a connection."""
    try:
        yield
    except TimeoutError:
        raise Unreachable(f"{address} does not answer request {code} within {timeout_s:g} s") from None
    except ValueError as wrong:
        raise AdminError(f"{address}: not an address of the form host:port ({wrong})") from None
    except OSError as failure:
        raise Unreachable(f"connect to [{address}] failed: {failure.strerror or failure}") from failure


def document(answer: RemotingCommand) -> dict[str, Any]:
    """Return the JSON object in an answer's body. Raises AdminError."""
    try:
        found = fastjson.loads(bytes(answer.body), loose_size_max=fastjson.ANSWER_SIZE_MAX)
    except ValueError as wrong:
        raise AdminError(f"the answer cannot be read: {wrong}") from None
    if not isinstance(found, dict):
        raise AdminError("the answer cannot be read: it is not a JSON object")
    return found


def properties_of(answer: RemotingCommand) -> dict[str, str]:
    """Return the keys and values in an answer's body, which is a properties file."""
    return properties_file.loads(properties_file.decode(bytes(answer.body)))


def by_queue(table: dict[str, Any] | None) -> list[tuple[MessageQueue, Any]]:
    """Return the rows of a table whose keys are message queues, in the order of topic, broker name and queue id."""
    rows = [(msgspec.json.decode(key, type=MessageQueue), value) for key, value in (table or {}).items()]
    return sorted(rows, key=lambda row: queue_order(row[0]))


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as Apache's tool shows it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _decoded(origin: str, declared: type[B], answer: RemotingCommand) -> B:
    try:
        return decode_body(declared, bytes(answer.body))
    except ValueError as wrong:
        raise AdminError(f"{origin}: the answer cannot be read: {wrong}") from None


def is_of_access(failure: BaseException) -> bool:
    """Return whether a failure is a refusal by the access rules of 4.9 or 5.x."""
    return isinstance(failure, RemotingError) and _OF_ACCESS.search(str(failure)) is not None


def described(failure: BaseException) -> str:
    """Return the text of a failure: a refusal as `CODE: n  DESC: remark`, as Apache's tool shows it."""
    if isinstance(failure, RemotingError):
        return f"CODE: {int(failure.code)}  DESC: {failure.remark}"
    return reason(failure)

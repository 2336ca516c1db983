"""State shared by the producers and consumers of one client: connections, routes, client id, heartbeats."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from pocketmq.client.access import PLAIN, Access
from pocketmq.client.broker_requests import ROUTES
from pocketmq.client.message import MessageExt, local_address
from pocketmq.client.route import MASTER_ID, BrokerAddress, Routes
from pocketmq.errors import MQError
from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, encode_body
from pocketmq.remoting.client import TlsMismatch
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Body, RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.consumer import UnregisterClientRequestHeader

if TYPE_CHECKING:
    from pocketmq.client.consuming.group_member import GroupMember
    from pocketmq.client.sending.transaction import TransactionChecker

log = logging.getLogger("client")

HEARTBEAT_S: Final = 30.0
ROUTE_REFRESH_S: Final = 30.0
AVOID_S: Final = 2.0
"""Time for which a broker that could not be reached is tried only after the other brokers of its name."""
AVOID_SILENT_S: Final = 30.0
"""The same for a broker that did not answer in time, because each attempt takes a whole time-out."""

_INTRODUCED: Final = "introduced"
"""Attachment of a connection that had a heartbeat."""

_number = itertools.count(1)


class BrokerUnreachable(MQError, ConnectionError):
    """A broker cannot be reached at the address given by its route."""


class ClientInstance:
    """One client of a cluster. Create it inside a running loop, then call `start` and finally `close`."""

    def __init__(self, namesrv: str, access: Access = PLAIN) -> None:
        """`namesrv`: HOST:PORT, several separated by `;`. Raises ValueError, or StartError for unusable certificates."""
        addresses = addresses_of(namesrv)
        self.remoting = access.client(ROUTES, self)
        self.routes = Routes(self.remoting, addresses)
        self.client_id = f"{local_address()}@{os.getpid()}#{next(_number)}"
        self.producer_group: str | None = None
        self.consumer_data: Callable[[], ConsumerData] | None = None
        self.member: GroupMember | None = None
        """The consumer to which brokers send requests."""
        self.checker: TransactionChecker | None = None
        """Answers the checks of the producer's transactions."""
        self.replies: dict[str, asyncio.Future[MessageExt]] = {}
        """Correlation id of a request message -> the reply that is waited for."""
        self.asked_tasks: set[asyncio.Task[None]] = set()
        """Tasks that consume a message directly, at a broker's request."""
        self._tasks: list[asyncio.Task[None]] = []
        self._unreachable: dict[str, float] = {}
        """Address of an unreachable broker -> monotonic time in seconds until which other brokers are preferred."""

    def start(self) -> None:
        """Start sending heartbeats and refreshing routes."""
        self.every(HEARTBEAT_S, self.heartbeat)
        self.every(ROUTE_REFRESH_S, self._refresh_routes)

    def every(self, seconds: float, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `step` every `seconds` until `close`; a failure is logged and does not stop the repetition."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await step()
                except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                    log.warning("%s: %s", getattr(step, "__name__", step), failure)

        self._tasks.append(asyncio.create_task(repeat()))

    async def invoke(
        self, broker_name: str, code: int, header: CommandHeader | None = None, body: Body = b"", timeout_s: float = 3.0
    ) -> RemotingCommand:
        """Send a request to the master of a broker and return the answer, whatever its code.

        Raises BrokerUnreachable if there is no connection, RemotingError if no route names the broker, else as
        `RemotingClient.invoke`.
        """
        address = await self.connect(broker_name)
        return await self.remoting.invoke(address, code, header, body, timeout_s)

    async def call(
        self, broker_name: str, code: int, header: CommandHeader | None = None, body: Body = b"", timeout_s: float = 3.0
    ) -> RemotingCommand:
        """As `invoke`, but raise RemotingError for an answer other than SUCCESS."""
        address = await self.connect(broker_name)
        return await self.remoting.call(address, code, header, body, timeout_s)

    async def invoke_any(
        self,
        broker_name: str,
        code: int,
        header: CommandHeader,
        slave_header: CommandHeader | None = None,
        first_id: str = MASTER_ID,
        timeout_s: float = 3.0,
    ) -> tuple[RemotingCommand, BrokerAddress]:
        """Send a request that slaves serve too, and that may be repeated; return the answer and the broker that gave it.

        The broker `first_id` is tried first, then the master, then the slaves. `slave_header`, if given, replaces `header`
        in requests to slaves. If none answers, raises the first failure: as `invoke`, or RemotingError if that broker is
        stopping.
        """
        first_failure: Exception | None = None
        for broker in self._by_reachability(self.routes.brokers(broker_name, first_id)):
            fitting = slave_header if broker.is_slave and slave_header is not None else header
            try:
                await self._connect(broker_name, broker.address)
                answer = await self.remoting.invoke(broker.address, code, fitting, b"", timeout_s)
                if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    raise RemotingError(answer.code, answer.remark or f"broker {broker_name!r} is stopping")
            except (OSError, RemotingError) as failure:  # OSError: also TimeoutError
                self._avoid(broker.address, failure)
                first_failure = first_failure or failure
                continue
            self._unreachable.pop(broker.address, None)
            return answer, broker
        assert first_failure is not None, "a broker name in a route has an address"
        raise first_failure

    def _by_reachability(self, brokers: list[BrokerAddress]) -> list[BrokerAddress]:
        """Sort brokers that could not be reached recently to the end."""
        now_s = time.monotonic()
        return sorted(brokers, key=lambda broker: self._unreachable.get(broker.address, now_s) > now_s)

    def _avoid(self, address: str, failure: Exception) -> None:
        now_s = time.monotonic()
        is_silent = isinstance(failure, TimeoutError) or isinstance(failure.__cause__, TimeoutError)
        others = {other: until_s for other, until_s in self._unreachable.items() if until_s > now_s}
        self._unreachable = {**others, address: now_s + (AVOID_SILENT_S if is_silent else AVOID_S)}

    async def connect(self, broker_name: str) -> str:
        """Connect to a broker's master and return its address. Raises as `invoke`."""
        address = self.routes.master(broker_name).address
        await self._connect(broker_name, address)
        return address

    async def _connect(self, broker_name: str, address: str) -> None:
        try:
            await self.remoting.channel(address)
        except TlsMismatch:
            raise
        except (OSError, TimeoutError, ValueError) as failure:
            reason, namesrv = str(failure) or "no answer in time", self.routes.source(broker_name)
            raise BrokerUnreachable(
                f"broker {broker_name!r} cannot be reached at {address} ({reason}), the address that it "
                f"registered with name server {namesrv}: check that it is running and that this address "
                "is reachable from here; otherwise set brokerIP1 in broker.conf, or --advertise of `pocketmq up`"
            ) from failure

    async def introduce(self, topic: str) -> None:
        """Send a heartbeat to those brokers, of `topic` and others, that had none over their connection.

        Afterwards they can send requests to this client.
        """
        await self.routes.publish_queues(topic)
        await self.heartbeat(only_new=True)

    async def heartbeat(self, only_new: bool = False) -> None:
        """Send a heartbeat to every known broker; those that are unreachable or refuse it are skipped.

        `only_new`: to those alone that had none over their connection.
        """
        data = HeartbeatData(self.client_id)
        if self.producer_group is not None:
            data.producer_data_set = [ProducerData(self.producer_group)]
        if self.consumer_data is not None:
            data.consumer_data_set = [self.consumer_data()]
        body = encode_body(data)

        async def send(address: str) -> None:
            try:
                channel = await self.remoting.channel(address)
                if only_new and _INTRODUCED in channel.attachments:
                    return
                await self.remoting.call(address, RequestCode.HEART_BEAT, None, body)
                channel.attachments[_INTRODUCED] = True
            except (OSError, TimeoutError, RemotingError, ValueError) as failure:
                log.warning("heartbeat to %s failed: %s", address, failure or "no answer in time")

        await asyncio.gather(*map(send, self._heartbeat_addresses()))

    def _heartbeat_addresses(self) -> set[str]:
        return self.routes.heartbeat_addresses(with_slaves=self.consumer_data is not None)

    async def close(self, consumer_group: str | None = None) -> None:
        """Finish the messages being consumed directly, unregister from the brokers and close all connections."""
        await asyncio.gather(*self.asked_tasks, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        header = UnregisterClientRequestHeader(self.client_id, self.producer_group, consumer_group)

        async def unregister(address: str) -> None:
            try:
                await self.remoting.invoke(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=1.0)
            except (OSError, TimeoutError, ValueError) as failure:
                log.info("unregistering from %s failed: %s", address, failure)

        await asyncio.gather(*map(unregister, self._heartbeat_addresses()))
        await self.remoting.close()

    async def _refresh_routes(self) -> None:
        before = self.routes.heartbeat_addresses(with_slaves=True)
        for topic in list(self.routes.by_topic):
            await self.routes.refresh(topic)
        for address in self.routes.heartbeat_addresses(with_slaves=True) - before:
            self._unreachable.pop(address, None)  # the broker has registered again


def addresses_of(namesrv: str) -> list[str]:
    if not isinstance(namesrv, str):
        raise TypeError(f"namesrv must be str, HOST:PORT, several separated by ';', not {type(namesrv).__name__}")
    addresses = [address.strip() for address in namesrv.replace(",", ";").split(";") if address.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal() and port.isascii() and 0 < int(port) < 65536):
            raise ValueError(f"name server address {address!r} is not HOST:PORT, such as 127.0.0.1:9876")
    return addresses

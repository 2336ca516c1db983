"""Session: one gRPC client, its settings, its telemetry stream, and its connections to brokers.

To brokers a session is a client like any other: registered by heartbeats under its own id, language and version, with the
groups of its settings. What brokers ask of it (`asked`) goes to the client by its telemetry stream.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from pocketmq.client.message import now_ms
from pocketmq.proxy.clients.in_hand import InHand
from pocketmq.proxy.clients.upstream import Upstream
from pocketmq.proxy.messages.names import group_name, topic_name
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData, encode_body
from pocketmq.remoting.channels import ChannelClosed
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.headers.consumer import UnregisterClientRequestHeader

log = logging.getLogger("proxy")

ANSWER_MAX_S: Final = 5.0
"""Time in which a client answers what it was asked by its telemetry stream."""
ASKED_MAX: Final = 64
SETTINGS_MAX_S: Final = 1.0
"""Time for which a call waits for the settings of a client that opened its telemetry stream at the same time."""
_CONSUMERS: Final = {
    pb.PUSH_CONSUMER: "CONSUME_PASSIVELY",
    pb.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
    pb.PULL_CONSUMER: "CONSUME_ACTIVELY",
}
Write = Callable[[pb.TelemetryCommand], Awaitable[Any]]


class Session:
    """One client. `client` are its connections to brokers, `hand` the messages whose handles are renewed for it."""

    def __init__(self, client_id: str, peer: str, namespace: str, upstream: Upstream, hand: InHand) -> None:
        self.client_id, self.peer, self.namespace = client_id, peer, namespace
        self.upstream = upstream
        self.client: RemotingClient
        self.popping: RemotingClient
        """Connections for pops alone: closing them has brokers drop the pops that they hold for a client that is gone."""
        self.hand = hand
        self.settings: pb.Settings | None = None
        self.has_settings = asyncio.Event()
        self.sent_settings: pb.Settings | None = None
        self.write: Write | None = None
        """Writes to the telemetry stream, if one is open."""
        self.stream: object = None
        """The telemetry stream that `write` belongs to."""
        self.is_gone = False
        """Whether the front has forgotten the client."""
        self.call_count = 0
        self.last_seen_s = 0.0
        self.since_ms = now_ms()
        self._registered: set[str] = set()
        self._answers: dict[str, asyncio.Future[pb.TelemetryCommand]] = {}
        self._nonces = itertools.count(1)

    def __repr__(self) -> str:
        return f"<client {self.client_id} at {self.peer}>"

    # --- what the settings say --------------------------------------------------------------------------------------

    def topic(self, resource: pb.Resource) -> str:
        """Return the remoting name of a topic. Raises Refusal."""
        return topic_name(resource, self.namespace)

    def group(self, resource: pb.Resource) -> str:
        """Return the remoting name of a consumer group. Raises Refusal."""
        return group_name(resource, self.namespace)

    async def wait_for_settings(self) -> None:
        """Wait until the client's settings are there. Raises Refusal if they do not come soon."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.has_settings.wait(), SETTINGS_MAX_S)
        if self.settings is None:
            raise Refusal(pb.UNRECOGNIZED_CLIENT_TYPE, "the client has sent no settings by Telemetry")

    @property
    def is_consumer(self) -> bool:
        return self.settings is not None and self.settings.WhichOneof("pub_sub") == "subscription"

    def topics(self) -> list[str]:
        """Return the topics to which the client sends or is subscribed. Raises Refusal."""
        if self.settings is None:
            return []
        if self.is_consumer:
            return [self.topic(entry.topic) for entry in self.settings.subscription.subscriptions]
        return [self.topic(resource) for resource in self.settings.publishing.topics]

    def consumer_group(self) -> str | None:
        """Return the client's consumer group, None for a producer. Raises Refusal."""
        return self.group(self.settings.subscription.group) if self.is_consumer and self.settings is not None else None

    # --- requests to brokers ----------------------------------------------------------------------------------------

    async def call(
        self, topic: str, broker_name: str, code: int, header: CommandHeader | None = None, body: bytes = b"",
        timeout_s: float = 3.0,
    ) -> RemotingCommand:  # fmt: skip
        """Send a request to a broker of a topic in the client's name. Raises as RemotingClient.call, and Refusal."""
        return await self.client.call(await self.upstream.address(topic, broker_name), code, header, body, timeout_s)

    async def invoke(
        self, topic: str, broker_name: str, code: int, header: CommandHeader, body: bytes = b"", timeout_s: float = 3.0
    ) -> RemotingCommand:
        """As `call`, but return the answer whatever its code."""
        return await self.client.invoke(await self.upstream.address(topic, broker_name), code, header, body, timeout_s)

    async def pop(self, topic: str, broker_name: str, header: CommandHeader, timeout_s: float) -> RemotingCommand:
        """Pop from a broker and return its answer. Raises ChannelClosed if the client is gone meanwhile."""
        address = await self.upstream.address(topic, broker_name)
        if self.is_gone:
            raise ChannelClosed(f"{self!r} is gone")
        return await self.popping.invoke(address, RequestCode.POP_MESSAGE, header, timeout_s=timeout_s)

    async def register(self) -> None:
        """Send a heartbeat to the brokers of the client's topics. Raises RemotingError, OSError or Refusal."""
        addresses = await self._addresses()
        if not addresses:
            return
        body = encode_body(self.heartbeat_data())
        self._registered |= addresses
        await asyncio.gather(*(self.client.call(one, RequestCode.HEART_BEAT, None, body) for one in addresses))

    async def _addresses(self) -> set[str]:
        found: set[str] = set()
        for topic in self.topics():
            try:
                route = await self.upstream.route(topic)
            except Refusal as refusal:
                log.debug("%r: %s", self, refusal)  # the topic may be created later
                continue
            for broker in route.broker_datas:
                found.update(broker.broker_addrs.values())
        return found

    def heartbeat_data(self) -> HeartbeatData:
        """Return the heartbeat with the groups of the settings. Raises Refusal."""
        data = HeartbeatData(self.client_id)
        group = self.consumer_group()
        if group is None or self.settings is None:
            data.producer_data_set = [ProducerData(topic) for topic in self.topics()]
        else:
            subscription = self.settings.subscription
            data.consumer_data_set = [
                ConsumerData(
                    group,
                    consume_type=_CONSUMERS.get(self.settings.client_type, "CONSUME_ACTIVELY"),
                    subscription_data_set=[self._subscription(entry) for entry in subscription.subscriptions],
                )
            ]
        return data

    def _subscription(self, entry: pb.SubscriptionEntry) -> SubscriptionData:
        kind, text = expression_of(entry.expression)
        tags = [] if kind != "TAG" or text == "*" else [tag.strip() for tag in text.split("||") if tag.strip()]
        return SubscriptionData(self.topic(entry.topic), text, kind, tags_set=tags)

    async def leave(self) -> None:
        """Make the messages in hand visible soon, and unregister from the brokers."""
        self.write = None
        for answer in self._answers.values():
            answer.cancel()
        await self.hand.release(self)
        group = self.consumer_group() if self.is_consumer else None
        if self.settings is not None and self._registered:
            groups = [(None, group)] if group is not None else [(topic, None) for topic in self.topics()]
            headers = [UnregisterClientRequestHeader(self.client_id, *names) for names in groups]
            await asyncio.gather(
                *(
                    self.client.invoke(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=1.0)
                    for address in self._registered
                    for header in headers
                ),
                return_exceptions=True,
            )

    # --- requests to the client -------------------------------------------------------------------------------------

    async def ask(self, command: pb.TelemetryCommand, field: str) -> pb.TelemetryCommand:
        """Send a command with a nonce by the telemetry stream and return the answer.

        Raises RemotingError without a stream, or if too many answers are awaited, TimeoutError if there is no answer.
        """
        if self.write is None or len(self._answers) >= ASKED_MAX:
            raise RemotingError(1, f"{self.client_id} has no telemetry stream, or too many answers of it are awaited")
        nonce = f"{next(self._nonces)}"
        getattr(command, field).nonce = nonce
        answer = self._answers[nonce] = asyncio.get_running_loop().create_future()
        try:
            await self.write(command)
            return await asyncio.wait_for(answer, ANSWER_MAX_S)
        finally:
            del self._answers[nonce]

    def answered(self, nonce: str, command: pb.TelemetryCommand) -> None:
        """Pass on the client's answer; one that is late or was not asked for is dropped."""
        answer = self._answers.get(nonce)
        if answer is not None and not answer.done():
            answer.set_result(command)


def expression_of(expression: pb.FilterExpression) -> tuple[str, str]:
    """Return kind and text of a filter as in the remoting protocol."""
    if expression.type == pb.SQL:
        return "SQL92", expression.expression
    return "TAG", expression.expression.strip() or "*"

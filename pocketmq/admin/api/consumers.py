"""Requests about consumer groups: their clients, consumer offsets, and the running info of a client."""

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from msgspec import field

from pocketmq.admin.api.client import AdminClient, AdminError, addresses_by_name, by_queue, document
from pocketmq.admin.api.topics import RETRY_PREFIX
from pocketmq.client.consuming.allocation import queue_order
from pocketmq.client.versions import version_name
from pocketmq.remoting.bodies import Body, Connection, MessageQueue, SubscriptionData, TopicRouteData
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import (
    ConsumerGroupRequestHeader,
    ConsumeStatsRequestHeader,
    ProducerGroupRequestHeader,
)
from pocketmq.remoting.headers.query import ConsumerRunningInfoRequestHeader

ACTIVELY: Final = "CONSUME_ACTIVELY"
PASSIVELY: Final = "CONSUME_PASSIVELY"
BROADCASTING: Final = "BROADCASTING"
RUNNING_INFO_TIMEOUT_S: Final = 15.0
"""Longer than the 10 s for which a broker waits for the client."""


class ConsumerConnection(Body):
    """The clients of a group and their subscriptions: answer of GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[Connection] = field(default_factory=list)
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class QueueProgress(Body):
    """The offsets of a group in a queue. `last_timestamp`: store time of the message consumed last; 0: none was consumed."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int | None = None

    @property
    def diff(self) -> int:
        return self.broker_offset - self.consumer_offset


class Progress:
    """The offsets of a group by queue, and its rate, both from all its brokers."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        """`answers`: those of brokers to GET_CONSUME_STATS."""
        self.tps = 0.0
        self.queues: dict[MessageQueue, QueueProgress] = {}
        for stats in answers:
            self.add(stats)

    def add(self, stats: dict[str, Any]) -> None:
        """Add the answer of a broker to GET_CONSUME_STATS."""
        self.tps += float(stats.get("consumeTps") or 0)
        for queue, offsets in by_queue(stats.get("offsetTable")):
            self.queues[queue] = progress_of(offsets)

    @property
    def diff_total(self) -> int:
        return sum(progress.diff for progress in self.queues.values())

    @property
    def lag(self) -> int:
        """The number of messages not consumed yet. An offset behind a queue's end, as after lost messages, counts as 0."""
        return sum(max(progress.diff, 0) for progress in self.queues.values())

    def rows(self) -> list[tuple[MessageQueue, QueueProgress]]:
        """Return the queues by topic, broker name and queue id."""
        return sorted(self.queues.items(), key=lambda row: queue_order(row[0]))


@dataclass(frozen=True)
class GroupSummary:
    """A consumer group with the progress of all its queues, and its clients; both are empty if they are not known."""

    group: str
    progress: Progress
    clients: ConsumerConnection


def progress_of(offsets: dict[str, Any]) -> QueueProgress:
    """Return the offsets of a queue as a broker sends them."""
    wanted = ("brokerOffset", "consumerOffset", "lastTimestamp", "pullOffset")
    broker, consumer, last, pull = (offsets.get(name) for name in wanted)
    return QueueProgress(int(broker or 0), int(consumer or 0), int(last or 0), None if pull is None else int(pull))


async def group_route(admin: AdminClient, group: str, topic: str | None = None) -> TopicRouteData:
    """Return the route of the group's retry topic, or of a topic if a group that only pulls has none."""
    try:
        return await admin.route(RETRY_PREFIX + group)
    except RemotingError as refusal:
        if topic is None or refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return await admin.route(topic)


async def connections(admin: AdminClient, group: str, broker: str | None = None) -> ConsumerConnection:
    """Return the clients of a group as one broker knows them. Raises RemotingError 206 if no client is connected."""
    if broker is None:
        found = list(addresses_by_name(await group_route(admin, group)).values())
        if not found:
            raise AdminError(f"Not found the consumer group connection: the retry topic of {group} has no broker")
        broker = found[0]
    answer = await connections_at(admin, broker, group)
    if not answer.connection_set:
        raise AdminError("Not found the consumer group connection")
    return answer


async def progress(admin: AdminClient, group: str, topic: str | None = None) -> Progress:
    """Return the offsets of a group at all its brokers. Raises AdminError if there are none."""
    addresses = addresses_by_name(await group_route(admin, group, topic)).values()
    total = Progress(*[await progress_at(admin, address, group, topic) for address in addresses])
    if not total.queues:
        raise AdminError(
            "Not found the consumer group consume stats, because return offset table is empty, maybe the consumer not "
            "consume any message"
        )
    return total


async def progress_at(admin: AdminClient, address: str, group: str, topic: str | None = None) -> dict[str, Any]:
    """Return one broker's answer about a group's offsets."""
    header = ConsumeStatsRequestHeader(group, topic)
    return document(await admin.call(address, RequestCode.GET_CONSUME_STATS, header, timeout_s=RUNNING_INFO_TIMEOUT_S))


async def running_info(
    admin: AdminClient, group: str, client_id: str, jstack: bool, broker: str | None = None
) -> dict[str, Any]:
    """Return the running info of a client, requested through a broker to which it is connected."""
    header = ConsumerRunningInfoRequestHeader(group, client_id, jstack)
    candidates = [broker] if broker else list(addresses_by_name(await group_route(admin, group)).values())
    failure: RemotingError | None = None
    for address in candidates:
        try:
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            return document(await admin.call(address, code, header, timeout_s=RUNNING_INFO_TIMEOUT_S))
        except RemotingError as refusal:
            failure = refusal
    raise failure or AdminError(f"the retry topic of {group} has no broker")


def is_push(info: dict[str, Any]) -> bool:
    """Return whether running info is that of a push consumer."""
    return (info.get("properties") or {}).get("PROP_CONSUME_TYPE") == PASSIVELY


async def clients_of_queues(admin: AdminClient, group: str) -> dict[MessageQueue, str]:
    """Return the id of the client that consumes each queue; queues of clients that do not answer are left out."""
    found: dict[MessageQueue, str] = {}
    with contextlib.suppress(RemotingError, AdminError):
        for one in (await connections(admin, group)).connection_set:
            info = await running_info(admin, group, one.client_id, False)
            found |= {queue: one.client_id for queue, _ in by_queue(info.get("mqTable"))}
    return found


async def group_summary(admin: AdminClient, group: str) -> GroupSummary:
    """Return the progress of a group and its clients; what cannot be fetched is empty."""
    found, clients = Progress(), ConsumerConnection()
    with contextlib.suppress(RemotingError, AdminError):
        found = await progress(admin, group)
    with contextlib.suppress(RemotingError, AdminError):
        clients = await connections(admin, group)
    return GroupSummary(group, found, clients)


async def clients_at(admin: AdminClient, address: str, group: str) -> ConsumerConnection:
    """Return the clients of a group that one broker knows; empty if none is connected to it."""
    with Tolerating(ResponseCode.CONSUMER_NOT_ONLINE):
        return await connections_at(admin, address, group)
    return ConsumerConnection()


async def connections_at(admin: AdminClient, address: str, group: str) -> ConsumerConnection:
    """Return the clients of a group that one broker knows. Raises RemotingError 206 if none is connected to it."""
    header = ConsumerGroupRequestHeader(group)
    return await admin.fetch(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header)


async def group_state(admin: AdminClient, group: str, topic: str | None = None) -> GroupSummary:
    """Return the progress of a group, at all brokers or in one topic, and its clients as the first broker with any has them.

    Unlike `group_summary` it does not need a retry topic. What a broker refuses to tell is empty.
    """
    found, clients = Progress(), ConsumerConnection()
    for address in (await admin.brokers()).values():
        with contextlib.suppress(RemotingError):
            found.add(await progress_at(admin, address, group, topic))
        if not clients.connection_set:
            with contextlib.suppress(RemotingError):
                clients = await clients_at(admin, address, group)
    return GroupSummary(group, found, clients)


def language_name(language: str | int) -> str:
    """Return the name of a client's language, which may be given as a number."""
    known = isinstance(language, int) and 0 <= language < len(LanguageCode)
    return LanguageCode(language).name if known else str(language)  # type: ignore[arg-type]


def client_fields(client: Connection) -> tuple[str, str, str, str]:
    """Return id, address, language and version of a client."""
    return client.client_id, client.client_addr, language_name(client.language), version_name(client.version)


async def producers(admin: AdminClient, group: str, topic: str) -> list[Connection]:
    """Return the clients of a producer group, as the first broker in a topic's route knows them."""
    found = list((await admin.route_brokers(topic)).values())
    if not found:
        raise AdminError(f"the route of topic {topic} has no broker")
    header = ProducerGroupRequestHeader(group)
    answer = await admin.fetch(found[0], RequestCode.GET_PRODUCER_CONNECTION_LIST, ConsumerConnection, header)
    return answer.connection_set


async def producers_at(admin: AdminClient, address: str) -> dict[str, list[dict[str, Any]]]:
    """Return the clients of all producer groups of a broker, by group."""
    return document(await admin.call(address, RequestCode.GET_ALL_PRODUCER_INFO)).get("data") or {}

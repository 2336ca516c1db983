"""Configs of topics at all brokers: their types and sizes, creation, and changes of single settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.admin.api import topics
from pocketmq.admin.api.brokers import serves_5
from pocketmq.admin.api.client import AdminClient, AdminError, document
from pocketmq.admin.api.topics import DLQ_PREFIX, RETRY_PREFIX, QueueStatus
from pocketmq.remoting.bodies import TopicConfig, TopicList
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.topic import TopicRequestHeader

MESSAGE_TYPE: Final = "message.type"
"""The attribute with a topic's type (5.x)."""
NORMAL: Final = "NORMAL"
OF_CLIENTS: Final = (NORMAL, "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY")
"""The types that a topic may be created with."""
PERMS: Final = {"rw": 6, "r": 4, "w": 2, "none": 0}
OF_SERVERS: Final = ("RETRY", "DLQ", "SYSTEM")
"""The types of topics that brokers create for themselves and for consumer groups."""


class TopicAt(NamedTuple):
    """The config of a topic at one broker."""

    broker_name: str
    address: str
    config: TopicConfig


@dataclass(frozen=True)
class TopicSummary:
    """A topic at all its brokers. `queues`: those that are read. `last_update_ms`: 0 without a message."""

    topic: str
    kind: str
    queues: int
    messages: int
    brokers: list[str]
    last_update_ms: int


@dataclass(frozen=True)
class TopicChange:
    """New settings of a topic; None: as it is."""

    queues: int | None = None
    perm: int | None = None
    kind: str | None = None


class TopicTable:
    """The topics of all brokers, and which of them belong to the system."""

    def __init__(self) -> None:
        self.topics: dict[str, list[TopicAt]] = {}
        self._system: set[str] = set()

    async def add(self, admin: AdminClient, broker_name: str, address: str) -> None:
        """Add the topics of a broker."""
        found = document(await admin.call(address, RequestCode.GET_ALL_TOPIC_CONFIG))
        for name, config in sorted((found.get("topicConfigTable") or {}).items()):
            self.topics.setdefault(name, []).append(TopicAt(broker_name, address, topic_config(config)))
        system = await admin.fetch(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)
        self._system.update(system.topic_list)

    def kind(self, topic: str) -> str:
        """Return a topic's type: one of OF_SERVERS, or the one it was created with."""
        return kind_by_name(topic) or ("SYSTEM" if topic in self._system else kind_of(self.topics[topic]))

    def names(self, with_special: bool) -> list[str]:
        """Return the names of all topics, or of those that clients created."""
        return [name for name in sorted(self.topics) if with_special or self.kind(name) not in OF_SERVERS]


def perm_text(perm: int) -> str:
    """Return a permission as a word of PERMS. The bit for templates of new topics is not shown."""
    return next(text for text, value in PERMS.items() if value == perm & 6)


def topic_config(fields: dict[str, Any]) -> TopicConfig:
    """Return the config in a broker's table of topics."""
    known = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(known, TopicConfig, strict=False)
    except ValueError as wrong:
        raise AdminError(f"the config of a topic cannot be read: {wrong}") from None


def kind_of(places: Iterable[TopicAt]) -> str:
    """Return the type that a topic was created with. Brokers of 4.x know none."""
    return next((kind for one in places if (kind := (one.config.attributes or {}).get(MESSAGE_TYPE))), NORMAL)


async def topic_table(admin: AdminClient) -> TopicTable:
    """Return the topics of all brokers."""
    table = TopicTable()
    for broker_name, address in (await admin.brokers()).items():
        await table.add(admin, broker_name, address)
    return table


async def topic_at(admin: AdminClient, broker_name: str, address: str, topic: str) -> TopicAt | None:
    """Return the config of a topic at one broker; None if it has none. A broker of 4.x sends the configs of all topics."""
    fields = None
    with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
        with Tolerating(ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            answer = await admin.call(address, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
            return TopicAt(broker_name, address, topic_config(document(answer)))
        found = document(await admin.call(address, RequestCode.GET_ALL_TOPIC_CONFIG))
        fields = (found.get("topicConfigTable") or {}).get(topic)
    return None if fields is None else TopicAt(broker_name, address, topic_config(fields))


def places_of(table: TopicTable, topic: str) -> list[TopicAt]:
    """Return the config of a topic at each broker that has it. Raises AdminError if none has."""
    places = table.topics.get(topic)
    if not places:
        raise AdminError(f"topic {topic!r} does not exist; `pocketmq topic create {topic}` creates it")
    return places


def kind_by_name(topic: str) -> str | None:
    """Return the type of a topic whose name tells it: RETRY or DLQ."""
    return {RETRY_PREFIX: "RETRY", DLQ_PREFIX: "DLQ"}.get(topic[: topic.find("%", 1) + 1])


async def summary(admin: AdminClient, table: TopicTable, topic: str) -> TopicSummary:
    """Return what a list shows of a topic."""
    places = table.topics[topic]
    queues = sum(one.config.read_queue_nums for one in places)
    rows = await queues_at(admin, places)
    messages = sum(max(row.max_offset - row.min_offset, 0) for row in rows)
    last_update_ms = max((row.last_update_ms for row in rows), default=0)
    return TopicSummary(topic, table.kind(topic), queues, messages, [one.broker_name for one in places], last_update_ms)


async def queues_at(admin: AdminClient, places: Iterable[TopicAt]) -> list[QueueStatus]:
    """Return the state of a topic's queues, by broker name and queue id; none of a broker that has deleted it meanwhile."""
    rows: list[QueueStatus] = []
    for one in places:
        with Tolerating(ResponseCode.TOPIC_NOT_EXIST):
            rows += await topics.queue_status_at(admin, one.address, one.config.topic_name)
    return sorted(rows, key=lambda row: (row.queue.broker_name, row.queue.queue_id))


async def check_knows_types(admin: AdminClient, address: str, topic: str) -> None:
    """Raise AdminError for a broker of 4.x, which would create a topic without its type."""
    if not await serves_5(admin, address, topic):
        raise AdminError(f"{address} knows no types of topics: this needs a broker of 5.x, or PocketMQ's; omit --type")


async def create(admin: AdminClient, brokers: dict[str, str], topic: str, queues: int, kind: str) -> None:
    """Create a topic at some brokers, by name. Raises AdminError if one of them has it, or knows no types."""
    present = [one.broker_name for one in (await topic_table(admin)).topics.get(topic, ()) if one.broker_name in brokers]
    if present:
        raise AdminError(f"topic {topic!r} exists already at {', '.join(present)}; `pocketmq topic set {topic}` changes it")
    if kind != NORMAL:
        for address in brokers.values():
            await check_knows_types(admin, address, topic)
    config = TopicConfig(topic, queues, queues)
    for address in brokers.values():
        await topics.create_topic(admin, address, config, None if kind == NORMAL else f"+{MESSAGE_TYPE}={kind}")


async def change(admin: AdminClient, places: Iterable[TopicAt], new: TopicChange) -> list[TopicAt]:
    """Change settings of a topic where it is, and keep the others. Return the new configs."""
    changed = []
    for one in places:
        if new.kind is not None:
            await check_knows_types(admin, one.address, one.config.topic_name)
        config = msgspec.structs.replace(one.config, attributes=None)
        if new.queues is not None:
            config.read_queue_nums = config.write_queue_nums = new.queues
        if new.perm is not None:
            config.perm = new.perm
        await topics.create_topic(admin, one.address, config, None if new.kind is None else f"+{MESSAGE_TYPE}={new.kind}")
        changed.append(one._replace(config=config))
    return changed


async def delete(admin: AdminClient, topic: str, broker_names: Iterable[str]) -> None:
    """Delete a topic in each cluster of some brokers."""
    names = set(broker_names)
    clusters = (await admin.cluster_info()).cluster_addr_table
    for cluster in sorted(cluster for cluster, members in clusters.items() if names & set(members)):
        await topics.delete_topic(admin, cluster, topic)

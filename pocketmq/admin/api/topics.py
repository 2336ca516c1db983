"""Topics: their names, queues and consumer groups."""

from dataclasses import dataclass
from typing import Final

from pocketmq.admin.api.client import AdminClient, AdminError, by_queue, chosen_address, document
from pocketmq.client.route import READ, queues_of
from pocketmq.remoting.bodies import MessageQueue, TopicList, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.topic import TopicRequestHeader

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"


@dataclass(frozen=True)
class QueueStatus:
    """Offsets of a queue, and the store time of its last message, 0 without one."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int


async def topic_names(admin: AdminClient) -> list[str]:
    """Return the names of all topics, including retry and dead-letter topics."""
    return (await admin.fetch_from_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)).topic_list


def is_of_group(topic: str) -> bool:
    """Return whether a topic is the retry or the dead-letter topic of a consumer group."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


async def group_names(admin: AdminClient) -> list[str]:
    """Return the consumer groups that have a retry topic."""
    names = await topic_names(admin)
    return [name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX)]


async def queue_status(admin: AdminClient, topic: str) -> list[QueueStatus]:
    """Return the state of a topic's queues by broker name and queue id. Raises AdminError if there are none."""
    found = []
    for address in (await admin.route_brokers(topic)).values():
        found += await queue_status_at(admin, address, topic.strip())
    if not found:
        raise AdminError("Not found the topic stats info")
    return sorted(found, key=lambda row: (row.queue.broker_name, row.queue.queue_id))


async def queue_status_at(admin: AdminClient, address: str, topic: str) -> list[QueueStatus]:
    """Return the state of a topic's queues at one broker."""
    answer = await admin.call(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic))
    return [
        QueueStatus(queue, offsets["minOffset"], offsets["maxOffset"], offsets["lastUpdateTimestamp"])
        for queue, offsets in by_queue(document(answer).get("offsetTable"))
    ]


async def groups_of_topic(admin: AdminClient, topic: str) -> list[str]:
    """Return the consumer groups of a topic, as the first broker in its route knows them."""
    data = next((data for data in (await admin.route(topic)).broker_datas if data.broker_addrs), None)
    if data is None:
        return []
    answer = await admin.call(chosen_address(data), RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic))
    groups: list[str] = document(answer).get("groupList") or []
    return groups


async def clusters_of_topic(admin: AdminClient, topic: str) -> list[str]:
    """Return the clusters that have the first broker of a topic's route."""
    route = await admin.route(topic)
    name = route.broker_datas[0].broker_name if route.broker_datas else None
    info = await admin.cluster_info()
    return [cluster for cluster, names in info.cluster_addr_table.items() if name in names]


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a topic that may be read, by broker name and queue id."""
    datas = sorted(route.queue_datas, key=lambda data: data.broker_name)
    return queues_of(topic, ((data.broker_name, data.read_queue_nums) for data in datas if data.perm & READ))

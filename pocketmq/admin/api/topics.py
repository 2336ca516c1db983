"""Topics: their names, routes and queues, and changes of them at brokers and name servers."""

import contextlib
from dataclasses import dataclass
from typing import Final

from pocketmq.admin.api.client import AdminClient, AdminError, Where, by_queue, chosen_address, document
from pocketmq.admin.api.nameservers import get_kv, put_kv
from pocketmq.client.consuming.allocation import share
from pocketmq.client.route import DEFAULT_TOPIC, MASTER_ID, READ, queues_of
from pocketmq.remoting.bodies import MessageQueue, QueueData, TopicConfig, TopicList, TopicRouteData
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicInNamesrvRequestHeader, TopicRequestHeader

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the name servers' KV config with the queues of ordered topics."""
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"


@dataclass(frozen=True)
class QueueStatus:
    """Offsets of a queue, and the store time of its last message, 0 without one."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int


@dataclass(frozen=True)
class PermChange:
    """Result of a change of a topic's permission. `config` None: the broker had this permission already."""

    old_perm: int
    config: TopicConfig | None


# --- reading ----------------------------------------------------------------------------------------------------------


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
    return await groups_of_topic_at(admin, chosen_address(data), topic)


async def groups_of_topic_at(admin: AdminClient, address: str, topic: str) -> list[str]:
    """Return the consumer groups of a topic that one broker knows."""
    answer = await admin.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic))
    groups: list[str] = document(answer).get("groupList") or []
    return groups


async def clusters_of_topic(admin: AdminClient, topic: str) -> list[str]:
    """Return the clusters that have the first broker of a topic's route."""
    route = await admin.route(topic)
    name = route.broker_datas[0].broker_name if route.broker_datas else None
    info = await admin.cluster_info()
    return [cluster for cluster, names in info.cluster_addr_table.items() if name in names]


async def cluster_and_groups(admin: AdminClient, topic: str) -> tuple[str, list[str]]:
    """Return the cluster and the groups of a topic; empty ones if it has been deleted meanwhile."""
    with contextlib.suppress(RemotingError, AdminError, IndexError):
        return (await clusters_of_topic(admin, topic))[0], await groups_of_topic(admin, topic)
    return "", []


def readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Return the queues of a topic that may be read, by broker name and queue id."""
    datas = sorted(route.queue_datas, key=lambda data: data.broker_name)
    return queues_of(topic, ((data.broker_name, data.read_queue_nums) for data in datas if data.perm & READ))


async def allocation(admin: AdminClient, topic: str, clients: list[str]) -> dict[str, list[MessageQueue]]:
    """Return the queues of a topic that each of some clients would consume: an average allocation."""
    queues = readable_queues(topic, await admin.route(topic))
    return {client: share(queues, len(clients), index) for index, client in enumerate(clients)}


# --- changes ----------------------------------------------------------------------------------------------------------


async def create_topic(admin: AdminClient, address: str, config: TopicConfig, attributes: str | None = None) -> None:
    """Create or change a topic at one broker."""
    header = CreateTopicRequestHeader(
        config.topic_name,
        DEFAULT_TOPIC,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
        config.order,
        attributes,
    )
    await admin.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def set_order(admin: AdminClient, config: TopicConfig, where: Where) -> str:
    """Store the queues of an ordered topic in the name servers; return the brokers' entries that were set."""
    if where.cluster:
        names = [name for name, _ in await admin.master_names(where.cluster)]
        conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        await put_kv(admin, ORDER_NAMESPACE, config.topic_name, conf)
        return conf
    brokers = (await admin.cluster_info()).broker_addr_table.values()
    name = next((data.broker_name for data in brokers if where.broker in data.broker_addrs.values()), None)
    if name is None:
        raise AdminError(f"broker {where.broker} is not registered with the name server")
    conf = f"{name}:{config.write_queue_nums}"
    old = ""
    with Tolerating(ResponseCode.QUERY_NOT_FOUND):
        old = await get_kv(admin, ORDER_NAMESPACE, config.topic_name)
    entries = {entry.partition(":")[0]: entry for entry in [*filter(None, old.split(";")), conf]}
    await put_kv(admin, ORDER_NAMESPACE, config.topic_name, ";".join(entries.values()))
    return conf


async def perm_change(admin: AdminClient, topic: str, perm: int, broker: str | None) -> PermChange:
    """Return a topic's config with another permission. `broker`: the master to be changed; None: all of a cluster."""
    route = await admin.route(topic)
    queues = route.queue_datas[0]
    old_perm = queues.perm
    if broker:
        found = _queues_at(route, broker)
        if found is None:
            raise AdminError("updateTopicPerm error broker not exit or broker is not master!.")
        if found.perm == perm:
            return PermChange(perm, None)
        old_perm = found.perm
    numbers = queues.read_queue_nums, queues.write_queue_nums
    return PermChange(old_perm, TopicConfig(topic.strip(), *numbers, perm, topic_sys_flag=queues.topic_sys_flag))


def _queues_at(route: TopicRouteData, address: str) -> QueueData | None:
    """Return a topic's queues at the master with this address."""
    names = {data.broker_name for data in route.broker_datas if data.broker_addrs.get(MASTER_ID) == address}
    return next((data for data in route.queue_datas if data.broker_name in names), None)


async def delete_topic(admin: AdminClient, cluster: str, topic: str) -> list[str]:
    """Delete a topic at a cluster's masters (slaves copy their topics) and at the name servers. Return the masters."""
    masters = await admin.masters(cluster)
    for address in masters:
        await admin.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    await admin.every_namesrv(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvRequestHeader(topic, cluster))
    return masters

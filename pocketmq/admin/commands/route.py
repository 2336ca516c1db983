"""Commands that show topics: names, routes, offsets, queues by client."""

from typing import Any

import msgspec

from pocketmq.admin.admin_client import AdminClient, AdminError, chosen_address
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.formats import time_millis, topic_offsets
from pocketmq.admin.output import Table, pretty
from pocketmq.client.route import READ, queues_of
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import TopicList, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.topic import TopicRequestHeader

DLQ_PREFIX, RETRY_PREFIX = "%DLQ%", "%RETRY%"

ROUTE = Table(
    "#ClusterName|#BrokerName|#BrokerAddrs|#ReadQueue|#WriteQueue|#Perm",
    "%-45s %-32s %-50s %-10s %-11s %-5s",
    "cluster brokerName brokerAddrs readQueueNums writeQueueNums perm",
)
STATUS = Table(
    "#Broker Name|#QID|#Min Offset|#Max Offset|#Last Updated",
    "%-32s  %-4s  %-20s  %-20s    %s",
    "brokerName queueId minOffset maxOffset lastUpdated",
)
TOPICS = Table(
    "#Cluster Name|#Topic|#Consumer Group", "%-20s  %-48s  %-48s", "cluster topic group", "%-20.20s  %-64.64s  %-64.64s"
)


@command("topicRoute", TOPIC, option("-l", "--list", "print a list", is_flag=True))
async def topic_route(run: Run, topic: str, list: bool) -> object:
    """Show a topic's route: brokers, addresses, queues and permissions."""
    route = await run.admin.route(topic)
    if not list:
        run.say(pretty(route_document(route)))
        return route_document(route)
    queues = {data.broker_name: data for data in route.queue_datas}
    rows = []
    for data in sorted(route.broker_datas, key=lambda data: data.broker_name):
        found = queues[data.broker_name]
        addresses = "{" + ", ".join(f"{key}={value}" for key, value in data.broker_addrs.items()) + "}"
        numbers = found.read_queue_nums, found.write_queue_nums, found.perm
        rows.append((data.cluster, data.broker_name, addresses, *numbers))
    result = run.table(ROUTE, rows)
    run.say("-" * 158)
    total = "Total:", len(queues), "", sum(row[3] for row in rows), sum(row[4] for row in rows), ""
    run.say(ROUTE.row_layout % total)
    return result


def route_document(route: TopicRouteData) -> dict[str, Any]:
    """Return a route as JSON without the fields that are absent."""
    document: dict[str, Any] = msgspec.to_builtins(route)
    for data in document["brokerDatas"]:
        if data["enableActingMaster"] is None:
            del data["enableActingMaster"]
    return {key: value for key, value in document.items() if value is not None}


@command("topicStatus", TOPIC)
async def topic_status(run: Run, topic: str) -> object:
    """Show offsets and the time of the last message of a topic's queues."""
    rows = []
    for address in (await run.admin.route_brokers(topic)).values():
        answer = await run.admin.broker(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic.strip()))
        for queue, offsets in topic_offsets(answer.body):
            updated = time_millis(offsets["lastUpdateTimestamp"])
            rows.append((queue.broker_name, queue.queue_id, offsets["minOffset"], offsets["maxOffset"], updated))
    if not rows:
        raise AdminError("Not found the topic stats info")
    return run.table(STATUS, sorted(rows))


@command("topicList", option("-c", "--clusterModel", "also show each topic's cluster and consumer groups", is_flag=True))
async def topic_list(run: Run, cluster_model: bool) -> object:
    """List the topics that are registered with the name server."""
    names = (await topics(run.admin)).topic_list
    if not cluster_model:
        for name in names:
            run.say(name)
        return names
    rows = []
    for name in names:
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            cluster, groups = await _cluster_and_groups(run.admin, name)
            rows += [(cluster, name, group) for group in groups or [""]]
    return run.table(TOPICS, rows)


async def topics(admin: AdminClient) -> TopicList:
    """Return the names of all topics."""
    return await admin.fetch_from_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)


async def groups_of_topic(admin: AdminClient, topic: str) -> list[str]:
    """Return the consumer groups of a topic, as the first broker in its route knows them."""
    data = next((data for data in (await admin.route(topic)).broker_datas if data.broker_addrs), None)
    if data is None:
        return []
    answer = await admin.broker(chosen_address(data), RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic))
    groups: list[str] = fastjson.loads(bytes(answer.body)).get("groupList") or []
    return groups


async def _cluster_and_groups(admin: AdminClient, topic: str) -> tuple[str, list[str]]:
    """Return the cluster and the groups of a topic; empty ones if it has been deleted meanwhile."""
    try:
        return (await clusters_of_topic(admin, topic))[0], await groups_of_topic(admin, topic)
    except (RemotingError, AdminError, IndexError):
        return "", []


async def clusters_of_topic(admin: AdminClient, topic: str) -> list[str]:
    """Return the clusters that have the first broker of a topic's route."""
    route = await admin.route(topic)
    name = route.broker_datas[0].broker_name if route.broker_datas else None
    info = await admin.cluster_info()
    return [cluster for cluster, names in info.cluster_addr_table.items() if name in names]


@command("topicClusterList", TOPIC)
async def topic_cluster_list(run: Run, topic: str) -> object:
    """Show the clusters that have a topic."""
    found = await clusters_of_topic(run.admin, topic)
    for cluster in found:
        run.say(cluster)
    return found


@command("allocateMQ", TOPIC, option("-i", "--ipList", "clients, separated by commas", required=True))
async def allocate_mq(run: Run, topic: str, ip_list: str) -> object:
    """Show which queues of a topic each of the given clients would consume: an average allocation."""
    route = await run.admin.route(topic)
    counts = (
        (data.broker_name, data.read_queue_nums)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & READ
    )
    queues = queues_of(topic, counts)
    clients = ip_list.split(",")
    result = {"result": {client: share(queues, len(clients), index) for index, client in enumerate(clients)}}
    run.say(fastjson.dumps(result).decode())
    return result


def share(queues: list[Any], clients_count: int, index: int) -> list[Any]:
    """Return the part of the queues for one of some clients; parts differ by at most one queue."""
    size, rest = divmod(len(queues), clients_count)
    begin = index * size + min(index, rest)
    return queues[begin : begin + size + (index < rest)]

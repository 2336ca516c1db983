"""Commands that show topics: names, routes, offsets, queues by client."""

from typing import Any

import msgspec

from pocketmq.admin.api import topics
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.formats import time_millis
from pocketmq.admin.output import Table, pretty
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import TopicRouteData

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
    run.say(ROUTE.line(total))
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
    rows = [
        (row.queue.broker_name, row.queue.queue_id, row.min_offset, row.max_offset, time_millis(row.last_update_ms))
        for row in await topics.queue_status(run.admin, topic)
    ]
    return run.table(STATUS, rows)


@command("topicList", option("-c", "--clusterModel", "also show each topic's cluster and consumer groups", is_flag=True))
async def topic_list(run: Run, cluster_model: bool) -> object:
    """List the topics that are registered with the name server."""
    names = await topics.topic_names(run.admin)
    if not cluster_model:
        for name in names:
            run.say(name)
        return names
    rows = []
    for name in names:
        if not topics.is_of_group(name):
            cluster, groups = await topics.cluster_and_groups(run.admin, name)
            rows += [(cluster, name, group) for group in groups or [""]]
    return run.table(TOPICS, rows)


@command("topicClusterList", TOPIC)
async def topic_cluster_list(run: Run, topic: str) -> object:
    """Show the clusters that have a topic."""
    found = await topics.clusters_of_topic(run.admin, topic)
    for cluster in found:
        run.say(cluster)
    return found


@command("allocateMQ", TOPIC, option("-i", "--ipList", "clients, separated by commas", required=True))
async def allocate_mq(run: Run, topic: str, ip_list: str) -> object:
    """Show which queues of a topic each of the given clients would consume: an average allocation."""
    result = {"result": await topics.allocation(run.admin, topic, ip_list.split(","))}
    run.say(fastjson.dumps(result).decode())
    return result

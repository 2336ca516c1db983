"""Commands for topics."""

from typing import Any

from pocketmq.admin.admin_client import AdminError
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.formats import time_millis, topic_offsets
from pocketmq.admin.output import Table, pretty
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.topic import TopicRequestHeader

TOPIC = option("-t", "--topic", "topic name", required=True)

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


@command("topicRoute", TOPIC, option("-l", "--list", "print a list", is_flag=True))
async def topic_route(run: Run, topic: str, list: bool) -> object:
    """Show a topic's route."""
    route = await run.admin.route(topic)
    if not list:
        run.say(pretty(route_document(route)))
        return route_document(route)
    brokers = {data.broker_name: data for data in route.broker_datas}
    rows = []
    for queues in sorted(route.queue_datas, key=lambda data: data.broker_name):
        data = brokers[queues.broker_name]
        addresses = "{" + ", ".join(f"{key}={value}" for key, value in data.broker_addrs.items()) + "}"
        numbers = queues.read_queue_nums, queues.write_queue_nums, queues.perm
        rows.append((data.cluster, data.broker_name, addresses, *numbers))
    result = run.table(ROUTE, rows)
    run.say("-" * 158)
    total = "Total:", len(brokers), "", sum(row[3] for row in rows), sum(row[4] for row in rows), ""
    run.say(ROUTE.row_layout % total)
    return result


def route_document(route: Any) -> dict[str, Any]:
    """Return a route as JSON without the fields that are absent."""
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(route)
    for data in document["brokerDatas"]:
        if data.get("enableActingMaster") is None:
            data.pop("enableActingMaster", None)
    return {key: value for key, value in document.items() if value is not None}


@command("topicStatus", TOPIC)
async def topic_status(run: Run, topic: str) -> object:
    """Show offsets and last update of a topic's queues."""
    rows = []
    for address in (await run.admin.route_brokers(topic)).values():
        answer = await run.admin.broker(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic.strip()))
        for queue, offsets in topic_offsets(answer.body):
            updated = time_millis(offsets["lastUpdateTimestamp"])
            rows.append((queue.broker_name, queue.queue_id, offsets["minOffset"], offsets["maxOffset"], updated))
    if not rows:
        raise AdminError("Not found the topic stats info")
    return run.table(STATUS, sorted(rows))

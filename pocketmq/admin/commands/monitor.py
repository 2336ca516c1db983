"""Command that watches all consumer groups: messages not consumed yet, clients with different subscriptions."""

import asyncio
from collections import defaultdict
from typing import Any

import msgspec

from pocketmq.admin.admin_client import AdminError
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.commands.route import RETRY_PREFIX, topics
from pocketmq.admin.formats import by_queue, topic_offsets
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader, ConsumeStatsRequestHeader
from pocketmq.remoting.headers.query import ConsumerRunningInfoRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.command_line.option_types import WholeNumber


@command("startMonitoring", option("-i", "--interval", "seconds between two rounds", type=WholeNumber(1), default=60))
async def start_monitoring(run: Run, interval: int) -> object:
    """Report messages not consumed yet and clients with different subscriptions, until interrupted; with --json once."""
    while True:
        run.say("[MONITOR] =========================================beginRound")
        names = (await topics(run.admin)).topic_list
        groups = sorted(name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX))
        reports = [report for group in groups for report in await _reports(run, group)]
        for report in reports:
            if "topic" in report:
                fields = ", ".join(f"{name}={value}" for name, value in report.items())
                run.say(f"[MONITOR] reportUndoneMsgs: UndoneMsgs [{fields}]")
            else:
                run.say(
                    "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: "
                    f"ConsumerGroup: {report['consumerGroup']}, Subscription different"
                )
        run.say("[MONITOR] =========================================endRound")
        if run.as_json:
            return reports
        await asyncio.sleep(interval)


async def _reports(run: Run, group: str) -> list[dict[str, Any]]:
    """Return the reports about a group; none if it is not online."""
    try:
        brokers = await run.admin.route_brokers(RETRY_PREFIX + group)
        connections = await _clients(run, next(iter(brokers.values())), group)
    except (RemotingError, AdminError, StopIteration):
        return []
    queues: dict[str, list[tuple[MessageQueue, dict[str, int]]]] = defaultdict(list)
    for address in brokers.values():
        for queue, offsets in await _offsets(run, address, group):
            queues[queue.topic].append((queue, offsets))
    reports = [await _undone(run, group, topic, rows, brokers) for topic, rows in sorted(queues.items())]
    if await _differ(run, next(iter(brokers.values())), group, connections):
        reports.append({"consumerGroup": group, "subscriptionDifferent": True})
    return reports


async def _clients(run: Run, address: str, group: str) -> list[str]:
    answer = await run.admin.broker(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader(group))
    return [client["clientId"] for client in fastjson.loads(bytes(answer.body))["connectionSet"]]


async def _offsets(run: Run, address: str, group: str) -> list[tuple[MessageQueue, dict[str, int]]]:
    try:
        answer = await run.admin.broker(address, RequestCode.GET_CONSUME_STATS, ConsumeStatsRequestHeader(group))
    except RemotingError:
        return []
    return by_queue(fastjson.loads(bytes(answer.body)).get("offsetTable") or {})


async def _undone(
    run: Run, group: str, topic: str, rows: list[tuple[MessageQueue, dict[str, int]]], brokers: dict[str, str]
) -> dict[str, Any]:
    """Return how many messages of a topic the group has not consumed, and the largest delay of a queue."""
    updated: dict[MessageQueue, int] = {}
    for name in {queue.broker_name for queue, _ in rows} & brokers.keys():
        try:
            answer = await run.admin.broker(brokers[name], RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic))
        except RemotingError:
            continue
        updated |= {queue: offsets["lastUpdateTimestamp"] for queue, offsets in topic_offsets(answer.body)}
    lags = [max(offsets["brokerOffset"] - offsets["consumerOffset"], 0) for _, offsets in rows]
    delays_ms = [
        updated.get(queue, 0) - offsets["lastTimestamp"] for queue, offsets in rows if offsets.get("lastTimestamp", 0) > 0
    ]
    return {
        "consumerGroup": group,
        "topic": topic,
        "undoneMsgsTotal": sum(lags),
        "undoneMsgsSingleMQ": max(lags, default=0),
        "undoneMsgsDelayTimeMills": max([0, *delays_ms]),
    }


async def _differ(run: Run, address: str, group: str, clients: list[str]) -> bool:
    """Return whether the subscriptions of the group's clients differ."""
    found = set()
    for client in clients:
        header = ConsumerRunningInfoRequestHeader(group, client)
        try:
            answer = await run.admin.broker(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        except (RemotingError, AdminError):
            continue
        subscriptions = fastjson.loads(bytes(answer.body)).get("subscriptionSet") or []
        rows = sorted([one.get("topic"), one.get("expressionType"), one.get("subString")] for one in subscriptions)
        found.add(msgspec.json.encode(rows))
    return len(found) > 1

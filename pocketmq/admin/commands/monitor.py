"""Command that watches all consumer groups: messages not consumed yet, clients with different subscriptions."""

import asyncio
import contextlib
import itertools
from typing import Any

from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.consumers import Progress, QueueProgress, connections, progress_at, running_info
from pocketmq.admin.api.topics import RETRY_PREFIX, group_names, queue_status_at
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.running_info import subscriptions
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.option_types import WholeNumber


@command("startMonitoring", option("-i", "--interval", "seconds between two rounds", type=WholeNumber(1), default=60))
async def start_monitoring(run: Run, interval: int) -> object:
    """Report messages not consumed yet and clients with different subscriptions, until interrupted; with --json once."""
    while True:
        run.say("[MONITOR] =========================================beginRound")
        reports = [row for group in sorted(await group_names(run.admin)) for row in await _report(run.admin, group)]
        for row in reports:
            if "topic" in row:
                fields = ", ".join(f"{name}={value}" for name, value in row.items())
                run.say(f"[MONITOR] reportUndoneMsgs: UndoneMsgs [{fields}]")
            else:
                run.say(
                    "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: "
                    f"ConsumerGroup: {row['consumerGroup']}, Subscription different"
                )
        run.say("[MONITOR] =========================================endRound")
        if run.as_json:
            return reports
        await asyncio.sleep(interval)


async def _report(admin: AdminClient, group: str) -> list[dict[str, Any]]:
    """Return the report about a group: for each topic what it has not consumed; nothing if it is not online."""
    try:
        brokers = await admin.route_brokers(RETRY_PREFIX + group)
        asked = next(iter(brokers.values()))
        clients = (await connections(admin, group, asked)).connection_set
    except (RemotingError, AdminError, StopIteration):
        return []
    found = Progress()
    for address in brokers.values():
        with contextlib.suppress(RemotingError):
            found.add(await progress_at(admin, address, group))
    report = [
        await _undone(admin, group, topic, list(rows), brokers)
        for topic, rows in itertools.groupby(found.rows(), key=lambda row: row[0].topic)
    ]
    known = set()
    for client in clients:
        with contextlib.suppress(RemotingError, AdminError):
            known.add(subscriptions(await running_info(admin, group, client.client_id, False, asked)))
    return [*report, {"consumerGroup": group, "subscriptionDifferent": True}] if len(known) > 1 else report


async def _undone(
    admin: AdminClient, group: str, topic: str, rows: list[tuple[MessageQueue, QueueProgress]], brokers: dict[str, str]
) -> dict[str, Any]:
    """Return how many messages of a topic the group has not consumed, and the largest delay of a queue."""
    updated: dict[MessageQueue, int] = {}
    for name in {queue.broker_name for queue, _ in rows} & brokers.keys():
        with contextlib.suppress(RemotingError):
            updated |= {row.queue: row.last_update_ms for row in await queue_status_at(admin, brokers[name], topic)}
    lags = [max(now.diff, 0) for _, now in rows]
    delays_ms = [updated.get(queue, 0) - now.last_timestamp for queue, now in rows if now.last_timestamp > 0]
    return {
        "consumerGroup": group,
        "topic": topic,
        "undoneMsgsTotal": sum(lags),
        "undoneMsgsSingleMQ": max(lags, default=0),
        "undoneMsgsDelayTimeMills": max([0, *delays_ms]),
    }

"""Watching consumer groups: messages not consumed yet, clients with different subscriptions."""

import contextlib
import itertools
from dataclasses import dataclass

from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.consumers import Progress, QueueProgress, connections, progress_at, running_info
from pocketmq.admin.api.running_info import subscriptions
from pocketmq.admin.api.topics import RETRY_PREFIX, queue_status_at
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError


@dataclass(frozen=True)
class UndoneMessages:
    """Messages of a topic that a group has not consumed: of all queues, of one at most, and the largest delay of a queue."""

    consumer_group: str
    topic: str
    total: int
    of_one_queue: int
    delay_ms: int


@dataclass(frozen=True)
class GroupReport:
    """Report about a consumer group that is online. `differs`: its clients have different subscriptions."""

    consumer_group: str
    undone: list[UndoneMessages]
    differs: bool


async def group_report(admin: AdminClient, group: str) -> GroupReport | None:
    """Return the report about a group; None if it is not online."""
    try:
        brokers = await admin.route_brokers(RETRY_PREFIX + group)
        asked = next(iter(brokers.values()))
        clients = (await connections(admin, group, asked)).connection_set
    except (RemotingError, AdminError, StopIteration):
        return None
    found = Progress()
    for address in brokers.values():
        with contextlib.suppress(RemotingError):
            found.add(await progress_at(admin, address, group))
    undone = [
        await _undone(admin, group, topic, list(rows), brokers)
        for topic, rows in itertools.groupby(found.rows(), key=lambda row: row[0].topic)
    ]
    infos = {}
    for client in clients:
        with contextlib.suppress(RemotingError, AdminError):
            infos[client.client_id] = await running_info(admin, group, client.client_id, False, asked)
    return GroupReport(group, undone, len(set(map(subscriptions, infos.values()))) > 1)


async def _undone(
    admin: AdminClient, group: str, topic: str, rows: list[tuple[MessageQueue, QueueProgress]], brokers: dict[str, str]
) -> UndoneMessages:
    """Return how many messages of a topic the group has not consumed, and the largest delay of a queue."""
    updated: dict[MessageQueue, int] = {}
    for name in {queue.broker_name for queue, _ in rows} & brokers.keys():
        with contextlib.suppress(RemotingError):
            updated |= {row.queue: row.last_update_ms for row in await queue_status_at(admin, brokers[name], topic)}
    lags = [max(now.diff, 0) for _, now in rows]
    delays_ms = [updated.get(queue, 0) - now.last_timestamp for queue, now in rows if now.last_timestamp > 0]
    return UndoneMessages(group, topic, sum(lags), max(lags, default=0), max([0, *delays_ms]))

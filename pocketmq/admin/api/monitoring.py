"""Watching consumer groups: messages not consumed yet, and problems that the running info of their clients shows."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pocketmq.admin.api.client import AdminClient, AdminError, by_queue, queue_text
from pocketmq.admin.api.consumers import Progress, QueueProgress, connections, is_push, progress_at, running_info
from pocketmq.admin.api.topics import RETRY_PREFIX, queue_status_at
from pocketmq.client.message import now_ms
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError

Info = dict[str, Any]

STARTED_MS: Final = 120_000
"""A client that runs for a shorter time may not have all subscriptions yet."""
BLOCKED_MS: Final = 60_000


class UndoneMessages(NamedTuple):
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


def same_subscriptions(infos: dict[str, Info]) -> bool:
    """Return whether the clients of a group have the same subscriptions; True also while they are starting, or only pull."""
    clients = [infos[client_id] for client_id in sorted(infos)]
    started_ms = int((clients[0].get("properties") or {}).get("PROP_CONSUMER_START_TIMESTAMP") or 0)
    if not is_push(clients[0]) or now_ms() - started_ms <= STARTED_MS:
        return True
    return len({subscriptions(info) for info in clients}) == 1


def subscriptions(info: Info) -> tuple[tuple[str, ...], ...]:
    """Return topic, expression and expression type of each subscription of a client, sorted."""
    shown = ("topic", "subString", "expressionType")
    return tuple(sorted(tuple(str(one.get(name)) for name in shown) for one in info.get("subscriptionSet") or []))


def stuck_queues(client_id: str, info: Info) -> list[str]:
    """Return a line for each queue that a push consumer cannot lock, cannot unlock, or does not consume."""
    if not is_push(info):
        return []
    ordered = str((info.get("properties") or {}).get("PROP_CONSUMEORDERLY")).lower() == "true"
    lines = []
    for queue, row in by_queue(info.get("mqTable")):
        name = f"{client_id} {queue_text(queue)}"
        blocked_ms = now_ms() - int(row.get("lastConsumeTimestamp") or 0)
        if ordered and not row.get("locked"):
            unlocked_ms = now_ms() - int(row.get("lastLockTimestamp") or 0)
            lines.append(f"{name} can't lock for a while, {unlocked_ms}ms")
        elif ordered and row.get("droped") and int(row.get("tryUnlockTimes") or 0) > 0:
            lines.append(f"{name} unlock {row['tryUnlockTimes']} times, still failed")
        elif not ordered and blocked_ms > BLOCKED_MS and int(row.get("cachedMsgCount") or 0) > 0:
            lines.append(f"{name} can't consume for a while, maybe blocked, {blocked_ms}ms")
    return lines

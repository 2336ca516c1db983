"""Problems of a consumer group that the running info of its clients (GET_CONSUMER_RUNNING_INFO) shows."""

import time
from typing import Any, Final

from pocketmq.admin.api.client import by_queue, queue_text
from pocketmq.admin.api.consumers import is_push

Info = dict[str, Any]

STARTED_MS: Final = 120_000
"""A client that runs for a shorter time may not have all subscriptions yet."""
BLOCKED_MS: Final = 60_000


def same_subscriptions(infos: dict[str, Info]) -> bool:
    """Return whether the clients of a group have the same subscriptions; True also while they are starting, or only pull."""
    clients = [infos[client_id] for client_id in sorted(infos)]
    started_ms = int((clients[0].get("properties") or {}).get("PROP_CONSUMER_START_TIMESTAMP") or 0)
    if not is_push(clients[0]) or _now_ms() - started_ms <= STARTED_MS:
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
        blocked_ms = _now_ms() - int(row.get("lastConsumeTimestamp") or 0)
        if ordered and not row.get("locked"):
            unlocked_ms = _now_ms() - int(row.get("lastLockTimestamp") or 0)
            lines.append(f"{name} can't lock for a while, {unlocked_ms}ms")
        elif ordered and row.get("droped") and int(row.get("tryUnlockTimes") or 0) > 0:
            lines.append(f"{name} unlock {row['tryUnlockTimes']} times, still failed")
        elif not ordered and blocked_ms > BLOCKED_MS and int(row.get("cachedMsgCount") or 0) > 0:
            lines.append(f"{name} can't consume for a while, maybe blocked, {blocked_ms}ms")
    return lines


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""RebalanceLock: locks by which each queue of an ordered group has one consumer (Apache: RebalanceLockManager).

A lock expires some time after its holder last requested it, by default 60 s; clients repeat the request every 20 s. Expiry
uses monotonic time: a step of the calendar clock must not take a queue away from its consumer.
"""

import logging
import sys
from collections.abc import Iterable

from pocketmq.remoting.bodies import MessageQueue
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")


class RebalanceLock:
    """Table of group -> queue -> (client id, monotonic time of its last request)."""

    def __init__(self, clock: Clock, live_ms: int, count_max: int = 100_000) -> None:
        """`live_ms`: life of a lock after the last request of its holder. `count_max`: maximum number of locks."""
        self._clock = clock
        self._count_max = count_max
        self._count = 0
        self._refused = RefusalLog(log, now=clock.monotonic)
        self._live_s = live_ms / 1000
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}

    def lock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock the queues that are free, expired or already held by the client. Return the queues that it now holds."""
        now = self._clock.monotonic()
        table = self._groups.get(group, {})
        held = (client_id, now)
        locked = []
        for queue in queues:
            row = table.get(queue)
            if row is None:
                if self._count >= self._count_max:
                    what = f"{self._count} queues are locked: maxLockedQueues={self._count_max} is the limit"
                    self._refused.refused(None, f"no further queue is locked for client {clipped(client_id)}: {what}")
                    break
                self._count += 1
                # The strings are shared: each queue of a request has its own copies.
                queue = MessageQueue(sys.intern(queue.broker_name), queue.queue_id, sys.intern(queue.topic))
            elif row[0] != client_id and now - row[1] <= self._live_s:
                continue
            table[queue] = held
            locked.append(queue)
        if table:
            self._groups[group] = table
        return locked

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock those of the queues that this client holds."""
        table = self._groups.get(group, {})
        for queue in queues:
            if table.get(queue, ("", 0.0))[0] == client_id:
                del table[queue]
                self._count -= 1
        if not table:
            self._groups.pop(group, None)

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """Return the id of the client that holds an unexpired lock on `queue`, or None."""
        row = self._groups.get(group, {}).get(queue)
        if row is None or self._clock.monotonic() - row[1] > self._live_s:
            return None
        return row[0]

    def expire(self) -> None:
        """Remove expired locks, so that short-lived groups leave no memory behind."""
        oldest = self._clock.monotonic() - self._live_s
        for group, table in list(self._groups.items()):
            for queue in [queue for queue, (_, asked_at) in table.items() if asked_at < oldest]:
                del table[queue]
                self._count -= 1
            if not table:
                del self._groups[group]

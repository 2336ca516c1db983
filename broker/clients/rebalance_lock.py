"""Locks on queues, by which the consumers of an ordered group agree who reads which queue (Apache: RebalanceLockManager).

A lock is held for some time after it was last asked for, by default 60 s; clients ask again every 20 s. Time here is
liveness: a jump of the calendar must not take a queue away from its consumer.
"""

import logging
from collections.abc import Iterable

from pocketmq.remoting.bodies import MessageQueue
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")


class RebalanceLock:
    """Group -> queue -> (client id, when it last asked)."""

    def __init__(self, clock: Clock, live_ms: int, count_max: int = 100_000) -> None:
        """`live_ms`: how long a lock lives after its holder last asked. `count_max`: the number of locks at once."""
        self._clock = clock
        self._count_max = count_max
        self._count = 0
        self._refused = RefusalLog(log, now=clock.monotonic)
        self._live_s = live_ms / 1000
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}

    def lock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock what is free, expired or the client's own already; returns the queues that it now holds."""
        now = self._clock.monotonic()
        table = self._groups.get(group, {})
        locked = []
        for queue in queues:
            row = table.get(queue)
            if row is None:
                if self._count >= self._count_max:
                    what = f"{self._count} queues are locked: maxLockedQueues={self._count_max} is the limit"
                    self._refused.refused(None, f"no further queue is locked for client {clipped(client_id)}: {what}")
                    break
                self._count += 1
            elif row[0] != client_id and now - row[1] <= self._live_s:
                continue
            table[queue] = (client_id, now)
            locked.append(queue)
        if table:
            self._groups[group] = table
        return locked

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Free the queues that this client holds; those of others stay locked."""
        table = self._groups.get(group, {})
        for queue in queues:
            if table.get(queue, ("", 0.0))[0] == client_id:
                del table[queue]
                self._count -= 1
        if not table:
            self._groups.pop(group, None)

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds a live lock on `queue`, or None."""
        row = self._groups.get(group, {}).get(queue)
        if row is None or self._clock.monotonic() - row[1] > self._live_s:
            return None
        return row[0]

    def expire(self) -> None:
        """Forget what nobody has asked for any more, so that groups which come and go leave nothing behind."""
        oldest = self._clock.monotonic() - self._live_s
        for group, table in list(self._groups.items()):
            for queue in [queue for queue, (_, asked_at) in table.items() if asked_at < oldest]:
                del table[queue]
                self._count -= 1
            if not table:
                del self._groups[group]

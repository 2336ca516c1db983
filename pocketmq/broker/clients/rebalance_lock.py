"""RebalanceLock: locks that give each queue of an ordered group one consumer at a time (Apache: RebalanceLockManager).

A lock expires some time after its holder last requested it, by default 60 s; clients repeat the request every 20 s. Expiry
uses monotonic time: a step of the calendar clock must not take a queue away from its consumer.
"""

import logging
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Final

from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.channel import Channel
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.refusal_log import RefusalLog

log = logging.getLogger("broker")

RECENT_MAX: Final = 128
"""Maximum number of further queues that `recent` returns."""


class LockHolder:
    """A client's locks in one group. `channel` is the connection of its last request, None once that has closed."""

    __slots__ = ("channel", "client_id", "group", "queues")

    def __init__(self, group: str, client_id: str) -> None:
        self.group = group
        self.client_id = client_id
        self.channel: Channel | None = None
        self.queues: dict[MessageQueue, float] = {}
        """Queue -> monotonic time of the last request for it."""


class RebalanceLock:
    """Table of group -> queue -> holder."""

    def __init__(self, clock: Clock, live_ms: int, count_max: int = 100_000) -> None:
        """`live_ms`: life of a lock after the last request of its holder. `count_max`: maximum number of locks."""
        self._clock = clock
        self._count_max = count_max
        self._count = 0
        self._refused = RefusalLog(log, now=clock.monotonic)
        self._live_s = live_ms / 1000
        self._groups: dict[str, dict[MessageQueue, LockHolder]] = {}
        self._holders: dict[tuple[str, str], LockHolder] = {}
        self._holders_on: dict[Channel, dict[LockHolder, None]] = {}
        self.freed: Event[[str, list[MessageQueue]]] = Event()
        """Called with a group and its queues that were unlocked, or whose locks expired and were removed."""

    # --- locking ----------------------------------------------------------------------------------------------------

    def lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, channel: Channel | None = None
    ) -> list[MessageQueue]:
        """Lock the queues that are free, expired or already held by the client. Return the queues that it now holds.

        `channel` is the connection of the request.
        """
        now = self._clock.monotonic()
        table = self._groups.get(group, {})
        holder = self._holders.get((group, client_id)) or LockHolder(group, client_id)
        locked = []
        for queue in queues:
            present = table.get(queue)
            if present is not holder:
                if present is not None and now - present.queues[queue] <= self._live_s:
                    continue
                if present is None and not self._has_room(client_id):
                    break
                if present is not None:
                    self._remove(table, present, queue)
                self._count += 1
                # The strings are shared: each queue of a request has its own copies.
                queue = MessageQueue(sys.intern(queue.broker_name), queue.queue_id, sys.intern(queue.topic))
                table[queue] = holder
            holder.queues[queue] = now
            locked.append(queue)
        if table:
            self._groups[group] = table
        if holder.queues:
            self._holders[group, client_id] = holder
            self._bind(holder, channel)
        return locked

    def _has_room(self, client_id: str) -> bool:
        if self._count < self._count_max:
            return True
        what = f"{self._count} queues are locked: maxLockedQueues={self._count_max} is the limit"
        self._refused.refused(None, f"no further queue is locked for client {clipped(client_id)}: {what}")
        return False

    def _bind(self, holder: LockHolder, channel: Channel | None) -> None:
        """Set the connection of a holder."""
        if holder.channel is channel:
            return
        if holder.channel is not None:
            same_channel = self._holders_on[holder.channel]
            del same_channel[holder]
            if not same_channel:
                del self._holders_on[holder.channel]
        holder.channel = channel
        if channel is not None:
            self._holders_on.setdefault(channel, {})[holder] = None

    # --- unlocking --------------------------------------------------------------------------------------------------

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock those of the queues that this client holds."""
        holder = self._holders.get((group, client_id))
        if holder is not None:
            self._free(holder, [queue for queue in dict.fromkeys(queues) if queue in holder.queues])

    def release(self, holder: LockHolder) -> None:
        """Unlock all queues of a holder."""
        self._free(holder, list(holder.queues))

    def expire(self) -> None:
        """Remove expired locks, so that short-lived groups leave no memory behind."""
        oldest = self._clock.monotonic() - self._live_s
        for holder in list(self._holders.values()):
            self._free(holder, [queue for queue, asked_s in holder.queues.items() if asked_s < oldest])

    def _free(self, holder: LockHolder, queues: list[MessageQueue]) -> None:
        if not queues:
            return
        table = self._groups[holder.group]
        for queue in queues:
            self._remove(table, holder, queue)
        if not table:
            del self._groups[holder.group]
        self.freed(holder.group, queues)

    def _remove(self, table: dict[MessageQueue, LockHolder], holder: LockHolder, queue: MessageQueue) -> None:
        del table[queue]
        del holder.queues[queue]
        self._count -= 1
        if not holder.queues:
            self._bind(holder, None)
            del self._holders[holder.group, holder.client_id]

    # --- looking up -------------------------------------------------------------------------------------------------

    def find(self, group: str, client_id: str) -> LockHolder | None:
        """Return the holder with that client id, or None when the client holds no lock of the group."""
        return self._holders.get((group, client_id))

    def holder_of(self, group: str, queue: MessageQueue) -> LockHolder | None:
        """Return the holder of an unexpired lock on `queue`, or None."""
        holder = self._groups.get(group, {}).get(queue)
        if holder is None or self._clock.monotonic() - holder.queues[queue] > self._live_s:
            return None
        return holder

    def recent(self, group: str, client_id: str) -> list[MessageQueue]:
        """Return the queues that a client locked last and whose locks stay valid for at least half of their life time."""
        holder = self._holders.get((group, client_id))
        if holder is None:
            return []
        oldest = self._clock.monotonic() - self._live_s / 2
        return [queue for queue in islice(reversed(holder.queues), RECENT_MAX) if holder.queues[queue] >= oldest]

    def take_holders_on(self, channel: Channel) -> list[LockHolder]:
        """Return the holders whose last request came over a connection, which has closed."""
        holders = list(self._holders_on.get(channel, ()))
        for holder in holders:
            self._bind(holder, None)
        return holders

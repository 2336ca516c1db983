"""AbsentHolders: holders of queue locks whose connection closed without UNREGISTER_CLIENT.

A closed connection does not prove that its consumer is gone: a client that lost its connection goes on with the messages
that it has, and connects again. If its queues were freed at once, a second consumer would get them meanwhile and consume out
of order. Apache keeps the locks of a killed consumer until they expire, up to 60 s.

Here the queues are freed after a shorter time (lockGraceMillis), provided that the peer ended the connection, as the system
of a killed process does, and that no sign of life came since: a heartbeat or lock request with its client id, or a pull or
committed offset of its group for one of its queues. Java and Go clients commit the offsets of all their queues every 5 s. A
connection that this broker closed, or that timed out, says nothing about the process: these locks expire, as in Apache.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.clients.rebalance_lock import LockHolder, RebalanceLock
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.channel import Channel
from pocketmq.runtime.peer_text import clipped
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.runtime.work_slices import WorkSlices

log = logging.getLogger("broker")

_STEP_S: Final = 0.05
"""Minimum time between two checks for holders whose time is over."""


class AbsentHolders:
    """The absent holders, each with the monotonic time at which its locks are freed."""

    def __init__(
        self,
        locks: RebalanceLock,
        clients: ClientRegistry,
        timers: Timers,
        slices: WorkSlices,
        grace_ms: int,
        broker_name: str,
    ) -> None:
        """`grace_ms`: time in which an absent client can come back."""
        self._locks = locks
        self._clients = clients
        self._timers = timers
        self._grace_s = grace_ms / 1000
        self._broker_name = broker_name
        self._absent: dict[LockHolder, float] = {}
        self._timer: Timer | None = None
        self._slices = slices

    def asked(self, group: str, client_id: str, channel: Channel) -> None:
        """Note that a client requested locks over `channel`; from now on the close of `channel` makes it absent."""
        holder = self._locks.find(group, client_id)
        if holder is None:
            return
        self._absent.pop(holder, None)
        if "lock holder" not in channel.attachments:
            channel.attachments["lock holder"] = True
            channel.on_close(self.channel_closed)

    @property
    def has_absent(self) -> bool:
        """Whether a holder is absent."""
        return bool(self._absent)

    def note_activity(self, group: str, topic: str, queue_id: int) -> None:
        """Forget that the holder of a queue's lock is absent: only it pulls from the queue or commits its offset."""
        if not self._absent:
            return
        holder = self._locks.holder_of(group, MessageQueue(self._broker_name, queue_id, topic))
        if holder is not None:
            self._absent.pop(holder, None)

    def __contains__(self, holder: LockHolder) -> bool:
        return holder in self._absent

    def channel_closed(self, channel: Channel) -> None:
        """Begin to wait for the clients that locked queues over a connection."""
        holders = self._locks.take_holders_on(channel)
        if not channel.is_closed_by_peer:
            return
        due_s = self._timers.clock.monotonic() + self._grace_s
        for holder in holders:
            self._absent.pop(holder, None)  # keeps the table in the order of the times
            self._absent[holder] = due_s
        if self._absent and self._timer is None:
            self._arm(self._grace_s)

    def _arm(self, seconds: float) -> None:
        self._timer = self._timers.after(max(seconds, _STEP_S), self._free_due)

    def _free_due(self) -> None:
        self._timer = None
        now = self._timers.clock.monotonic()
        due = list(takewhile(lambda holder: self._absent[holder] <= now, self._absent))
        for holder in due:
            del self._absent[holder]
        if self._absent:
            self._arm(next(iter(self._absent.values())) - now)
        self._slices.start(self._freeing(due))

    def _freeing(self, holders: Iterable[LockHolder]) -> Iterator[None]:
        for holder in holders:
            is_back = holder.channel is not None or self._clients.has_client(holder.group, holder.client_id)
            if holder.queues and not is_back:
                what = f"{len(holder.queues)} queues of group {clipped(holder.group)}"
                log.info("unlocking %s: consumer %s is no longer connected", what, clipped(holder.client_id))
                self._locks.release(holder)
            yield

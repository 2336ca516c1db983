"""LockRequestHoldService: lock requests that wait for queues which another live consumer holds.

When a member joins or leaves an ordered group, the others reallocate the queues at the same moment: one unlocks a queue
about when another requests its lock. A client that is refused asks again after 20 s. Therefore such a request is held for a
short time (lockWaitMillis) and answered once all its queues are locked, or at the end of the time with those that are.

When a refused queue is freed later, the group is notified again, and the client asks again. Until then its further requests
are not held: a client asks for its queues one after the other, and would otherwise wait for each.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from pocketmq.broker.clients.client_registry import ClientRegistry
from pocketmq.broker.clients.rebalance_lock import RebalanceLock
from pocketmq.broker.polling.held_requests import HeldRequest, HeldRequests, HoldLimits
from pocketmq.remoting.bodies import LockOkBody, MessageQueue, encode_body
from pocketmq.remoting.channel import Channel
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred
from pocketmq.runtime.timers import Timers
from pocketmq.runtime.work_slices import WorkSlices

_QUEUE_SIZE = 256
"""Bytes added to the size of a held request for each queue that it waits for."""


def locked_answer(locks: RebalanceLock, group: str, client_id: str, locked: list[MessageQueue]) -> Response:
    """Return the answer that lists the queues locked by a request, and those that its client locked shortly before.

    The Java client of 4.9.4 asks for one queue at a time, and begins to keep a queue's state only after the answer. So it
    learns from the next answer that the queue is locked; otherwise it consumes nothing from it until it renews its locks, up
    to 20 s later. Clients trust an answer for 30 s, half the life time of a lock.
    """
    listed = dict.fromkeys([*locked, *locks.recent(group, client_id)])
    return Response(body=encode_body(LockOkBody(list(listed))))


@dataclass(eq=False, slots=True)
class LockHold(HeldRequest):
    """One held lock request. Its places are its group and connection, then its group and each queue that it waits for."""

    places: dict[Hashable, None]
    group: str
    client_id: str
    queues: list[MessageQueue]


class LockRequestHoldService(HeldRequests[LockHold]):
    """The held lock requests: one per group and connection, and by the queues that they wait for."""

    def __init__(
        self, timers: Timers, slices: WorkSlices, locks: RebalanceLock, clients: ClientRegistry, limits: HoldLimits
    ) -> None:
        super().__init__(timers, slices, limits)
        self._locks = locks
        self._clients = clients
        locks.freed.subscribe(self._freed)

    def hold(
        self, group: str, client_id: str, queues: list[MessageQueue], missing: Iterable[MessageQueue], channel: Channel,
        wait_s: float, size: int,
    ) -> Deferred | None:  # fmt: skip
        """Hold a request for `queues` until it has locked those that are `missing`, or for `wait_s`.

        Return None if the caller must answer at once: beyond a limit, or if the client waits already.
        """
        wanted = set(missing)
        size += _QUEUE_SIZE * len(wanted)
        if self.is_stopped or (group, channel) in self.places or not self._has_room(channel, size):
            return None
        now = self._timers.clock.monotonic()
        places: dict[Hashable, None] = {(group, channel): None, **{(group, queue): None for queue in wanted}}
        return self._keep(LockHold(channel, now + wait_s, size, places, group, client_id, queues), now)

    def client_left(self, group: str, channel: Channel) -> None:
        """Answer the request of a client that leaves its group: it gets no further queue."""
        for held in tuple(self.places.get((group, channel), ())):
            self._remove(held)
            self._answer(held, Response(body=encode_body(LockOkBody())))

    def _freed(self, group: str, queues: list[MessageQueue]) -> None:
        """Give queues that were freed to the requests that wait for them, and notify the group of the others."""
        is_left = False
        for queue in queues:
            waiting = self.places.get((group, queue))
            if waiting is None:
                is_left = True
                continue
            held = next(iter(waiting))
            if not self._locks.lock_batch(group, [queue], held.client_id, held.channel):
                continue  # maxLockedQueues
            self._leave(held, (group, queue))
            del held.places[group, queue]
            if len(held.places) == 1:
                self._end(held)
        if is_left:
            self._clients.lock_freed(group)

    def _last_answer(self, held: LockHold) -> Response:
        locked = self._locks.lock_batch(held.group, held.queues, held.client_id, held.channel)
        if len(locked) < len(held.queues):
            self._clients.lock_refused(held.group, held.channel, has_waited=True)
        return locked_answer(self._locks, held.group, held.client_id, locked)

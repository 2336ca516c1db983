"""Resets of consumer offsets that are planned first: new offset and skipped messages of each queue, then the change."""

from enum import Enum
from typing import Final, NamedTuple

from pocketmq.admin.api.brokers import serves_5
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.consumers import QueueProgress, group_state
from pocketmq.admin.api.offsets import ResetQueue, commit_offset, reset_offsets, reset_queue
from pocketmq.admin.api.queue_reading import at_time, limits, queues_to_read

NO_OFFSET: Final = -1
"""The consumer offset of a queue that the group has not consumed."""
_EARLIEST_MS, _END_MS = 0, -1


class To(Enum):
    """Kinds of places to which offsets are reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"


class Target(NamedTuple):
    """Place to which offsets are reset. `value`: ms since 1970 of TIME, or a queue offset."""

    to: To
    value: int = 0


class Plan(NamedTuple):
    """A reset of a group in a topic: its queues, and whether these are all that the topic has."""

    group: str
    topic: str
    target: Target
    rows: list[ResetQueue]
    is_whole: bool

    @property
    def skipped(self) -> int:
        """The number of messages that the group will never get, because its offset moves over them."""
        return sum(max(row.new_offset - max(row.before.consumer_offset, 0), 0) for row in self.rows)


async def planned(
    admin: AdminClient, group: str, topic: str, target: Target, queue_id: int | None, broker_name: str | None
) -> Plan:
    """Return the reset of a group in a topic: of all queues, of those with an id, or of those at a broker.

    Raises AdminError if there is no such queue, or if the offset is not within one.
    """
    queues = await queues_to_read(admin, topic)
    chosen = [
        (queue, address)
        for queue, address in queues
        if queue_id in (None, queue.queue_id) and broker_name in (None, queue.broker_name)
    ]
    if not chosen:
        which = f"queue {queue_id}" if queue_id is not None else "queue that is read"
        where = f" at broker {broker_name!r}" if broker_name else ""
        raise AdminError(f"topic {topic!r} has no {which}{where}; `pocketmq topic describe {topic}` shows its queues")
    now = (await group_state(admin, group, topic)).progress.queues
    rows = []
    for queue, address in chosen:
        low, high = await limits(admin, address, queue)
        low = max(low, 0)
        if target.to is To.OFFSET and not low <= target.value <= high:
            what = f"offset {target.value} is not within queue {queue.queue_id} at {queue.broker_name}: {low} to {high}"
            raise AdminError(f"{what} (a time is written as 2026-11-21T12:30:05)")
        new = {To.EARLIEST: low, To.LATEST: high, To.OFFSET: target.value}.get(target.to, -1)
        if target.to is To.TIME:
            new = max(await at_time(admin, address, queue, target.value), low)
        rows.append(ResetQueue(queue, now.get(queue, QueueProgress(high, NO_OFFSET)), new, new))
    return Plan(group, topic, target, rows, len(chosen) == len(queues))


async def applied(admin: AdminClient, plan: Plan) -> list[tuple[str, int, int]]:
    """Reset the offsets. Return (broker name, queue id, new offset) as brokers report them.

    Raises AdminError for a broker of 4.x that is to reset single queues of a group whose consumers are connected: it cannot
    tell them.
    """
    if plan.is_whole and plan.target.to is not To.OFFSET:
        times_ms = {To.EARLIEST: _EARLIEST_MS, To.LATEST: _END_MS, To.TIME: plan.target.value}
        done = await reset_offsets(admin, plan.group, plan.topic, times_ms[plan.target.to], force=True)
        if done.committed is None:
            return [(queue.broker_name, queue.queue_id, new) for queue, new in done.by_brokers]
        return [(row.queue.broker_name, row.queue.queue_id, row.new_offset) for row in done.committed]
    addresses = await admin.route_brokers(plan.topic)
    for row in plan.rows:
        address, queue = addresses[row.queue.broker_name], row.queue
        if await serves_5(admin, address, plan.topic):
            await reset_queue(admin, address, plan.group, plan.topic, queue.queue_id, _END_MS, row.new_offset)
        elif (await group_state(admin, plan.group)).clients.connection_set:
            raise AdminError(
                f"{address} cannot reset single queues while consumers are connected: stop those of {plan.group}, or reset "
                "all queues to earliest, latest or a time"
            )
        else:
            await commit_offset(admin, address, plan.group, queue, row.new_offset)
    return [(row.queue.broker_name, row.queue.queue_id, row.new_offset) for row in plan.rows]

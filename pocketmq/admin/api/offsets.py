"""Changes of consumer offsets: reset to a time, or as planned before, and copied to another group."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pocketmq.admin.api.brokers import serves_5
from pocketmq.admin.api.client import AdminClient, AdminError, by_queue, chosen_address, document
from pocketmq.admin.api.consumers import Progress, QueueProgress, group_state, progress, progress_at
from pocketmq.admin.api.queue_reading import at_time, limits, queues_to_read
from pocketmq.admin.api.topics import queue_status_at
from pocketmq.client.consuming.allocation import queue_order
from pocketmq.remoting.bodies import MessageQueue, QueueData
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader

NO_OFFSET: Final = -1
"""The consumer offset of a queue that the group has not consumed."""
_EARLIEST_MS, _END_MS = 0, -1


@dataclass(frozen=True)
class ResetQueue:
    """A queue whose consumer offset was reset. `target`: the offset at the time; the new one may stay behind it."""

    queue: MessageQueue
    before: QueueProgress
    target: int
    new_offset: int


@dataclass(frozen=True)
class OffsetReset:
    """Result of a reset: new offsets by queue as brokers report them, or if they refused, what the tool committed."""

    by_brokers: list[tuple[MessageQueue, int]]
    committed: list[ResetQueue] | None = None


async def reset_offsets(admin: AdminClient, group: str, topic: str, timestamp_ms: int, force: bool) -> OffsetReset:
    """Reset the offsets of a group to a time; -1: to the end. `force` False: only backwards.

    A broker of 4.x that has no client of the group refuses with 206: then the offsets are committed on the group's behalf.
    """
    found: list[tuple[MessageQueue, int]] = []
    header = ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
    with Tolerating(ResponseCode.CONSUMER_NOT_ONLINE):
        for address in (await admin.route_brokers(topic)).values():
            answer = document(await admin.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
            found += by_queue(answer.get("offsetTable"))
        return OffsetReset(sorted(found, key=lambda row: queue_order(row[0])))
    return OffsetReset([], await _commit_instead(admin, group, topic, timestamp_ms, force))


async def _commit_instead(admin: AdminClient, group: str, topic: str, timestamp_ms: int, force: bool) -> list[ResetQueue]:
    route = await admin.route(topic)
    queues = {data.broker_name: data for data in route.queue_datas}
    rows = []
    for broker in route.broker_datas:
        address = chosen_address(broker)
        for queue, now in await _queues_at(admin, address, group, topic, queues[broker.broker_name]):
            target = await at_time(admin, address, queue, timestamp_ms)
            new = target if force or target <= now.consumer_offset else now.consumer_offset
            if new != now.consumer_offset or force:
                await commit_offset(admin, address, group, queue, new)
            rows.append(ResetQueue(queue, now, target, new))
    return rows


async def _queues_at(
    admin: AdminClient, address: str, group: str, topic: str, queues: QueueData
) -> list[tuple[MessageQueue, QueueProgress]]:
    """Return a topic's queues at a broker with the group's offsets; if it has none, from the beginning of each queue."""
    found = Progress(await progress_at(admin, address, group))
    if own := [row for row in found.rows() if row[0].topic == topic]:
        return own
    return [
        (status.queue, QueueProgress(status.max_offset, status.min_offset))
        for status in await queue_status_at(admin, address, topic)
        if (status.queue.broker_name, status.queue.topic) == (queues.broker_name, topic)
        and status.queue.queue_id < queues.read_queue_nums
    ]


async def commit_offset(admin: AdminClient, address: str, group: str, queue: MessageQueue, queue_offset: int) -> None:
    """Set the consumer offset of a group in a queue."""
    header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, queue_offset)
    await admin.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def check_resets_one_queue(admin: AdminClient, address: str, topic: str) -> None:
    """Raise AdminError for a broker of 4.x, which would reset all queues, since it does not know the field of one."""
    if not await serves_5(admin, address, topic):
        raise AdminError(f"{address} cannot reset one queue: this needs a broker of 5.x, or PocketMQ's")


async def reset_queue(
    admin: AdminClient, address: str, group: str, topic: str, queue_id: int, timestamp_ms: int, queue_offset: int
) -> None:
    """Reset the consumer offset of a group in one queue."""
    header = ResetOffsetRequestHeader(topic, group, timestamp_ms, True, queue_id, queue_offset)
    await admin.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def clone_offsets(admin: AdminClient, source: str, target: str, topic: str) -> list[tuple[MessageQueue, int]]:
    """Copy the consumer offsets of a group in a topic to another group. Raises AdminError if there are none."""
    found = await progress(admin, source)
    brokers = await admin.route_brokers(topic)
    copied = []
    for queue, now in found.rows():
        if queue.topic == topic and queue.broker_name in brokers and now.consumer_offset >= 0:
            await commit_offset(admin, brokers[queue.broker_name], target, queue, now.consumer_offset)
            copied.append((queue, now.consumer_offset))
    if not copied:
        raise AdminError(f"group {source} has no offsets in topic {topic}")
    return copied


# --- resets that are planned first: new offset and skipped messages of each queue, then the change -----------------


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

"""Changes of consumer offsets: reset to a time, and copied to another group."""

from dataclasses import dataclass

from pocketmq.admin.api.brokers import serves_5
from pocketmq.admin.api.client import AdminClient, AdminError, by_queue, chosen_address, document
from pocketmq.admin.api.consumers import Progress, QueueProgress, progress, progress_at
from pocketmq.admin.api.queue_reading import at_time
from pocketmq.admin.api.topics import queue_status_at
from pocketmq.client.consuming.allocation import queue_order
from pocketmq.remoting.bodies import MessageQueue, QueueData
from pocketmq.remoting.client import Tolerating
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader


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
    found = Progress()
    found.add(await progress_at(admin, address, group))
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

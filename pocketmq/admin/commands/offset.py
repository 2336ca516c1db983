"""Commands that change consumer offsets."""

from typing import Any

import click

from pocketmq.admin.api.client import AdminClient, AdminError, by_queue, chosen_address, document, queue_order
from pocketmq.admin.api.consumers import Progress, QueueProgress, progress, progress_at
from pocketmq.admin.api.queue_reading import at_time
from pocketmq.admin.api.topics import queue_status_at
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.output import Table
from pocketmq.admin.times import NOW_MS, TIME, Time
from pocketmq.remoting.bodies import MessageQueue, QueueData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime.command_line.option_types import ADDRESS, WholeNumber

Rows = list[tuple[Any, ...]]

GROUP = option("-g", "--group", "consumer group name", required=True)
FORCE = option("-f", "--force", "false: only move offsets backwards", type=bool, default=True)

NEW_OFFSETS = Table("#brokerName|#queueId|#offset", "%-40s  %-40s  %-40s", "brokerName queueId offset")
OLD_AND_NEW = Table(
    "#brokerName|#queueId|#brokerOffset|#consumerOffset|#timestampOffset|#rollbackOffset",
    "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s",
    "brokerName queueId brokerOffset consumerOffset timestampOffset rollbackOffset",
)


def _whole_or_one_queue(broker: str | None, queue: int | None, offset: int | None, **_: object) -> None:
    if (broker is None) != (queue is None):
        raise click.UsageError("-b and -q belong together: they choose one queue")
    if offset is not None and queue is None:
        raise click.UsageError("-o is the offset of one queue: -b and -q must be given too")


@command(
    "resetOffsetByTime",
    GROUP,
    TOPIC,
    option("-s", "--timestamp", "now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS", type=TIME, required=True),
    FORCE,
    option("-c", "--cplus", "for C++ clients; without effect: brokers know a client's language", is_flag=True),
    option("-b", "--broker", "address of the broker of one queue (5.x)", type=ADDRESS),
    option("-q", "--queue", "id of one queue (5.x)", type=WholeNumber(0)),
    option("-o", "--offset", "the queue's new consumer offset; without it: the one at that time (5.x)", type=WholeNumber(0)),
    check=_whole_or_one_queue,
)
async def reset_offset_by_time(run: Run, group: str, topic: str, timestamp: Time, force: bool, **given: Any) -> object:
    """Reset the consumer offsets of a group to a point in time, whether or not its consumers are connected."""
    group, topic = group.strip(), topic.strip()
    if given["broker"] is not None:
        return await _reset_one_queue(run, group, topic, timestamp, given["broker"], given["queue"], given["offset"])
    table, rows = await _reset(run.admin, group, topic, timestamp.ms, force)
    who = "group" if table is NEW_OFFSETS else "consumerGroup"
    run.say(
        f"rollback consumer offset by specified {who}[{group}], topic[{topic}], force[{str(force).lower()}], "
        f"timestamp(string)[{timestamp.text}], timestamp(long)[{timestamp.ms}]"
    )
    return run.table(table, rows)


@command("skipAccumulatedMessage", GROUP, TOPIC, FORCE)
async def skip_accumulated_message(run: Run, group: str, topic: str, force: bool) -> object:
    """Set the consumer offsets of a group to the end of each queue."""
    return run.table(*await _reset(run.admin, group.strip(), topic.strip(), NOW_MS, force))


async def _reset(admin: AdminClient, group: str, topic: str, timestamp_ms: int, force: bool) -> tuple[Table, Rows]:
    """Reset the offsets of a group to a time; -1: to the end. `force` False: only backwards. Return them by queue.

    A broker of 4.x that has no client of the group refuses with 206: then the offsets are committed on the group's behalf.
    """
    found: list[tuple[MessageQueue, int]] = []
    try:
        for address in (await admin.route_brokers(topic)).values():
            header = ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
            answer = document(await admin.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))
            found += by_queue(answer.get("offsetTable"))
    except RemotingError as refusal:
        if refusal.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return OLD_AND_NEW, await _commit_instead(admin, group, topic, timestamp_ms, force)
    found.sort(key=lambda row: queue_order(row[0]))
    return NEW_OFFSETS, [(queue.broker_name, queue.queue_id, new) for queue, new in found]


async def _commit_instead(admin: AdminClient, group: str, topic: str, timestamp_ms: int, force: bool) -> Rows:
    route = await admin.route(topic)
    queues = {data.broker_name: data for data in route.queue_datas}
    rows = []
    for broker in route.broker_datas:
        address = chosen_address(broker)
        for queue, now in await _queues_at(admin, address, group, topic, queues[broker.broker_name]):
            target = await at_time(admin, address, queue, timestamp_ms)
            new = target if force or target <= now.consumer_offset else now.consumer_offset
            if new != now.consumer_offset or force:
                await _commit(admin, address, group, queue, new)
            rows.append((queue.broker_name, queue.queue_id, now.broker_offset, now.consumer_offset, target, new))
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


async def _commit(admin: AdminClient, address: str, group: str, queue: MessageQueue, queue_offset: int) -> None:
    """Set the consumer offset of a group in a queue."""
    header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, queue_offset)
    await admin.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def _reset_one_queue(
    run: Run, group: str, topic: str, timestamp: Time, broker: str, queue_id: int, queue_offset: int | None
) -> object:
    try:
        await run.admin.call(broker, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
    except RemotingError as refusal:
        # A broker of 4.x would reset all queues, since it does not know the field of one.
        if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise AdminError(f"{broker} cannot reset one queue: this needs a broker of 5.x, or PocketMQ's") from None
        raise
    run.say(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
        f"broker[{broker}], timestamp(string)[{timestamp.text}], timestamp(long)[{timestamp.ms}]"
    )
    if queue_offset is None:
        queue_offset = await at_time(run.admin, broker, MessageQueue("", queue_id, topic), timestamp.ms)
    run.say(f"reset consumer offset to {queue_offset}")
    header = ResetOffsetRequestHeader(topic, group, timestamp.ms, True, queue_id, queue_offset)
    await run.admin.call(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return {"broker": broker, "topic": topic, "queueId": queue_id, "offset": queue_offset}


@command(
    "cloneGroupOffset",
    option("-s", "--srcGroup", "group whose offsets are copied", required=True),
    option("-d", "--destGroup", "group that gets them", required=True),
    TOPIC,
    option("-o", "--offline", "without effect, as in Apache's tool", type=bool),
)
async def clone_group_offset(run: Run, src_group: str, dest_group: str, topic: str, offline: bool | None) -> object:
    """Copy the consumer offsets of a group in a topic to another group."""
    source, target, topic = src_group.strip(), dest_group.strip(), topic.strip()
    found = await progress(run.admin, source)
    brokers = await run.admin.route_brokers(topic)
    copied = []
    for queue, now in found.rows():
        if queue.topic == topic and queue.broker_name in brokers and now.consumer_offset >= 0:
            await _commit(run.admin, brokers[queue.broker_name], target, queue, now.consumer_offset)
            copied.append(NEW_OFFSETS.document((queue.broker_name, queue.queue_id, now.consumer_offset)))
    if not copied:
        raise AdminError(f"group {source} has no offsets in topic {topic}")
    run.say(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")
    return copied

"""Commands that change consumer offsets."""

from typing import Any

import click

from pocketmq.admin.api import offsets
from pocketmq.admin.api.offsets import OffsetReset, ResetQueue
from pocketmq.admin.api.queue_reading import at_time
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.output import Table
from pocketmq.admin.times import NOW_MS, TIME, Time
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.runtime.command_line.option_types import ADDRESS, WholeNumber

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
    reset = await offsets.reset_offsets(run.admin, group, topic, timestamp.ms, force)
    who = "group" if reset.committed is None else "consumerGroup"
    run.say(
        f"rollback consumer offset by specified {who}[{group}], topic[{topic}], force[{str(force).lower()}], "
        f"timestamp(string)[{timestamp.text}], timestamp(long)[{timestamp.ms}]"
    )
    return _show(run, reset)


@command("skipAccumulatedMessage", GROUP, TOPIC, FORCE)
async def skip_accumulated_message(run: Run, group: str, topic: str, force: bool) -> object:
    """Set the consumer offsets of a group to the end of each queue."""
    return _show(run, await offsets.reset_offsets(run.admin, group.strip(), topic.strip(), NOW_MS, force))


def _show(run: Run, reset: OffsetReset) -> object:
    if reset.committed is None:
        return run.table(NEW_OFFSETS, [(queue.broker_name, queue.queue_id, new) for queue, new in reset.by_brokers])
    return run.table(OLD_AND_NEW, [_row(one) for one in reset.committed])


def _row(one: ResetQueue) -> tuple[str | int, ...]:
    before = one.before.broker_offset, one.before.consumer_offset
    return one.queue.broker_name, one.queue.queue_id, *before, one.target, one.new_offset


async def _reset_one_queue(
    run: Run, group: str, topic: str, timestamp: Time, broker: str, queue_id: int, queue_offset: int | None
) -> object:
    await offsets.check_resets_one_queue(run.admin, broker, topic)
    run.say(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}], queueId[{queue_id}], "
        f"broker[{broker}], timestamp(string)[{timestamp.text}], timestamp(long)[{timestamp.ms}]"
    )
    if queue_offset is None:
        queue_offset = await at_time(run.admin, broker, MessageQueue("", queue_id, topic), timestamp.ms)
    run.say(f"reset consumer offset to {queue_offset}")
    await offsets.reset_queue(run.admin, broker, group, topic, queue_id, timestamp.ms, queue_offset)
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
    copied = await offsets.clone_offsets(run.admin, source, target, topic)
    run.say(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")
    return [{"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": new} for queue, new in copied]

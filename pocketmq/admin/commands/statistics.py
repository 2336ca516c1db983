"""Commands that show the rates of topics and groups, and the lag of a broker's groups."""

import contextlib
from typing import Any

from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.statistics import TopicRates, lags_at, topic_rates
from pocketmq.admin.api.topics import is_of_group, topic_names
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.formats import time_seconds
from pocketmq.admin.output import Table
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.option_types import ADDRESS, WholeNumber

STATS = Table(
    "#Topic|#Consumer Group|#Accumulation|#InTPS|#OutTPS|#InMsg24Hour|#OutMsg24Hour",
    "%-64s  %-64s %12s %11s %11s %14s %14s",
    "topic group accumulation inTps outTps inMsg24Hour outMsg24Hour",
)
LAGS = Table(
    "#Topic|#Group|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Diff|#LastTime",
    "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s",
    "topic group brokerName queueId brokerOffset consumerOffset diff lastTime",
)
NO_CONSUMER = "NO_CONSUMER"


@command(
    "statsAll",
    option("-a", "--activeTopic", "only topics with messages in the last 24 hours", is_flag=True),
    option("-t", "--topic", "only this topic"),
)
async def stats_all(run: Run, active_topic: bool, topic: str | None) -> object:
    """Show rates and numbers of messages of all topics and groups."""
    wanted = [name for name in await topic_names(run.admin) if not is_of_group(name) and topic in (None, "", name)]
    rows = []
    for name in wanted:
        with contextlib.suppress(RemotingError, AdminError):
            rows += [_row(one) for one in await topic_rates(run.admin, name) if one.is_active or not active_topic]
    return run.table(STATS, rows)


def _row(one: TopicRates) -> tuple[Any, ...]:
    in_tps = f"{one.in_tps:.2f}"
    if one.group is None:
        return one.topic, "", 0, in_tps, "", one.in_count, NO_CONSUMER
    return one.topic, one.group, one.lag, in_tps, f"{one.out_tps:.2f}", one.in_count, one.out_count


@command(
    "brokerConsumeStats",
    option("-b", "--brokerAddr", "broker address", type=ADDRESS, required=True),
    option("-t", "--timeoutMillis", "maximum time for the answer", type=WholeNumber(1), default=50_000),
    option("-l", "--level", "only queues with at least this number of messages left", type=WholeNumber(), default=0),
    option("-o", "--order", "true: only ordered topics", type=bool, default=False),
)
async def broker_consume_stats(run: Run, broker_addr: str, timeout_millis: int, level: int, order: bool) -> object:
    """Show the consumer offsets of all groups at a broker."""
    found = await lags_at(run.admin, broker_addr, order, timeout_millis / 1000)
    rows = [
        (queue.topic, group, queue.broker_name, queue.queue_id, now.broker_offset, now.consumer_offset, now.diff, last)
        for group, progress in found.groups
        for queue, now in progress.rows()
        if now.diff >= level and now.last_timestamp > 0
        for last in [time_seconds(now.last_timestamp)]
    ]
    shown = run.table(LAGS, rows)
    run.say(f"\nDiff Total: {found.diff_total}")
    return {"queues": shown, "diffTotal": found.diff_total}

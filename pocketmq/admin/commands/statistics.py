"""Commands that show the rates of topics and groups, and the lag of a broker's groups."""

import contextlib
from typing import Any

from pocketmq.admin.admin_client import AdminClient, AdminError
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.commands.route import groups_of_topic, topics
from pocketmq.admin.consumer_groups import DLQ_PREFIX, RETRY_PREFIX, Progress, document, progress
from pocketmq.admin.formats import time_seconds
from pocketmq.admin.output import Table
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import BrokerConsumeStatsRequestHeader, BrokerStatsRequestHeader
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
    names = (await topics(run.admin)).topic_list
    wanted = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)) and topic in (None, "", name)]
    rows = []
    for name in wanted:
        with contextlib.suppress(RemotingError, AdminError):
            rows += await _rows_of_topic(run.admin, name, active_topic)
    return run.table(STATS, rows)


async def _rows_of_topic(admin: AdminClient, topic: str, only_active: bool) -> list[tuple[Any, ...]]:
    masters = [data.broker_addrs.get(MASTER_ID) for data in (await admin.route(topic)).broker_datas]
    brokers = [address for address in masters if address is not None]
    groups = await groups_of_topic(admin, topic)
    in_tps, in_count = await _rate(admin, brokers, "TOPIC_PUT_NUMS", topic)
    if not groups:
        is_shown = not only_active or in_count > 0
        return [(topic, "", 0, f"{in_tps:.2f}", "", in_count, NO_CONSUMER)] if is_shown else []
    rows = []
    for group in groups:
        out_tps, out_count = await _rate(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        with contextlib.suppress(RemotingError, AdminError):
            lag = max((await progress(admin, group, topic)).diff_total, 0)
        if not only_active or in_count > 0 or out_count > 0:
            rows.append((topic, group, lag, f"{in_tps:.2f}", f"{out_tps:.2f}", in_count, out_count))
    return rows


async def _rate(admin: AdminClient, brokers: list[str], name: str, key: str) -> tuple[float, int]:
    """Return the messages per second in the last minute, and the messages in the last 24 hours, of all brokers."""
    tps, count = 0.0, 0
    for address in brokers:
        with contextlib.suppress(RemotingError, AdminError):  # a broker has no figures yet
            header = BrokerStatsRequestHeader(name, key)
            stats = document(await admin.broker(address, RequestCode.VIEW_BROKER_STATS_DATA, header))
            spans = [stats.get(span) or {} for span in ("statsDay", "statsHour", "statsMinute")]
            tps += float(spans[-1].get("tps") or 0)
            count += next((int(span["sum"]) for span in spans if span.get("sum")), 0)
    return tps, count


@command(
    "brokerConsumeStats",
    option("-b", "--brokerAddr", "broker address", type=ADDRESS, required=True),
    option("-t", "--timeoutMillis", "maximum time for the answer", type=WholeNumber(1), default=50_000),
    option("-l", "--level", "only queues with at least this number of messages left", type=WholeNumber(), default=0),
    option("-o", "--order", "true: only ordered topics", type=bool, default=False),
)
async def broker_consume_stats(run: Run, broker_addr: str, timeout_millis: int, level: int, order: bool) -> object:
    """Show the consumer offsets of all groups at a broker."""
    header = BrokerConsumeStatsRequestHeader(order)
    code, timeout_s = RequestCode.GET_BROKER_CONSUME_STATS, timeout_millis / 1000
    found = document(await run.admin.broker(broker_addr, code, header, timeout_s=timeout_s))
    rows = []
    for groups in found.get("consumeStatsList") or []:
        for group, every in groups.items():
            for stats in every:
                rows += _lags(group, stats, level)
    shown = run.table(LAGS, rows)
    run.say(f"\nDiff Total: {found.get('totalDiff', 0)}")
    return {"queues": shown, "diffTotal": found.get("totalDiff", 0)}


def _lags(group: str, stats: dict[str, Any], level: int) -> list[tuple[Any, ...]]:
    """Return the rows of the queues from which a group has consumed."""
    found = Progress()
    found.add(stats)
    return [
        (queue.topic, group, queue.broker_name, queue.queue_id, now.broker_offset, now.consumer_offset, now.diff, last)
        for queue, now in found.rows()
        if now.diff >= level and now.last_timestamp > 0
        for last in [time_seconds(now.last_timestamp)]
    ]

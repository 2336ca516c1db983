"""Commands that show the rates of topics and groups, and the lag of a broker's groups."""

import contextlib
from typing import Any

from pocketmq.admin.api.client import AdminClient, AdminError, document
from pocketmq.admin.api.consumers import Progress, progress
from pocketmq.admin.api.topics import groups_of_topic, is_of_group, topic_names
from pocketmq.admin.command import Run, command, option
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
SPANS = "statsDay", "statsHour", "statsMinute"


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
            rows += [row for row in await _rows(run.admin, name) if not active_topic or _is_active(*row[-2:])]
    return run.table(STATS, rows)


async def _rows(admin: AdminClient, topic: str) -> list[tuple[Any, ...]]:
    """Return a row for each group of a topic, or one: messages/s in the last minute, messages in the last 24 hours."""
    masters = [data.broker_addrs.get(MASTER_ID) for data in (await admin.route(topic)).broker_datas]
    brokers = [address for address in masters if address is not None]
    groups = await groups_of_topic(admin, topic)
    in_tps, in_count = await _rate(admin, brokers, "TOPIC_PUT_NUMS", topic)
    if not groups:
        return [(topic, "", 0, f"{in_tps:.2f}", "", in_count, NO_CONSUMER)]
    rows = []
    for group in groups:
        out_tps, out_count = await _rate(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        with contextlib.suppress(RemotingError, AdminError):
            lag = max((await progress(admin, group, topic)).diff_total, 0)
        rows.append((topic, group, lag, f"{in_tps:.2f}", f"{out_tps:.2f}", in_count, out_count))
    return rows


def _is_active(in_count: int, out_count: int | str) -> bool:
    return in_count > 0 or out_count not in (0, NO_CONSUMER)


async def _rate(admin: AdminClient, brokers: list[str], name: str, key: str) -> tuple[float, int]:
    """Return the messages per second in the last minute, and the messages in the last 24 hours, of all brokers."""
    tps, count = 0.0, 0
    for address in brokers:
        stats = await broker_stats(admin, address, name, key)
        if stats is not None:
            tps += float((stats.get("statsMinute") or {}).get("tps") or 0)
            count += sum_of_day(stats)
    return tps, count


async def broker_stats(admin: AdminClient, address: str, name: str, key: str) -> dict[str, Any] | None:
    """Return a broker's figures of a statistic, None if it has none yet."""
    with contextlib.suppress(RemotingError, AdminError):
        header = BrokerStatsRequestHeader(name, key)
        return document(await admin.call(address, RequestCode.VIEW_BROKER_STATS_DATA, header))
    return None


def sum_of_day(stats: dict[str, Any] | None) -> int:
    """Return the sum over a day; if there is no daily sample yet, the sum over an hour, or over a minute."""
    spans = [(stats or {}).get(span) or {} for span in SPANS]
    return next((int(span["sum"]) for span in spans if span.get("sum")), 0)


@command(
    "brokerConsumeStats",
    option("-b", "--brokerAddr", "broker address", type=ADDRESS, required=True),
    option("-t", "--timeoutMillis", "maximum time for the answer", type=WholeNumber(1), default=50_000),
    option("-l", "--level", "only queues with at least this number of messages left", type=WholeNumber(), default=0),
    option("-o", "--order", "true: only ordered topics", type=bool, default=False),
)
async def broker_consume_stats(run: Run, broker_addr: str, timeout_millis: int, level: int, order: bool) -> object:
    """Show the consumer offsets of all groups at a broker."""
    code, header = RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader(order)
    found = document(await run.admin.call(broker_addr, code, header, timeout_s=timeout_millis / 1000))
    rows = []
    for by_group in found.get("consumeStatsList") or []:
        for group, every in by_group.items():
            for stats in every:
                offsets = Progress()
                offsets.add(stats)
                for queue, now in offsets.rows():
                    if now.diff >= level and now.last_timestamp > 0:
                        place, last = (queue.broker_name, queue.queue_id), time_seconds(now.last_timestamp)
                        rows.append((queue.topic, group, *place, now.broker_offset, now.consumer_offset, now.diff, last))
    shown, diff_total = run.table(LAGS, rows), found.get("totalDiff", 0)
    run.say(f"\nDiff Total: {diff_total}")
    return {"queues": shown, "diffTotal": diff_total}

"""Rates of topics and groups, and the lag of a broker's groups."""

import contextlib
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.api.client import AdminClient, AdminError, document
from pocketmq.admin.api.consumers import Progress, progress
from pocketmq.admin.api.topics import groups_of_topic
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import BrokerConsumeStatsRequestHeader, BrokerStatsRequestHeader

_SPANS = "statsDay", "statsHour", "statsMinute"


@dataclass(frozen=True)
class TopicRates:
    """A topic and one of its groups, None without any: messages/s in the last minute, messages in the last 24 hours."""

    topic: str
    group: str | None
    lag: int
    in_tps: float
    out_tps: float
    in_count: int
    out_count: int

    @property
    def is_active(self) -> bool:
        return self.in_count > 0 or self.out_count > 0


@dataclass(frozen=True)
class BrokerLags:
    """The offsets of all groups at a broker: one Progress for each group and topic."""

    groups: list[tuple[str, Progress]]
    diff_total: int


async def topic_rates(admin: AdminClient, topic: str) -> list[TopicRates]:
    """Return the rates of a topic, for each of its groups."""
    masters = [data.broker_addrs.get(MASTER_ID) for data in (await admin.route(topic)).broker_datas]
    brokers = [address for address in masters if address is not None]
    groups = await groups_of_topic(admin, topic)
    in_tps, in_count = await _rate(admin, brokers, "TOPIC_PUT_NUMS", topic)
    if not groups:
        return [TopicRates(topic, None, 0, in_tps, 0.0, in_count, 0)]
    rows = []
    for group in groups:
        out_tps, out_count = await _rate(admin, brokers, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        with contextlib.suppress(RemotingError, AdminError):
            lag = max((await progress(admin, group, topic)).diff_total, 0)
        rows.append(TopicRates(topic, group, lag, in_tps, out_tps, in_count, out_count))
    return rows


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
    spans = [(stats or {}).get(span) or {} for span in _SPANS]
    return next((int(span["sum"]) for span in spans if span.get("sum")), 0)


async def lags_at(admin: AdminClient, address: str, only_ordered: bool, timeout_s: float) -> BrokerLags:
    """Return the offsets of all groups at a broker."""
    code, header = RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsRequestHeader(only_ordered)
    found = document(await admin.call(address, code, header, timeout_s=timeout_s))
    groups = [
        (group, Progress(stats))
        for by_group in found.get("consumeStatsList") or []
        for group, every in by_group.items()
        for stats in every
    ]
    return BrokerLags(groups, found.get("totalDiff", 0))

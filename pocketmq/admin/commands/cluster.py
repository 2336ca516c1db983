"""Commands that show clusters."""

import asyncio
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from pocketmq.admin.api.brokers import BrokerState, broker_states, first_rate, hours_of_messages, out_rates, totals_of_day
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.output import Table
from pocketmq.runtime.command_line.option_types import WholeNumber

BASE = Table(
    "#Cluster Name|#Broker Name|#BID|#Addr|#Version|#InTPS(LOAD)|#OutTPS(LOAD)|#PCWait(ms)|#Hour|#SPACE",
    "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s",
    "cluster brokerName brokerId brokerAddr version in out pageCacheWaitMs hours diskRatio",
)
MORE = Table(
    "#Cluster Name|#Broker Name|#InTotalYest|#OutTotalYest|#InTotalToday|#OutTotalToday",
    "%-16s  %-32s %14s %14s %14s %14s",
    "cluster brokerName inTotalYesterday outTotalYesterday inTotalToday outTotalToday",
)


@command(
    "clusterList",
    option("-m", "--moreStats", "numbers of messages of today and yesterday", is_flag=True),
    option("-i", "--interval", "show the list every so many seconds", type=WholeNumber(1)),
    option("-c", "--clusterName", "only this cluster"),
)
async def cluster_list(run: Run, more_stats: bool, interval: int | None, cluster_name: str | None) -> object:
    """List the clusters and their brokers, with load and disk usage."""
    while True:
        rows = []
        for state in await broker_states(run.admin, cluster_name):
            if state.failure is not None:
                run.warn(state.failure)
            figures = astuple(totals_of_day(state.runtime_info)) if more_stats else _load(state)
            rows.append((state.cluster, state.broker_name, *figures))
        result = run.table(MORE if more_stats else BASE, rows)
        if interval is None or run.as_json:
            return result
        await asyncio.sleep(interval)


def _load(state: BrokerState) -> tuple[Any, ...]:
    """Return id, address, version, rates and load of a broker."""
    table = state.runtime_info
    return (
        state.broker_id,
        state.address,
        table.get("brokerVersionDesc", ""),
        _rate(table.get("putTps", ""), table, "send"),
        _rate(out_rates(table), table, "pull"),
        table.get("pageCacheLockTimeMills", ""),
        f"{hours_of_messages(table):.2f}",
        f"{float(table.get('commitLogDiskRatio') or 0):.4f}",
    )


def _rate(rates: str, table: Mapping[str, str], pool: str) -> str:
    """Return a rate with size and wait of the queue of its requests."""
    size, wait_ms = (table.get(f"{pool}ThreadPoolQueue{what}", "") for what in ("Size", "HeadWaitTimeMills"))
    return f"{first_rate(rates):9.2f}({size},{wait_ms}ms)"

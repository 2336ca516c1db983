"""Commands that show clusters."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from pocketmq.admin.admin_client import AdminError, sorted_addresses
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.output import Table
from pocketmq.remoting.bodies import KVTable
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
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
        rows = [
            (cluster, name, *(_totals(table) if more_stats else (broker_id, address, *_load(table))))
            for cluster, name, broker_id, address, table in await _brokers(run, cluster_name)
        ]
        result = run.table(MORE if more_stats else BASE, rows)
        if interval is None or run.as_json:
            return result
        await asyncio.sleep(interval)


async def _brokers(run: Run, wanted: str | None) -> list[tuple[str, str, str, str, Mapping[str, str]]]:
    """Return (cluster, broker name, broker id, address, runtime info) of each broker.

    The runtime info of a broker that refuses or does not answer is empty; the failure is shown as a warning.
    """
    info = await run.admin.cluster_info()
    found = []
    for cluster in [wanted] if wanted else info.cluster_addr_table:
        for name in sorted(info.cluster_addr_table.get(cluster, [])):
            for broker_id, address in sorted_addresses(info.broker_addr_table.get(name)):
                table: Mapping[str, str] = {}
                try:
                    table = (await run.admin.fetch(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
                except (RemotingError, AdminError) as failure:
                    run.warn(failure)
                found.append((cluster, name, broker_id, address, table))
    return found


def _load(table: Mapping[str, str]) -> tuple[Any, ...]:
    """Return version, rates and load of a broker."""
    out = table.get("getTransferedTps") or table.get("getTransferredTps") or ""  # 5.x corrected the spelling
    earliest = table.get("earliestMessageTimeStamp")
    hours = (time.time() * 1000 - int(earliest)) / 3_600_000 if earliest else 0.0
    return (
        table.get("brokerVersionDesc", ""),
        _rate(table.get("putTps", ""), table, "send"),
        _rate(out, table, "pull"),
        table.get("pageCacheLockTimeMills", ""),
        f"{hours:.2f}",
        f"{float(table.get('commitLogDiskRatio') or 0):.4f}",
    )


def first_rate(rates: str) -> float:
    """Return the rate over 10 s, the first of the blank-separated rates over 10 s, 1 min and 10 min; 0 for an empty text."""
    return float((rates.split() or ["0"])[0])


def _rate(rates: str, table: Mapping[str, str], pool: str) -> str:
    """Return a rate with size and wait of the queue of its requests."""
    size, wait_ms = (table.get(f"{pool}ThreadPoolQueue{what}", "") for what in ("Size", "HeadWaitTimeMills"))
    return f"{first_rate(rates):9.2f}({size},{wait_ms}ms)"


def totals_of_day(table: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of messages stored and fetched yesterday and today; 0 if they are not known."""

    def between(name: str, begin: str, end: str) -> int:
        return int(table.get(f"{name}Total{end}", 0)) - int(table.get(f"{name}Total{begin}", 0))

    yesterday, today, now = "YesterdayMorning", "TodayMorning", "TodayNow"
    return {
        "inYesterday": between("msgPut", yesterday, today),
        "outYesterday": between("msgGet", yesterday, today),
        "inToday": between("msgPut", today, now),
        "outToday": between("msgGet", today, now),
    }


def _totals(table: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(totals_of_day(table).values())

"""Brokers: their runtime info, config and replication, and requests to clean their files."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.admin.api.client import AdminClient, AdminError, Where, document, properties_of, sorted_addresses
from pocketmq.client.route import MASTER_ID
from pocketmq.remoting.bodies import KVTable
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import ConfigVersionResponseHeader, GetBrokerConfigRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.runtime import properties_file

MS_PER_HOUR: Final = 3_600_000
_FIXED: Final = re.compile("path|port|home|broker(name|id|role|clustername|ip)|namesrvaddr", re.IGNORECASE)
"""Parts of keys whose change would move a running broker of Apache's, or have no effect."""


@dataclass(frozen=True)
class BrokerState:
    """A broker of a cluster. Its runtime info is empty if it refuses or does not answer; the failure is then given."""

    cluster: str
    broker_name: str
    broker_id: str
    address: str
    runtime_info: Mapping[str, str]
    failure: Exception | None = None


@dataclass(frozen=True)
class BrokerConfig:
    """The config keys of a broker with their present values, and those that can be changed while it runs."""

    values: Mapping[str, str]
    updatable: frozenset[str]


@dataclass(frozen=True)
class DayTotals:
    """Numbers of messages stored and fetched; 0 if they are not known."""

    in_yesterday: int
    out_yesterday: int
    in_today: int
    out_today: int


async def broker_states(admin: AdminClient, wanted: str | None) -> list[BrokerState]:
    """Return the brokers of one cluster, or of all."""
    info = await admin.cluster_info()
    found = []
    for cluster in [wanted] if wanted else info.cluster_addr_table:
        for name in sorted(info.cluster_addr_table.get(cluster, [])):
            for broker_id, address in sorted_addresses(info.broker_addr_table.get(name)):
                table, failure = {}, None
                try:
                    table = await runtime_info(admin, address)
                except (RemotingError, AdminError) as error:
                    failure = error
                found.append(BrokerState(cluster, name, broker_id, address, table, failure))
    return found


async def runtime_info(admin: AdminClient, address: str) -> dict[str, str]:
    """Return a broker's counters, rates and sizes as texts, by Apache's names."""
    return (await admin.fetch(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table


def first_rate(rates: str) -> float:
    """Return the rate over 10 s, the first of the blank-separated rates over 10 s, 1 min and 10 min; 0 for an empty text."""
    return float((rates.split() or ["0"])[0])


def out_rates(runtime_info: Mapping[str, str]) -> str:
    """Return the rates of fetched messages, whose key 5.x spells correctly."""
    return runtime_info.get("getTransferedTps") or runtime_info.get("getTransferredTps") or ""


def hours_of_messages(runtime_info: Mapping[str, str]) -> float:
    """Return the age of a broker's oldest message; 0 if it is not known."""
    earliest = runtime_info.get("earliestMessageTimeStamp")
    return (time.time() * 1000 - int(earliest)) / MS_PER_HOUR if earliest else 0.0


def totals_of_day(runtime_info: Mapping[str, str]) -> DayTotals:
    """Return the numbers of messages of yesterday and today."""

    def between(name: str, begin: str, end: str) -> int:
        return int(runtime_info.get(f"{name}Total{end}", 0)) - int(runtime_info.get(f"{name}Total{begin}", 0))

    yesterday, today, now = "YesterdayMorning", "TodayMorning", "TodayNow"
    return DayTotals(
        between("msgPut", yesterday, today),
        between("msgGet", yesterday, today),
        between("msgPut", today, now),
        between("msgGet", today, now),
    )


async def broker_config(admin: AdminClient, address: str) -> dict[str, str]:
    """Return the config keys of a broker with their present values."""
    return properties_of(await admin.call(address, RequestCode.GET_BROKER_CONFIG))


async def config_and_updatable(admin: AdminClient, address: str) -> BrokerConfig:
    """Return a broker's config with the keys that can be changed.

    Apache's broker does not tell them and refuses none: of its keys all are returned but identities, paths and ports.
    """
    header = GetBrokerConfigRequestHeader(with_updatable_keys=True)
    answer = await admin.call(address, RequestCode.GET_BROKER_CONFIG, header)
    values = properties_of(answer)
    told = answer.header(ConfigVersionResponseHeader).updatable_keys
    updatable = values.keys() - {key for key in values if _FIXED.search(key)} if told is None else told.split()
    return BrokerConfig(values, frozenset(updatable))


async def update_broker_config(admin: AdminClient, address: str, key: str, value: str) -> None:
    """Change one key of the config of a running broker."""
    await admin.call(address, RequestCode.UPDATE_BROKER_CONFIG, None, properties_file.dumps({key: value}).encode())


async def masters_by_address(admin: AdminClient, cluster: str | None) -> dict[str, str | None]:
    """Return the address of its master for each broker of a cluster. Raises AdminError if none is given."""
    known = await admin.targets(Where(None, cluster), with_slaves=True)
    info = await admin.cluster_info()
    masters = {
        address: info.broker_addr_table[name].broker_addrs.get(MASTER_ID)
        for name in info.cluster_addr_table[cluster or ""]
        for _, address in sorted_addresses(info.broker_addr_table[name])
    }
    return {address: masters[address] for address in known}


async def request_everywhere(admin: AdminClient, where: Where, code: int) -> list[str]:
    """Send a request without fields to one broker, to all of a cluster, or to all brokers. Return their addresses."""
    if where.broker:
        addresses = [where.broker]
    else:
        clusters = await admin.clusters(where.cluster)
        addresses = [address for name in clusters for address in await admin.masters_and_slaves(name)]
    for address in addresses:
        await admin.call(address, code)
    return addresses


async def ha_status(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return a broker's answer about its replication (a request of 5.x)."""
    return document(await admin.call(address, RequestCode.GET_BROKER_HA_STATUS))


async def serves_5(admin: AdminClient, address: str, topic: str) -> bool:
    """Return whether a broker serves the requests of 5.x. `topic`: any name."""
    answer = await admin.invoke(address, RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
    return answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED

"""Metadata, configs and figures of a cluster as documents, in the form of Apache's exports."""

import contextlib
from typing import Any

from pocketmq.admin.api.brokers import broker_config, first_rate, out_rates, runtime_info, totals_of_day
from pocketmq.admin.api.client import AdminClient, document
from pocketmq.admin.api.consumers import connections_at
from pocketmq.admin.api.statistics import broker_stats, sum_of_day
from pocketmq.admin.api.topics import is_of_group
from pocketmq.client.versions import version_name
from pocketmq.remoting.bodies import TopicList
from pocketmq.remoting.codes import VERSION_NAME, RequestCode
from pocketmq.remoting.dispatch import RemotingError

SYSTEM_GROUPS = {
    "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER",
    "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
}  # fmt: skip
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
EXPORTED_KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums", "flushDiskType",
    "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS",
    "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip


async def user_topics(admin: AdminClient, address: str, with_special: bool) -> dict[str, Any]:
    """Return the answer of GET_ALL_TOPIC_CONFIG without system topics and, unless asked for, retry and DLQ topics."""
    found = document(await admin.call(address, RequestCode.GET_ALL_TOPIC_CONFIG))
    system = set((await admin.fetch(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)).topic_list)
    found["topicConfigTable"] = {
        name: config
        for name, config in found["topicConfigTable"].items()
        if name not in system and (with_special or not is_of_group(name))
    }
    return found


async def user_groups(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return the answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG without system groups."""
    found = document(await admin.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    found["subscriptionGroupTable"] = {
        name: config for name, config in found["subscriptionGroupTable"].items() if not is_system_group(name)
    }
    return found


def is_system_group(name: str) -> bool:
    """Return whether a consumer group is one that brokers create for themselves and for tools."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


async def cluster_metadata(
    admin: AdminClient, addresses: list[str], with_special: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the topics and the groups of some brokers, each as one table in which numbers of queues are summed."""
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in addresses:
        found = await user_topics(admin, address, with_special)
        _merge(topics, found["topicConfigTable"], "readQueueNums", "writeQueueNums")
        _merge(groups, (await user_groups(admin, address))["subscriptionGroupTable"], "retryQueueNums")
    return topics, groups


def _merge(into: dict[str, Any], table: dict[str, Any], *summed: str) -> None:
    """Add a broker's table to that of its cluster; the numbers of queues are sums."""
    for name, config in table.items():
        before = into.get(name, {})
        into[name] = config | {field: before.get(field, 0) + config[field] for field in summed}


async def cluster_configs(admin: AdminClient, cluster: str) -> dict[str, Any]:
    """Return the important config keys of a cluster's masters, and the number of its servers."""
    configs = {}
    masters = await admin.masters(cluster)
    for address in masters:
        config = await broker_config(admin, address)
        configs[config["brokerName"]] = {key: config[key] for key in EXPORTED_KEYS if key in config}
    brokers = await admin.masters_and_slaves(cluster)
    scale = {
        "namesrvSize": len(admin.namesrv_addresses),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(brokers) - len(masters),
    }
    return {"brokerConfigs": configs, "clusterScale": scale}


async def cluster_figures(admin: AdminClient, cluster: str) -> dict[str, Any]:
    """Return rates, daily numbers and sizes of a cluster's masters, and their sums."""
    reports = {name: await _report(admin, address) for name, address in await admin.master_names(cluster)}
    quotas = [report["runtimeQuota"] for report in reports.values()]

    def summed(part: str, name: str) -> Any:
        return sum(quota[part][name] for quota in quotas)

    tps = {
        f"total{name[0].upper()}{name[1:]}": summed("tps", name)
        for name in ("normalInTps", "normalOutTps", "transInTps", "scheduleInTps")
    }
    days = {
        name: summed("oneDayNum", name)
        for name in ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")
    }
    return {"evaluateReport": reports, "totalData": {"totalTps": tps, "totalOneDayNum": days}}


async def _report(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return environment, figures and versions of one master."""
    table = await runtime_info(admin, address)
    config = await broker_config(admin, address)
    groups = (await user_groups(admin, address))["subscriptionGroupTable"]
    topics = (await user_topics(admin, address, False))["topicConfigTable"]
    transactions = await broker_stats(admin, address, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC")
    delayed = await broker_stats(admin, address, "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")
    day = totals_of_day(table)
    quota = {
        "diskRatio": {name: table.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "tps": {
            "normalInTps": first_rate(table.get("putTps", "")),
            "normalOutTps": first_rate(out_rates(table)),
            "transInTps": transactions["statsMinute"]["tps"] if transactions else 0.0,
            "scheduleInTps": delayed["statsMinute"]["tps"] if delayed else 0.0,
        },
        "oneDayNum": {
            "normalOneDayInNum": day.in_yesterday,
            "normalOneDayOutNum": day.out_yesterday,
            "transOneDayInNum": sum_of_day(transactions),
            "scheduleOneDayInNum": sum_of_day(delayed),
        },
        "messageAverageSize": table.get("putMessageAverageSize"),
        "topicSize": len(topics),
        "groupSize": len(groups),
    }
    return {
        "runtimeEnv": {"cpuNum": config.get("clientCallbackExecutorThreads")},
        "runtimeQuota": quota,
        "runtimeVersion": {"rocketmqVersion": VERSION_NAME, "clientInfo": await _client_info(admin, address, groups)},
    }


async def _client_info(admin: AdminClient, address: str, groups: dict[str, Any]) -> list[str]:
    """Return language and version of the connected consumers."""
    found: set[str] = set()
    for group in groups:
        with contextlib.suppress(RemotingError):
            clients = (await connections_at(admin, address, group)).connection_set
            found |= {f"{client.language}%{version_name(client.version)}" for client in clients}
    return sorted(found)

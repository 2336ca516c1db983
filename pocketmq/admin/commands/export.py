"""Commands that write metadata, configs and figures of a cluster to files."""

from pathlib import Path
from typing import Any

import msgspec

from pocketmq.admin.admin_client import AdminClient, AdminError
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.commands.broker import broker_config
from pocketmq.admin.commands.cluster import first_rate, totals_of_day
from pocketmq.admin.commands.route import DLQ_PREFIX, RETRY_PREFIX
from pocketmq.admin.formats import write_beside_others
from pocketmq.admin.output import pretty
from pocketmq.admin.versions import version_name
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import KVTable, TopicList
from pocketmq.remoting.codes import VERSION_NAME, RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import BrokerStatsRequestHeader, ConsumerGroupRequestHeader
from pocketmq.runtime.clock import SystemClock

FOLDER = "/tmp/rocketmq/export"
FILE_PATH = option("-f", "--filePath", f"folder of the file ({FOLDER})", default=FOLDER)
CLUSTER = option("-c", "--clusterName", "cluster to export", required=True)
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


def _write(run: Run, folder: str, name: str, document: Any) -> object:
    """Write a document to a file of the folder, which is created if necessary. Raises AdminError."""
    path = Path(folder.strip(), name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_beside_others(path, pretty(document).encode(), 0o644)
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}") from None
    run.say(f"export {path} success")
    return {"file": str(path)}


async def _user_topics(admin: AdminClient, address: str, with_special: bool) -> dict[str, Any]:
    """Return the answer of GET_ALL_TOPIC_CONFIG without system topics and, unless asked for, retry and DLQ topics."""
    answer = await admin.broker(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    document: dict[str, Any] = fastjson.loads(bytes(answer.body))
    system = set((await admin.fetch(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)).topic_list)
    special = () if with_special else (RETRY_PREFIX, DLQ_PREFIX)
    table = document["topicConfigTable"]
    document["topicConfigTable"] = {
        name: config for name, config in table.items() if name not in system and not name.startswith(special)
    }
    return document


async def _user_groups(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return the answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG without system groups."""
    answer = await admin.broker(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    document: dict[str, Any] = fastjson.loads(bytes(answer.body))
    table = document["subscriptionGroupTable"]
    document["subscriptionGroupTable"] = {
        name: config
        for name, config in table.items()
        if name not in SYSTEM_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
    }
    return document


@command(
    "exportMetadata",
    *targets("export one file of this broker: needs -t or -g", "export all masters of this cluster as one"),
    FILE_PATH,
    option("-t", "--topic", "only topics", is_flag=True),
    option("-g", "--subscriptionGroup", "only consumer groups", is_flag=True),
    option("-s", "--specialTopic", "also retry and dead-letter topics", is_flag=True),
)
async def export_metadata(
    run: Run,
    broker_addr: str | None,
    cluster_name: str | None,
    file_path: str,
    topic: bool,
    subscription_group: bool,
    special_topic: bool,
) -> object:
    """Write topics to topic.json, consumer groups to subscriptionGroup.json, or both to metadata.json."""
    if broker_addr:
        if topic:
            return _write(run, file_path, "topic.json", await _user_topics(run.admin, broker_addr, special_topic))
        if subscription_group:
            return _write(run, file_path, "subscriptionGroup.json", await _user_groups(run.admin, broker_addr))
        return None
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in await run.admin.targets(None, cluster_name):
        found = await _user_topics(run.admin, address, special_topic)
        _merge(topics, found["topicConfigTable"], "readQueueNums", "writeQueueNums")
        _merge(groups, (await _user_groups(run.admin, address))["subscriptionGroupTable"], "retryQueueNums")
    document: dict[str, Any] = {"exportTime": SystemClock().message_time_ms()}
    if topic or not subscription_group:
        document["topicConfigTable"] = topics
    if not topic:
        document["subscriptionGroupTable"] = groups
    name = "topic" if topic else "subscriptionGroup" if subscription_group else "metadata"
    return _write(run, file_path, f"{name}.json", document)


def _merge(into: dict[str, Any], table: dict[str, Any], *summed: str) -> None:
    """Add a broker's table to that of its cluster; the numbers of queues are sums."""
    for name, config in table.items():
        before = into.get(name, {})
        into[name] = config | {field: before.get(field, 0) + config[field] for field in summed}


@command("exportConfigs", CLUSTER, FILE_PATH)
async def export_configs(run: Run, cluster_name: str, file_path: str) -> object:
    """Write the important config keys of a cluster's masters to configs.json."""
    configs = {}
    masters = await run.admin.masters(cluster_name)
    for address in masters:
        config = await broker_config(run, address)
        configs[config["brokerName"]] = {key: config[key] for key in EXPORTED_KEYS if key in config}
    brokers = await run.admin.masters_and_slaves(cluster_name)
    scale = {
        "namesrvSize": len(run.admin.namesrv_addresses),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(brokers) - len(masters),
    }
    return _write(run, file_path, "configs.json", {"brokerConfigs": configs, "clusterScale": scale})


@command("exportMetrics", CLUSTER, FILE_PATH)
async def export_metrics(run: Run, cluster_name: str, file_path: str) -> object:
    """Write rates, daily numbers and sizes of a cluster's masters to metrics.json."""
    reports = {name: await _report(run, address) for name, address in await run.admin.master_names(cluster_name)}
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
    document = {"evaluateReport": reports, "totalData": {"totalTps": tps, "totalOneDayNum": days}}
    return _write(run, file_path, "metrics.json", document)


async def _report(run: Run, address: str) -> dict[str, Any]:
    """Return environment, figures and versions of one master."""
    table = (await run.admin.fetch(address, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table
    config = await broker_config(run, address)
    groups = (await _user_groups(run.admin, address))["subscriptionGroupTable"]
    topics = (await _user_topics(run.admin, address, False))["topicConfigTable"]
    transactions = await put_stats(run.admin, address, "RMQ_SYS_TRANS_HALF_TOPIC")
    delayed = await put_stats(run.admin, address, "SCHEDULE_TOPIC_XXXX")
    day = totals_of_day(table)
    quota = {
        "diskRatio": {name: table.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
        "tps": {
            "normalInTps": first_rate(table.get("putTps", "")),
            "normalOutTps": first_rate(table.get("getTransferedTps") or table.get("getTransferredTps") or ""),
            "transInTps": transactions["statsMinute"]["tps"] if transactions else 0.0,
            "scheduleInTps": delayed["statsMinute"]["tps"] if delayed else 0.0,
        },
        "oneDayNum": {
            "normalOneDayInNum": day["inYesterday"],
            "normalOneDayOutNum": day["outYesterday"],
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
        "runtimeVersion": {"rocketmqVersion": VERSION_NAME, "clientInfo": await _client_info(run, address, groups)},
    }


async def put_stats(admin: AdminClient, address: str, topic: str) -> dict[str, Any] | None:
    """Return the statistics of sends to a topic, None if there were none."""
    try:
        answer = await admin.broker(
            address, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStatsRequestHeader("TOPIC_PUT_NUMS", topic)
        )
    except RemotingError:
        return None
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


def sum_of_day(stats: dict[str, Any] | None) -> int:
    """Return the sum over a day; if there is no daily sample yet, the sum over an hour, or over a minute."""
    if stats is None:
        return 0
    return next((int(stats[part]["sum"]) for part in ("statsDay", "statsHour", "statsMinute") if stats[part]["sum"]), 0)


async def _client_info(run: Run, address: str, groups: dict[str, Any]) -> list[str]:
    """Return language and version of the connected consumers."""
    found = set()
    for group in groups:
        try:
            header = ConsumerGroupRequestHeader(group)
            answer = await run.admin.broker(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except RemotingError:
            continue
        for client in fastjson.loads(bytes(answer.body))["connectionSet"]:
            found.add(f"{client['language']}%{version_name(client['version'])}")
    return sorted(found)

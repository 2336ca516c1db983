"""Commands that write metadata, configs and figures of a cluster to files."""

from pathlib import Path
from typing import Any

from pocketmq.admin.api.brokers import broker_config, first_rate, out_rates, runtime_info, totals_of_day
from pocketmq.admin.api.client import AdminClient, AdminError, Where, document
from pocketmq.admin.api.topics import is_of_group
from pocketmq.admin.api.versions import version_name
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.commands.statistics import broker_stats, sum_of_day
from pocketmq.admin.formats import write_beside_others
from pocketmq.admin.output import pretty
from pocketmq.remoting.bodies import TopicList
from pocketmq.remoting.codes import VERSION_NAME, RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader
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
    where: Where,
    file_path: str,
    topic: bool,
    subscription_group: bool,
    special_topic: bool,
) -> object:
    """Write topics to topic.json, consumer groups to subscriptionGroup.json, or both to metadata.json."""
    if where.broker:
        if topic:
            found = await _user_topics(run.admin, where.broker, special_topic)
            return _write(run, file_path, "topic.json", found)
        if subscription_group:
            return _write(run, file_path, "subscriptionGroup.json", await _user_groups(run.admin, where.broker))
        return None
    topics, groups = await _cluster_metadata(run.admin, await run.admin.targets(where), special_topic)
    document: dict[str, Any] = {"exportTime": SystemClock().message_time_ms()}
    if topic or not subscription_group:
        document["topicConfigTable"] = topics
    if not topic:
        document["subscriptionGroupTable"] = groups
    name = "topic" if topic else "subscriptionGroup" if subscription_group else "metadata"
    return _write(run, file_path, f"{name}.json", document)


@command("exportConfigs", CLUSTER, FILE_PATH)
async def export_configs(run: Run, cluster_name: str, file_path: str) -> object:
    """Write the important config keys of a cluster's masters to configs.json."""
    return _write(run, file_path, "configs.json", await _cluster_configs(run.admin, cluster_name))


@command("exportMetrics", CLUSTER, FILE_PATH)
async def export_metrics(run: Run, cluster_name: str, file_path: str) -> object:
    """Write rates, daily numbers and sizes of a cluster's masters to metrics.json."""
    return _write(run, file_path, "metrics.json", await _cluster_figures(run.admin, cluster_name))


async def _user_topics(admin: AdminClient, address: str, with_special: bool) -> dict[str, Any]:
    """Return the answer of GET_ALL_TOPIC_CONFIG without system topics and, unless asked for, retry and DLQ topics."""
    found = document(await admin.call(address, RequestCode.GET_ALL_TOPIC_CONFIG))
    system = set((await admin.fetch(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)).topic_list)
    found["topicConfigTable"] = {
        name: config
        for name, config in found["topicConfigTable"].items()
        if name not in system and (with_special or not is_of_group(name))
    }
    return found


async def _user_groups(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return the answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG without system groups."""
    found = document(await admin.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    found["subscriptionGroupTable"] = {
        name: config
        for name, config in found["subscriptionGroupTable"].items()
        if name not in SYSTEM_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
    }
    return found


async def _cluster_metadata(
    admin: AdminClient, addresses: list[str], with_special: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the topics and the groups of some brokers, each as one table in which numbers of queues are summed."""
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in addresses:
        found = await _user_topics(admin, address, with_special)
        _merge(topics, found["topicConfigTable"], "readQueueNums", "writeQueueNums")
        _merge(groups, (await _user_groups(admin, address))["subscriptionGroupTable"], "retryQueueNums")
    return topics, groups


def _merge(into: dict[str, Any], table: dict[str, Any], *summed: str) -> None:
    """Add a broker's table to that of its cluster; the numbers of queues are sums."""
    for name, config in table.items():
        before = into.get(name, {})
        into[name] = config | {field: before.get(field, 0) + config[field] for field in summed}


async def _cluster_configs(admin: AdminClient, cluster: str) -> dict[str, Any]:
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


async def _cluster_figures(admin: AdminClient, cluster: str) -> dict[str, Any]:
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
    groups = (await _user_groups(admin, address))["subscriptionGroupTable"]
    topics = (await _user_topics(admin, address, False))["topicConfigTable"]
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
    found = set()
    for group in groups:
        try:
            header = ConsumerGroupRequestHeader(group)
            answer = await admin.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except RemotingError:
            continue
        for client in document(answer)["connectionSet"]:
            found.add(f"{client['language']}%{version_name(client['version'])}")
    return sorted(found)

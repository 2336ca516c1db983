"""Commands that write metadata, configs and figures of a cluster to files."""

from pathlib import Path
from typing import Any

from pocketmq.admin.api import exports
from pocketmq.admin.api.client import AdminError, Where
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.formats import write_beside_others
from pocketmq.admin.output import pretty
from pocketmq.runtime.clock import SystemClock

FOLDER = "/tmp/rocketmq/export"
FILE_PATH = option("-f", "--filePath", f"folder of the file ({FOLDER})", default=FOLDER)
CLUSTER = option("-c", "--clusterName", "cluster to export", required=True)


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
            found = await exports.user_topics(run.admin, where.broker, special_topic)
            return _write(run, file_path, "topic.json", found)
        if subscription_group:
            return _write(run, file_path, "subscriptionGroup.json", await exports.user_groups(run.admin, where.broker))
        return None
    topics, groups = await exports.cluster_metadata(run.admin, await run.admin.targets(where), special_topic)
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
    return _write(run, file_path, "configs.json", await exports.cluster_configs(run.admin, cluster_name))


@command("exportMetrics", CLUSTER, FILE_PATH)
async def export_metrics(run: Run, cluster_name: str, file_path: str) -> object:
    """Write rates, daily numbers and sizes of a cluster's masters to metrics.json."""
    return _write(run, file_path, "metrics.json", await exports.cluster_figures(run.admin, cluster_name))

"""Commands that change topics."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from pocketmq.admin.api import topics
from pocketmq.admin.api.client import AdminError, Where
from pocketmq.admin.api.nameservers import delete_kv, get_kv, put_kv
from pocketmq.admin.api.topics import ORDER_NAMESPACE
from pocketmq.admin.command import TOPIC, Run, command, only_one_target, option, targets
from pocketmq.admin.formats import topic_config_text
from pocketmq.remoting.bodies import CreateTopicListRequestBody, TopicConfig, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.runtime.command_line.option_types import WholeNumber

UNIT, HAS_UNIT_SUB = 1, 2
WHERE = targets("create the topic at this broker", "create the topic at all masters of this cluster")


@command(
    "updateTopic",
    *WHERE,
    TOPIC,
    option("-r", "--readQueueNums", "number of queues that are read", type=WholeNumber(1), default=8),
    option("-w", "--writeQueueNums", "number of queues that are written", type=WholeNumber(1), default=8),
    option("-p", "--perm", "permission: 2 write, 4 read, 6 both", type=WholeNumber(0, 7), default=6),
    option(
        "-o", "--order", "true: ordered; the queues are also kept in the name servers' KV config", type=bool, default=False
    ),
    option("-u", "--unit", "true: a unit topic", type=bool, default=False),
    option("-s", "--hasUnitSub", "true: has a unit subscription", type=bool, default=False),
    option("-a", "--attributes", "attributes of 5.x to set and delete, such as +message.type=FIFO,-key"),
    check=only_one_target,
)
async def update_topic(run: Run, where: Where, topic: str, attributes: str | None, **given: Any) -> object:
    """Create a topic, or change one."""
    config = TopicConfig(
        topic.strip(),
        given["read_queue_nums"],
        given["write_queue_nums"],
        given["perm"],
        topic_sys_flag=UNIT * given["unit"] + HAS_UNIT_SUB * given["has_unit_sub"],
        order=given["order"],
    )
    addresses = await run.at_each(
        where,
        lambda at: topics.create_topic(run.admin, at, config, attributes),
        (lambda at: f"create topic to {at} success.") if where.cluster else None,
    )
    if config.order:
        conf = await topics.set_order(run.admin, config, where)
        kind = "broker" if where.broker else "cluster"
        run.say(f"set {kind} orderConf. isOrder=true, orderConf=[{conf}]", nl=False)
    if where.broker:
        run.say(f"create topic to {where.broker} success.")
    run.say(topic_config_text(config))
    return {"brokers": addresses, "topic": config}


@command("deleteTopic", option("-c", "--clusterName", "delete the topic from this cluster", required=True), TOPIC)
async def delete_topic(run: Run, cluster_name: str, topic: str) -> object:
    """Delete a topic from a cluster's brokers and from the name servers."""
    addresses = await topics.delete_topic(run.admin, cluster_name, topic)
    run.say(f"delete topic [{topic}] from cluster [{cluster_name}] success.")
    run.say(f"delete topic [{topic}] from NameServer success.")
    return {"brokers": addresses, "topic": topic}


@command(
    "updateTopicPerm",
    *targets("change the topic at this broker", "change the topic at all masters of this cluster"),
    TOPIC,
    option("-p", "--perm", "permission: 2 write, 4 read, 6 both", type=WholeNumber(0, 7), required=True),
)
async def update_topic_perm(run: Run, where: Where, topic: str, perm: int) -> object:
    """Change the permission of a topic."""
    change = await topics.perm_change(run.admin, topic, perm, where.broker)
    config = change.config
    if config is None:
        run.say("new perm equals to the old one!")
        return {"brokers": [], "oldPerm": perm, "perm": perm}
    addresses = await run.at_each(
        where,
        lambda at: topics.create_topic(run.admin, at, config),
        lambda at: f"update topic perm from {change.old_perm} to {perm} in {at} success.",
    )
    if where.broker:
        run.say(f"{topic_config_text(config)}.")
    return {"brokers": addresses, "oldPerm": change.old_perm, "perm": perm}


@command(
    "updateOrderConf",
    TOPIC,
    option("-m", "--method", "put, get or delete", type=click.Choice(["put", "get", "delete"]), required=True),
    option("-v", "--orderConf", "with put: brokerName1:num;brokerName2:num"),
)
async def update_order_conf(run: Run, topic: str, method: str, order_conf: str | None) -> object:
    """Show, set or delete the queues of an ordered topic in the name servers' KV config."""
    topic = topic.strip()
    if method == "get":
        order_conf = await get_kv(run.admin, ORDER_NAMESPACE, topic)
        run.say(f"get orderConf success. topic=[{topic}], orderConf=[{order_conf}] ")
    elif method == "delete":
        await delete_kv(run.admin, ORDER_NAMESPACE, topic)
        run.say(f"delete orderConf success. topic=[{topic}]")
    else:
        if not (order_conf or "").strip():
            raise AdminError("please set orderConf with option -v.")
        await put_kv(run.admin, ORDER_NAMESPACE, topic, (order_conf or "").strip())
        run.say(f"update orderConf success. topic=[{topic}], orderConf=[{(order_conf or '').strip()}]")
    return {"topic": topic, "orderConf": order_conf}


@command(
    "updateTopicList",
    *WHERE,
    option("-f", "--filename", "JSON file with a list of topics: topicName, readQueueNums, ...", required=True),
    check=only_one_target,
)
async def update_topic_list(run: Run, where: Where, filename: str) -> object:
    """Create or change the topics listed in a file (a request of 5.x)."""
    body = encode_body(CreateTopicListRequestBody(listed(filename, TopicConfig)))
    return await submit_list(run, where, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body, "topic")


async def submit_list(run: Run, where: Where, code: int, body: bytes, what: str) -> object:
    """Send a list of configs to brokers."""
    addresses = await run.at_each(
        where,
        lambda at: run.admin.call(at, code, None, body),
        lambda at: f"submit batch of {what} config to {at} success, please check the result later.",
    )
    return {"brokers": addresses}


def listed(filename: str, declared: type[Any]) -> list[Any]:
    """Return the configs in a JSON file. Raises AdminError with the file and what is wrong."""
    try:
        return msgspec.convert(json.loads(Path(filename).read_bytes()), list[declared], strict=False)  # type: ignore[valid-type]
    except OSError as error:
        raise AdminError(f"{filename}: {error.strerror}") from None
    except ValueError as error:
        raise AdminError(f"{filename}: expected a JSON list of configs: {error}") from None

"""Commands that change topics."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from pocketmq.admin.api.client import AdminClient, AdminError, Where
from pocketmq.admin.command import TOPIC, Run, command, only_one_target, option, targets
from pocketmq.admin.formats import topic_config_text
from pocketmq.client.route import DEFAULT_TOPIC, MASTER_ID
from pocketmq.remoting.bodies import CreateTopicListRequestBody, TopicConfig, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import GetKVConfigResponseHeader, KVConfigKeyRequestHeader, PutKVConfigRequestHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicInNamesrvRequestHeader, TopicRequestHeader
from pocketmq.runtime.command_line.option_types import WholeNumber

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Namespace of the name servers' KV config with the queues of ordered topics."""
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
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        _header(config, attributes),
        done=(lambda at: f"create topic to {at} success.") if where.cluster else None,
    )
    if config.order:
        conf = await _set_order(run.admin, config, where)
        kind = "broker" if where.broker else "cluster"
        run.say(f"set {kind} orderConf. isOrder=true, orderConf=[{conf}]", nl=False)
    if where.broker:
        run.say(f"create topic to {where.broker} success.")
    run.say(topic_config_text(config))
    return {"brokers": addresses, "topic": config}


def _header(config: TopicConfig, attributes: str | None = None) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        config.topic_name,
        DEFAULT_TOPIC,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
        config.order,
        attributes,
    )


async def _set_order(admin: AdminClient, config: TopicConfig, where: Where) -> str:
    """Store the queues of an ordered topic in the name servers; return the brokers' entries that were set."""
    if where.cluster:
        names = [name for name, _ in await admin.master_names(where.cluster)]
        conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        await _put_order(admin, config.topic_name, conf)
        return conf
    brokers = (await admin.cluster_info()).broker_addr_table.values()
    name = next((data.broker_name for data in brokers if where.broker in data.broker_addrs.values()), None)
    if name is None:
        raise AdminError(f"broker {where.broker} is not registered with the name server")
    conf = f"{name}:{config.write_queue_nums}"
    try:
        old = await _order(admin, config.topic_name)
    except RemotingError as refusal:
        if refusal.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        old = ""
    entries = {entry.partition(":")[0]: entry for entry in [*filter(None, old.split(";")), conf]}
    await _put_order(admin, config.topic_name, ";".join(entries.values()))
    return conf


async def _order(admin: AdminClient, topic: str) -> str:
    """Return the queues of an ordered topic. Raises RemotingError with QUERY_NOT_FOUND."""
    answer = await admin.namesrv(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader(ORDER_NAMESPACE, topic))
    return answer.header(GetKVConfigResponseHeader).value or ""


async def _put_order(admin: AdminClient, topic: str, conf: str) -> None:
    await admin.every_namesrv(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(ORDER_NAMESPACE, topic, conf))


@command("deleteTopic", option("-c", "--clusterName", "delete the topic from this cluster", required=True), TOPIC)
async def delete_topic(run: Run, cluster_name: str, topic: str) -> object:
    """Delete a topic from a cluster's brokers and from the name servers."""
    return {"brokers": await delete_everywhere(run, cluster_name, topic), "topic": topic}


async def delete_everywhere(run: Run, cluster: str, topic: str) -> list[str]:
    """Delete a topic at a cluster's masters (slaves copy their topics) and at the name servers. Return the masters."""
    masters = await run.admin.masters(cluster)
    for address in masters:
        await run.admin.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
    header = DeleteTopicInNamesrvRequestHeader(topic, cluster)
    await run.admin.every_namesrv(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    run.say(f"delete topic [{topic}] from cluster [{cluster}] success.")
    run.say(f"delete topic [{topic}] from NameServer success.")
    return masters


@command(
    "updateTopicPerm",
    *targets("change the topic at this broker", "change the topic at all masters of this cluster"),
    TOPIC,
    option("-p", "--perm", "permission: 2 write, 4 read, 6 both", type=WholeNumber(0, 7), required=True),
)
async def update_topic_perm(run: Run, where: Where, topic: str, perm: int) -> object:
    """Change the permission of a topic."""
    route = await run.admin.route(topic)
    queues = route.queue_datas[0]
    old_perm = queues.perm
    if where.broker:
        names = {data.broker_name for data in route.broker_datas if data.broker_addrs.get(MASTER_ID) == where.broker}
        found = next((data for data in route.queue_datas if data.broker_name in names), None)
        if found is None:
            raise AdminError("updateTopicPerm error broker not exit or broker is not master!.")
        if found.perm == perm:
            run.say("new perm equals to the old one!")
            return {"brokers": [], "oldPerm": perm, "perm": perm}
        old_perm = found.perm
    numbers = queues.read_queue_nums, queues.write_queue_nums
    config = TopicConfig(topic.strip(), *numbers, perm, topic_sys_flag=queues.topic_sys_flag)
    addresses = await run.at_each(
        where,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        _header(config),
        done=lambda at: f"update topic perm from {old_perm} to {perm} in {at} success.",
    )
    if where.broker:
        run.say(f"{topic_config_text(config)}.")
    return {"brokers": addresses, "oldPerm": old_perm, "perm": perm}


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
        order_conf = await _order(run.admin, topic)
        run.say(f"get orderConf success. topic=[{topic}], orderConf=[{order_conf}] ")
    elif method == "delete":
        header = KVConfigKeyRequestHeader(ORDER_NAMESPACE, topic)
        await run.admin.every_namesrv(RequestCode.DELETE_KV_CONFIG, header)
        run.say(f"delete orderConf success. topic=[{topic}]")
    else:
        if not (order_conf or "").strip():
            raise AdminError("please set orderConf with option -v.")
        await _put_order(run.admin, topic, (order_conf or "").strip())
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
        code,
        body=body,
        done=lambda at: f"submit batch of {what} config to {at} success, please check the result later.",
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

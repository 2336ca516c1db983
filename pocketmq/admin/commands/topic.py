"""Commands that change topics."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from pocketmq.admin.admin_client import AdminClient, AdminError, each
from pocketmq.admin.command import TOPIC, Run, command, one_of, option, targets
from pocketmq.admin.formats import topic_config_text
from pocketmq.client.route import DEFAULT_TOPIC, MASTER_ID
from pocketmq.remoting.bodies import CreateTopicListRequestBody, QueueData, TopicConfig, TopicRouteData, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.route import GetKVConfigResponseHeader, KVConfigKeyRequestHeader, PutKVConfigRequestHeader
from pocketmq.remoting.headers.topic import CreateTopicRequestHeader, DeleteTopicInNamesrvRequestHeader, TopicRequestHeader
from pocketmq.runtime.command_line.option_types import WholeNumber

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
UNIT, HAS_UNIT_SUB = 1, 2
WHERE = targets("create the topic at this broker", "create the topic at all masters of this cluster")


def only_one_target(broker_addr: str | None, cluster_name: str | None, **_: object) -> None:
    """Check that exactly one of -b and -c is given."""
    one_of({"-b": broker_addr, "-c": cluster_name})


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
async def update_topic(
    run: Run, broker_addr: str | None, cluster_name: str | None, topic: str, attributes: str | None, **given: Any
) -> object:
    """Create a topic, or change one."""
    config = TopicConfig(
        topic.strip(),
        given["read_queue_nums"],
        given["write_queue_nums"],
        given["perm"],
        topic_sys_flag=UNIT * given["unit"] + HAS_UNIT_SUB * given["has_unit_sub"],
        order=given["order"],
    )
    addresses = await run.admin.targets(broker_addr, cluster_name)
    for address in addresses:
        await create_topic(run.admin, address, config, attributes)
        if cluster_name:
            run.say(f"create topic to {address} success.")
    if config.order:
        conf = await _set_order(run.admin, config, broker_addr, cluster_name)
        where = "broker" if broker_addr else "cluster"
        run.say(f"set {where} orderConf. isOrder=true, orderConf=[{conf}]", nl=False)
    if broker_addr:
        run.say(f"create topic to {broker_addr} success.")
    run.say(topic_config_text(config))
    return {"brokers": addresses, "topic": config}


async def create_topic(admin: AdminClient, address: str, config: TopicConfig, attributes: str | None = None) -> None:
    """Create or change a topic at one broker."""
    header = CreateTopicRequestHeader(
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
    await admin.broker(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def _set_order(admin: AdminClient, config: TopicConfig, broker: str | None, cluster: str | None) -> str:
    """Store the queues of an ordered topic in the name servers; return the brokers' entries that were set."""
    if cluster:
        names = [name for name, _ in await admin.master_names(cluster)]
        conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
        await put_kv(admin, ORDER_NAMESPACE, config.topic_name, conf)
        return conf
    info = await admin.cluster_info()
    name = next((data.broker_name for data in info.broker_addr_table.values() if broker in data.broker_addrs.values()), None)
    if name is None:
        raise AdminError(f"broker {broker} is not registered with the name server")
    conf = f"{name}:{config.write_queue_nums}"
    try:
        old = await get_kv(admin, ORDER_NAMESPACE, config.topic_name)
    except RemotingError as refusal:
        if refusal.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        old = ""
    entries = {entry.partition(":")[0]: entry for entry in [*filter(None, old.split(";")), conf]}
    await put_kv(admin, ORDER_NAMESPACE, config.topic_name, ";".join(entries.values()))
    return conf


async def put_kv(admin: AdminClient, namespace: str, key: str, value: str) -> None:
    """Set a value in the KV config of all name servers."""
    await admin.every_namesrv(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace, key, value))


async def get_kv(admin: AdminClient, namespace: str, key: str) -> str:
    """Return a value of the KV config of a name server. Raises RemotingError with QUERY_NOT_FOUND."""
    answer = await admin.namesrv(RequestCode.GET_KV_CONFIG, KVConfigKeyRequestHeader(namespace, key))
    return answer.header(GetKVConfigResponseHeader).value or ""


async def delete_kv(admin: AdminClient, namespace: str, key: str) -> None:
    """Delete a key from the KV config of all name servers."""
    await admin.every_namesrv(RequestCode.DELETE_KV_CONFIG, KVConfigKeyRequestHeader(namespace, key))


@command("deleteTopic", option("-c", "--clusterName", "delete the topic from this cluster", required=True), TOPIC)
async def delete_topic(run: Run, cluster_name: str, topic: str) -> object:
    """Delete a topic from a cluster's brokers and from the name servers."""
    addresses = await remove_topic(run.admin, cluster_name, topic)
    run.say(f"delete topic [{topic}] from cluster [{cluster_name}] success.")
    run.say(f"delete topic [{topic}] from NameServer success.")
    return {"brokers": addresses, "topic": topic}


async def remove_topic(admin: AdminClient, cluster: str, topic: str) -> list[str]:
    """Delete a topic at a cluster's masters (slaves copy their topics) and at the name servers. Return the masters."""
    masters = await admin.masters(cluster)
    await each(masters, lambda at: admin.broker(at, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic)))
    await admin.every_namesrv(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvRequestHeader(topic, cluster))
    return masters


@command(
    "updateTopicPerm",
    *targets("change the topic at this broker", "change the topic at all masters of this cluster"),
    TOPIC,
    option("-p", "--perm", "permission: 2 write, 4 read, 6 both", type=WholeNumber(0, 7), required=True),
)
async def update_topic_perm(run: Run, broker_addr: str | None, cluster_name: str | None, topic: str, perm: int) -> object:
    """Change the permission of a topic."""
    route = await run.admin.route(topic)
    queues = route.queue_datas[0]
    old_perm = queues.perm
    if broker_addr:
        found = _queues_at(route, broker_addr)
        if found is None:
            raise AdminError("updateTopicPerm error broker not exit or broker is not master!.")
        if found.perm == perm:
            run.say("new perm equals to the old one!")
            return {"brokers": [], "oldPerm": perm, "perm": perm}
        old_perm = found.perm
    config = TopicConfig(
        topic.strip(), queues.read_queue_nums, queues.write_queue_nums, perm, topic_sys_flag=queues.topic_sys_flag
    )
    addresses = await run.admin.targets(broker_addr, cluster_name)
    for address in addresses:
        await create_topic(run.admin, address, config)
        run.say(f"update topic perm from {old_perm} to {perm} in {address} success.")
    if broker_addr:
        run.say(f"{topic_config_text(config)}.")
    return {"brokers": addresses, "oldPerm": old_perm, "perm": perm}


def _queues_at(route: TopicRouteData, address: str) -> QueueData | None:
    """Return a topic's queues at the master with this address."""
    names = {data.broker_name for data in route.broker_datas if data.broker_addrs.get(MASTER_ID) == address}
    return next((data for data in route.queue_datas if data.broker_name in names), None)


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
async def update_topic_list(run: Run, broker_addr: str | None, cluster_name: str | None, filename: str) -> object:
    """Create or change the topics listed in a file (a request of 5.x)."""
    body = encode_body(CreateTopicListRequestBody(listed(filename, TopicConfig)))
    return await submit_list(run, broker_addr, cluster_name, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body, "topic")


async def submit_list(run: Run, broker: str | None, cluster: str | None, code: int, body: bytes, what: str) -> object:
    """Send a list of configs to brokers."""
    addresses = await run.admin.targets(broker, cluster)
    for address in addresses:
        await run.admin.broker(address, code, None, body)
        run.say(f"submit batch of {what} config to {address} success, please check the result later.")
    return {"brokers": addresses}


def listed(filename: str, declared: type[Any]) -> list[Any]:
    """Return the configs in a JSON file. Raises AdminError with the file and what is wrong."""
    try:
        return msgspec.convert(json.loads(Path(filename).read_bytes()), list[declared], strict=False)  # type: ignore[valid-type]
    except OSError as error:
        raise AdminError(f"{filename}: {error.strerror}") from None
    except ValueError as error:
        raise AdminError(f"{filename}: expected a JSON list of configs: {error}") from None

"""Commands for consumer groups and their configs."""

import json
from typing import Any

import click
import msgspec

from pocketmq.admin.admin_client import AdminError, chosen_address
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.commands.topic import listed, only_one_target, remove_topic, submit_list
from pocketmq.admin.consumer_groups import DLQ_PREFIX, RETRY_PREFIX, document
from pocketmq.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader
from pocketmq.remoting.pop_bodies import MessageRequestMode
from pocketmq.runtime.command_line.option_types import Checked, WholeNumber

WHERE = targets("this broker", "all masters of this cluster")
GROUP = option("-g", "--groupName", "consumer group name", required=True)
CONFIG_FIELDS = (
    *("groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "retryQueueNums", "retryMaxTimes"),
    *("brokerId", "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable"),
)
"""The fields of a group's config in the order of 4.9.4; 5.x has more."""


@command(
    "updateSubGroup",
    *WHERE,
    GROUP,
    option("-s", "--consumeEnable", "whether the group may consume", type=bool, default=True),
    option("-m", "--consumeFromMinEnable", "whether a new client may begin at the first message", type=bool, default=False),
    option("-d", "--consumeBroadcastEnable", "whether the group may broadcast", type=bool, default=False),
    option("-q", "--retryQueueNums", "number of queues of the retry topic", type=WholeNumber(0), default=1),
    option(
        "-r", "--retryMaxTimes", "retries before a message goes to the dead-letter topic", type=WholeNumber(), default=16
    ),
    option("-i", "--brokerId", "id of the broker to consume from", type=WholeNumber(0), default=0),
    option("-w", "--whichBrokerWhenConsumeSlowly", "id of the broker for a group that lags", type=WholeNumber(0), default=1),
    option(
        "-a", "--notifyConsumerIdsChanged", "whether clients are notified of changes in the group", type=bool, default=True
    ),
    option("-o", "--consumeMessageOrderly", "whether the group consumes in order when it pops (5.x)", type=bool),
    option("-p", "--groupRetryPolicy", "delays of retries as JSON (5.x)", type=Checked("<arg>", json.loads)),
)
async def update_sub_group(
    run: Run, broker_addr: str | None, cluster_name: str | None, group_name: str, **given: Any
) -> object:
    """Create a consumer group, or change one: all its settings are replaced."""
    given["notify_consumer_ids_changed_enable"] = given.pop("notify_consumer_ids_changed")
    config = SubscriptionGroupConfig(group_name.strip(), **given)
    body, done = encode_body(config), []
    for address in await run.admin.targets(broker_addr, cluster_name):
        try:
            await run.admin.broker(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        except (RemotingError, AdminError) as failure:
            if broker_addr or run.as_json:
                raise
            run.warn(failure)
            continue
        run.say(f"create subscription group to {address} success.")
        done.append(address)
    fields = msgspec.to_builtins(config)
    run.say(f"SubscriptionGroupConfig [{', '.join(f'{name}={java_text(fields[name])}' for name in CONFIG_FIELDS)}]")
    return {"brokers": done, "group": fields}


@command(
    "deleteSubGroup",
    *WHERE,
    GROUP,
    option("-r", "--removeOffset", "true: also delete the group's consumer offsets", type=bool, default=False),
)
async def delete_sub_group(
    run: Run, broker_addr: str | None, cluster_name: str | None, group_name: str, remove_offset: bool
) -> object:
    """Delete a consumer group; from a cluster, with its retry and dead-letter topics."""
    group = group_name.strip()
    header = DeleteSubscriptionGroupRequestHeader(group, remove_offset, remove_offset)
    masters = await run.admin.targets(broker_addr, cluster_name)
    for address in masters:
        await run.admin.broker(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        where = f" in cluster [{cluster_name}]" if cluster_name else ""
        run.say(f"delete subscription group [{group}] from broker [{address}]{where} success.")
    if cluster_name:
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            await remove_topic(run.admin, cluster_name, topic)
            run.say(f"delete topic [{topic}] from cluster [{cluster_name}] success.")
            run.say(f"delete topic [{topic}] from NameServer success.")
    return {"brokers": masters, "group": group}


@command("getConsumerConfig", GROUP)
async def get_consumer_config(run: Run, group_name: str) -> object:
    """Show the config of a consumer group at each broker that has it."""
    info = await run.admin.cluster_info()
    found = []
    for name, data in info.broker_addr_table.items():
        if not data.broker_addrs:
            continue
        cluster = next((cluster for cluster, names in info.cluster_addr_table.items() if name in names), None)
        table = document(await run.admin.broker(chosen_address(data), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))[
            "subscriptionGroupTable"
        ]
        config = (table or {}).get(group_name.strip())
        if config is None:
            continue
        run.say(f"{'':=<29}{cluster}:{name}{'':=<29}")
        for field in sorted(config, key=lambda field: CONFIG_FIELDS.index(field) if field in CONFIG_FIELDS else 99):
            run.say(f"{field:<40}=  {java_text(config[field])}")
        found.append({"cluster": cluster, "brokerName": name, "config": config})
    return found


def java_text(value: Any) -> str:
    """Return a value of a config as text."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@command(
    "updateSubGroupList",
    *WHERE,
    option("-f", "--filename", "JSON file with a list of groups: groupName, retryMaxTimes, ...", required=True),
    check=only_one_target,
)
async def update_sub_group_list(run: Run, broker_addr: str | None, cluster_name: str | None, filename: str) -> object:
    """Create or change the consumer groups listed in a file (a request of 5.x)."""
    body = encode_body(SubscriptionGroupList(listed(filename, SubscriptionGroupConfig)))
    return await submit_list(
        run, broker_addr, cluster_name, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body, "group"
    )


@command(
    "setConsumeMode",
    *WHERE,
    option("-t", "--topicName", "topic name", required=True),
    GROUP,
    option("-m", "--mode", "PULL or POP", type=click.Choice(["PULL", "POP"]), required=True),
    option("-q", "--popShareQueueNum", "number of clients that share a queue in mode POP", type=WholeNumber(), default=0),
)
async def set_consume_mode(
    run: Run, broker_addr: str | None, cluster_name: str | None, topic_name: str, group_name: str, **given: Any
) -> object:
    """Let a consumer group pull from a topic, or pop (a request of 5.x)."""
    topic, group, mode, shared = topic_name.strip(), group_name.strip(), given["mode"], given["pop_share_queue_num"]
    body = encode_body(MessageRequestMode(topic, group, mode, shared))
    done = []
    for address in await run.admin.targets(broker_addr, cluster_name):
        try:
            await run.admin.broker(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
        except (RemotingError, AdminError) as failure:
            if broker_addr or run.as_json:
                raise
            run.warn(failure)
            continue
        run.say(f"set consume mode to {address} success.")
        done.append(address)
    run.say(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared}]")
    return {"brokers": done, "topic": topic, "group": group, "mode": mode, "popShareQueueNum": shared}

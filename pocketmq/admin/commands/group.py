"""Commands for consumer groups and their configs."""

import json
from typing import Any

import click
import msgspec

from pocketmq.admin.api import groups
from pocketmq.admin.api.client import Where
from pocketmq.admin.api.topics import delete_topic
from pocketmq.admin.command import Run, command, only_one_target, option, targets
from pocketmq.admin.commands.topic import listed, submit_list
from pocketmq.admin.formats import java_text
from pocketmq.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList, encode_body
from pocketmq.remoting.codes import RequestCode
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
async def update_sub_group(run: Run, where: Where, group_name: str, **given: Any) -> object:
    """Create a consumer group, or change one: all its settings are replaced."""
    given["notify_consumer_ids_changed_enable"] = given.pop("notify_consumer_ids_changed")
    config = SubscriptionGroupConfig(group_name.strip(), **given)
    done = await run.at_each(
        where,
        lambda at: groups.create_group(run.admin, at, config),
        lambda at: f"create subscription group to {at} success.",
        passes_failures=True,
    )
    fields = msgspec.to_builtins(config)
    run.say(f"SubscriptionGroupConfig [{', '.join(f'{name}={_text(fields[name])}' for name in CONFIG_FIELDS)}]")
    return {"brokers": done, "group": fields}


@command(
    "deleteSubGroup",
    *WHERE,
    GROUP,
    option("-r", "--removeOffset", "true: also delete the group's consumer offsets", type=bool, default=False),
)
async def delete_sub_group(run: Run, where: Where, group_name: str, remove_offset: bool) -> object:
    """Delete a consumer group; from a cluster, with its retry and dead-letter topics."""
    group = group_name.strip()
    in_cluster = f" in cluster [{where.cluster}]" if where.cluster else ""
    brokers = await run.at_each(
        where,
        lambda at: groups.delete_group(run.admin, at, group, remove_offset),
        lambda at: f"delete subscription group [{group}] from broker [{at}]{in_cluster} success.",
    )
    if where.cluster:
        for topic in groups.topics_of_group(group):
            await delete_topic(run.admin, where.cluster, topic)
            run.say(f"delete topic [{topic}] from cluster [{where.cluster}] success.")
            run.say(f"delete topic [{topic}] from NameServer success.")
    return {"brokers": brokers, "group": group}


@command("getConsumerConfig", GROUP)
async def get_consumer_config(run: Run, group_name: str) -> object:
    """Show the config of a consumer group at each broker that has it."""
    found = await groups.group_configs(run.admin, group_name.strip())
    for one in found:
        run.say(f"{'':=<29}{one.cluster}:{one.broker_name}{'':=<29}")
        for field in sorted(one.config, key=lambda field: CONFIG_FIELDS.index(field) if field in CONFIG_FIELDS else 99):
            run.say(f"{field:<40}=  {_text(one.config[field])}")
    return [{"cluster": one.cluster, "brokerName": one.broker_name, "config": one.config} for one in found]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (dict, list)) else java_text(value)


@command(
    "updateSubGroupList",
    *WHERE,
    option("-f", "--filename", "JSON file with a list of groups: groupName, retryMaxTimes, ...", required=True),
    check=only_one_target,
)
async def update_sub_group_list(run: Run, where: Where, filename: str) -> object:
    """Create or change the consumer groups listed in a file (a request of 5.x)."""
    body = encode_body(SubscriptionGroupList(listed(filename, SubscriptionGroupConfig)))
    return await submit_list(run, where, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body, "group")


@command(
    "setConsumeMode",
    *WHERE,
    option("-t", "--topicName", "topic name", required=True),
    GROUP,
    option("-m", "--mode", "PULL or POP", type=click.Choice(["PULL", "POP"]), required=True),
    option("-q", "--popShareQueueNum", "number of clients that share a queue in mode POP", type=WholeNumber(), default=0),
)
async def set_consume_mode(run: Run, where: Where, topic_name: str, group_name: str, **given: Any) -> object:
    """Let a consumer group pull from a topic, or pop (a request of 5.x)."""
    topic, group, mode, shared = topic_name.strip(), group_name.strip(), given["mode"], given["pop_share_queue_num"]
    done = await run.at_each(
        where,
        lambda at: groups.set_request_mode(run.admin, at, MessageRequestMode(topic, group, mode, shared)),
        lambda at: f"set consume mode to {at} success.",
        passes_failures=True,
    )
    run.say(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{shared}]")
    return {"brokers": done, "topic": topic, "group": group, "mode": mode, "popShareQueueNum": shared}

"""Commands that change consumer groups."""

from typing import Any

import click

from pocketmq.admin.admin_client import AdminError
from pocketmq.admin.command import Run, command, option, targets
from pocketmq.admin.commands.topic import listed, only_one_target, submit_list
from pocketmq.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.pop_bodies import MessageRequestMode
from pocketmq.runtime.option_types import WholeNumber

WHERE = targets("this broker", "all masters of this cluster")


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
    option("-g", "--groupName", "consumer group name", required=True),
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

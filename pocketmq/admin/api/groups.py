"""Configs of consumer groups: at each broker, and changes of them."""

from dataclasses import dataclass
from typing import Any

from pocketmq.admin.api.client import AdminClient, Caller, chosen_address, document
from pocketmq.admin.api.exports import is_system_group, user_groups
from pocketmq.admin.api.topics import DLQ_PREFIX, RETRY_PREFIX, delete_topic, group_names, topic_names
from pocketmq.remoting.bodies import SubscriptionGroupConfig, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader
from pocketmq.remoting.pop_bodies import MessageRequestMode


@dataclass(frozen=True)
class GroupConfig:
    """The config of a consumer group at a broker, with the fields that the broker sends."""

    cluster: str | None
    broker_name: str
    config: dict[str, Any]


async def group_configs(admin: AdminClient, group: str) -> list[GroupConfig]:
    """Return the config of a consumer group at each broker that has it."""
    info = await admin.cluster_info()
    found = []
    for name, data in info.broker_addr_table.items():
        if not data.broker_addrs:
            continue
        cluster = next((cluster for cluster, names in info.cluster_addr_table.items() if name in names), None)
        answer = await admin.call(chosen_address(data), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        config = (document(answer)["subscriptionGroupTable"] or {}).get(group)
        if config is not None:
            found.append(GroupConfig(cluster, name, config))
    return found


async def all_groups(admin: AdminClient) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the config of each consumer group by broker name, without groups of the system.

    The config of a group that is known by its retry topic only is empty, at no broker.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {
        name: {} for name in await group_names(admin) if not is_system_group(name)
    }
    for broker_name, address in (await admin.brokers()).items():
        for name, config in (await user_groups(admin, address))["subscriptionGroupTable"].items():
            found.setdefault(name, {})[broker_name] = config
    return dict(sorted(found.items()))


async def create_group(admin: AdminClient, address: str, config: SubscriptionGroupConfig) -> None:
    """Create or change a consumer group at one broker."""
    await admin.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))


async def delete_group(admin: Caller, address: str, group: str, with_offsets: bool) -> None:
    """Delete a consumer group at one broker. `with_offsets`: its consumer offsets too."""
    header = DeleteSubscriptionGroupRequestHeader(group, with_offsets, with_offsets)
    await admin.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


async def delete_everywhere(admin: AdminClient, group: str) -> list[str]:
    """Delete a consumer group with its offsets, retry and dead-letter topic at all brokers. Return the topics deleted."""
    for address in (await admin.brokers()).values():
        await delete_group(admin, address, group, True)
    present = set(await topic_names(admin))
    topics = [topic for topic in topics_of_group(group) if topic in present]
    for cluster in await admin.clusters(None):
        for topic in topics:
            await delete_topic(admin, cluster, topic)
    return topics


def topics_of_group(group: str) -> tuple[str, str]:
    """Return the names of a group's retry topic and dead-letter topic."""
    return RETRY_PREFIX + group, DLQ_PREFIX + group


async def set_request_mode(admin: AdminClient, address: str, mode: MessageRequestMode) -> None:
    """Let a consumer group pull from a topic, or pop, at one broker (a request of 5.x)."""
    await admin.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, encode_body(mode))

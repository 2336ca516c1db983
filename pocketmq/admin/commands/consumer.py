"""Commands that show consumer groups and clients: progress, connections, running info."""

import time
from pathlib import Path
from typing import Any

import msgspec

from pocketmq.admin.api import consumers
from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.consumers import ACTIVELY, PASSIVELY, GroupSummary, Progress, connections, progress, running_info
from pocketmq.admin.api.monitoring import same_subscriptions, stuck_queues
from pocketmq.admin.api.topics import group_names
from pocketmq.admin.command import Run, command, option
from pocketmq.admin.formats import safe_name, time_seconds
from pocketmq.admin.output import Table
from pocketmq.admin.running_info_text import running_info_text
from pocketmq.client.versions import version_name
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.option_types import ADDRESS

GROUP = option("-g", "--consumerGroup", "consumer group name", required=True)
BROKER = option("-b", "--brokerAddr", "ask this broker", type=ADDRESS)

GROUPS = Table(
    "#Group|#Count|#Version|#Type|#Model|#TPS|#Diff Total",
    "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s",
    "group count version type model tps diffTotal",
)
QUEUES = Table(
    "#Topic|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Diff|#LastTime",
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s",
    "topic brokerName queueId brokerOffset consumerOffset diff lastTime",
)
QUEUES_AND_CLIENTS = Table(
    "#Topic|#Broker Name|#QID|#Broker Offset|#Consumer Offset|#Client IP|#Diff|#LastTime",
    "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s  %s",
    "topic brokerName queueId brokerOffset consumerOffset clientIp diff lastTime",
)
CLIENTS = Table("#ClientId|#ClientAddr|#Language|#Version", "%-36s %-22s %-10s %s", "clientId clientAddr language version")
PRODUCER_LAYOUT = "%04d  %-32s %-22s %-8s %s"
SUBSCRIPTIONS = Table("#Topic|#SubExpression", "%-20s %s", "topic subExpression")
INFO_FILES = Table(
    "#Index|#ClientId|#Version|#ConsumerRunningInfoFile", "%-10s %-40s %-20s %s", "index clientId version file"
)


@command(
    "consumerProgress",
    option("-g", "--groupName", "consumer group name; without it, all groups are listed"),
    option("-t", "--topicName", "with -g: only this topic"),
    option("-s", "--showClientIP", "with -g, true: show the client that consumes each queue", type=bool, default=False),
)
async def consumer_progress(run: Run, group_name: str | None, topic_name: str | None, show_client_i_p: bool) -> object:
    """Show how far consumer groups have consumed, and how much is left."""
    if group_name is None:
        summaries = [await consumers.group_summary(run.admin, one) for one in await group_names(run.admin)]
        return run.table(GROUPS, [_group_row(one) for one in summaries])
    group = group_name.strip()
    found = await progress(run.admin, group, topic_name)
    clients = await consumers.clients_of_queues(run.admin, group) if show_client_i_p else None
    rows = _queue_rows(found, clients)
    shown = run.table(QUEUES if clients is None else QUEUES_AND_CLIENTS, rows)
    run.say(f"\nConsume TPS: {found.tps:.2f}")
    run.say(f"Diff Total: {found.diff_total}")
    return {"group": group, "consumeTps": found.tps, "diffTotal": found.diff_total, "queues": shown}


def _group_row(one: GroupSummary) -> tuple[Any, ...]:
    """Return the row of a group; what is not known is shown as zero or empty, as in Apache's tool."""
    clients = one.clients
    count = len(clients.connection_set)
    version = version_name(min(client.version for client in clients.connection_set)) if count else "OFFLINE"
    kind = ("PULL" if clients.consume_type == ACTIVELY else "PUSH") if count else ""
    model = clients.message_model if clients.consume_type == PASSIVELY else ""
    return one.group, count, version, kind, model, int(one.progress.tps), one.progress.diff_total


def _queue_rows(found: Progress, clients: dict[MessageQueue, str] | None) -> list[tuple[Any, ...]]:
    rows = []
    for queue, offsets in found.rows():
        client = () if clients is None else (clients.get(queue, "N/A").partition("@")[0],)
        last = time_seconds(offsets.last_timestamp) if offsets.last_timestamp else "N/A"
        place = queue.topic, queue.broker_name, queue.queue_id
        rows.append((*place, offsets.broker_offset, offsets.consumer_offset, *client, offsets.diff, last))
    return rows


@command("consumerConnection", GROUP, BROKER)
async def consumer_connection(run: Run, consumer_group: str, broker_addr: str | None) -> object:
    """Show the clients and subscriptions of a consumer group."""
    found = await connections(run.admin, consumer_group.strip(), broker_addr)
    shown = run.table(CLIENTS, list(map(consumers.client_fields, found.connection_set)))
    run.say("\nBelow is subscription:")
    run.table(SUBSCRIPTIONS, [(topic, one.sub_string) for topic, one in sorted(found.subscription_table.items())])
    run.say(f"\nConsumeType: {found.consume_type}")
    run.say(f"MessageModel: {found.message_model}")
    run.say(f"ConsumeFromWhere: {found.consume_from_where}")
    return {**msgspec.to_builtins(found), "connectionSet": shown}


@command("producerConnection", option("-g", "--producerGroup", "producer group name", required=True),
         option("-t", "--topic", "a topic that it sends to", required=True))  # fmt: skip
async def producer_connection(run: Run, producer_group: str, topic: str) -> object:
    """Show the clients of a producer group that sends to a topic."""
    rows = list(map(consumers.client_fields, await consumers.producers(run.admin, producer_group.strip(), topic)))
    for number, row in enumerate(rows, 1):
        run.say(PRODUCER_LAYOUT % (number, *row))
    return [CLIENTS.document(row) for row in rows]


@command("producer", option("-b", "--broker", "broker address", type=ADDRESS, required=True))
async def producer(run: Run, broker: str) -> object:
    """Show the clients of all producer groups of a broker."""
    data = await consumers.producers_at(run.admin, broker)
    for group, clients in data.items():
        if not clients:
            run.say(f"producer group ({group}) instances are empty")
        for one in clients:
            run.say(
                f"producer group ({group}) instance : clientId={one.get('clientId')},remoteIP={one.get('remoteIP')}, "
                f"language={one.get('language')}, version={one.get('version')}, "
                f"lastUpdateTimestamp={one.get('lastUpdateTimestamp')}"
            )
    return data


@command(
    "consumerStatus",
    GROUP,
    option("-i", "--clientId", "print the running info of this client; without it, a file is written for each client"),
    BROKER,
    option("-s", "--jstack", "include the stacks of the client's threads", is_flag=True),
)
async def consumer_status(
    run: Run, consumer_group: str, client_id: str | None, broker_addr: str | None, jstack: bool
) -> object:
    """Show settings, subscriptions, queues and rates of a group's clients, and what is wrong with them."""
    group = consumer_group.strip()
    found = await connections(run.admin, group, broker_addr)
    if client_id is not None:
        info = await running_info(run.admin, group, client_id.strip(), jstack, broker_addr)
        run.say(running_info_text(info), nl=False)
        return info
    infos: dict[str, dict[str, Any]] = {}
    rows: list[tuple[Any, ...]] = []
    folder = Path(str(time.time_ns() // 1_000_000))
    for one in found.connection_set:
        try:
            infos[one.client_id] = await running_info(run.admin, group, one.client_id, jstack, broker_addr)
        except (RemotingError, AdminError) as failure:
            run.warn(failure)
            continue
        file = folder / safe_name(one.client_id)
        if not run.as_json:
            folder.mkdir(exist_ok=True)
            file.write_text(running_info_text(infos[one.client_id]))
        rows.append((len(rows) + 1, one.client_id, version_name(one.version), file))
    run.table(INFO_FILES, rows)
    return {"clients": infos, **_diagnosis(run, infos)}


def _diagnosis(run: Run, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Print whether the clients of a group have the same subscriptions, and which queues are stuck."""
    if not infos:
        return {"sameSubscription": None, "stuck": []}
    if not same_subscriptions(infos):
        run.say("\n\nWARN: Different subscription in the same group of consumer!!!")
        return {"sameSubscription": False, "stuck": []}
    run.say("\n\nSame subscription in the same group of consumer")
    run.say("\nRebalance OK")
    stuck = [line for client_id, info in sorted(infos.items()) for line in stuck_queues(client_id, info)]
    for line in stuck:
        run.say(line)
    return {"sameSubscription": True, "stuck": stuck}

"""`pocketmq topic VERB`: lists, creates, describes, changes and deletes topics."""

from types import SimpleNamespace
from typing import Final

from pocketmq.admin.api import topic_configs
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.consumers import GroupSummary, group_state
from pocketmq.admin.api.topic_configs import OF_SERVERS, PERMS, TopicAt, TopicChange, TopicSummary, perm_text
from pocketmq.admin.api.topics import QueueStatus, groups_of_topic
from pocketmq.cli.verbs import running
from pocketmq.cli.verbs.running import counted, document, moment, show
from pocketmq.runtime.command_line.commands import say


async def _list(admin: AdminClient, options: SimpleNamespace) -> None:
    table = await topic_configs.topic_table(admin)
    found = [await topic_configs.summary(admin, table, name) for name in table.names(options.with_special)]
    if options.json:
        document([_summary_document(one) for one in found])
        return
    if not found:
        say("there are no topics; `pocketmq topic create NAME` creates one (--all also shows those of the system)")
    headings = "name", "type", "queues", "messages", "brokers"
    show(headings, [(one.topic, one.kind, one.queues, one.messages, ",".join(one.brokers)) for one in found])


def _summary_document(one: TopicSummary) -> dict[str, object]:
    about = {"name": one.topic, "type": one.kind, "queues": one.queues, "messages": one.messages, "brokers": one.brokers}
    return {**about, "lastMessageTimestamp": one.last_update_ms or None}


async def _create(admin: AdminClient, options: SimpleNamespace) -> None:
    brokers = await admin.brokers(options.cluster, options.broker)
    await topic_configs.create(admin, brokers, options.name, options.queues, options.kind)
    say(f"created topic {options.name} ({options.kind}) with {counted(options.queues, 'queue')} at {', '.join(brokers)}")


async def _describe(admin: AdminClient, options: SimpleNamespace) -> None:
    table = await topic_configs.topic_table(admin)
    places = topic_configs.places_of(table, options.name)
    about = await topic_configs.summary(admin, table, options.name)
    rows = await topic_configs.queues_at(admin, places)
    groups = [await group_state(admin, group, options.name) for group in sorted(await groups_of_topic(admin, options.name))]
    if options.json:
        document(
            {
                **_summary_document(about),
                "configs": [_place_document(one) for one in places],
                "queueOffsets": [_queue_document(row) for row in rows],
                "groups": [_group_document(one) for one in groups],
            }
        )
        return
    say(f"topic {about.topic}: {about.kind}, {counted(about.messages, 'message')}, the last {moment(about.last_update_ms)}")
    for one in places:
        config = one.config
        queues = f"{config.read_queue_nums} read, {config.write_queue_nums} written"
        say(f"broker {one.broker_name} at {one.address}: permission {perm_text(config.perm)}, queues {queues}")
    say()
    show(("broker", "queue", "first", "next", "messages", "last message"), map(_queue_row, rows))
    say()
    if not groups:
        say("no consumer group has consumed it")
    show(("group", "members", "lag"), [(one.group, len(one.clients.connection_set), one.progress.lag) for one in groups])


def _queue_row(row: QueueStatus) -> tuple[object, ...]:
    messages = max(row.max_offset - row.min_offset, 0)
    return row.queue.broker_name, row.queue.queue_id, row.min_offset, row.max_offset, messages, moment(row.last_update_ms)


def _place_document(one: TopicAt) -> dict[str, object]:
    queues = {"readQueues": one.config.read_queue_nums, "writeQueues": one.config.write_queue_nums}
    perm = {"perm": perm_text(one.config.perm), "attributes": one.config.attributes or {}}
    return {"broker": one.broker_name, "address": one.address, **queues, **perm}


def _queue_document(row: QueueStatus) -> dict[str, object]:
    offsets = {"minOffset": row.min_offset, "maxOffset": row.max_offset}
    return {
        "broker": row.queue.broker_name,
        "queue": row.queue.queue_id,
        **offsets,
        "lastMessageTimestamp": row.last_update_ms or None,
    }


def _group_document(one: GroupSummary) -> dict[str, object]:
    return {"group": one.group, "members": len(one.clients.connection_set), "lag": one.progress.lag}


async def _set(admin: AdminClient, options: SimpleNamespace) -> None:
    wanted = await admin.brokers(options.cluster, options.broker)
    table = await topic_configs.topic_table(admin)
    places = [one for one in topic_configs.places_of(table, options.name) if one.broker_name in wanted]
    if not places:
        raise AdminError(f"topic {options.name!r} is at none of these brokers")
    if not options.yes and options.queues is not None:
        lost = sum(
            max(row.max_offset - row.min_offset, 0)
            for row in await topic_configs.queues_at(admin, places)
            if row.queue.queue_id >= options.queues
        )
        if lost:
            running.agree(f"{counted(lost, 'message')} in the queues from {options.queues} on are not read")
    change = TopicChange(options.queues, PERMS.get(options.perm), options.kind)
    for one in await topic_configs.change(admin, places, change):
        queues = counted(one.config.read_queue_nums, "queue")
        say(f"changed topic {options.name} at {one.broker_name}: {queues}, permission {perm_text(one.config.perm)}")


async def _delete(admin: AdminClient, options: SimpleNamespace) -> None:
    table = await topic_configs.topic_table(admin)
    places = topic_configs.places_of(table, options.name)
    about = await topic_configs.summary(admin, table, options.name)
    if about.kind in OF_SERVERS[2:]:
        raise AdminError(f"{options.name} is a topic of the system, which cannot be deleted")
    if not options.yes:
        groups = await groups_of_topic(admin, options.name)
        what = f"topic {options.name} at {', '.join(about.brokers)} is deleted with {counted(about.messages, 'message')}"
        running.agree_by_name(f"{what}; consumer groups: {', '.join(groups) or 'none'}.", options.name)
    await topic_configs.delete(admin, options.name, [one.broker_name for one in places])
    say(f"deleted topic {options.name} at {', '.join(about.brokers)}")


VERBS: Final = {"ls": _list, "create": _create, "describe": _describe, "set": _set, "delete": _delete}

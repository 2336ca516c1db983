"""`pocketmq group VERB`: lists, creates, describes, resets and deletes consumer groups."""

from types import SimpleNamespace
from typing import Any, Final

from pocketmq.admin.api import consumers, groups
from pocketmq.admin.api.client import AdminClient, AdminError
from pocketmq.admin.api.consumers import ConsumerConnection, GroupSummary, QueueProgress
from pocketmq.admin.api.dead_letters import count_of
from pocketmq.admin.api.offsets import NO_OFFSET, Plan, Target, To, applied, planned
from pocketmq.cli.verbs import running
from pocketmq.cli.verbs.running import NONE, counted, document, show
from pocketmq.remoting.bodies import MessageQueue, SubscriptionGroupConfig
from pocketmq.runtime.command_line.commands import say, warn

_MODES: Final = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}


async def _list(admin: AdminClient, options: SimpleNamespace) -> None:
    states = [await consumers.group_state(admin, name) for name in await groups.all_groups(admin)]
    if options.json:
        document([_summary_document(one) for one in states])
        return
    if not states:
        say("there are no consumer groups; `pocketmq group create NAME` creates one")
    rows = [(one.group, mode(one.clients), len(one.clients.connection_set), one.progress.lag) for one in states]
    show(("group", "mode", "members", "lag"), rows)


def _summary_document(one: GroupSummary) -> dict[str, Any]:
    return {
        "name": one.group,
        "mode": mode(one.clients) if one.clients.connection_set else None,
        "members": len(one.clients.connection_set),
        "lag": one.progress.lag,
    }


def mode(clients: ConsumerConnection) -> str:
    """Return how the clients of a group consume: `push`, `pull` or `pop`, and whether they broadcast."""
    if not clients.connection_set:
        return NONE
    how = _MODES.get(clients.consume_type, clients.consume_type)
    return f"{how}, broadcasting" if clients.message_model == "BROADCASTING" else how


async def _create(admin: AdminClient, options: SimpleNamespace) -> None:
    brokers = await admin.brokers(options.cluster, options.broker)
    present = [name for name in (await groups.all_groups(admin)).get(options.group, {}) if name in brokers]
    if present:
        raise AdminError(f"consumer group {options.group!r} exists already at {', '.join(present)}")
    config = SubscriptionGroupConfig(
        options.group, retry_max_times=options.retries, consume_message_orderly=options.ordered or None
    )
    for address in brokers.values():
        await groups.create_group(admin, address, config)
    say(f"created consumer group {options.group} at {', '.join(brokers)}")


async def _configs_of(admin: AdminClient, group: str) -> dict[str, dict[str, Any]]:
    """Return the config of a group by broker name. Raises AdminError if no broker knows the group."""
    found = await groups.all_groups(admin)
    if group not in found:
        raise AdminError(f"consumer group {group!r} does not exist; `pocketmq group create {group}` creates it")
    return found[group]


async def _describe(admin: AdminClient, options: SimpleNamespace) -> None:
    configs = await _configs_of(admin, options.group)
    state = await consumers.group_state(admin, options.group)
    clients = await consumers.clients_of_queues(admin, options.group) if state.clients.connection_set else {}
    members = list(map(consumers.client_fields, state.clients.connection_set))
    subscriptions = [
        (topic, one.sub_string, one.expression_type) for topic, one in sorted(state.clients.subscription_table.items())
    ]
    if options.json:
        rows = [_queue_document(queue, now, clients) for queue, now in state.progress.rows()]
        names = "topic", "expression", "type"
        document(
            {
                **_summary_document(state),
                "configs": configs,
                "queues": rows,
                "connections": [
                    dict(zip(("client", "address", "language", "version"), one, strict=True)) for one in members
                ],
                "subscriptions": [dict(zip(names, one, strict=True)) for one in subscriptions],
            }
        )
        return
    retries = ", ".join(sorted({str(config.get("retryMaxTimes")) for config in configs.values()})) or NONE
    members_text = counted(len(members), "member")
    say(f"group {options.group}: {members_text}, mode {mode(state.clients)}, lag {state.progress.lag}, retries {retries}")
    say()
    headings = "topic", "broker", "queue", "broker offset", "consumer offset", "lag", "client"
    show(headings, [_queue_row(queue, now, clients) for queue, now in state.progress.rows()])
    say()
    show(("member", "address", "language", "version"), members)
    say()
    show(("subscription", "expression", "type"), subscriptions)


def _queue_row(queue: MessageQueue, now: QueueProgress, clients: dict[MessageQueue, str]) -> tuple[object, ...]:
    place = queue.topic, queue.broker_name, queue.queue_id
    return *place, now.broker_offset, now.consumer_offset, max(now.diff, 0), clients.get(queue, NONE)


def _queue_document(queue: MessageQueue, now: QueueProgress, clients: dict[MessageQueue, str]) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "brokerOffset": now.broker_offset,
        "consumerOffset": now.consumer_offset,
        "lag": max(now.diff, 0),
        "client": clients.get(queue),
        "lastConsumedTimestamp": now.last_timestamp or None,
    }


async def _reset(admin: AdminClient, options: SimpleNamespace) -> None:
    await _configs_of(admin, options.group)
    target = Target(To(options.to[0]), options.to[1])
    plan = await planned(admin, options.group, options.topic, target, options.queue, options.broker)
    if options.dry_run:
        if not options.json:
            say("dry run: nothing is changed")
        _show_plan(plan, {}, options.json)
        return
    if plan.skipped and not options.yes:
        lost = counted(plan.skipped, "message")
        running.agree(f"group {options.group} skips {lost} of {options.topic} and never gets them")
    done = {(broker_name, queue_id): new for broker_name, queue_id, new in await applied(admin, plan)}
    _show_plan(plan, done, options.json)


def _show_plan(plan: Plan, done: dict[tuple[str, int], int], as_json: bool) -> None:
    """Print the offsets before and after a reset; `done`: those that brokers report, which may differ from the plan."""
    rows = []
    for row in plan.rows:
        place = row.queue.broker_name, row.queue.queue_id
        new = done.get(place, row.new_offset)
        before = row.before.consumer_offset
        rows.append((*place, before if before != NO_OFFSET else NONE, new, max(row.before.broker_offset - new, 0)))
    if as_json:
        names = "broker", "queue", "offsetBefore", "offset", "lag"
        document(
            [{**dict(zip(names, row, strict=True)), "offsetBefore": None if row[2] == NONE else row[2]} for row in rows]
        )
    else:
        show(("broker", "queue", "offset before", "new offset", "lag"), rows)


async def _delete(admin: AdminClient, options: SimpleNamespace) -> None:
    await _configs_of(admin, options.group)
    state = await consumers.group_state(admin, options.group)
    members = len(state.clients.connection_set)
    if members:
        warn(f"{counted(members, 'client')} of {options.group} still run: the broker may create the group again for them")
    if not options.yes:
        dead = counted(await count_of(admin, options.group), "dead letter")
        offsets = f"its offsets in {counted(len(state.progress.queues), 'queue')}"
        running.agree_by_name(f"consumer group {options.group} is deleted with {offsets} and {dead}.", options.group)
    topics = await groups.delete_everywhere(admin, options.group)
    say(f"deleted consumer group {options.group}" + (f" with {', '.join(topics)}" if topics else ""))


VERBS: Final = {"ls": _list, "create": _create, "describe": _describe, "reset": _reset, "delete": _delete}

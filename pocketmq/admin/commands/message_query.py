"""Commands that look up messages and ConsumeQueue units."""

from typing import Any

import msgspec

from pocketmq.admin.api.message_search import EVER, MAX_NUM, by_any_id, by_key, by_unique_key, consume_directly, queue_units
from pocketmq.admin.api.message_tracks import TraceEvent, message_tracks, trace_events
from pocketmq.admin.api.queue_reading import address_of, pull
from pocketmq.admin.api.sending import send_again
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.formats import java_text, time_seconds
from pocketmq.admin.message_texts import as_document, details, send_result_text, write_body
from pocketmq.admin.output import Table
from pocketmq.client.trace import PUB, SUB_AFTER, TRACE_TOPIC
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.runtime.command_line.option_types import ADDRESS, WholeNumber

MESSAGE_ID = option("-i", "--msgId", "unique key of the message, which its sender gave", required=True)
GROUP = option("-g", "--consumerGroup", "with -d: the client's consumer group")
CLIENT = option("-d", "--clientId", "with -g: let this client consume the message now")
MOMENT = WholeNumber(0)

IDS = Table("#Message ID|#QID|#Offset", "%-50s %4s %40s", "msgId queueId queueOffset")
TRACE_LAYOUT = "%-10s %-20s %-20s %-20s %-10s %-10s"
UNIT_FIELDS = "physicOffset", "physicSize", "tagsCode", "extendDataJson", "bitMap", "eval", "msg"
TEXT_FIELDS = "extendDataJson", "bitMap", "msg"
LINE = "=" * 38


@command(
    "queryMsgById",
    option("-i", "--msgId", "offset ids of messages, separated by commas; with -t, also their unique keys", required=True),
    option("-t", "--topic", "topic of the messages"),
    GROUP,
    CLIENT,
    option("-s", "--sendMessage", "true: send the message again", type=bool, default=False),
    option("-u", "--unitName", "without effect"),
)
async def query_msg_by_id(
    run: Run, msg_id: str, topic: str | None, consumer_group: str | None, client_id: str | None, **given: Any
) -> object:
    """Show a message by its offset id, let a client consume it, or send it again."""
    results = []
    for one in filter(None, (part.strip() for part in msg_id.split(","))):
        stored = await by_any_id(run.admin, one, topic)
        if consumer_group and client_id:
            results.append(await _consume_directly(run, consumer_group.strip(), client_id.strip(), stored))
        elif given["send_message"]:
            results.append(await _send_again(run, one, stored))
        else:
            results.append(await _show(run, stored))
    return results


async def _show(run: Run, stored: StoredMessage, with_offset_id: bool = True, number: int = 0) -> dict[str, Any]:
    """Print a message and its consumption status in each group; return both as JSON."""
    tracks = await message_tracks(run.admin, stored)
    if not run.as_json:
        for line in details(stored, _body_path(run, stored, number), with_offset_id):
            run.say(line)
        run.say("\n")
        for track in tracks:
            run.say(track)
        if not tracks:
            run.say("WARN: No Consumer")
    return {**as_document(stored), "tracks": [track.as_document() for track in tracks]}


def _body_path(run: Run, stored: StoredMessage, number: int) -> str:
    try:
        return write_body(stored.message, number)
    except OSError as failure:
        run.warn(failure)
        return "not written"


async def _consume_directly(run: Run, group: str, client_id: str, stored: StoredMessage) -> dict[str, Any]:
    result = await consume_directly(run.admin, group, client_id, stored)
    names = "order", "autoCommit", "consumeResult", "remark", "spentTimeMills"
    run.say(f"ConsumeMessageDirectlyResult [{', '.join(f'{name}={java_text(result.get(name))}' for name in names)}]")
    return result


async def _send_again(run: Run, msg_id: str, stored: StoredMessage) -> dict[str, Any]:
    run.say(f"prepare resend msg. originalMsgId={msg_id}", nl=False)
    sent = await send_again(run.admin, stored, "ReSendMsgById")
    run.say(send_result_text(sent))
    result: dict[str, Any] = msgspec.to_builtins(sent)
    return result


@command(
    "queryMsgByUniqueKey",
    MESSAGE_ID,
    TOPIC,
    GROUP,
    CLIENT,
    option("-a", "--showAll", "show all messages with this key, up to 32; otherwise the oldest", is_flag=True),
    option("-s", "--startTime", "only messages stored from this time on, in milliseconds (5.x)", type=MOMENT, default=0),
    option("-e", "--endTime", "only messages stored up to this time, in milliseconds (5.x)", type=MOMENT, default=EVER),
)
async def query_msg_by_unique_key(
    run: Run, msg_id: str, topic: str, consumer_group: str | None, client_id: str | None, show_all: bool, **given: Any
) -> object:
    """Show a message by its unique key, or let a client consume it."""
    found = await by_unique_key(run.admin, topic.strip(), msg_id.strip(), given["start_time"], given["end_time"])
    if consumer_group and client_id:
        return await _consume_directly(run, consumer_group.strip(), client_id.strip(), found[0])
    shown = found if show_all else found[:1]
    return [await _show(run, stored, with_offset_id=False, number=number) for number, stored in enumerate(shown)]


@command(
    "queryMsgByKey",
    TOPIC,
    option("-k", "--msgKey", "key of the messages", required=True),
    option(
        "-b", "--beginTimestamp", "only messages stored from this time on, in milliseconds (5.x)", type=MOMENT, default=0
    ),
    option("-e", "--endTimestamp", "only messages stored up to this time, in milliseconds (5.x)", type=MOMENT, default=EVER),
    option("-m", "--maxNum", "maximum number of messages per broker (5.x)", type=WholeNumber(1), default=MAX_NUM),
)
async def query_msg_by_key(run: Run, topic: str, msg_key: str, **given: Any) -> object:
    """List the messages that have a key."""
    limits = given["max_num"], given["begin_timestamp"], given["end_timestamp"]
    found = await by_key(run.admin, topic.strip(), msg_key.strip(), *limits)
    run.table(IDS, [(stored.message.msg_id, stored.record.queue_id, stored.record.queue_offset) for stored in found])
    return [as_document(stored) for stored in found]


@command(
    "queryMsgByOffset",
    TOPIC,
    option("-b", "--brokerName", "broker name", required=True),
    option("-i", "--queueId", "queue id", type=WholeNumber(0), required=True),
    option("-o", "--offset", "queue offset", type=WholeNumber(0), required=True),
)
async def query_msg_by_offset(run: Run, topic: str, broker_name: str, queue_id: int, offset: int) -> object:
    """Show the message at a queue offset. Prints nothing if the queue has no message there."""
    queue = MessageQueue(broker_name.strip(), queue_id, topic.strip())
    address = await address_of(run.admin, queue.topic, queue.broker_name)
    pulled = await pull(run.admin, address, queue, offset, 1)
    return [await _show(run, stored) for stored in pulled.messages]


@command(
    "queryMsgTraceById",
    option("-i", "--msgId", "unique key of the message", required=True),
    option("-t", "--traceTopic", "topic with the trace data", default=TRACE_TOPIC, show_default=True),
    option("-b", "--beginTimestamp", "only trace data from this time on, in milliseconds (5.x)", type=MOMENT, default=0),
    option("-e", "--endTimestamp", "only trace data up to this time, in milliseconds (5.x)", type=MOMENT, default=EVER),
    option("-c", "--maxNum", "maximum number of trace messages per broker (5.x)", type=WholeNumber(1), default=MAX_NUM),
)
async def query_msg_trace_by_id(run: Run, msg_id: str, trace_topic: str, **given: Any) -> object:
    """Show when a message was sent and consumed, by which clients, if these have message traces enabled."""
    key = msg_id.strip()
    limits = given["max_num"], given["begin_timestamp"], given["end_timestamp"]
    found = await by_key(run.admin, trace_topic.strip(), key, *limits)
    events = [event for stored in found for event in trace_events(key, stored)]
    for event in events:
        if event.kind == PUB:
            _say_events(run, "Pub", "#ProducerGroup", "#SendTime", [event])
    consumed = [event for event in events if event.kind == SUB_AFTER]
    for group in dict.fromkeys(event.group for event in consumed):
        _say_events(run, "Sub", "#ConsumerGroup", "#ConsumerTime", [event for event in consumed if event.group == group])
    return [event._asdict() for event in events]


def _say_events(run: Run, kind: str, group_title: str, time_title: str, events: list[TraceEvent]) -> None:
    run.say(TRACE_LAYOUT % ("#Type", group_title, "#ClientHost", time_title, "#CostTimes", "#Status"))
    for event in events:
        status = "success" if event.succeeded else "failed"
        when = time_seconds(event.timestamp_ms)
        run.say(TRACE_LAYOUT % (kind, java_text(event.group), event.client_host, when, f"{event.cost_ms}ms", status))
    run.say()


@command(
    "queryCq",
    TOPIC,
    option("-q", "--queue", "queue id", type=WholeNumber(0), required=True),
    option("-i", "--index", "queue offset of the first unit", type=WholeNumber(), required=True),
    option("-c", "--count", "number of units", type=WholeNumber(1), default=10),
    option("-b", "--broker", "broker address", type=ADDRESS),
    option("-g", "--consumer", "also show this group's subscription, and which units it selects"),
)
async def query_cq(
    run: Run, topic: str, queue: int, index: int, count: int, broker: str | None, consumer: str | None
) -> object:
    """Show units of a ConsumeQueue."""
    found = await queue_units(run.admin, topic.strip(), queue, index, count, broker, consumer)
    if found.get("subscriptionData") is not None:
        run.say(f"Subscription data: \n{_flat_json(found['subscriptionData'])}\n{LINE}")
    if found.get("filterData") is not None:
        run.say(f"Filter data: \n{found['filterData']}\n{LINE}")
    run.say(f"Queue data: \nmax: {found.get('maxQueueIndex')}, min: {found.get('minQueueIndex')}\n{LINE}")
    for number, unit in enumerate(found.get("queueData") or [], index):
        run.say(f"idx: {number}\n{_unit_text(unit)}\n{LINE}")
    return found


def _unit_text(unit: dict[str, Any]) -> str:
    shown = {name: java_text(unit.get(name)) for name in UNIT_FIELDS}
    fields = (f"{name}='{value}'" if name in TEXT_FIELDS else f"{name}={value}" for name, value in shown.items())
    return f"ConsumeQueueData{{{', '.join(fields)}}}"


def _flat_json(value: dict[str, Any]) -> str:
    """Return a JSON object with one line for each field."""
    fields = (f"\t{_json(name)}:{_json(field)}" for name, field in sorted(value.items()))
    return "{\n" + ",\n".join(fields) + "\n}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()

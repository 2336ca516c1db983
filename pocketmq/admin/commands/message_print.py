"""Commands that print the messages of a topic or of a queue."""

import codecs
from collections import Counter
from typing import Any

from pocketmq.admin.api import queue_reading
from pocketmq.admin.api.client import AdminError, queue_text
from pocketmq.admin.api.queue_reading import FOUND, NO_MATCHED_MSG, PULL_COUNT, TOOLS_CONSUMER
from pocketmq.admin.api.stored_messages import StoredMessage
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.message_texts import as_document, one_line
from pocketmq.admin.times import TIME_MS
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.runtime.command_line.option_types import Checked, WholeNumber

Documents = list[dict[str, Any]]


def _charset(name: str) -> str:
    try:
        return codecs.lookup(name.strip()).name
    except LookupError:
        raise ValueError("expected a charset, such as UTF-8 or GBK") from None


CHARSET = option("-c", "--charsetName", "charset of the bodies", type=Checked("<arg>", _charset), default="utf-8")
TAGS = option("-s", "--subExpression", "only messages with these tags: TagA || TagB", default="*")
BEGIN = option("-b", "--beginTimestamp", "from this time on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS", type=TIME_MS)
BEGIN_S = option("-s", "--beginTimestamp", "from this time on: milliseconds or yyyy-MM-dd#HH:mm:ss:SSS", type=TIME_MS)
END = option("-e", "--endTimestamp", "up to this time", type=TIME_MS)


class _Printer:
    """Prints messages; with `--json` they are collected."""

    def __init__(self, run: Run, charset: str, body: bool = True, printed: bool = True) -> None:
        self._run = run
        self._charset, self._body, self._printed = charset, body, printed
        self.documents: Documents = []

    def show(self, messages: list[StoredMessage]) -> None:
        if not self._printed:
            return
        for stored in messages:
            if self._run.as_json:
                self.documents.append(as_document(stored))
                continue
            body = stored.message.body.decode(self._charset, "replace") if self._body else "NOT PRINT BODY"
            self._run.say(f"{one_line(stored)} BODY: {body}")


@command(
    "printMsg",
    TOPIC,
    CHARSET,
    TAGS,
    BEGIN,
    END,
    option("-d", "--printBody", "false: without bodies", type=bool, default=True),
)
async def print_msg(run: Run, topic: str, charset_name: str, sub_expression: str, print_body: bool, **given: Any) -> object:
    """Print the messages of a topic, queue by queue."""
    printer = _Printer(run, charset_name, print_body)
    for queue, address in await queue_reading.queues_to_read(run.admin, topic.strip()):
        begin, end = given["begin_timestamp"], given["end_timestamp"]
        queue_offset, high = await queue_reading.limits(run.admin, address, queue, begin, end)
        run.say(f"minOffset={queue_offset}, maxOffset={high}, {queue_text(queue)}")
        await _print_queue(run, printer, queue, address, queue_offset, high, expression=sub_expression)
        run.say("-" * 56)
    return printer.documents


@command(
    "printMsgByQueue",
    TOPIC,
    option("-a", "--brokerName", "broker name", required=True),
    option("-i", "--queueId", "queue id", type=WholeNumber(0), required=True),
    CHARSET,
    TAGS,
    BEGIN,
    END,
    option("-p", "--print", "true: print the messages", type=bool, default=False),
    option("-d", "--printBody", "true: with bodies", type=bool, default=False),
    option("-f", "--calculate", "true: count the messages of each tag", type=bool, default=False),
)
async def print_msg_by_queue(
    run: Run, topic: str, broker_name: str, queue_id: int, sub_expression: str, calculate: bool, **given: Any
) -> object:
    """Print or count the messages of a queue."""
    queue = MessageQueue(broker_name.strip(), queue_id, topic.strip())
    address = await queue_reading.address_of(run.admin, queue.topic, queue.broker_name)
    printer = _Printer(run, given["charset_name"], given["print_body"], given["print"])
    begin, end = given["begin_timestamp"], given["end_timestamp"]
    queue_offset, high = await queue_reading.limits(run.admin, address, queue, begin, end)
    tags: Counter[str] = Counter()
    while queue_offset < high:
        pulled = await queue_reading.pull(run.admin, address, queue, queue_offset, expression=sub_expression)
        if pulled.status != FOUND or pulled.next_offset <= queue_offset:
            break
        queue_offset = pulled.next_offset
        printer.show(pulled.messages)
        tags.update(stored.message.tags for stored in pulled.messages if stored.message.tags)
    if calculate:
        for tag, count in tags.most_common():
            run.say(f"Tag: {tag:<30} Count: {count}")
    return {"messages": printer.documents, "tags": dict(tags) if calculate else None}


@command(
    "consumeMessage",
    TOPIC,
    option("-b", "--brokerName", "broker name"),
    option("-i", "--queueId", "with -b: only this queue", type=WholeNumber(0)),
    option("-o", "--offset", "with -i: begin at this queue offset", type=WholeNumber(0)),
    option("-g", "--consumerGroup", "consumer group that pulls; its offsets stay as they are", default=TOOLS_CONSUMER),
    BEGIN_S,
    END,
    option("-c", "--MessageNumber", "maximum number of messages", type=WholeNumber(), default=128),
)
async def consume_message(
    run: Run, topic: str, broker_name: str | None, queue_id: int | None, offset: int | None, **given: Any
) -> object:
    """Pull messages and print them, up to a number. No consumer offset changes."""
    count: int = given["message_number"]
    if count <= 0:
        raise AdminError("Please input a positive messageNumber!")
    if queue_id is not None and broker_name is None:
        raise AdminError("Please set the brokerName before queueId!")
    if offset is not None and queue_id is None:
        raise AdminError("Please set queueId before offset!")
    printer = _Printer(run, "utf-8")
    if queue_id is not None and broker_name is not None:
        queue = MessageQueue(broker_name.strip(), queue_id, topic.strip())
        queues = [(queue, await queue_reading.address_of(run.admin, queue.topic, queue.broker_name))]
    else:
        queues = await queue_reading.queues_to_read(run.admin, topic.strip())
    for queue, address in queues:
        begin, end = given["begin_timestamp"], given["end_timestamp"]
        low, high = await queue_reading.limits(run.admin, address, queue, begin, end)
        if offset is not None and offset > high:
            run.say(f"{queue_text(queue)} no matched msg, offset={offset}")
            break
        low = max(low, offset or 0)
        if high - low > count:
            one = "oldler" if queue_id is not None else "older"
            of = "" if queue_id is not None else f" of the {queue.queue_id} queue"
            run.say(f"The {one} {count} message{of} will be provided")
            high, count = low + count - 1, 0
        else:
            count -= high - low + 1
        group = given["consumer_group"].strip()
        await _print_queue(run, printer, queue, address, low, high + 1, is_exact=True, group=group)
        if count <= 0:
            break
    return printer.documents


async def _print_queue(
    run: Run, printer: _Printer, queue: MessageQueue, address: str, low: int, end: int, is_exact: bool = False, **how: str
) -> None:
    """Print the messages of a queue from `low` on. Unless `is_exact`, the pull that reaches `end` may give later ones."""
    while low < end:
        count = min(end - low, PULL_COUNT) if is_exact else PULL_COUNT
        pulled = await queue_reading.pull(run.admin, address, queue, low, count, **how)
        is_stuck, low = pulled.next_offset <= low, pulled.next_offset
        if pulled.status == FOUND:
            if is_exact:
                run.say("Consume ok")
            printer.show(pulled.messages)
        elif pulled.status == NO_MATCHED_MSG:
            run.say(f"{queue_text(queue)} no matched msg. status={pulled.status}, offset={low}")
        else:
            run.say(f"{queue_text(queue)} print msg finished. status={pulled.status}, offset={low}")
            return
        if is_stuck:
            return

"""Commands that send messages, and measure how long that takes."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pocketmq.admin.api.client import AdminError
from pocketmq.admin.api.sending import producer, trace_send
from pocketmq.admin.command import TOPIC, Run, command, option
from pocketmq.admin.message_texts import send_result_text
from pocketmq.admin.output import Table
from pocketmq.client.message import Message, now_ms
from pocketmq.client.producer import Producer
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.command_line.option_types import WholeNumber

SENT = Table("#Broker Name|#QID|#Send Result|#MsgId", "%-32s  %-4s  %-20s    %s", "brokerName queueId status msgId")
TIMES = Table("#Broker Name|#QID|#Send Result|#RT", "%-32s  %-4s  %-20s    %s", "brokerName queueId succeeded rtMs")
CLUSTER_TIMES = Table(
    "#Cluster Name|#Broker Name|#RT|#successCount|#failCount",
    "%-24s  %-24s  %-4s  %-8s  %-8s",
    "cluster brokerName rtMs successCount failCount",
    "%-24s  %-24s  %-8s  %-16s  %-16s",
)
FILLER = b"a"
FIRST_SIZE = 16
"""Bytes of the message that sendMsgStatus sends before it measures."""
AMOUNT = option("-a", "--amount", "number of messages", type=WholeNumber(1), default=100)
SIZE = option("-s", "--size", "bytes of each message", type=WholeNumber(0), default=128)
FAILURES = (OSError, TimeoutError, RemotingError)


@command(
    "sendMessage",
    TOPIC,
    option("-p", "--body", "body of the message", required=True),
    option("-k", "--key", "keys of the message, separated by blanks"),
    option("-c", "--tags", "tag of the message"),
    option("-b", "--broker", "name of the broker to send to"),
    option("-i", "--qid", "with -b: id of the queue", type=WholeNumber(0)),
    option("-m", "--msgTraceEnable", "true: also send trace data", type=bool, default=False),
)
async def send_message(
    run: Run, topic: str, body: str, key: str | None, tags: str | None, broker: str | None, **given: Any
) -> object:
    """Send a message."""
    if given["qid"] is not None and broker is None:
        raise AdminError("Broker name must be set if the queue is chosen!")
    message = Message(topic.strip(), body.encode(), tags, key)
    async with producer(run.admin) as sender:
        begin_ms = now_ms()
        sent = await sender.send(message, select=_selector(broker, given["qid"]))
        if given["msg_trace_enable"]:
            try:
                await trace_send(run.admin, sender, message, sent, now_ms() - begin_ms)
            except FAILURES as failure:
                run.warn(failure)
    run.table(SENT, [(sent.queue.broker_name, sent.queue.queue_id, sent.status, sent.msg_id)])
    return msgspec.to_builtins(sent)


def _selector(broker: str | None, queue_id: int | None) -> Callable[[Sequence[MessageQueue]], MessageQueue] | None:
    """Return the function that chooses the queue; None if any queue will do."""
    if broker is None:
        return None

    def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
        own = [queue for queue in queues if queue.broker_name == broker.strip()]
        if not own:
            raise AdminError(f"The broker[{broker.strip()}] not exist")
        return own[0] if queue_id is None else MessageQueue(own[0].broker_name, queue_id, own[0].topic)

    return choose


@command(
    "sendMsgStatus",
    option("-b", "--brokerName", "broker name; messages go to the topic of this name", required=True),
    option("-s", "--messageSize", "bytes of each message", type=WholeNumber(0), default=128),
    option("-c", "--count", "number of messages", type=WholeNumber(0), default=50),
)
async def send_msg_status(run: Run, broker_name: str, message_size: int, count: int) -> object:
    """Send messages to a broker, and show the result and the time of each."""
    topic = broker_name.strip()
    results = []
    async with producer(run.admin, "PID_SMSC") as sender:
        await sender.send(Message(topic, FILLER * FIRST_SIZE))
        for _ in range(count):
            begin_ms = now_ms()
            sent = await sender.send(Message(topic, FILLER * message_size))
            rt_ms = now_ms() - begin_ms
            run.say(f"rt={rt_ms}ms, SendResult={send_result_text(sent)}")
            results.append({"rtMs": rt_ms, **msgspec.to_builtins(sent)})
    return results


@command("checkMsgSendRT", TOPIC, AMOUNT, SIZE)
async def check_msg_send_rt(run: Run, topic: str, amount: int, size: int) -> object:
    """Send messages to the queues of a topic in turn, and show how long each takes."""
    message = Message(topic.strip(), FILLER * size)
    rows: list[tuple[str, int, str, int]] = []
    async with producer(run.admin) as sender:
        for number in range(amount):
            queues = await sender.instance.routes.publish_queues(message.topic)
            if not queues:
                raise AdminError(f"topic {message.topic} has no writable queue")
            queue = queues[number % len(queues)]
            succeeded, rt_ms = await _timed(sender, message, lambda _, queue=queue: queue)
            rows.append((queue.broker_name, queue.queue_id, str(succeeded).lower(), rt_ms))
    shown = run.table(TIMES, rows)
    average_ms = _average([row[3] for row in rows])
    run.say(f"Avg RT: {_two_digits(average_ms)}")
    return {"messages": shown, "avgRtMs": average_ms}


async def _timed(sender: Producer, message: Message, select: Any = None) -> tuple[bool, int]:
    """Send a message; return whether it succeeded, and the time it took."""
    begin_ms = now_ms()
    try:
        await sender.send(message, select=select)
    except FAILURES:
        return False, now_ms() - begin_ms
    return True, now_ms() - begin_ms


def _average(times_ms: list[int]) -> float | None:
    """Return the average of all times but the first, which includes connecting; None if there is no other."""
    return sum(times_ms[1:]) / (len(times_ms) - 1) if len(times_ms) > 1 else None


def _two_digits(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.2f}"


@command(
    "clusterRT",
    AMOUNT,
    SIZE,
    option("-c", "--cluster", "only this cluster"),
    option("-p", "--print", "true: print lines of fields separated by |", type=bool, default=False),
    option("-m", "--machineRoom", "with -p: name of this machine room", default="noname"),
    option("-i", "--interval", "seconds between two rounds", type=WholeNumber(0), default=10),
    option("-r", "--rounds", "end after this number of rounds, instead of never", type=WholeNumber(1)),
)
async def cluster_rt(run: Run, amount: int, size: int, cluster: str | None, interval: int, **given: Any) -> object:
    """Send messages to all brokers again and again, and show how long that takes on average."""
    brokers = (await run.admin.cluster_info()).cluster_addr_table
    clusters = list(brokers) if cluster is None else [cluster.strip()]
    missing = [name for name in clusters if name not in brokers]
    if missing:
        raise AdminError(f"cluster [{missing[0]}] not exist")
    if not given["print"]:
        run.say(CLUSTER_TIMES.title())
    rows: list[dict[str, Any]] = []
    rounds = 0
    async with producer(run.admin) as sender:
        while True:
            for row in [(name, broker) for name in clusters for broker in brokers[name]]:
                times = [await _timed(sender, Message(row[1], FILLER * size)) for _ in range(amount)]
                average_ms = _average([time_ms for _, time_ms in times])
                succeeded = sum(ok for ok, _ in times)
                if given["print"]:
                    rt = f"{average_ms or 0:.0f}"
                    run.say("|".join((f"{datetime.now():%Y-%m-%d %H:%M:%S}", given["machine_room"], *row, rt)))
                else:
                    run.say(CLUSTER_TIMES.line((*row, _two_digits(average_ms), succeeded, amount - succeeded)))
                if run.as_json:
                    rows.append(CLUSTER_TIMES.document((*row, average_ms, succeeded, amount - succeeded)))
            rounds += 1
            if rounds == given["rounds"]:
                return rows
            await asyncio.sleep(interval)

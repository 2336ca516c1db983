"""A tour of RocketMQ with PocketMQ's own client: sends and consumes messages of every kind.

    python examples/python/tour.py 127.0.0.1:9876

Prints `SENT kind count`, `CONSUMED kind count` and for each delayed message `LATE delay-seconds client-ms store-ms`: how
long after its due time it was consumed, and stored for consumers.
"""

import asyncio
import itertools
import sys
import time
from collections import Counter

from pocketmq import Message, MessageExt, Producer, PushConsumer

PLAIN, TAGGED, KEYED, DELAYED, ORDERS, STEPS, BATCHES, BATCH = 120, 60, 40, 20, 5, 12, 4, 10
QUEUES = 4
PATIENCE_S = 60

sent: Counter[str] = Counter()
consumed: Counter[str] = Counter()
seen: set[tuple[str, int, int]] = set()
last_step: dict[str, int] = {}
disorders: list[str] = []


def count(message: MessageExt) -> None:
    place = (message.topic, message.queue_id, message.queue_offset)
    if place in seen:
        return  # duplicates are possible
    seen.add(place)
    kind = message.topic.removeprefix("Tour").lower()
    consumed[kind] += 1
    if kind == "delayed":
        seconds = 1 if message.properties["DELAY"] == "1" else 5
        due_ms = message.born_timestamp_ms + seconds * 1000
        print("LATE", seconds, int(time.time() * 1000) - due_ms, message.store_timestamp_ms - due_ms)
    if kind == "ordered":
        order, step = message.body.decode().split()
        if int(step) != last_step.get(order, -1) + 1:
            disorders.append(f"order {order}: step {step} after {last_step.get(order)}")
        last_step[order] = int(step)


def consumers(namesrv: str) -> list[PushConsumer]:
    everything = PushConsumer(namesrv, "TourConsumer", start="first")
    for topic in ("TourPlain", "TourKeyed", "TourDelayed", "TourBatch", "TourOrdered"):
        everything.subscribe(topic, count)
    red = PushConsumer(namesrv, "TourRed", start="first")  # two groups, each with its own tags
    red.subscribe("TourTagged", count, "red || white")
    others = PushConsumer(namesrv, "TourGreenBlue", start="first")
    others.subscribe("TourTagged", count, "green || blue || white")
    return [everything, red, others]


async def send_delayed(producer: Producer) -> None:
    for i in range(DELAYED):  # level 1 is one second, level 2 is five
        await producer.send(Message("TourDelayed", b"delayed %d" % i, delay_level=1 + i % 2))
        sent["delayed"] += 1


async def send_others(producer: Producer) -> None:
    for i in range(PLAIN):
        await producer.send(Message("TourPlain", b"plain %d" % i))
        sent["plain"] += 1
    for i, tag in zip(range(TAGGED), itertools.cycle(["red", "green", "blue"]), strict=False):
        # A group's offset stays behind the last message it received, so each queue ends with a message for both groups.
        tag = tag if i < TAGGED - QUEUES else "white"
        await producer.send(Message("TourTagged", b"tagged %d" % i, tags=tag))
        sent["tagged"] += 1
    for i in range(KEYED):
        await producer.send(Message("TourKeyed", b"keyed %d" % i, keys=f"order-{i}"))
        sent["keyed"] += 1
    for step, order in itertools.product(range(STEPS), range(ORDERS)):  # messages of one order go to the same queue
        message = Message("TourOrdered", b"%d %d" % (order, step))
        await producer.send(message, select=lambda queues, order=order: queues[order % len(queues)])  # type: ignore[misc]
        sent["ordered"] += 1
    for b in range(BATCHES):
        await producer.send_batch([Message("TourBatch", b"batch %d %d" % (b, i)) for i in range(BATCH)])
        sent["batch"] += BATCH


async def wait_for_all() -> None:
    deadline = time.monotonic() + PATIENCE_S
    while consumed.total() < sent.total() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


async def main(namesrv: str) -> int:
    async with Producer(namesrv, "TourProducer") as producer:
        for topic in ("TourPlain", "TourTagged", "TourKeyed", "TourDelayed", "TourOrdered", "TourBatch"):
            await producer.create_topic(topic, QUEUES)
        members = consumers(namesrv)
        for consumer in members:
            await consumer.start()
        await send_others(producer)
        await wait_for_all()
        await send_delayed(producer)  # once all consumers listen, as messages due earlier would wait for them
        await wait_for_all()
        for consumer in members:
            await consumer.close()
    for what, counts in (("SENT", sent), ("CONSUMED", consumed)):
        for kind, number in counts.items():
            print(what, kind, number)
    for line in disorders:
        print("DISORDER", line)
    return 0 if consumed == sent and not disorders else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))

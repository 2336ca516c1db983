"""Ordered messages: those of one order go to one queue, which one consumer locks.

python examples/python/ordered.py 127.0.0.1:9876
"""

import asyncio
import sys

from pocketmq import Message, Producer, PushConsumer

ORDERS, STEPS = 3, ("created", "paid", "sent")


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "OrderedExample") as producer:
        await producer.create_topic("Steps")
        for step in STEPS:
            for order in range(ORDERS):
                message = Message("Steps", step.encode(), keys=f"order-{order}")
                await producer.send(message, select=lambda queues, order=order: queues[order % len(queues)])

    consumer = PushConsumer(namesrv, "OrderedExampleConsumer", start="first", ordered=True)
    consumer.subscribe("Steps")
    seen: dict[str, list[str]] = {}
    async with consumer:
        async for message in consumer:
            seen.setdefault(str(message.keys), []).append(message.body.decode())
            if sum(map(len, seen.values())) == ORDERS * len(STEPS):
                break
    for order, steps in sorted(seen.items()):
        print(order, *steps)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

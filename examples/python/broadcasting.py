"""Broadcasting: each consumer of the group gets all messages: python examples/python/broadcasting.py 127.0.0.1:9876"""

import asyncio
import sys
import tempfile
from pathlib import Path

from pocketmq import ConsumerOptions, Message, Producer, PushConsumer


async def cache(namesrv: str, name: str, offsets: Path) -> None:
    """A consumer keeps its offsets in a folder, under its name."""
    options = ConsumerOptions(instance_name=name, offsets_folder=offsets)
    consumer = PushConsumer(namesrv, "Caches", start="first", broadcast=True, options=options)
    consumer.subscribe("Invalidations")
    bodies: list[str] = []
    async with consumer:
        async for message in consumer:
            bodies.append(message.body.decode())
            if len(bodies) == 3:
                break
    print(name, *sorted(bodies))


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "BroadcastingExample") as producer:
        await producer.create_topic("Invalidations")
        await producer.send_batch([Message("Invalidations", b"page-%d" % number) for number in range(3)])
    with tempfile.TemporaryDirectory() as folder:
        await cache(namesrv, "cache-1", Path(folder))
        await cache(namesrv, "cache-2", Path(folder))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

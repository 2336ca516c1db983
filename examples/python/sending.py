"""Sends one by one, at once, without an answer, and in batches: python examples/python/sending.py 127.0.0.1:9876"""

import asyncio
import sys

from pocketmq import Message, Producer
from pocketmq.sync import Producer as SyncProducer

TOPIC = "Sends"


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "SendingExample") as producer:
        await producer.create_topic(TOPIC)

        # Sync: each is stored before the next one is sent.
        for number in range(3):
            result = await producer.send(TOPIC, b"sync %d" % number, tag="sync", keys=f"key-{number}")
            print("sync", result.status, result.queue.topic)

        # Async: all are under way at the same time.
        results = await asyncio.gather(*(producer.send(TOPIC, b"async %d" % number) for number in range(10)))
        print("async", len(results), {result.status for result in results})

        # Oneway: nothing is waited for, and nothing is known about it.
        await producer.send_oneway(Message(TOPIC, b"oneway"))
        print("oneway")

        # A batch is stored as a whole. `send_all` splits a long list into batches of at most 1 MiB.
        result = await producer.send_batch([Message(TOPIC, b"batch %d" % number) for number in range(10)])
        print("batch", result.status, len(result.msg_id.split(",")))
        batches = await producer.send_all([Message(TOPIC, bytes(300)) for _ in range(5000)])
        print("splitter", len(batches) > 1, sum(len(batch.msg_id.split(",")) for batch in batches))


def without_asyncio(namesrv: str) -> None:
    with SyncProducer(namesrv, "SendingExample") as producer:
        print("without asyncio", producer.send(TOPIC, b"hello").status)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    without_asyncio(sys.argv[1])

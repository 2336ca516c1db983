"""Pop consumers: the broker hands each message to one client, and no queue is allocated.

python examples/python/popping.py 127.0.0.1:9876
"""

import asyncio
import sys

from pocketmq import Message, MessageExt, PopConsumer, Producer


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "PoppingExample") as producer:
        await producer.create_topic("Jobs")
        await producer.send_all([Message("Jobs", b"job %d" % number) for number in range(12)])

    done: set[str] = set()
    is_done = asyncio.Event()

    async def work(message: MessageExt) -> None:
        done.add(message.body.decode())
        if len(done) == 12:
            is_done.set()

    workers = [PopConsumer(namesrv, "Workers", "first", concurrency=2, invisible_ms=30_000) for _ in range(3)]
    for worker in workers:
        worker.subscribe("Jobs", work)
        await worker.start()
    await is_done.wait()
    for worker in workers:
        await worker.close()
    print(len(done), "jobs")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

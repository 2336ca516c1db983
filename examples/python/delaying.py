"""Delayed messages, by level and to a time, and their recall: python examples/python/delaying.py 127.0.0.1:9876"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from pocketmq import Producer, PushConsumer


async def main(namesrv: str) -> None:
    consumer = PushConsumer(namesrv, "DelayingExampleConsumer", start="first")
    consumer.subscribe("Delays")
    async with Producer(namesrv, "DelayingExample") as producer:
        await producer.create_topic("Delays")
        await producer.send("Delays", b"level 1 is one second", delay_level=1)
        await producer.send("Delays", b"two seconds", delay=timedelta(seconds=2))
        await producer.send("Delays", b"at a time", deliver_at=datetime.now(UTC) + timedelta(seconds=3))
        in_an_hour = await producer.send("Delays", b"in an hour", delay=3600)
        assert in_an_hour.recall_handle is not None
        recalled = await producer.recall("Delays", in_an_hour.recall_handle)
        print("recalled", recalled == in_an_hour.msg_id)
        async with consumer:
            async for message in consumer:
                print(message.body.decode())
                if message.body == b"at a time":
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""Request-reply: python examples/python/request_reply.py 127.0.0.1:9876"""

import asyncio
import sys

from pocketmq import Message, MessageExt, Producer, PushConsumer, reply


async def main(namesrv: str) -> None:
    consumer = PushConsumer(namesrv, "Squares", start="first")

    async def answer(message: MessageExt) -> None:
        await reply(consumer, message, b"%d" % int(message.body) ** 2)

    consumer.subscribe("Numbers", answer)
    async with Producer(namesrv, "RequestExample") as producer:
        await producer.create_topic("Numbers")
        async with consumer:
            replies = await asyncio.gather(*(producer.request(Message("Numbers", b"%d" % number)) for number in (3, 4, 5)))
    print([int(message.body) for message in replies])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""Message traces, which `mqadmin queryMsgTraceById` shows: python examples/python/tracing.py 127.0.0.1:9876"""

import asyncio
import sys

from pocketmq import Producer, PushConsumer

TRACES = "ExampleTraces"  # trace=True: RMQ_SYS_TRACE_TOPIC, which brokers with traceTopicEnable have


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "TracingExample", trace=TRACES) as producer:
        await producer.create_topic("Traced")
        await producer.create_topic(TRACES)
        sent = await producer.send("Traced", b"followed", keys="order-7")

    consumer = PushConsumer(namesrv, "TraceReader", start="first")
    consumer.subscribe(TRACES)
    async with consumer:
        async for message in consumer:
            kind, *fields = message.body.decode().rstrip("\x02").split("\x01")
            print(kind, sent.msg_id in fields, str(message.keys).endswith("order-7"))
            break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

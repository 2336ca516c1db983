"""Filters by tags and by SQL92, which needs enablePropertyFilter=true: python examples/python/filtering.py 127.0.0.1:9876"""

import asyncio
import sys

from pocketmq import Producer, PushConsumer


async def received(consumer: PushConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    async with consumer:
        async for message in consumer:
            bodies.append(message.body.decode())
            if len(bodies) == count:
                break
    return sorted(bodies)


async def main(namesrv: str) -> None:
    async with Producer(namesrv, "FilteringExample") as producer:
        await producer.create_topic("Prices")
        for tag, price in (("fruit", 5), ("fruit", 15), ("bread", 25), ("wine", 95)):
            await producer.send("Prices", f"{tag} {price}".encode(), tag=tag, properties={"price": str(price)})

    by_tag = PushConsumer(namesrv, "ByTag", start="first")
    by_tag.subscribe("Prices", tags="fruit || bread")
    print("tags", await received(by_tag, 3))

    by_sql = PushConsumer(namesrv, "BySql", start="first")
    by_sql.subscribe("Prices", sql="price > 10 AND TAGS <> 'wine'")
    print("SQL", await received(by_sql, 2))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

"""The newcomers' paths: pages whose blocks are run, with what their reader has already."""

from dataclasses import dataclass
from typing import Final

from tests.docs.page import ROOT
from tests.support.amount import IS_LONG


@dataclass(frozen=True)
class Reader:
    """`before`: commands that make the reader's folder. `names`: the reader's own functions, for blocks in a coroutine."""

    before: str = ""
    names: str = ""
    is_for_long_tests: bool = False
    needs: str = ""
    """The JVM that it needs, `spark` or `java`: its test is not in tests/docs."""


DELAYED: Final = """cat >delayed.py <<'END'
import asyncio, time
from pocketmq import Message, Producer
async def main():
    async with Producer("127.0.0.1:9876", "shop") as producer:
        for queue, key, tag, body, delay in (
            (1, "order-8", "unpaid", b"unpaid: order-8", {"delay": 1800}),
            (3, "order-9", "unpaid", b"hello", {"delay_level": 16}),
            (2, "order-3", "unpaid", b"unpaid: order-303", {"deliver_at": time.time() + 86400}),
        ):
            await producer.send("Orders", body, tag=tag, keys=key, select=lambda queues, q=queue: queues[q], **delay)
asyncio.run(main())
END
"""
SEVEN: Final = """cat >seven.py <<'END'
import asyncio
from pocketmq import Producer
async def main():
    async with Producer("127.0.0.1:9876", "shop") as producer:
        for number in range(1, 7):
            body, key = b"order %d" % number, f"order-{number}"
            await producer.send("Orders", body, tag="paid", keys=key, select=lambda queues: queues[0])
        await producer.send("Bills", b"bill", tag="paid", keys="order-1")
asyncio.run(main())
END
pocketmq up --store store
python seven.py
stop_servers
"""
OF_APACHE: Final = f"tar -xzf {ROOT}/tests/golden/v4_clean/store.tar.gz && mv store apache\n"
BILLED: Final = """cat >billed.py <<'END'
import asyncio
from pocketmq import Producer, PushConsumer, ReconsumeLater
async def main():
    async with Producer("127.0.0.1:9876", "shop") as producer:
        await producer.create_topic("Orders", 2)
        for number in range(6):
            key, select = f"order-{number}", lambda queues, number=number: queues[number % 2]
            await producer.send("Orders", b"order %d" % number, keys=key, select=select)
    seen = asyncio.Queue()
    async def bill(message):
        seen.put_nowait(message)
        if message.keys == "order-5":
            raise ReconsumeLater(-1)
    consumer = PushConsumer("127.0.0.1:9876", "billing", start="first")
    consumer.subscribe("Orders", bill)
    async with consumer:
        for _ in range(6):
            await seen.get()
asyncio.run(main())
END
pocketmq up --memory
python billed.py
"""
SIX: Final = """cat >orders.py <<'END'
import asyncio
from pocketmq import Producer
async def main():
    async with Producer("127.0.0.1:9876", "shop") as producer:
        await producer.create_topic("Orders", 4)
        for number in range(1, 7):
            await producer.send("Orders", b"order %d" % number, tag="paid", keys=f"order-{number}")
asyncio.run(main())
END
pocketmq up --store store
python orders.py
pocketmq consume Orders --group billing --from-start --count 6
"""
LISTENERS: Final = """
import asyncio, os, time
from pathlib import Path
from pocketmq import *

yesterday_ms = int(time.time() * 1000) - 86_400_000
seen = []
async def listener(message): seen.append(message)
async def charge(message): return True
async def book(message): seen.append(message)
async def archive(messages): seen.extend(messages)
def is_busy(): return False
def is_broken(message): return False

async with Producer("127.0.0.1:9876", "shop") as producer:
    for topic in ("TopicTest", "Refunds", "Bookings"):
        await producer.create_topic(topic)
    for tag in ("paid", "refunded", "other"):
        await producer.send("TopicTest", tag.encode(), tag=tag, properties={"price": "200"})
"""

PATHS: Final[dict[str, Reader]] = {
    "README.md": Reader(before=f"ln -s {ROOT}/conf conf\n", is_for_long_tests=True),
    "docs/tutorial.md": Reader(needs="spark"),
    "docs/python-client.md": Reader(),
    "docs/python-consumers.md": Reader(names=LISTENERS),
    "docs/delay.md": Reader(before=DELAYED),
    "docs/commands.md": Reader(before=BILLED),
    "docs/grpc.md": Reader(is_for_long_tests=True),
    "docs/store.md": Reader(before=SEVEN, is_for_long_tests=True),
    "docs/migration.md": Reader(before=OF_APACHE, is_for_long_tests=True),
    "docs/how-to/python-team.md": Reader(),
    "docs/how-to/operator.md": Reader(),
    "docs/how-to/data-engineer.md": Reader(before=SIX, is_for_long_tests=True, needs="spark"),
    "docs/how-to/java-team.md": Reader(is_for_long_tests=True, needs="java"),
}


def pages(needs: str) -> list[str]:
    """Return the pages that need this, and whose paths are run by the present tests."""
    return [page for page, reader in PATHS.items() if reader.needs == needs and (IS_LONG or not reader.is_for_long_tests)]

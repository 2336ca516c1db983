"""The frame of a service: its database, its producer and its consumer, and what becomes of messages that fail."""

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from examples.shop import inbox
from examples.shop.database import Database
from pocketmq import MessageExt, MQError, Producer, PushConsumer, ReconsumeLater, reply

log = logging.getLogger("shop")

ORDERS, RESERVE, PAYMENTS, ORDER_TIMEOUT = "Orders", "Reserve", "Payments", "OrderTimeout"
TOPICS = {
    ORDERS: "place (a request of a customer), paid, cancelled (the order is decided), refund",
    RESERVE: "stock, coupon, balance (requests of the order service)",
    PAYMENTS: "paid, refunded",
    ORDER_TIMEOUT: "delayed by 30 minutes",
}
"""The topics and their tags. The key of each message is the number of its order."""

Handler = Callable[[MessageExt], Awaitable[None]]


def arguments(service: str, **more: Any) -> argparse.Namespace:
    """Return the options of a service's command line. `more`: further options with their defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.shop.{service}")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="HOST:PORT of the name server")
    parser.add_argument("--database", default="shop-data", help="folder for SQLite, or postgresql://USER@HOST/DATABASE")
    for name, default in more.items():
        parser.add_argument(f"--{name}", default=default, type=type(default))
    return parser.parse_args()


class Service:
    """One service. Its name is that of its consumer and producer group, and of its file or schema."""

    def __init__(self, name: str, options: argparse.Namespace, tables: str, check: Any = None) -> None:
        """`check` answers the broker's questions about transactional messages."""
        self.name = name
        self.database = Database(options.database, name, inbox.TABLE + tables)
        self.producer = Producer(options.namesrv, f"shop-{name}", check=check)
        self.consumer = PushConsumer(options.namesrv, f"shop-{name}", start="first", concurrency=8)
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Work besides consuming."""

    def consume(self, topic: str, tags: str, handler: Handler) -> None:
        """Have a handler consume the messages of a topic with these tags, `a || b`."""
        self.consumer.subscribe(topic, lambda message: self._attempt(handler, message), tags)

    async def _attempt(self, handler: Handler, message: MessageExt) -> None:
        """Consume a message. A failed one comes again after 10 s and after 30 s; after three failures it is a dead letter.

        It does not count as a failure of the message that a server is away.
        """
        try:
            await handler(message)
        except (MQError, OSError) as failure:
            log.warning("%s: %s %s waits: %s", self.name, message.tags, message.keys, failure)
            raise
        except Exception:
            log.exception("%s: %s %s failed", self.name, message.tags, message.keys)
            if await self.database.run(inbox.note_failure, self.name, message):
                raise ReconsumeLater(delay_level=-1) from None  # pocketmq dlq resend GROUP --all: delivers it again
            raise

    async def answer(self, message: MessageExt, body: bytes) -> None:
        """Reply to a request. Without effect if the requester has gone, or does not wait any more."""
        try:
            await reply(self.consumer, message, body)
        except (MQError, OSError, ValueError) as failure:
            log.info("%s: no reply to %s: %s", self.name, message.keys, failure)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT; then finish the messages in hand."""
        own = asyncio.current_task()
        assert own is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, own.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            async with self.producer, asyncio.TaskGroup() as group:
                for task in self.background:
                    group.create_task(task())
                try:
                    for topic in TOPICS:
                        await until_done(partial(self.producer.create_topic, topic))
                    await until_done(self.consumer.start)
                    print(f"{self.name} is ready", flush=True)
                    await asyncio.Future()
                finally:
                    await self.consumer.close()


async def until_done(work: Callable[[], Awaitable[Any]]) -> None:
    """Repeat `work` until the servers that it needs are there."""
    while True:
        try:
            await work()
            return
        except (MQError, OSError) as failure:
            log.warning("waiting for a server: %s", failure)
            await asyncio.sleep(0.5)


def start(make: Callable[[], Service]) -> None:
    """Run a service as the program of this process."""

    async def main() -> None:
        await make().run()

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main())

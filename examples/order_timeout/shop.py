"""A shop that cancels orders which are not paid within 30 minutes, with PocketMQ's own client. Any client of 5.x works, too.

With each order the shop sends itself a message that is delivered half an hour later. When an order is paid, its message is
recalled; if that fails, the message finds the order paid and does nothing. So the shop need not search for unpaid orders.

    python examples/order_timeout/shop.py 127.0.0.1:9876
"""

import asyncio
import contextlib
import sys
from enum import Enum
from typing import Self

from pocketmq import Message, MessageExt, Producer, PushConsumer, RemotingError

TOPIC = "OrderTimeout"
PAY_WITHIN_S = 30 * 60


class Order(Enum):
    OPEN = "open"
    PAID = "paid"
    CANCELLED = "cancelled"


class Shop:
    """Orders by number. `reminded` are the orders whose message has arrived."""

    def __init__(self, namesrv: str) -> None:
        self.orders: dict[str, Order] = {}
        self.reminded: list[str] = []
        self._handles: dict[str, str | None] = {}
        self._producer = Producer(namesrv, "Shop")
        self._consumer = PushConsumer(namesrv, "Shop", start="first")
        self._consumer.subscribe(TOPIC, self._time_is_up)

    async def __aenter__(self) -> Self:
        self._producer.start()
        await self._producer.create_topic(TOPIC)
        await self._consumer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.close()
        await self._producer.close()

    async def order(self, number: str) -> None:
        """Accept an order. The message is sent first, because an order without one would stay open forever."""
        properties = {"TIMER_DELAY_SEC": str(PAY_WITHIN_S)}
        sent = await self._producer.send(Message(TOPIC, number.encode(), keys=number, properties=properties))
        self.orders[number] = Order.OPEN
        self._handles[number] = sent.recall_handle

    async def pay(self, number: str) -> bool:
        """Pay an order; return False if it is too late."""
        if self.orders[number] is not Order.OPEN:
            return False
        self.orders[number] = Order.PAID
        handle = self._handles.pop(number, None)
        if handle is not None:
            with contextlib.suppress(RemotingError, OSError, TimeoutError):  # the message will find the order paid
                await self._producer.recall(TOPIC, handle)
        return True

    def _time_is_up(self, message: MessageExt) -> None:
        number = message.body.decode()
        self.reminded.append(number)
        if self.orders.get(number) is Order.OPEN:
            self.orders[number] = Order.CANCELLED
            print("CANCELLED", number, flush=True)


async def main(namesrv: str) -> None:
    async with Shop(namesrv) as shop:
        for number in ("A1", "A2", "A3"):
            await shop.order(number)
        await shop.pay("A2")
        print("PAID A2; the others have half an hour", flush=True)
        while Order.OPEN in shop.orders.values():
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

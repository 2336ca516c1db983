"""A shop that gives an order 30 minutes to be paid, with PocketMQ's own client. Any RocketMQ client of 5.x would do.

With each order goes a message to the shop itself that comes half an hour later. An order that is paid takes its message
back; should that fail, the message finds the order paid and does nothing. So nobody has to look through all orders again and
again.

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
    """Orders by number. `reminded` are those whose message came."""

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
        """Take an order. The message is on its way before the order counts: one without would stay open for ever."""
        properties = {"TIMER_DELAY_SEC": str(PAY_WITHIN_S)}
        sent = await self._producer.send(Message(TOPIC, number.encode(), keys=number, properties=properties))
        self.orders[number] = Order.OPEN
        self._handles[number] = sent.recall_handle

    async def pay(self, number: str) -> bool:
        """False: it came too late."""
        if self.orders[number] is not Order.OPEN:
            return False
        self.orders[number] = Order.PAID
        handle = self._handles.pop(number, None)
        if handle is not None:
            with contextlib.suppress(RemotingError, OSError, TimeoutError):  # it will come, and find the order paid
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

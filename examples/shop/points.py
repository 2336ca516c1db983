"""Points: one for each whole unit of money (100 cents) that was paid, taken back by a refund.

The table is a journal of gains and losses, so that it does not matter which of the two messages comes first.
"""

import json

from examples.shop import inbox
from examples.shop.database import Transaction
from examples.shop.service import PAYMENTS, Service, arguments, start
from pocketmq import MessageExt

CENTS_A_POINT = 100
TABLES = "CREATE TABLE IF NOT EXISTS points (order_id TEXT, reason TEXT, points BIGINT)"


def book(transaction: Transaction, group: str, message: MessageExt) -> None:
    """Book the points of a payment or refund, once."""
    if inbox.is_first(transaction, group, message):
        points = json.loads(message.body)["amount"] // CENTS_A_POINT
        sign = 1 if message.tags == "paid" else -1
        transaction.execute("INSERT INTO points VALUES (?, ?, ?)", message.keys, message.tags, sign * points)


class Points(Service):
    """The points service."""

    def __init__(self) -> None:
        super().__init__("points", arguments("points"), TABLES)
        self.consume(PAYMENTS, "paid || refunded", self._on_payment)

    async def _on_payment(self, message: MessageExt) -> None:
        await self.database.run(book, self.name, message)


if __name__ == "__main__":
    start(Points)

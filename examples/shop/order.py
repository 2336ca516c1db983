"""Orders: reserve stock, coupon and balance, then wait for the payment. An order ends as `paid` or `cancelled`.

    new --> confirmed --> paid
      \\         \\-------> cancelled    after 30 minutes, or by a payment that does not fit
       \\-----------------> cancelled    something was refused, or not answered in time

The other services learn the end by a transactional message: it is sent as a half message, then the order's row changes, then
the message is delivered. If this process dies in between, the broker asks `check`, which looks into the database.
"""

import json
from dataclasses import dataclass
from typing import Any

from examples.shop.database import Transaction
from examples.shop.service import ORDER_TIMEOUT, ORDERS, PAYMENTS, RESERVE, Service, arguments, start
from pocketmq import Message, MessageExt, RequestTimeout, TransactionState

NEW, CONFIRMED, PAID, CANCELLED = "new", "confirmed", "paid", "cancelled"
FINAL = (PAID, CANCELLED)
PAY_WITHIN_S = 30 * 60
RESERVE_WITHIN_S = 3.0

TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    id TEXT PRIMARY KEY, state TEXT, amount BIGINT, goods TEXT, count BIGINT, coupon TEXT, account TEXT, money BIGINT,
    version INTEGER
);
"""


@dataclass(frozen=True)
class Order:
    """A row of the table. `amount`: what is to be paid, in cents, once the order is confirmed."""

    id: str
    state: str
    amount: int | None
    goods: str
    count: int
    coupon: str | None
    account: str
    money: int
    version: int

    @property
    def reservations(self) -> dict[str, tuple[str, int]]:
        """Item and number for each service at which this order reserves something."""
        coupon = {"coupon": (self.coupon, 1)} if self.coupon else {}
        balance = {"balance": (self.account, self.money)} if self.money else {}
        return {"stock": (self.goods, self.count), **coupon, **balance}


def find(transaction: Transaction, order_id: str) -> Order | None:
    row = transaction.row("SELECT * FROM orders WHERE id = ?", order_id)
    return None if row is None else Order(*row)


def add(transaction: Transaction, order_id: str, wanted: dict[str, Any], state: str = NEW) -> None:
    """Add an order unless there is one of that number."""
    fields = [wanted.get(name) for name in ("goods", "count", "coupon", "account", "money")]
    insert = "INSERT INTO orders VALUES (?, ?, NULL, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"
    transaction.execute(insert, order_id, state, *fields)


def change(transaction: Transaction, order: Order, state: str, amount: int | None) -> None:
    update = "UPDATE orders SET state = ?, amount = ?, version = version + 1 WHERE id = ? AND version = ?"
    transaction.change(update, state, amount, order.id, order.version)


def confirm(transaction: Transaction, order_id: str, amount: int) -> None:
    """Confirm a new order; without effect if it was cancelled meanwhile."""
    order = find(transaction, order_id)
    if order is not None and order.state == NEW:
        change(transaction, order, CONFIRMED, amount)


def decide(transaction: Transaction, order_id: str, state: str, payment: int) -> str:
    """Bring an order to its end, if it has none; return its state. Only a confirmed order can be paid, with its amount."""
    order = find(transaction, order_id)
    if order is None:  # paid, but not ordered: the row keeps the number from being ordered later
        add(transaction, order_id, {}, CANCELLED)
        return CANCELLED
    fits = state == CANCELLED or (order.state == CONFIRMED and payment == order.amount)
    if order.state in FINAL or not fits:
        return order.state
    change(transaction, order, state, order.amount)
    return state


class Orders(Service):
    """The order service."""

    def __init__(self) -> None:
        super().__init__("order", arguments("order"), TABLES, check=self._check)
        self.consume(ORDERS, "place", self._on_place)
        self.consume(PAYMENTS, "paid", self._on_paid)
        self.consume(ORDER_TIMEOUT, "*", self._on_timeout)

    async def _on_place(self, message: MessageExt) -> None:
        order_id = str(message.keys)
        order = await self.database.run(find, order_id)
        if order is None:  # the message first: an order without one could stay open forever
            await self.producer.send(ORDER_TIMEOUT, b"", keys=order_id, delay=PAY_WITHIN_S)
            await self.database.run(add, order_id, json.loads(message.body))
            order = await self.database.run(find, order_id)
        if order is not None and order.state == NEW:  # also one that was begun before this process
            amount = await self._reserve(order)
            if amount is None or amount <= 0:
                await self._decide(order_id, CANCELLED)
            else:
                await self.database.run(confirm, order_id, amount)
            order = await self.database.run(find, order_id)
        if order is not None:
            await self.answer(message, json.dumps({"state": order.state, "amount": order.amount}).encode())

    async def _reserve(self, order: Order) -> int | None:
        """Reserve what the order needs, return what remains to be paid; None if something is not to be had."""
        worth = {}
        for service, (item, count) in order.reservations.items():
            body = json.dumps({"item": item, "count": count}).encode()
            request = Message(RESERVE, body, tags=service, keys=order.id)
            try:
                answer = await self.producer.request(request, timeout_s=RESERVE_WITHIN_S)
            except RequestTimeout:
                return None
            worth[service] = json.loads(answer.body)
            if worth[service] is None:
                return None
        return int(worth["stock"] - worth.get("coupon", 0) - worth.get("balance", 0))

    async def _on_timeout(self, message: MessageExt) -> None:
        if await self.database.run(find, str(message.keys)) is not None:
            await self._decide(str(message.keys), CANCELLED)

    async def _on_paid(self, message: MessageExt) -> None:
        order_id, payment = str(message.keys), json.loads(message.body)["amount"]
        if await self._decide(order_id, PAID, payment):
            return
        if await self._decide(order_id, CANCELLED):  # too late, too early, or the wrong amount
            await self.producer.send(ORDERS, b"", tag="refund", keys=order_id)

    async def _decide(self, order_id: str, state: str, payment: int = 0) -> bool:
        """Bring an order to its end and tell the other services; return whether `state` is its end."""
        order = await self.database.run(find, order_id)
        if order is not None and order.state in FINAL:
            return order.state == state
        async with self.producer.transaction(Message(ORDERS, b"", tags=state, keys=order_id)) as half:
            try:
                state_now = await self.database.run(decide, order_id, state, payment)
            except Exception:
                half.leave_open()  # the database may have committed: the broker will ask
                raise
            if state_now != state:
                await half.rollback()
        return state_now == state

    async def _check(self, half: MessageExt) -> TransactionState:
        """Tell the broker what became of a half message. UNKNOWN: it is under way, or its process died before the change."""
        order = await self.database.run(find, str(half.keys))
        if order is None or order.state not in FINAL:
            return TransactionState.UNKNOWN
        return TransactionState.COMMIT if order.state == half.tags else TransactionState.ROLLBACK


if __name__ == "__main__":
    start(Orders)

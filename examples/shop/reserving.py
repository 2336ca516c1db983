"""Reservations, which stock, coupons and balances have in common: something is available, then reserved, then used.

An order reserves by a request; it learns what the reserved things are worth, or that it is refused. Later a message says
how the order was decided: `paid` makes the reserved things used, `cancelled` makes them available again. Each order has one
reservation in each service, and it only changes in this direction, so messages may come twice, late, and in any order:

    reserve twice               the second one finds the reservation, and gives the same answer
    cancelled before reserve    the reservation is there, as `cancelled`, and the late request is refused
    cancelled twice             the table of consumed messages has it
"""

import json
from collections.abc import Sequence

from examples.shop import inbox
from examples.shop.database import Transaction
from examples.shop.service import ORDERS, RESERVE, Service, arguments
from pocketmq import MessageExt

RESERVED, REFUSED, PAID, CANCELLED = "reserved", "refused", "paid", "cancelled"
TABLES = """
CREATE TABLE IF NOT EXISTS items (
    id TEXT PRIMARY KEY, worth BIGINT, initial BIGINT, available BIGINT, reserved BIGINT, used BIGINT, version INTEGER
);
CREATE TABLE IF NOT EXISTS reservations (order_id TEXT PRIMARY KEY, state TEXT, item TEXT, count BIGINT, version INTEGER);
CREATE TABLE IF NOT EXISTS changes (order_id TEXT, change TEXT, item TEXT, count BIGINT);
"""
"""`worth`: of one, in cents. `changes` is a journal without a unique key: it would show a double compensation."""


class Reserving(Service):
    """A service whose items can be reserved."""

    def __init__(self, name: str, initial: Sequence[tuple[str, int, int]]) -> None:
        """`initial`: id, worth and number of each item at the first start."""
        super().__init__(name, arguments(name), TABLES)
        self._initial = initial
        self.background = [self._fill]
        self.consume(RESERVE, name, self._on_reserve)
        self.consume(ORDERS, f"{PAID} || {CANCELLED}", self._on_decided)

    async def _fill(self) -> None:
        await self.database.run(fill, self._initial)

    async def _on_reserve(self, message: MessageExt) -> None:
        wanted = json.loads(message.body)
        worth = await self.database.run(reserve, str(message.keys), wanted["item"], wanted["count"])
        await self.answer(message, json.dumps(worth).encode())

    async def _on_decided(self, message: MessageExt) -> None:
        await self.database.run(decided, self.name, message)


def fill(transaction: Transaction, initial: Sequence[tuple[str, int, int]]) -> None:
    """Add the items that are not there yet."""
    for item, worth, count in initial:
        insert = "INSERT INTO items VALUES (?, ?, ?, ?, 0, 0, 0) ON CONFLICT DO NOTHING"
        transaction.execute(insert, item, worth, count, count)


def reserve(transaction: Transaction, order_id: str, item: str, count: int) -> int | None:
    """Reserve for an order; return the worth of it in cents, or None if it is refused."""
    insert = "INSERT INTO reservations VALUES (?, ?, ?, ?, 0) ON CONFLICT DO NOTHING"
    if transaction.execute(insert, order_id, REFUSED, item, count) and move(
        transaction, order_id, RESERVED, item, count, "available", "reserved"
    ):
        transaction.change("UPDATE reservations SET state = ? WHERE order_id = ?", RESERVED, order_id)
    find = "SELECT worth * count FROM reservations JOIN items ON items.id = item WHERE order_id = ? AND state = ?"
    worth = transaction.row(find, order_id, RESERVED)
    return None if worth is None else int(worth[0])


def decided(transaction: Transaction, group: str, message: MessageExt) -> None:
    """Release or use up what an order has reserved; without effect if that is done, or nothing is reserved."""
    if not inbox.is_first(transaction, group, message):
        return
    state, order_id = message.tags, message.keys
    transaction.execute("INSERT INTO reservations VALUES (?, ?, NULL, 0, 0) ON CONFLICT DO NOTHING", order_id, state)
    find = "SELECT state, item, count, version FROM reservations WHERE order_id = ?"
    before, item, count, version = transaction.row(find, order_id) or ("", "", 0, 0)
    if before != RESERVED:
        return
    update = "UPDATE reservations SET state = ?, version = version + 1 WHERE order_id = ? AND version = ?"
    transaction.change(update, state, order_id, version)
    move(transaction, str(order_id), str(state), item, count, "reserved", "used" if state == PAID else "available")


def move(transaction: Transaction, order_id: str, change: str, item: str, count: int, source: str, target: str) -> bool:
    """Move a number of an item from one column to another; return False if there are not so many."""
    row = transaction.row(f"SELECT {source}, version FROM items WHERE id = ?", item)
    if row is None or not 0 < count <= row[0]:
        return False
    update = f"UPDATE items SET {source} = {source} - ?, {target} = {target} + ?, version = version + 1"
    transaction.change(f"{update} WHERE id = ? AND version = ?", count, count, item, row[1])
    transaction.execute("INSERT INTO changes VALUES (?, ?, ?, ?)", order_id, change, item, count)
    return True

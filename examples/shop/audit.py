"""The auditor: reads the databases of all services and compares their books. Run it when the shop is at rest.

    python -m examples.shop.audit --database shop-data

It prints the books and what is wrong with them, and exits with 1 if anything is.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from examples.shop import inbox, order, payment, points, reserving
from examples.shop.database import Database
from examples.shop.service import arguments

RESERVING = ("stock", "coupon", "balance")


class Books(NamedTuple):
    """Rows of all databases: of the reserving services by service, of the others by order."""

    items: dict[str, list[tuple[Any, ...]]]
    reservations: dict[str, dict[str, tuple[Any, ...]]]
    changes: dict[str, list[tuple[Any, ...]]]
    orders: dict[str, order.Order]
    payments: dict[str, tuple[Any, ...]]
    points: list[tuple[Any, ...]]
    unsent: list[tuple[Any, ...]]
    unfinished: dict[str, list[tuple[Any, ...]]]


def read(where: str) -> Books:
    """Read the books from a folder, or from PostgreSQL."""
    tables = dict.fromkeys(RESERVING, reserving.TABLES) | {
        "order": order.TABLES,
        "payment": payment.TABLES,
        "points": points.TABLES,
    }
    databases = {service: Database(where, service, inbox.TABLE + own) for service, own in tables.items()}

    def rows(service: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return databases[service].transact(lambda transaction: transaction.rows(sql, *values))

    reservations = "SELECT order_id, state, item, count FROM reservations"
    try:
        return Books(
            items={
                name: rows(name, "SELECT id, worth, initial, available, reserved, used FROM items") for name in RESERVING
            },
            reservations={name: {row[0]: row for row in rows(name, reservations)} for name in RESERVING},
            changes={name: rows(name, "SELECT order_id, change, item, count FROM changes") for name in RESERVING},
            orders={row[0]: order.Order(*row) for row in rows("order", "SELECT * FROM orders")},
            payments={row[0]: row for row in rows("payment", "SELECT order_id, amount, state FROM payments")},
            points=rows("points", "SELECT order_id, reason, points FROM points"),
            unsent=rows("payment", "SELECT tag, message_key FROM local_messages"),
            unfinished={
                name: rows(name, "SELECT tag, message_key, state FROM consumed WHERE state <> ?", inbox.DONE)
                for name in tables
            },
        )
    finally:
        for database in databases.values():
            database.close()


def problems(books: Books) -> Iterator[str]:
    """Compare the books; yield what is wrong."""
    for service in RESERVING:
        yield from item_problems(books, service)
        for (order_id, change), times in Counter(row[:2] for row in books.changes[service]).items():
            if times > 1:
                yield f"{service}: order {order_id} is {change} {times} times"
    for order_id, one in books.orders.items():
        yield from order_problems(books, order_id, one)
    for order_id, amount, state in books.payments.values():
        is_kept = order_id in books.orders and books.orders[order_id].state == order.PAID
        if is_kept != (state == payment.PAID):
            yield f"payment: {amount} for order {order_id} is {state}"
    yield from point_problems(books)
    for tag, key in books.unsent:
        yield f"payment: the message {tag} of order {key} is not sent"
    for service, rows in books.unfinished.items():
        for tag, key, state in rows:
            yield f"{service}: the message {tag} of order {key} is {state}"
    if (sold := worth_used(books, "stock")) != (received := sum(money_received(books).values())):
        yield f"goods were sold for {sold}, and {received} was received for them"


def item_problems(books: Books, service: str) -> Iterator[str]:
    """Compare the numbers of items with each other, with the reservations, and with the journal."""
    reserved, journal = Counter[tuple[str, str]](), Counter[str]()
    for _, state, item, count in books.reservations[service].values():
        reserved[item, state] += count
    for _, change, item, count in books.changes[service]:
        journal[item] += {reserving.RESERVED: -count, reserving.CANCELLED: count}.get(change, 0)
    for item, _, initial, available, held, used in books.items[service]:
        if min(available, held, used) < 0 or available + held + used != initial:
            yield f"{service}: {item}: {available} available + {held} reserved + {used} used, initially {initial}"
        if (held, used) != (reserved[item, reserving.RESERVED], reserved[item, reserving.PAID]):
            yield f"{service}: {item}: {held} reserved and {used} used differ from the reservations"
        if available != initial + journal[item]:
            yield f"{service}: {item}: {available} available, by the journal {initial + journal[item]}"


def order_problems(books: Books, order_id: str, one: order.Order) -> Iterator[str]:
    """Compare an order with its reservations and its payment."""
    if one.state not in order.FINAL:
        yield f"order {order_id} is {one.state}, which is no end"
    for service in RESERVING:
        state = books.reservations[service].get(order_id, ("", ""))[1]
        if state == reserving.RESERVED or (one.state == order.PAID and service in one.reservations and state != order.PAID):
            yield f"{service}: order {order_id} is {one.state}, and its reservation {state or 'missing'}"
        if one.state != order.PAID and state == order.PAID:
            yield f"{service}: order {order_id} is {one.state}, and its reservation used"
    if one.state == order.PAID and books.payments.get(order_id, ("", None))[1] != one.amount:
        yield f"order {order_id} is paid, without a payment of {one.amount}"


def point_problems(books: Books) -> Iterator[str]:
    """Compare the points with the payments: each gives its points once, and a refund takes them back."""
    expected = Counter[tuple[Any, ...]]()
    for order_id, amount, state in books.payments.values():
        value = amount // points.CENTS_A_POINT
        expected[order_id, payment.PAID, value] = 1
        if state == payment.REFUNDED:
            expected[order_id, payment.REFUNDED, -value] = 1
    booked = Counter(books.points)
    for row in (expected - booked) + (booked - expected):
        yield f"points: {row} is booked {booked[row]} times, expected {expected[row]}"


def worth_used(books: Books, service: str) -> int:
    return int(sum(worth * used for _, worth, _, _, _, used in books.items[service]))


def money_received(books: Books) -> dict[str, int]:
    """Return how the sold goods were paid for."""
    paid = int(sum(amount for _, amount, state in books.payments.values() if state == payment.PAID))
    return {"payments": paid, "coupons": worth_used(books, "coupon"), "balances": worth_used(books, "balance")}


def main() -> None:
    books = read(arguments("audit").database)
    print("orders:", dict(Counter(one.state for one in books.orders.values())))
    print("goods sold for", worth_used(books, "stock"), "received", money_received(books))
    refunds = [amount for _, amount, state in books.payments.values() if state == payment.REFUNDED]
    print(len(refunds), "refunds of", sum(refunds), "points:", sum(row[2] for row in books.points))
    wrong = list(problems(books))
    for line in wrong:
        print("WRONG", line)
    print("the books are balanced" if not wrong else f"{len(wrong)} problems")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

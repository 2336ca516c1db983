"""The shop of examples/shop: its stories, and its books after `kill -9` of any part, over SQLite and PostgreSQL."""

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from examples.shop import customer
from examples.shop.database import ATTEMPTS, Conflict, Database, Transaction
from pocketmq import Message, MQError, Producer, TransactionState
from pocketmq.testing import PocketMQ
from tests.examples.postgresql import Postgresql, ToolchainMissing
from tests.examples.running_shop import ROOT, SERVICES, RunningShop, until
from tests.support.amount import cases

DATABASES = ("sqlite", "postgresql")
BOTH_IN_LONG = pytest.mark.parametrize("where", cases(["sqlite"], DATABASES), indirect=True)
"""The default run shows PostgreSQL with an order that is paid, with locks and with kills."""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Postgresql]:
    try:
        server = Postgresql()
    except ToolchainMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}; CI must have it", pytrace=False)
        pytest.skip(str(missing))
    yield server
    server.close()


@pytest.fixture(scope="module", params=DATABASES)
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder, or the URL of a server."""
    if request.param == "sqlite":
        return str(tmp_path_factory.mktemp("databases"))
    return str(request.getfixturevalue("postgresql").url)


@pytest.fixture(scope="module")
def shop(where: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningShop]:
    folder = tmp_path_factory.mktemp("shop")
    with PocketMQ(folder / "mq", store="disk") as mq:
        running = RunningShop(mq, where, folder / "output")
        yield running
        assert running.close() == [0] * len(SERVICES)


def at_customer(shop: RunningShop, story: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Producer(shop.mq.namesrv_address, "shop-customer") as producer:
            await story(producer)

    asyncio.run(main())


def order_now(shop: RunningShop, order_id: str, **wanted: Any) -> dict[str, Any]:
    answers = []

    async def story(producer: Producer) -> None:
        answers.append(await customer.place(producer, order_id, **{"account": "alice", "money": 0, **wanted}))

    at_customer(shop, story)
    return answers[0]


def send(shop: RunningShop, *messages: Message) -> None:
    async def story(producer: Producer) -> None:
        for message in messages:
            await producer.send(message)

    at_customer(shop, story)


def available(shop: RunningShop) -> dict[str, int]:
    return {row[0]: row[3] for rows in shop.books().items.values() for row in rows if row[3] != 1}


def changes(shop: RunningShop, order_id: str) -> dict[str, list[str]]:
    return {service: [row[1] for row in rows if row[0] == order_id] for service, rows in shop.books().changes.items()}


def states(shop: RunningShop) -> set[str]:
    return {order.state for order in shop.books().orders.values()}


def state(shop: RunningShop, order_id: str) -> str:
    one = shop.books().orders.get(order_id)
    return "" if one is None else one.state


def test_an_order_is_paid_and_gives_points(shop: RunningShop) -> None:
    answer = order_now(shop, "happy", goods="apple", count=30, coupon="coupon-1", money=300)
    assert answer == {"state": "confirmed", "amount": 30 * 50 - 500 - 300}
    assert changes(shop, "happy") == dict.fromkeys(("stock", "coupon", "balance"), ["reserved"])
    customer.pay(shop.payment_url, "happy", 700)
    customer.pay(shop.payment_url, "happy", 700)  # banks repeat themselves
    assert shop.come_to_rest() == []
    books = shop.books()
    assert state(shop, "happy") == "paid"
    assert books.payments["happy"] == ("happy", 700, "paid")
    assert [row for row in books.points if row[0] == "happy"] == [("happy", "paid", 7)]
    assert changes(shop, "happy") == dict.fromkeys(("stock", "coupon", "balance"), ["reserved", "paid"])
    assert order_now(shop, "second", goods="apple", count=30, coupon="coupon-1")["state"] == "cancelled", "a used coupon"


@BOTH_IN_LONG
def test_a_failed_order_is_compensated_once_however_often_its_message_comes(shop: RunningShop) -> None:
    before = available(shop)
    wanted = {
        "goods": "apple",
        "count": 1,
        "coupon": "coupon-2",
        "money": 100,
    }  # all is reserved, and nothing is left to pay
    assert order_now(shop, "failed", **wanted)["state"] == "cancelled"
    again = [Message("Orders", b"", tags="cancelled", keys="failed") for _ in range(6)]
    send(shop, *again[:3])
    shop.restart("stock")
    shop.mq.kill()
    shop.mq.start()
    send(shop, *again[3:], Message("Reserve", b'{"item": "apple", "count": 1}', tags="stock", keys="failed"))
    sent_last = order_now(shop, "failed too", goods="piano", count=2)
    assert sent_last["state"] == "cancelled"
    assert shop.come_to_rest() == []
    assert changes(shop, "failed") == dict.fromkeys(("stock", "coupon", "balance"), ["reserved", "cancelled"])
    assert changes(shop, "failed too") == dict.fromkeys(("stock", "coupon", "balance"), [])
    assert available(shop) == before


@BOTH_IN_LONG
def test_a_reservation_that_comes_after_its_cancellation_is_refused(shop: RunningShop) -> None:
    send(shop, Message("Orders", b"", tags="cancelled", keys="late"))
    until(lambda: all("late" in rows for rows in shop.books().reservations.values()))
    send(shop, Message("Reserve", b'{"item": "apple", "count": 5}', tags="stock", keys="late"))
    assert order_now(shop, "late", goods="apple", count=5)["state"] == "cancelled"
    assert changes(shop, "late") == dict.fromkeys(("stock", "coupon", "balance"), [])


@BOTH_IN_LONG
def test_a_payment_is_kept_in_the_local_message_table_until_a_broker_has_its_message(shop: RunningShop) -> None:
    amount = order_now(shop, "offline", goods="book", count=1)["amount"]
    shop.mq.kill()
    customer.pay(shop.payment_url, "offline", amount)
    assert shop.books().unsent == [("paid", "offline")]
    shop.kill("payment")
    assert state(shop, "offline") == "confirmed"
    shop.start("payment")
    shop.mq.start()
    shop.wait_ready("payment")
    assert shop.come_to_rest() == []
    assert shop.books().unsent == []
    assert state(shop, "offline") == "paid"


@BOTH_IN_LONG
def test_an_unpaid_order_times_out_after_half_an_hour_and_a_late_payment_is_refunded(shop: RunningShop) -> None:
    before = available(shop)
    amount = order_now(shop, "unpaid", goods="book", count=2, coupon="coupon-3")["amount"]
    shop.mq.advance("29m59s")
    time.sleep(0.2)  # a message that came too early would be consumed now
    assert state(shop, "unpaid") == "confirmed"
    shop.mq.advance("1s")
    until(lambda: state(shop, "unpaid") == "cancelled")
    customer.pay(shop.payment_url, "unpaid", amount)
    assert shop.come_to_rest() == []
    assert shop.books().payments["unpaid"] == ("unpaid", 4500, "refunded")
    assert sum(row[2] for row in shop.books().points if row[0] == "unpaid") == 0
    assert available(shop) == before


@BOTH_IN_LONG
def test_the_broker_asks_for_an_end_that_it_did_not_get(shop: RunningShop) -> None:
    """The half message of an order that has been cancelled, left by a process that died."""

    async def story() -> None:
        producer = Producer(shop.mq.namesrv_address, "shop-order", check=lambda message: TransactionState.UNKNOWN)
        message = Message("Orders", b"", tags="cancelled", keys="half")
        async with producer, producer.transaction(message) as half:
            half.leave_open()

    order_now(shop, "half", goods="apple", count=20, coupon="coupon-4")
    in_database(shop.database, "order", "UPDATE orders SET state = 'cancelled' WHERE id = 'half'")
    asyncio.run(story())
    until(lambda: state(shop, "half") == "cancelled")
    assert changes(shop, "half")["coupon"] == ["reserved"]
    order_now(shop, "introduces the order service to the broker", goods="apple", count=0)
    for _ in range(5):
        shop.mq.advance("1m")
    assert shop.come_to_rest() == []
    assert changes(shop, "half")["coupon"] == ["reserved", "cancelled"]


def in_database(where: str, service: str, sql: str) -> None:
    database = Database(where, service, "")
    database.transact(lambda transaction: transaction.execute(sql))
    database.close()


def test_optimistic_locks_lose_no_change_and_give_up_after_three_attempts(where: str) -> None:
    table = "CREATE TABLE IF NOT EXISTS counters (id TEXT PRIMARY KEY, value INTEGER, version INTEGER)"
    databases = [Database(where, "locks", table) for _ in range(2)]

    def add_one(transaction: Transaction) -> None:
        value, version = transaction.row("SELECT value, version FROM counters WHERE id = 'a'") or (0, 0)
        update = "UPDATE counters SET value = ?, version = version + 1 WHERE id = 'a' AND version = ?"
        transaction.change(update, value + 1, version)

    done = Counter[bool]()

    def work(database: Database) -> None:
        insert = "INSERT INTO counters VALUES ('a', 0, 0) ON CONFLICT DO NOTHING"
        database.transact(lambda transaction: transaction.execute(insert))  # both create the table
        for _ in range(100):
            try:
                database.transact(add_one)
                done[True] += 1
            except Conflict:
                done[False] += 1

    threads = [threading.Thread(target=work, args=[database]) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert databases[0].transact(lambda transaction: transaction.rows("SELECT value FROM counters")) == [(done[True],)]

    calls = []

    def lose(transaction: Transaction) -> None:
        calls.append(transaction.execute("UPDATE counters SET value = -1"))
        transaction.change("UPDATE counters SET value = -1 WHERE version = -1")

    with pytest.raises(Conflict):
        databases[0].transact(lose)
    assert len(calls) == ATTEMPTS
    assert databases[0].transact(lambda transaction: transaction.rows("SELECT value FROM counters")) == [(done[True],)]
    for database in databases:
        database.close()


class Customers:
    """Customers in a thread, who place orders and pay most of them, sometimes the wrong amount."""

    def __init__(self, shop: RunningShop, seed: int) -> None:
        self._shop, self._random, self._is_over = shop, random.Random(seed), False
        self._thread = threading.Thread(target=asyncio.run, args=[self._main()])
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    async def _main(self) -> None:
        async with Producer(self._shop.mq.namesrv_address, "shop-customer") as producer:
            await asyncio.gather(*(self._come(producer, name) for name in ("anna", "bert", "cleo")))

    async def _come(self, producer: Producer, name: str) -> None:
        number, chance = 0, self._random
        while not self._is_over:
            number += 1
            order_id = f"{name}-{number}"
            wanted = {
                "goods": chance.choice(["apple", "book", "piano"]),
                "count": chance.randint(1, 3),
                "coupon": chance.choice([None, f"coupon-{chance.randint(10, 200)}"]),
                "account": chance.choice(["alice", "bob", "carol"]),
                "money": chance.choice([0, 0, 100, 400]),
            }
            try:
                answer = await customer.place(producer, order_id, timeout_s=4.0, **wanted)
            except (MQError, OSError):
                await asyncio.sleep(0.1)
                continue
            if answer["state"] == "confirmed" and chance.random() < 0.7:
                amount = answer["amount"] - (chance.random() < 0.1)
                await self._pay(order_id, amount)

    async def _pay(self, order_id: str, amount: int) -> None:
        while True:
            try:
                return await asyncio.to_thread(customer.pay, self._shop.payment_url, order_id, amount)
            except OSError:
                await asyncio.sleep(0.1)


class Killing:
    """Kills parts of a shop by SIGKILL, each for a moment, often several at a time."""

    def __init__(self, shop: RunningShop, postgresql: Postgresql | None, seed: int) -> None:
        self._shop, self._random = shop, random.Random(seed)
        self._servers: dict[str, PocketMQ | Postgresql] = {"broker": shop.mq}
        if postgresql is not None:
            self._servers["postgresql"] = postgresql
        self.killed = Counter[str]()

    def kill_one(self) -> None:
        part = self._random.choice([*SERVICES, *self._servers])
        time.sleep(self._random.uniform(0.0, 0.4))  # the shop works in between
        self.killed[part] += 1
        if server := self._servers.get(part):
            server.kill()
            time.sleep(self._random.uniform(0.0, 0.2))  # the services notice that it is away
            server.start()
        else:
            self._shop.wait_ready(part)
            self._shop.kill(part)
            self._shop.start(part)
        if self._random.random() < 0.1:
            self._shop.mq.advance(self._random.choice(["10s", "1m", "10m"]))


def test_the_books_are_balanced_after_kills(shop: RunningShop, request: pytest.FixtureRequest) -> None:
    kills = cases(4, 200)
    is_sqlite = not shop.database.startswith("postgresql:")
    killing = Killing(shop, None if is_sqlite else request.getfixturevalue("postgresql"), seed=kills)
    customers = Customers(shop, seed=kills)
    try:
        for _ in range(kills):
            killing.kill_one()
        for service in SERVICES:
            shop.wait_ready(service)
        until(lambda: "paid" in states(shop))
    finally:
        customers.stop()
    order_now(shop, "introduces the order service", goods="apple", count=0)
    for _ in range(12):  # retries, and questions about transactions
        shop.mq.advance("1m")
        time.sleep(0.1)
    shop.mq.advance("30m")
    until(lambda: shop.mq.advance("1m") > 0 and shop.problems() == [], shop.problems)
    audit = [sys.executable, "-m", "examples.shop.audit", "--database", shop.database]
    done = subprocess.run(audit, cwd=ROOT, capture_output=True, text=True, timeout=60)
    print(dict(killing.killed), done.stdout)
    assert done.returncode == 0 and "the books are balanced" in done.stdout, done.stdout + done.stderr
    assert "paid" in states(shop) and states(shop) <= {"paid", "cancelled"}


@BOTH_IN_LONG
def test_a_message_is_tried_three_times_then_it_is_a_dead_letter(shop: RunningShop) -> None:
    """Last in this file, because its order stays a problem of the books."""
    send(shop, Message("Payments", b"not JSON", tags="paid", keys="broken"))

    def attempts() -> int:
        return shop.output("points").count("points: paid broken failed")

    until(lambda: shop.mq.advance("1m") > 0 and attempts() == ATTEMPTS)
    shop.mq.advance("3h")
    time.sleep(0.2)  # another attempt would be made now
    assert attempts() == ATTEMPTS
    failed = {f"{service}: the message paid of order broken is failed" for service in ("points", "order")}
    until(lambda: shop.mq.advance("1m") > 0 and failed <= set(shop.problems()), shop.problems)

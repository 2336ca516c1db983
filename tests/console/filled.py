"""Contents of the broker in the tests of the console's pages: messages, dead letters, delayed messages, hostile text."""

import asyncio
import json
import zlib
from concurrent.futures import ThreadPoolExecutor

from pocketmq import Message, Producer
from tests.interop.patience import wait
from tests.interop.wire import Connection
from tests.patience import PATIENCE_S

ATTACK = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
ORDERS, GROUP = "Orders", "Shop"
ORDERS_COUNT = 60


def fill(namesrv: str, broker: str) -> None:
    """Send the messages that tests look for."""
    with Connection(broker) as connection:
        messages(connection)
        by_level(connection)
        by_timer(connection)
    send_traced(namesrv)


def messages(connection: Connection) -> None:
    """Send messages and dead letters: to a broker of PocketMQ or of Apache."""
    connection.create_topic(ORDERS, 4)
    connection.create_topic("Odd", 1)
    for number in range(ORDERS_COUNT):
        about = {"UNIQ_KEY": f"ORDER{number:04d}", "KEYS": f"order-{number}", "TAGS": "paid" if number % 3 else "free"}
        connection.send(ORDERS, number % 4, json.dumps({"order": number}).encode(), about)
    odd = {"UNIQ_KEY": "ODD", "KEYS": ATTACK.replace(" ", "_"), "TAGS": "<b>tag</b>", "note": ATTACK}
    connection.send("Odd", 0, ATTACK.encode(), odd)
    connection.send("Odd", 0, bytes(range(256)) * 40, {"UNIQ_KEY": "BINARY"})
    connection.send("Odd", 0, zlib.compress(b"small " * 1000), {"UNIQ_KEY": "COMPRESSED"}, sys_flag=1)
    connection.send("Odd", 0, b"x" * 100_000, {"UNIQ_KEY": "LONG"})
    connection.wait_for_max_offset("Odd", 0, 4)
    make_dead(connection, GROUP, 3)


def make_dead(connection: Connection, group: str, count: int, topic: str = "Bought") -> None:
    """Let a group give up some messages of a topic of its own."""
    connection.create_topic(topic, 1)
    connection.subscribe(group, topic)
    before = connection.max_offset(topic, 0)
    for number in range(count):
        about = {"UNIQ_KEY": f"{group}-DEAD-{number}", "KEYS": f"dead-{number}", "TAGS": "paid", "amount": str(number)}
        connection.send(topic, 0, b"dead %d" % number, about)
    connection.wait_for_max_offset(topic, 0, before + count)
    for sent in connection.read_queue(topic, 0, group)[-count:]:
        connection.send_back(group, sent, -1)
    connection.commit(group, topic, 0, before + count)
    wait(lambda: _dead(connection, group) == count, "the dead letters", PATIENCE_S)


def _dead(connection: Connection, group: str) -> int:
    return connection.max_offset(f"%DLQ%{group}", 0) if f"%DLQ%{group}" in connection.topic_table() else 0


def send_traced(namesrv: str) -> None:
    """Send a message with a trace. In a thread, as playwright has a loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, _send_traced(namesrv)).result()


async def _send_traced(namesrv: str) -> None:
    async with Producer(namesrv, "traced", trace=True) as producer:
        await producer.send(Message("Traced", b"look at my trace", keys="traced-1"))


def by_level(connection: Connection) -> None:
    """Send messages that wait at levels."""
    connection.create_topic("Later", 1)
    for number, level in enumerate((3, 3, 16, 18, 18)):
        about = {"UNIQ_KEY": f"LEVEL-{number}", "KEYS": f"later-{number}", "DELAY": str(level)}
        connection.send("Later", 0, b"by level %d" % level, about)
    connection.wait_for_max_offset("SCHEDULE_TOPIC_XXXX", 17, 2)


def by_timer(connection: Connection) -> None:
    """Send messages that wait for an hour, for two hours ...; some to a time."""
    for number in range(30):
        about = {"UNIQ_KEY": f"TIMER-{number}", "KEYS": f"timer-{number}", "TIMER_DELAY_SEC": str(3600 * (number + 3))}
        connection.send("Later", 0, b"timer %d" % number, about)

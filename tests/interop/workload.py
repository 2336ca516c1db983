"""A workload that makes a broker store every kind of record, file and table.

It uses the hand-coded client (`wire`), so that it is the same for all versions and brokers, and needs no JVM.
"""

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.wire import SEND_MESSAGE_V2, Connection, Record, send_fields
from tests.patience import PATIENCE_S

GROUP = "Exchange-group"
LONG_GROUP = "Exchange-" + "g" * 140  # its retry topic has over 127 bytes: a V2 record
MANY, PLAIN, BATCH = "Exchange-many", "Exchange-plain", "Exchange-batch"
ROLLED, DELAYED, TIMER = "Exchange-rolled", "Exchange-delayed", "Exchange-timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
QUEUES = 4
CONSUMED = 7  # a group's progress in queue 0 of PLAIN
TRANSACTION_PREPARED, TRANSACTION_COMMIT = 0x4, 0x8
PRODUCER_GROUP = "Exchange-producer"
TIMER_DELAY_S = 7


@dataclass
class Life:
    """Messages stored from one start of a broker to its end that later checks need."""

    name: str
    due: dict[str, str] = field(default_factory=dict)  # body -> topic in which the message arrives some seconds later
    half: Record | None = None  # a transaction that is still open


def let_in_long_group(store: Path) -> None:
    """Add a group of 149 bytes, which 4.9.4 allows: 5.x creates at most 120 bytes, but serves longer ones."""
    (store / "config").mkdir(parents=True)
    table = {"subscriptionGroupTable": {LONG_GROUP: {"groupName": LONG_GROUP}}}
    (store / "config" / "subscriptionGroup.json").write_text(json.dumps(table))


def write(connection: Connection, name: str, *, version: str, is_apache: bool) -> Life:
    """Write the records of one life of a broker; bodies and keys begin with `name`."""
    life, rng = Life(name), random.Random(name)
    for topic in (PLAIN, BATCH, DELAYED):
        connection.create_topic(topic, QUEUES)
    connection.create_topic(ROLLED, 1)
    for number in range(300):
        body = f"{name}-{number}:".encode() + rng.randbytes(rng.choice((0, 1, 100, 3000, 9000)))
        properties = {"KEYS": f"{name}-{number} {name}-all", "TAGS": f"T{number % 5}", "UNIQ_KEY": f"{name}-U{number}"}
        connection.send(PLAIN, number % QUEUES, body, {**properties, "colour": "grün", "n": str(number)})
    connection.send(PLAIN, 0, b"" if version.startswith("4.") else b"b")  # no properties; 5.x fails for an empty body
    for start in range(0, 40, 10):
        batch = [(f"{name}-b{n}".encode(), {"KEYS": f"{name}-b{n}", "TAGS": "B"}) for n in range(start, start + 10)]
        connection.send_batch(BATCH, start // 10 % QUEUES, batch)
    small = [(SEND_MESSAGE_V2, send_fields(ROLLED, 0, {"KEYS": f"{name}-r{n}"}), b"%d" % n) for n in range(607)]
    connection.ask_many(small)  # two lives together exceed the 1000 units of a queue file
    for level in (1, 2, 18):
        connection.send(DELAYED, level % QUEUES, f"{name}-level{level}".encode(), {"DELAY": str(level), "KEYS": f"{name}-l"})
        if level < 18:
            life.due[f"{name}-level{level}"] = DELAYED
    _consume(connection, version)
    if version.startswith("5.") and is_apache:
        connection.create_topic(TIMER, 2, attributes="+message.type=DELAY")
        connection.send(TIMER, 1, f"{name}-timer".encode(), {"TIMER_DELAY_SEC": str(TIMER_DELAY_S)})
        life.due[f"{name}-timer"] = TIMER
        connection.send(TIMER, 0, f"{name}-timer2h".encode(), {"TIMER_DELAY_SEC": "7200", "KEYS": f"{name}-2h"})
    life.half = _half_message(connection, name)
    return life


def _consume(connection: Connection, version: str) -> None:
    """Read some messages by a group, send one back for a retry and one to the dead letters."""
    connection.subscribe(GROUP, PLAIN)
    records = connection.read_queue(PLAIN, 0, GROUP)[-CONSUMED:]
    connection.commit(GROUP, PLAIN, 0, records[-1].queue_offset)
    for record, level in zip(records, (1, 17, -1), strict=False):
        connection.send_back(GROUP, record, level)
    if version.startswith("5."):  # 4.9.4 refuses a topic of this length
        connection.send_back(LONG_GROUP, records[3], 1)


def _half_message(connection: Connection, name: str) -> Record:
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP, "UNIQ_KEY": f"{name}-half", "KEYS": f"{name}-half"}
    connection.send(PLAIN, 1, f"{name}-half".encode(), properties, TRANSACTION_PREPARED)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:  # Apache indexes a moment after its answer
        # Not by a pull: 4.9.4 has no configuration of this topic at first.
        if half := connection.query(HALF_TOPIC, f"{name}-half"):
            return half[0]
        time.sleep(0.01)
    raise TimeoutError("the half message was not found by its key")


def write_many(connection: Connection, name: str, count: int) -> None:
    """Send many messages, a fifth of them singly, the others in batches."""
    connection.create_topic(MANY, QUEUES)
    singles = []
    for number in range(count // 5):
        properties = {"KEYS": f"{name}-{number}", "TAGS": f"T{number % 3}", "UNIQ_KEY": f"{name}-U{number}"}
        singles.append((SEND_MESSAGE_V2, send_fields(MANY, number % QUEUES, properties), b"s" * (1 + number % 700)))
    connection.ask_many(singles)
    for start in range(count // 5, count, 90):
        batch = [
            (b"%d" % number * (1 + number % 40), {"KEYS": f"{name}-{number}", "TAGS": f"T{number % 3}"})
            for number in range(start, min(start + 90, count))
        ]
        connection.send_batch(MANY, start // 90 % QUEUES, batch)


def commit_half(connection: Connection, half: Record) -> None:
    connection.end_transaction(PRODUCER_GROUP, half, TRANSACTION_COMMIT)


def wait_for_bodies(connection: Connection, store: Path, due: dict[str, str], timeout_s: float = PATIENCE_S) -> None:
    """Wait until the delayed messages have arrived."""
    waiting, deadline = dict(due), time.monotonic() + timeout_s
    while waiting:
        for topic in {*waiting.values()}:
            for queue in (store / "consumequeue" / topic).glob("*"):
                for record in connection.read_queue(topic, int(queue.name)):
                    waiting.pop(record.body.decode(errors="replace"), None)
        if time.monotonic() > deadline:
            raise TimeoutError(f"not delivered in {timeout_s} s: {waiting}")
        time.sleep(0.1)

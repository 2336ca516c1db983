"""Stores that administration has touched, made from a seed, and their records as a loop over the files reads them.

Topics were deleted and created again, the clock was stepped, files expired, queues lost folders, files or units, and records
were not dispatched.
"""

import random
import shutil
import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT
from tests.spark_analytics.spark_logs import HOST_V6, LogBuilder

T0_MS = 1_767_225_600_000
TOPICS = ("A", "B", "Rare", "%RETRY%G", "LongName" * 20)
TAGS = ("", "red", "blue", "ü")
PREPARED, ROLLED_BACK = 0x4, 0xC
UNIT = CONSUME_QUEUE_UNIT_STRUCT.size
QUEUE_FILE_SIZE = 50 * UNIT
Row = dict[str, Any]


def plain_records(store: Path) -> Iterator[Row]:
    """Yield the records of a store, decoded field by field, without any code of the readers."""
    for path in sorted((store / "commitlog").iterdir()):
        data, base, at = path.read_bytes(), int(path.name), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic not in (0xDAA320A7, 0xDAA320AB) or struct.unpack_from(">q", data, at + 28)[0] != base + at:
                break
            yield _record(data[at : at + size], base + at)
            at += size


def _record(data: bytes, physical_offset: int) -> Row:
    magic, _, queue_id, _, queue_offset, _, sys_flag, born_ms = struct.unpack_from(">4xIiiiqqiq", data)
    born_host, at = _host(data, 48, 16 if sys_flag & 0x10 else 4)
    (stored_ms,) = struct.unpack_from(">q", data, at)
    store_host, at = _host(data, at + 8, 16 if sys_flag & 0x20 else 4)
    times, prepared, body_size = struct.unpack_from(">iqi", data, at)
    at += 16
    body, at = data[at : at + body_size], at + body_size
    length = 2 if magic == 0xDAA320AB else 1
    topic_size, at = int.from_bytes(data[at : at + length], "big"), at + length
    topic, at = data[at : at + topic_size].decode(), at + topic_size + 2
    properties = dict(entry.split("\1", 1) for entry in data[at:].decode().split("\2") if "\1" in entry)
    return {
        "topic": topic, "queueId": queue_id, "queueOffset": queue_offset, "physicalOffset": physical_offset,
        "storeSize": len(data), "sysFlag": sys_flag, "born_ms": born_ms, "stored_ms": stored_ms, "reconsumeTimes": times,
        "preparedTransactionOffset": prepared, "body": body, "properties": properties,
        "tags": properties.get("TAGS"), "keys": properties.get("KEYS"),
        "bornHost": born_host, "sender": born_host.rpartition(":")[0], "broker": store_host,
    }  # fmt: skip


def _host(data: bytes, at: int, size: int) -> tuple[str, int]:
    """Return an address and port as text, and the position behind them."""
    address = ip_address(data[at : at + size])
    port = int.from_bytes(data[at + size : at + size + 4], "big")
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}", at + size + 4


class Administered:
    """A store in the making: a log, and the units of its queues."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = LogBuilder(self.random.choice((6_000, 20_000, 90_000)))
        self.units: dict[tuple[str, int], list[bytes]] = {}
        self.now_ms = T0_MS
        self.is_dispatching = True
        self.done: list[str] = []

    def put(self) -> None:
        """Store a record and dispatch it to its queue, unless it is one that brokers never dispatch."""
        topic, queue_id = self.random.choice(TOPICS), self.random.randrange(3)
        if topic == "Rare" and self.random.random() < 0.8:
            topic = "A"
        tags, key = self.random.choice(TAGS), self.random.randrange(9)
        sys_flag = self.random.choices((0, PREPARED, ROLLED_BACK, 0x30), (90, 1, 1, 8))[0]
        self.now_ms += self.random.choice((0, 1, 20, 1000))
        start = self.log.append(
            b"b" * self.random.choice((0, 30, 30, 300)),
            topic,
            {"KEYS": f"k{key}"} | ({"TAGS": tags} if tags else {}),
            store_timestamp_ms=self.now_ms,
            queue_id=queue_id,
            sys_flag=sys_flag,
            **({"born_host": HOST_V6, "store_host": HOST_V6} if sys_flag == 0x30 else {}),  # type: ignore[arg-type]
        )
        if sys_flag in (PREPARED, ROLLED_BACK):
            self.log.queue_offsets[topic, queue_id] -= 1
        elif self.is_dispatching:
            size = self.log.next_physical_offset - start
            unit = CONSUME_QUEUE_UNIT_STRUCT.pack(start, size, java_hash(tags))
            self.units.setdefault((topic, queue_id), []).append(unit)
            if key == 8:
                self.units.setdefault(("%LMQ%light", 0), []).append(unit)

    def administer(self) -> None:
        """Do something that an administrator, or a machine, does to a running broker."""
        done = self.random.choice(("delete topic", "clock back", "clock forward", "nothing"))
        self.done.append(done)
        if done == "delete topic":  # the next message creates it again
            topic = self.random.choice(TOPICS)
            self.units = {key: units for key, units in self.units.items() if key[0] != topic}
            for key in [key for key in self.log.queue_offsets if key[0] == topic]:
                del self.log.queue_offsets[key]
        elif done == "clock back":
            self.now_ms -= self.random.choice((5_000, 600_000, 7_200_000))
        elif done == "clock forward":
            self.now_ms += self.random.choice((600_000, 7_200_000))

    def write(self, store: Path) -> Path:
        self.log.write(store)
        for (topic, queue_id), units in self.units.items():
            folder = store / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True)
            content = b"".join(units)
            for begin in range(0, len(content), QUEUE_FILE_SIZE):
                part = content[begin : begin + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0")
                (folder / f"{begin:020}").write_bytes(part)
        if self.random.random() < 0.3:
            (store / "abort").touch()
        return store


def administered(store: Path, seed: int) -> list[str]:
    """Write a store; return what was done to it."""
    made = Administered(seed)
    for _ in range(made.random.randrange(2, 6)):
        for _ in range(made.random.randrange(20, 250)):
            made.put()
        made.administer()
    made.is_dispatching = False
    for _ in range(made.random.choice((0, 0, 1, 30))):
        made.put()
    made.write(store)
    for damage in made.random.sample(DAMAGE, made.random.randrange(3)):
        damage(store, made.random)
        made.done.append(damage.__name__)
    return made.done


def _queue(store: Path, choice: random.Random) -> Path:
    return choice.choice(sorted(path for path in (store / "consumequeue").glob("*/*")))


def lose_queue_folder(store: Path, choice: random.Random) -> None:
    shutil.rmtree(_queue(store, choice))


def lose_all_queues(store: Path, choice: random.Random) -> None:
    if choice.random() < 0.3:
        shutil.rmtree(store / "consumequeue")
        (store / "consumequeue" / "A" / "0").mkdir(parents=True)


def lose_first_queue_file(store: Path, choice: random.Random) -> None:
    min(_queue(store, choice).iterdir()).unlink()


def lose_last_queue_file(store: Path, choice: random.Random) -> None:
    max(_queue(store, choice).iterdir()).unlink()


def zero_newest_units(store: Path, choice: random.Random) -> None:
    path = max(_queue(store, choice).iterdir())
    data = path.read_bytes()
    path.write_bytes(data[: UNIT * choice.randrange(20)].ljust(len(data), b"\0"))


def zero_some_units(store: Path, choice: random.Random) -> None:
    path = min(_queue(store, choice).iterdir())
    data, begin = path.read_bytes(), UNIT * choice.randrange(40)
    path.write_bytes(data[:begin] + bytes(3 * UNIT) + data[begin + 3 * UNIT :])


def change_unit(store: Path, choice: random.Random) -> None:
    path = min(_queue(store, choice).iterdir())
    data = bytearray(path.read_bytes())
    data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
    path.write_bytes(data)


def exchange_queues(store: Path, choice: random.Random) -> None:
    """The folders of two queues are exchanged, as by a copy to the wrong place."""
    one, other = _queue(store, choice), _queue(store, choice)
    if one != other:
        one.rename(store / "moved")
        other.rename(one)
        (store / "moved").rename(other)


def expire_log(store: Path, choice: random.Random) -> None:
    files = sorted((store / "commitlog").iterdir())
    for path in files[: choice.randrange(len(files))]:
        path.unlink()


DAMAGE = (
    lose_queue_folder, lose_all_queues, lose_first_queue_file, lose_last_queue_file, zero_newest_units, zero_some_units,
    change_unit, exchange_queues, expire_log, expire_log,
)  # fmt: skip

"""Generator of a store as a broker leaves it: a CommitLog and its ConsumeQueues.

Ten topics with four queues each take turns, except for one message in a hundred, chosen at random, which is of topic RARE.
Bodies have half to one and a half times the requested size, so that consecutive records differ in length.
"""

import random
from collections import defaultdict
from pathlib import Path
from typing import BinaryIO, Final

from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
)
from pocketmq.store.format.message import Message
from pocketmq.store.format.record import encode_record, record_size, topic_part

HOST: Final = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
BORN_MS: Final = 1_767_225_600_000
LARGEST_FILE: Final = 1 << 30  # bytes, as the broker's default
QUEUE_FILE_UNITS: Final = 300_000  # as the broker's default
RARE: Final = "TopicRare"
RARE_SHARE: Final = 0.01
RECORD_WITHOUT_BODY: Final = 168
"""Approximate bytes of a record besides its body."""
_TAGS: Final = [f"Tag{number}" for number in range(5)]
_CODES: Final = [tags_code(tags) for tags in _TAGS]

Units = dict[tuple[str, int], bytearray]


def make_store(folder: Path, size: int, body_size: int, largest_file: int = LARGEST_FILE) -> int:
    """Write a store with a log of `size` bytes into `folder` unless it exists; return its number of messages."""
    count_file = folder / "messages"
    if count_file.exists():
        return int(count_file.read_text())
    (folder / "commitlog").mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    bodies = [chance.randbytes(body_size // 2 + body_size * number // 255) for number in range(256)]
    units: Units = defaultdict(bytearray)
    count = 0
    for base in range(0, size, largest_file):
        file_size = min(largest_file, size - base)
        with open(folder / "commitlog" / f"{base:020}", "wb") as file:
            count = _fill(file, base, file_size, count, bodies, chance, units)
    _write_queues(folder, units)
    count_file.write_text(str(count))
    return count


def _fill(
    file: BinaryIO, base: int, file_size: int, count: int, bodies: list[bytes], chance: random.Random, units: Units
) -> int:
    """Fill one file of the log, after `count` messages; return the number including its own."""
    position = 0
    pack_unit = CONSUME_QUEUE_UNIT_STRUCT.pack
    while True:
        topic, queue_id = (RARE, 0) if chance.random() < RARE_SHARE else (f"Topic{count % 10}", count // 10 % 4)
        message = Message(
            topic, queue_id, bodies[chance.getrandbits(8)], HOST, HOST, born_timestamp_ms=BORN_MS + count - count % 16
        )
        message.properties_bytes = b"KEYS\x01order-%d\x02UNIQ_KEY\x017F0000010000%020X\x02TAGS\x01Tag%d" % (
            count,
            count,
            count % 5,
        )
        magic_code, topic_bytes = topic_part(topic.encode())
        room = record_size(message, len(topic_bytes))
        if position + room + BLANK_SIZE > file_size:
            break
        queue = units[topic, queue_id]
        queue_offset = len(queue) // CONSUME_QUEUE_UNIT_SIZE
        record = encode_record(message, magic_code, topic_bytes, room, queue_offset, base + position, BORN_MS + count)
        file.write(record)
        queue += pack_unit(base + position, room, _CODES[count % 5])
        position += room
        count += 1
    file.write(BLANK_STRUCT.pack(file_size - position, BLANK_MAGIC_CODE))
    file.truncate(file_size)
    return count


def _write_queues(folder: Path, units: Units) -> None:
    file_size = QUEUE_FILE_UNITS * CONSUME_QUEUE_UNIT_SIZE
    for (topic, queue_id), content in units.items():
        queue = folder / "consumequeue" / topic / str(queue_id)
        queue.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(content), file_size):
            with open(queue / f"{start:020}", "wb") as file:
                file.write(content[start : start + file_size])
                file.truncate(file_size)

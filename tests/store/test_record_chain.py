"""`linked`, which follows many sections of the record chain in parallel, compared with following it record by record."""

import random

import numpy as np
import pytest

from pocketmq.store.format.message import Message
from pocketmq.store.format.record import encode_record, record_size, topic_part
from pocketmq.store.format.record_chain import chained, linked

FIRST = 7_000  # physical offset of the first byte


def log_of(body_sizes: list[int], topic: str = "T") -> bytearray:
    log = bytearray()
    magic_code, topic_bytes = topic_part(topic.encode())
    for size in body_sizes:
        one = Message(topic, 1, bytes(size), bytes(8), bytes(8))
        log += encode_record(one, magic_code, topic_bytes, record_size(one, len(topic_bytes)), 0, FIRST + len(log), 7)
    return log


def both(log: bytes | bytearray) -> tuple[list[list[int]], list[list[int]]]:
    """Return the results of `linked` and `chained` for a log, each as [starts, sizes]."""
    data = np.frombuffer(bytes(log), np.uint8)
    return [part.tolist() for part in linked(data, FIRST)], [part.tolist() for part in chained(data, FIRST)]


CHANCE = random.Random(1)
LOGS = {
    "even": log_of([100] * 1500),
    "uneven": log_of([CHANCE.randrange(400) for _ in range(1500)]),
    "long topics": log_of([CHANCE.randrange(90) for _ in range(1500)], "t" * 200),
    "small ones, then large ones": log_of([10] * 600 + [9_000] * 40),
    "one that is larger than all others": log_of([10] * 500 + [200_000] + [10] * 500),
    "few": log_of([10] * 5),
    "none": bytearray(5_000),
}


@pytest.mark.parametrize("name", LOGS)
def test_linked_and_chained_find_the_same_records(name: str) -> None:
    log = LOGS[name]
    quick, slow = both(log)
    assert quick == slow
    quick, slow = both(log + bytes(100_000))
    assert quick == slow
    quick, slow = both(log[:-30])
    assert quick == slow and (sum(quick[1]) > len(log) // 2 or len(quick[0]) < 5)


def test_a_damaged_chain_ends_where_it_is_damaged() -> None:
    log, chance = LOGS["uneven"], random.Random(2)
    starts = both(log)[1][0]
    for _ in range(150):
        damaged = bytearray(log)
        start = chance.choice(starts)
        for _ in range(chance.choice([1, 1, 3])):
            damaged[start + chance.randrange(36)] = chance.randrange(256)
        quick, slow = both(damaged)
        assert quick == slow


def test_an_image_of_a_record_within_a_body_is_no_record() -> None:
    plain = log_of([300] * 400)
    starts, (size, *_) = both(plain)[1]
    for number in range(0, 400, 7):
        # A complete record that contains its own physical offset.
        at = starts[number] + 150
        one = Message("T", 1, bytes(20), bytes(8), bytes(8))
        magic_code, topic = topic_part(b"T")
        plain[at : at + record_size(one, len(topic))] = encode_record(
            one, magic_code, topic, record_size(one, len(topic)), 0, FIRST + at, 7
        )
    quick, slow = both(plain)
    assert quick == slow and quick[0] == list(range(0, 400 * size, size))

"""How fast Spark reads a CommitLog: `python bench/spark_read.py FOLDER [--mib 1024] [--body-size 1024]`.

Makes a store in FOLDER (kept for the next run), and reads it whole: the bytes alone, then by Spark with three columns and
with all. Each reading but the first counts every message and must find as many as were written. MB is 10^6 bytes of log.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_analytics.session import local_session
from store.layout import BLANK_MAGIC_CODE, BLANK_SIZE, BLANK_STRUCT
from store.message import Message
from store.properties import encode_properties
from store.record import encode_record, record_size, topic_part

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
THREE = "topic string, storeTimestamp timestamp, storeSize int"
BORN_MS = 1_767_225_600_000
LARGEST_FILE = 1 << 30  # bytes, as the broker's default


def make_store(folder: Path, size: int, body_size: int) -> int:
    """Write a log of `size` bytes into `folder` unless it is there; returns the number of its messages."""
    count_file = folder / "messages"
    if count_file.exists():
        return int(count_file.read_text())
    (folder / "commitlog").mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    bodies = [chance.randbytes(body_size) for _ in range(256)]
    count = 0
    for base in range(0, size, LARGEST_FILE):
        file_size = min(LARGEST_FILE, size - base)
        position = 0
        with open(folder / "commitlog" / f"{base:020}", "wb") as file:
            while True:
                # 10 topics and 8 queues make 40 pairs.
                properties = {"KEYS": f"order-{count}", "UNIQ_KEY": f"7F0000010000{count:020X}", "TAGS": f"Tag{count % 5}"}
                message = Message(
                    f"Topic{count % 10}", count % 8, bodies[count % 256], HOST, HOST, born_timestamp_ms=BORN_MS
                )
                message.properties_bytes = encode_properties(properties).encode()
                magic_code, topic = topic_part(message.topic.encode())
                room = record_size(message, len(topic))
                if position + room + BLANK_SIZE > file_size:
                    break
                at = base + position
                file.write(encode_record(message, magic_code, topic, room, count // 40, at, BORN_MS + count))
                position += room
                count += 1
            file.write(BLANK_STRUCT.pack(file_size - position, BLANK_MAGIC_CODE))
            file.truncate(file_size)
    count_file.write_text(str(count))
    return count


def plain_read(folder: Path) -> int:
    """Read every byte; returns how many there are."""
    buffer = bytearray(8 << 20)
    total = 0
    for path in sorted((folder / "commitlog").iterdir()):
        with open(path, "rb", buffering=0) as file:
            while size := file.readinto(buffer):
                total += size
    return total


def timed(name: str, size: int, expected: int, read: Callable[[], int], rounds: int) -> None:
    """Print the best of some rounds; every round must count what is expected."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        seen = read()
        best = min(best, time.perf_counter() - begin)
        if seen != expected:
            sys.exit(f"{name}: {seen} counted, {expected} expected")
    print(f"{name:<28}{best:8.2f} s {size / best / 1e6:9.0f} MB/s", flush=True)


def count_by_aggregate(spark: Any, folder: Path, schema: str | None) -> int:
    """Count the messages, after every column asked for was handed to Spark."""
    source = spark.read.format("rocketmq")
    frame = (source.schema(schema) if schema else source).load(str(folder))
    # Spark prunes no column of a Python source, so a count receives them all.
    return int(frame.count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--body-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = options.folder / f"store-{options.mib}-{options.body_size}"
    count = make_store(folder, options.mib << 20, options.body_size)
    size = sum(path.stat().st_size for path in (folder / "commitlog").iterdir())
    print(f"{count:,} messages, {size:,} bytes, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    timed("plain read, one process", size, size, lambda: plain_read(folder), options.rounds)
    spark = local_session("local[*]", spark_driver_memory="2g")
    timed("Spark, 3 columns", size, count, lambda: count_by_aggregate(spark, folder, THREE), options.rounds)
    timed("Spark, all 20 columns", size, count, lambda: count_by_aggregate(spark, folder, None), options.rounds)
    spark.stop()


if __name__ == "__main__":
    main()

"""Stores of a master and its slaves, as retention, lagging and crashes leave them."""

import random
import shutil
from pathlib import Path

from tests.spark_analytics.spark_logs import LogBuilder, write_queues

FILE_SIZE = 4096
TOPICS = ("Orders", "Clicks", "Rare")


def extended(log: LogBuilder, choice: random.Random, count: int, text: str) -> None:
    """Append records that differ from all of other calls with another text."""
    for number in range(count):
        log.append(
            f"{text} {number}".encode().ljust(choice.randrange(10, 600)),
            topic=choice.choice(TOPICS),
            queue_id=choice.randrange(2),
            properties={"TAGS": choice.choice(("a", "b"))},
            store_timestamp_ms=1_700_000_000_000 + log.next_physical_offset,
        )


def replicas(folder: Path, seed: int) -> list[Path]:
    """Write two to four stores: a master, slaves, and a broker that has nothing to do with them; return their folders."""
    choice = random.Random(seed)
    common = LogBuilder(FILE_SIZE)
    extended(common, choice, choice.randrange(20, 60), "common")
    stores = []
    for number in range(choice.choice((2, 2, 3))):
        log = LogBuilder(FILE_SIZE)
        log.files = [(base, bytearray(data)) for base, data in common.files]
        log.position, log.physical_offsets = common.position, list(common.physical_offsets)
        if choice.random() < 0.6:  # a slave that is behind, or lost its end in a crash
            cut = choice.choice(log.physical_offsets[-12:])
            log.truncate(cut)
            log.files[-1][1][log.position :] = bytes(FILE_SIZE - log.position)
            if choice.random() < 0.6:
                extended(log, choice, choice.randrange(1, 14), f"only of {number}")
        store = folder / f"copy-{number}" / "store"
        log.write(store)
        if choice.random() < 0.5:
            write_queues(store)
        if choice.random() < 0.5:  # retention
            for path in sorted((store / "commitlog").iterdir())[: choice.randrange(1, 3)]:
                path.unlink()
        stores.append(store)
    if choice.random() < 0.5:
        other = LogBuilder(FILE_SIZE)
        extended(other, choice, 20, "other broker")
        stores.append(other.write(folder / "other" / "store"))
    choice.shuffle(stores)
    return stores


def copied(store: Path, folder: Path) -> Path:
    """Return a copy of a store."""
    return Path(shutil.copytree(store, folder))

"""Comparison of both readers on a large damaged log: `python -m bench.spark_sizes.damaged FOLDER [--gib 10] [--places 400]`.

Writes a log into FOLDER, bodies of 1 KiB, damages it, and removes it at the end. Damage: flipped bits in headers and bodies,
ranges that are zeroed or overwritten, a file that is cut off and one that is missing in the middle. In the modes PERMISSIVE
and DROPMALFORMED the data sources in Java and in Python must find, for each file of the log, the same number of rows, hash
over all columns and rows of damage; FAILFAST must name the same damage for the whole log and for each file alone.
"""

import argparse
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from rich.console import Console
from rich.table import Table

from bench.made_store import make_store
from bench.spark_sizes.__main__ import BODY_SIZE, FILE_SIZE
from bench.spark_sizes.measure import READERS
from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.session import local_session
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE, CONSUME_QUEUE_UNIT_STRUCT, RECORD_FIXED_SIZE

MODES: Final = ("PERMISSIVE", "DROPMALFORMED")
RANGE_SIZE_MAX: Final = 100_000
CORRUPT: Final = "_corrupt_record"
COLUMNS_READ: Final = (*COLUMNS, *DERIVED_COLUMNS, CORRUPT)
SEED: Final = 35


def record_places(store: Path, chance: random.Random, count: int) -> list[tuple[int, int]]:
    """Return (physical offset, size) of random records, by the ConsumeQueues."""
    paths = sorted((store / "consumequeue").glob("*/*/*"))
    found = list[tuple[int, int]]()
    while len(found) < count:
        with open(chance.choice(paths), "rb") as file:
            file.seek(chance.randrange(file.seek(0, 2) // CONSUME_QUEUE_UNIT_SIZE) * CONSUME_QUEUE_UNIT_SIZE)
            offset, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack(file.read(CONSUME_QUEUE_UNIT_SIZE))
        if size:  # the rest of a queue's last file is zero
            found.append((offset, size))
    return found


def damage(store: Path, count: int) -> Counter[str]:
    """Damage a log at `count` places, and two of its files; return the number of damages of each kind."""
    chance = random.Random(SEED)
    done = Counter[str]()
    for offset, size in record_places(store, chance, count):
        path = store / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020}"
        kind = chance.choice(("header bits", "header bits", "body bits", "zeroed ranges", "overwritten ranges"))
        at = (
            offset % FILE_SIZE
            + chance.randrange(RECORD_FIXED_SIZE)
            + (size - RECORD_FIXED_SIZE) // 2 * (kind == "body bits")
        )
        length = min(chance.randrange(1, RANGE_SIZE_MAX), path.stat().st_size - at)
        with open(path, "r+b") as file:
            file.seek(at)
            old = file.read(1)[0]
            file.seek(at)
            if kind == "zeroed ranges":
                file.write(bytes(length))
            elif kind == "overwritten ranges":
                file.write(chance.randbytes(length))
            else:
                file.write(bytes([old ^ 1 << chance.randrange(8)]))
        done[kind] += 1
    files = sorted((store / "commitlog").iterdir())
    with open(files[len(files) // 3], "r+b") as file:
        file.truncate(FILE_SIZE * 2 // 3)
    files[len(files) * 2 // 3].unlink()
    return done + Counter(("a file cut off", "a missing file"))


def rows_found(spark: Any, store: Path, reader: str, mode: str) -> dict[str, tuple[Any, ...]]:
    """Return (rows, hash over all columns, the rows of damage) by the path of the log's files."""
    from pyspark.sql import functions as F

    source = spark.read.format("rocketmq").options(reader=READERS[reader], mode=mode, columns=",".join(COLUMNS_READ))
    frame = source.load(str(store))
    values = [f"map_entries({name})" if kind.startswith("map") else name for name, kind in frame.dtypes]
    shown = f"CASE WHEN topic IS NULL THEN struct(physicalOffset, length({CORRUPT}) AS size, md5({CORRUPT}) AS digest) END"
    hashed = frame.selectExpr("storePath", f"xxhash64({', '.join(values)}) AS hash", f"{shown} AS damage")
    asked = hashed.groupBy("storePath").agg(F.count("*"), F.bit_xor("hash"), F.sort_array(F.collect_list("damage")))
    return {row[0]: (row[1], row[2], [tuple(one) for one in row[3]]) for row in asked.collect()}


def refusal(spark: Any, path: Path, reader: str) -> str:
    """Return the damage that FAILFAST names; empty if there is none."""
    source = spark.read.format("rocketmq").options(reader=READERS[reader], columns="physicalOffset,topic,body")
    try:
        source.load(str(path)).selectExpr("bit_xor(xxhash64(physicalOffset, topic, body))").collect()
    except PySparkException as error:
        message = str(error)
        return message[message.find("damaged record") :].partition(";")[0] if "damaged record" in message else message
    return ""


def compare(spark: Any, store: Path, table: Table) -> bool:
    """Read a damaged store with both readers in each mode; return whether they found the same."""
    is_same = True
    for mode in MODES:
        found, seconds = [], []
        for reader in READERS:
            began = time.monotonic()
            found.append(rows_found(spark, store, reader, mode))
            seconds.append(f"{time.monotonic() - began:.0f} s")
        rows, damages = (sum(count for count, *_ in found[0].values()), sum(len(shown) for *_, shown in found[0].values()))
        is_same &= _shown(table, mode, f"{rows:,} rows, {damages:,} of them damage, {len(found[0])} files", *seconds, *found)
    began = time.monotonic()
    paths = [store, *sorted((store / "commitlog").iterdir())]
    refusals = [[refusal(spark, path, reader) for path in paths] for reader in READERS]
    text = f"{sum(map(bool, refusals[0]))} of {len(paths)} reads refused"
    spent = f"{time.monotonic() - began:.0f} s together"
    return _shown(table, "FAILFAST", text, "", spent, *refusals) and is_same


def _shown(table: Table, mode: str, text: str, first_s: str, second_s: str, first: Any, second: Any) -> bool:
    table.add_row(mode, text, first_s, second_s, "the same" if first == second else "DIFFERENT")
    if first != second:
        pairs = zip(*(sorted(one.items()) if isinstance(one, dict) else one for one in (first, second)), strict=False)
        print("first difference:", next((pair for pair in pairs if pair[0] != pair[1]), "lengths"))
    return bool(first == second)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sizes.damaged", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="folder with room for the log")
    parser.add_argument("--gib", type=float, default=10, help="size of the log, a multiple of 0.5 and at least 2 (10)")
    parser.add_argument("--places", type=int, default=400, help="damaged places, beside two files (400)")
    options = parser.parse_args()
    store = options.folder / "spark-damaged"
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stderr.fileno())  # workers inherit it, and warn of each damage
    # One task after the other, so that FAILFAST fails at the first damage.
    spark = local_session("local[1]", spark_driver_memory="2g", spark_sql_shuffle_partitions="2")
    try:
        make_store(store, int(options.gib * (1 << 30)), BODY_SIZE, FILE_SIZE)
        done = damage(store, options.places)
        table = Table(title=", ".join(f"{count} {kind}" for kind, count in done.items()))
        for column in ("mode", "found by the reader in Java", *READERS, "both readers"):
            table.add_column(column)
        is_same = compare(spark, store, table)
    finally:
        shutil.rmtree(store, ignore_errors=True)
        spark.stop()
    Console().print(table)
    sys.exit(not is_same)


if __name__ == "__main__":
    main()

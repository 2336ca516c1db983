"""The log as files of a table, by topic and date, only what is new at each run.

    DIR/topic=.../date=.../*.parquet
    DIR/_rocketmq/00000001.json     a commit: how far each store is exported, and which files that made
    DIR/_rocketmq/staging/          what a run is writing

A run writes into the staging folder, then puts its commit there by a rename, then moves the files to their places. Before
the rename nothing has happened: a later run deletes what lies in staging. After it everything has: a later run moves what
still lies there. So each record is exported once, whenever a run is killed. Names that begin with `_` are no data to Spark,
Iceberg and others.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pocketmq.spark_analytics.columns import COLUMNS
from pocketmq.spark_analytics.pipelines.stores import STORE_OF_FILE
from pocketmq.spark_analytics.places import log_files
from pocketmq.spark_analytics.store_folder import store_folders

FORMATS: Final = ("parquet", "json", "csv")
STATE: Final = "_rocketmq"
# CSV has no place for bytes and maps.
_AS_TEXT: Final = {"body": "base64(body)", "properties": "to_json(properties)"}


class ExportError(ValueError):
    """An export that would not fit what lies there already, or not be complete."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an export is of; each later run into the same folder must be of the same."""

    format: str = "parquet"
    topics: tuple[str, ...] = ()
    body_as: str = "stored"

    def told(self) -> dict[str, Any]:
        return {"format": self.format, "topics": list(self.topics), "bodyAs": self.body_as}


@dataclass(frozen=True, slots=True)
class Exported:
    """What a run did. `lost`: bytes of the log that retention had deleted since the last one."""

    records: int
    files: int
    lost: int


def export(
    spark: Any,
    paths: Sequence[str],
    folder: Path,
    chosen: Chosen,
    *,
    mode: str = "FAILFAST",
    on_step: Callable[[str], None] = lambda step: None,
) -> Exported:
    """Add what is new. Raises ExportError, OSError, and what the data source raises."""
    with _alone(folder):
        state = _State(folder)
        state.check(chosen)
        # Spark's default, INT96, is what Iceberg and others do not take.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        state.finish()
        total = Exported(0, 0, 0)
        for store in store_folders(paths):
            on_step(store.root)
            done = _export_store(spark, store.root, state, chosen, mode)
            total = Exported(total.records + done.records, total.files + done.files, total.lost + done.lost)
        return total


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    (folder / STATE).mkdir(parents=True, exist_ok=True)
    with open(folder / STATE / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportError(f"another export is writing into {folder}") from None
        yield


class _State:
    """The commits of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staging = folder / STATE / "staging"
        commits = sorted((folder / STATE).glob("[0-9]*.json"))
        self.number = int(commits[-1].stem) if commits else 0
        self.last: dict[str, Any] = json.loads(commits[-1].read_text()) if commits else {}

    def next_offset(self, store: str) -> int:
        return int(self.last.get("stores", {}).get(store, 0))

    def check(self, chosen: Chosen) -> None:
        """Raises ExportError when the folder has an export of something else."""
        before = self.last.get("of", chosen.told())
        for name, value in chosen.told().items():
            if before[name] != value:
                raise ExportError(
                    f"{self.folder} has an export with {name} {before[name]}, not {value}: export that to another folder"
                )

    def finish(self) -> None:
        """Bring what a killed run left to its end, or undo it."""
        if self.staging.exists():
            for name in self.last.get("files", []):
                if (self.staging / name).exists():
                    self._move(name)
            shutil.rmtree(self.staging)

    def commit(self, chosen: Chosen, store: str, next_offset: int, records: int, files: list[str]) -> None:
        """The rename is what counts; moving comes after it."""
        stores = self.last.get("stores", {}) | {store: next_offset}
        self.last = {"of": chosen.told(), "stores": stores, "records": records, "files": files}
        self.number += 1
        path = self.folder / STATE / f"{self.number:08}.json"
        draft = path.with_suffix(".draft")
        with open(draft, "w") as file:
            json.dump(self.last, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync_folder(path.parent)
        self.finish()

    def _move(self, name: str) -> None:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.staging / name).rename(target)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _export_store(spark: Any, store: str, state: _State, chosen: Chosen, mode: str) -> Exported:
    begin = state.next_offset(store)
    log = log_files(store)
    end = log[-1].end if log else 0
    if begin > end:
        raise ExportError(
            f"{state.folder} has {store} up to physical offset {begin}, but its log ends before {end}: it is another store, "
            "or lost its end. Export it to another folder"
        )
    lost = max(0, log[0].physical_offset - begin) if begin and log else 0
    reader = spark.read.format("rocketmq").option("columns", ",".join((*COLUMNS, "storePath")))
    options = {"startingOffset": str(begin), "bodyAs": chosen.body_as, "mode": mode}
    if chosen.topics:
        options["topic"] = ",".join(chosen.topics)
    last, records = _write(reader.options(**options).load(store), state.staging, chosen, state.number + 1)
    files = sorted(str(path.relative_to(state.staging)) for path in state.staging.rglob(f"*.{chosen.format}"))
    if not records:
        shutil.rmtree(state.staging)
        return Exported(0, 0, lost)
    state.commit(chosen, store, last + 1, records, files)
    return Exported(records, len(files), lost)


def _write(records: Any, staging: Path, chosen: Chosen, number: int) -> tuple[int, int]:
    """Partitioned files in staging, whose names no other run uses; (physical offset of the last record, how many)."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    records = records.observe(seen, F.max("physicalOffset").alias("last"), F.count("*").alias("records"))
    shutil.rmtree(staging, ignore_errors=True)
    as_text = _AS_TEXT if chosen.format == "csv" else {}
    if chosen.body_as in ("string", "json"):
        as_text = {name: text for name, text in as_text.items() if name != "body"}
    names = [f"{as_text[name]} AS {name}" if name in as_text else name for name in COLUMNS]
    shown = records.selectExpr(*names, f"{STORE_OF_FILE} AS store", "CAST(to_date(storeTimestamp) AS STRING) AS date")
    writer = shown.write.format(chosen.format).partitionBy("topic", "date").option("header", "true")
    if chosen.format == "parquet":
        writer = writer.option("compression", "zstd")
    writer.save(str(staging))
    for path in list(staging.rglob("*")):
        if path.name.startswith("part-"):
            path.rename(path.with_name(f"{number:08}-{path.name}"))
        elif path.is_file():
            path.unlink()
    told = seen.get
    return told["last"] or 0, told["records"]

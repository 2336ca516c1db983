"""Incremental export of the log to files of a table, by topic and date.

    DIR/topic=.../date=.../*.parquet        and hour=.../ below date, if asked for
    DIR/_rocketmq/00000001.json     a commit: the exported offset of each store, and the files of the commit
    DIR/_rocketmq/staging/          files being written

A run writes into the staging folder, then renames its commit into place, then moves the files to their places. If it is
killed before the rename, nothing has been exported, and the next run deletes the staged files. If it is killed after the
rename, the next run moves the remaining staged files. So each record is exported exactly once. Names that begin with `_`
are ignored by Spark, Iceberg and others.
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

from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.pipelines.stores import STORE_OF_FILE
from pocketmq.store.offline.places import log_files, store_folders

STATE: Final = "_rocketmq"
# Parameters that were added later, with the values that exports of earlier versions have.
_LATER: Final[dict[str, Any]] = {"period": {}, "hourly": False}
# CSV cannot represent bytes and maps.
_AS_TEXT: Final = {"body": "base64(body)", "properties": "to_json(properties)"}


class ExportError(ValueError):
    """The export does not match the existing content of the folder, or would be incomplete."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Parameters of an export; all later runs into the same folder must use the same."""

    format: str
    topics: list[str]
    body_as: str
    period: dict[str, str]
    is_hourly: bool

    def as_document(self) -> dict[str, Any]:
        own = {"format": self.format, "topics": self.topics, "bodyAs": self.body_as}
        return own | {"period": dict(sorted(self.period.items())), "hourly": self.is_hourly}


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of a run. `lost`: bytes of the log that retention deleted since the previous run."""

    records: int
    files: int
    lost: int


def export(
    spark: Any, paths: Sequence[str], folder: Path, chosen: Chosen, *, mode: str, on_step: Callable[[str], None]
) -> Exported:
    """Export the new records. Raises ExportError, OSError, and the errors of the data source."""
    with _alone(folder):
        state = _State(folder)
        state.check(chosen)
        # Spark's default, INT96, is not supported by Iceberg and others.
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
    """The commits in an export folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staging = folder / STATE / "staging"
        commits = sorted((folder / STATE).glob("[0-9]*.json"))
        self.number = int(commits[-1].stem) if commits else 0
        self.last: dict[str, Any] = json.loads(commits[-1].read_text()) if commits else {}

    def next_offset(self, store: str) -> int:
        return int(self.last.get("stores", {}).get(store, 0))

    def check(self, chosen: Chosen) -> None:
        """Raise ExportError if the folder has an export with other parameters."""
        # Exports of earlier versions lack the parameters that were added later.
        before = _LATER | self.last.get("of", chosen.as_document())
        for name, value in chosen.as_document().items():
            if before[name] != value:
                raise ExportError(
                    f"{self.folder} has an export with {name} {before[name]}, not {value}: export that to another folder"
                )

    def finish(self) -> None:
        """Complete or undo an unfinished run."""
        if self.staging.exists():
            for name in self.last.get("files", []):
                if (self.staging / name).exists():
                    self._move(name)
            shutil.rmtree(self.staging)

    def commit(self, chosen: Chosen, store: str, next_offset: int, records: int, files: list[str]) -> None:
        """Commit the staged files by a rename, then move them to their places."""
        stores = self.last.get("stores", {}) | {store: next_offset}
        self.last = {"of": chosen.as_document(), "stores": stores, "records": records, "files": files}
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
    end = log[-1].end_offset if log else 0
    if begin > end:
        raise ExportError(
            f"{state.folder} has {store} up to physical offset {begin}, but its log ends before, at {end}: "
            "it is another store, or its log was truncated. Export it to another folder"
        )
    lost = max(0, log[0].start_offset - begin) if begin and log else 0
    reader = spark.read.format("rocketmq").option("columns", ",".join((*COLUMNS, "storePath")))
    options = {"startingOffset": str(begin), "bodyAs": chosen.body_as, "mode": mode} | chosen.period
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
    """Write partitioned files to staging, with names unique to the run; return (last physical offset, record count)."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    records = records.observe(seen, F.max("physicalOffset").alias("last"), F.count("*").alias("records"))
    shutil.rmtree(staging, ignore_errors=True)
    as_text = _AS_TEXT if chosen.format == "csv" else {}
    if chosen.body_as in ("string", "json"):
        as_text = {name: text for name, text in as_text.items() if name != "body"}
    names = [f"{as_text[name]} AS {name}" if name in as_text else name for name in COLUMNS]
    parts = {"date": "CAST(to_date(storeTimestamp) AS STRING)"}
    if chosen.is_hourly:
        parts["hour"] = "date_format(storeTimestamp, 'HH')"
    own = [f"{text} AS {name}" for name, text in parts.items()]
    shown = records.selectExpr(*names, f"{STORE_OF_FILE} AS store", *own)
    writer = shown.write
    if chosen.format == "csv":
        from pocketmq.spark_analytics.commands.csv_text import csv_writer

        writer = csv_writer(shown, frozenset({"topic", *parts, *as_text}))
    writer = writer.format(chosen.format).partitionBy("topic", *parts).option("header", "true")
    if chosen.format == "parquet":
        writer = writer.option("compression", "zstd")
    writer.save(str(staging))
    for path in list(staging.rglob("*")):
        if path.name.startswith("part-"):
            path.rename(path.with_name(f"{number:08}-{path.name}"))
        elif path.is_file():
            path.unlink()
    observed = seen.get
    return observed["last"] or 0, observed["records"]

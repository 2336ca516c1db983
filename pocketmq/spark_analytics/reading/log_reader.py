"""Reads of a CommitLog as Arrow record batches: the splits of the chosen stores, and the rows of a split.

Both the data source for Spark and reads without Spark use it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import pyarrow as pa

from pocketmq.spark_analytics.decoding.aggregates import Aggregation
from pocketmq.spark_analytics.decoding.bodies import body_column, portions
from pocketmq.spark_analytics.decoding.body_forms import STORED
from pocketmq.spark_analytics.decoding.columns import COLUMNS, Column, Records, record_batch
from pocketmq.spark_analytics.decoding.derived_columns import BROKER_NAME, DERIVED_COLUMNS
from pocketmq.spark_analytics.decoding.inner_batches import unpacked
from pocketmq.spark_analytics.decoding.typed_bodies import decode, decoder_of
from pocketmq.spark_analytics.reading.damage import Damage, corrupt_record_column
from pocketmq.spark_analytics.reading.known_queues import check_known
from pocketmq.spark_analytics.reading.options import ReadOptions, nearest
from pocketmq.spark_analytics.reading.pruning import Bounds, Pruning
from pocketmq.spark_analytics.reading.queue_pruning import plan_log
from pocketmq.spark_analytics.reading.reader import DamagedBytes, pieces
from pocketmq.spark_analytics.reading.replicas import only_here, without_copies
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.split_planning import logs
from pocketmq.spark_analytics.reading.store_times import StoreTimes
from pocketmq.store.offline.broker_names import broker_name
from pocketmq.store.offline.places import LogFile, log_files
from pocketmq.store.offline.store_folder import MissingFileError

log = logging.getLogger(__name__)

BODY: Final = "body"
# Planning is repeated when a file is deleted meanwhile; a broker deletes at most ten files in a row.
_PLANNINGS_MAX: Final = 20
T = TypeVar("T")


class ColumnError(ValueError):
    """A column that does not exist, or not with the type of the schema."""


class LogReader:
    """Reader of some columns of the stores named in the options."""

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._aggregation = aggregation(options)
        self.columns = columns
        self.pruning = Pruning.of(options)

    def splits(self) -> list[Split]:
        """Return the splits selected by options and filters. Raises MissingFileError, ValueError, OSError."""
        return planned(self._splits)

    def _splits(self) -> list[Split]:
        files = log_files(self._options.paths)
        check_known(self._options, files)
        split_size = self._options.split_size(sum(file.size for file in files))
        found = [(chain, plan_log(chain, self.pruning, split_size)) for chain in logs(files)]
        drops = self._options.drop_replicas
        return self.named(without_copies(found) if drops else [split for _, own in found for split in own], files)

    def named(self, splits: list[Split], files: Iterable[LogFile]) -> list[Split]:
        """Return splits with the names of their brokers, if these are asked for. Raises ValueError, OSError."""
        given = self._options.broker_names
        if not given and not any(column.name == BROKER_NAME for column in self.columns):
            return splits
        stores = {file.store for file in files}
        unknown = sorted(given.keys() - stores)
        if unknown:
            raise ValueError(f"option brokerNames has {unknown[0]}: the stores are {', '.join(sorted(stores))}")
        names = {store: given.get(store) or broker_name(store) for store in {split.file.store for split in splits}}
        return [replace(split, broker_name=names[split.file.store]) for split in splits]

    def batches(self, split: Split) -> Iterator[Any]:
        """Yield the Arrow record batches of a split, at least one per window."""
        try:
            if self._aggregation is not None:
                yield from self._aggregation.rows(self._records(split), self.columns)
                return
            for records in self._records(split):
                yield records if isinstance(records, pa.RecordBatch) else record_batch(records, self.columns)
        except MissingFileError as error:
            if not self._options.ignore_missing_files:
                hint = '.option("ignoreMissingFiles", "true") reads the remaining files'
                raise MissingFileError(f"{error}; {hint}") from None
            log.warning("skipped: %s", error)

    def _records(self, split: Split) -> Iterator[Any]:
        """Yield the wanted records of a split, window by window, and rows for damage as RecordBatches."""
        corrupt = self._options.corrupt_record_column
        damage = Damage(self._options.mode, self.columns, corrupt, self.pruning, split.broker_name)
        form = self._options.body
        is_plain = form.kind != STORED and any(column.name == BODY for column in self.columns)
        decode_body = decoder_of(form) if is_plain and form.is_typed else None
        bounds = self.pruning.store_timestamps_us
        times = None if bounds == Bounds() else StoreTimes(split.file, bounds)
        for piece in pieces(split, times):
            if isinstance(piece, DamagedBytes):
                row = damage.stretch(piece)
                if row is not None:
                    yield row
                continue
            records, rows = damage.invalid(Records.of(piece, split.file.path, self._options.delay_levels, split.broker_name))
            if rows is not None:
                yield rows
            records = self.pruning.records(unpacked(self._only_here(records, split)))
            for part in portions(records) if is_plain else [records]:
                if decode_body is not None:
                    decode(part, form, decode_body)
                part = damage.bodies(part)
                if len(part):
                    yield part

    def _only_here(self, records: Records, split: Split) -> Records:
        for copy in split.copies:
            try:
                records = only_here(records, split, copy) if len(records) else records
            except MissingFileError as error:
                if not self._options.ignore_missing_files:
                    raise
                log.warning("skipped: %s", error)
        return records


def planned(plan: Callable[[], T]) -> T:
    """Return the result of `plan`, repeating it when a file is deleted meanwhile."""
    for _ in range(_PLANNINGS_MAX):
        try:
            return plan()
        except MissingFileError as error:
            missing = error
    raise missing


def known_columns(options: ReadOptions) -> dict[str, Column]:
    """Return every column that may be requested, by name."""
    corrupt = corrupt_record_column(options.corrupt_record_column)
    known = COLUMNS | DERIVED_COLUMNS | {BODY: body_column(options.body), corrupt.name: corrupt}
    if options.mode == "PERMISSIVE":  # a row of nulls stands for damage
        known = {name: replace(column, is_nullable=True) for name, column in known.items()}
    return known


def aggregation(options: ReadOptions) -> Aggregation | None:
    """Return the aggregation requested by the options, None if rows are messages. Raises ValueError."""
    if not options.is_aggregated:
        return None
    return Aggregation.of(options.group_by, options.aggregates, COLUMNS | DERIVED_COLUMNS)


def known_column(name: str, known: Mapping[str, T]) -> T:
    """Return a column, or its type, by its name. Raises ColumnError."""
    if name not in known:
        raise ColumnError(f"unknown column {name}: {nearest(name, known)}; the columns are {', '.join(known)}")
    return known[name]


def asked_columns(options: ReadOptions) -> list[Column]:
    """Return the columns that the options name, or the default ones. Raises ValueError."""
    asked = aggregation(options)
    if asked is not None:
        return asked.columns
    known = known_columns(options)
    return [known_column(name, known) for name in options.columns or default_columns(options)]


def default_columns(options: ReadOptions) -> tuple[str, ...]:
    """Return the names of the columns of a read that names none: where several stores are named, with the brokers' names."""
    return tuple(COLUMNS) if options.is_one_store else (*COLUMNS, BROKER_NAME)

"""Batch reads of a CommitLog: partitions, and the columns requested by a schema."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pocketmq.spark_analytics.decoding.aggregates import Aggregation
from pocketmq.spark_analytics.decoding.bodies import body_column, portions
from pocketmq.spark_analytics.decoding.columns import COLUMNS, Column, Records, record_batch
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.files.places import MissingFileError, log_files
from pocketmq.spark_analytics.reading.damage import Damage, corrupt_record_column
from pocketmq.spark_analytics.reading.known_queues import check_known
from pocketmq.spark_analytics.reading.options import ReadOptions, nearest, read_options
from pocketmq.spark_analytics.reading.pruning import Pruning
from pocketmq.spark_analytics.reading.queue_pruning import plan_log
from pocketmq.spark_analytics.reading.reader import DamagedBytes, pieces
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.reading.split_planning import logs

log = logging.getLogger(__name__)

# Planning is repeated when a file is deleted meanwhile; a broker deletes at most ten files in a row.
_PLANNINGS_MAX: Final = 20


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """The split of one task."""

    split: Split


class CommitLogReader(DataSourceReader):  # type: ignore[misc]
    """Reader of the columns of `schema` from the stores named in `options`.

    Raises ValueError for an unknown column or option or a wrong type, FileNotFoundError for a missing store.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = asked = read_options(options)
        self._aggregation = aggregation(asked)
        self._columns = projection(schema, asked)
        self._pruning = Pruning.of(asked)

    def partitions(self) -> list[SplitPartition]:
        """Return the splits selected by options and filters."""
        for _ in range(_PLANNINGS_MAX):
            try:
                files = log_files(self._options.paths)
                check_known(self._options, files)
                split_size = self._options.split_size(sum(file.size for file in files))
                splits = [split for chain in logs(files) for split in plan_log(chain, self._pruning, split_size)]
                return [SplitPartition(split) for split in splits]
            except MissingFileError as error:
                missing = error
        raise missing

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a partition, at least one per window."""
        # If there are no partitions, Spark passes a partition of its own.
        if not isinstance(partition, SplitPartition):
            return
        try:
            if self._aggregation is not None:
                yield from self._aggregation.rows(self._records(partition.split), self._columns)
                return
            for records in self._records(partition.split):
                yield records if isinstance(records, pa.RecordBatch) else record_batch(records, self._columns)
        except MissingFileError as error:
            if not self._options.ignore_missing_files:
                raise
            log.warning("skipped: %s", error)

    def _records(self, split: Split) -> Iterator[Any]:
        """Yield the wanted records of a split, window by window, and rows for damage as RecordBatches."""
        damage = Damage(self._options.mode, self._columns, self._options.corrupt_record_column, self._pruning)
        is_plain = self._options.body_as != "stored" and any(column.name == "body" for column in self._columns)
        for piece in pieces(split):
            if isinstance(piece, DamagedBytes):
                row = damage.stretch(piece)
                if row is not None:
                    yield row
                continue
            records, rows = damage.invalid(Records.of(piece, split.file.path, self._options.delay_levels))
            if rows is not None:
                yield rows
            records = self._pruning.records(records)
            for part in portions(records) if is_plain else [records]:
                part = damage.bodies(part)
                if len(part):
                    yield part


class FilteringCommitLogReader(CommitLogReader):
    """A reader that also evaluates the query's pushed filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Use the filters for pruning, and return all of them: Spark evaluates them as well."""
        self._pruning = self._pruning.narrowed(filters)
        return filters


def known_columns(options: ReadOptions) -> dict[str, Column]:
    """Return every column that may be requested, by name."""
    corrupt = corrupt_record_column(options.corrupt_record_column)
    known = COLUMNS | DERIVED_COLUMNS | {"body": body_column(options.body_as), corrupt.name: corrupt}
    if options.mode == "PERMISSIVE":  # a row of nulls stands for damage
        known = {name: replace(column, is_nullable=True) for name, column in known.items()}
    return known


def aggregation(options: ReadOptions) -> Aggregation | None:
    """Return the aggregation requested by the options, None if rows are messages. Raises ValueError."""
    if not options.is_aggregated:
        return None
    return Aggregation.of(options.group_by, options.aggregates, COLUMNS | DERIVED_COLUMNS)


def projection(schema: StructType, options: ReadOptions) -> list[Column]:
    """Return the columns requested by a user's schema. Raises ValueError."""
    asked = aggregation(options)
    known = known_columns(options)
    if asked is not None:
        known = {column.name: column for column in asked.columns}
        if [(field.name, field.dataType.simpleString()) for field in schema.fields] != [
            (column.name, column.spark_type) for column in asked.columns
        ]:
            raise ValueError("options groupBy and aggregates define the schema: do not give another one")
    columns = []
    for field in schema.fields:
        column = known_column(field.name, known)
        spark_type = field.dataType.simpleString()
        if column.spark_type != spark_type:
            raise ValueError(
                f"column {field.name} is {column.spark_type}, the schema says {spark_type}: cast it after reading"
            )
        if column.is_nullable and not field.nullable:
            raise ValueError(f"column {field.name} may be null in mode {options.mode}: leave NOT NULL out of the schema")
        columns.append(replace(column, is_nullable=field.nullable))
    if options.columns and options.columns != tuple(schema.names):
        raise ValueError(f"option columns is {', '.join(options.columns)}, the schema has others: use only one of them")
    return columns


def known_column(name: str, known: Mapping[str, Column]) -> Column:
    if name not in known:
        near = nearest(name, {column.lower(): column for column in known})
        raise ValueError(f"unknown column {name}: {near}; the columns are {', '.join(known)}")
    return known[name]

"""`spark.read.format("rocketmq").load(STORE)`: CommitLog files as a table, read straight from disk.

STORE is a store's root, its commitlog folder, one file, a glob of these, or a list of all that, of one broker or several; a
path or an URL. No broker is needed, and one that runs is not disturbed: files are only read, and no lock is taken. What the
log held when the query was planned is what the query sees.

Spark tells a Python source which filters apply, but not which columns are used, so a schema given by the user is the
projection: `.schema("topic string, storeTimestamp timestamp")` decodes two columns and nothing else, as does the option
`columns`. Those of `columns.COLUMNS` are the table; those of `derived_columns` are there when they are named.

Options:
    columns             names of columns with commas between, instead of a schema
    groupBy, aggregates one row a group and task instead of messages, such as `topic` and `count, sum(storeSize)`
                        (`aggregates`)
    topic, queueId      only these, several with commas between: read through the ConsumeQueues, where there are any
    startingTimestamp, endingTimestamp    only what was stored from the one up to (without) the other: ms since 1970, or
                        ISO 8601, UTC if it names no zone
    startingOffset, endingOffset          the same of physical offsets
    bodyAs              stored (default), plain (decompressed), string (the same as text), json (text; null if it is no JSON)
    mode                FAILFAST (default) ends the query at a damaged record with the log's end still to come;
                        DROPMALFORMED goes on with the next intact one; PERMISSIVE as well, with a row of nulls for it
    columnNameOfCorruptRecord             `_corrupt_record` unless given: a binary column of the schema for damaged bytes
    delayLevel          the broker's messageDelayLevel, for deliverTime
    maxPartitionBytes   bytes of a task, such as `64m`; a plain number or with k, m or g. Unless given, half of what comes to
                        each processor of the driver's machine, from `128m` to `512m`
    ignoreMissingFiles  true: leave out files that retention deletes while the query runs
    pushFilters         true: leave out, while reading, what the query's filters on topic, queueId, physicalOffset and
                        storeTimestamp exclude; needs spark.sql.python.filterPushdown.enabled. Only for a DataFrame that
                        is filtered once: Spark (4.3) keeps the filters with the loaded table, so that a later query
                        without any, or the other half of a union or join, misses rows. Off by default for that reason
    table               another table than `messages`: consumequeue, index, topics, groups, offsets, delays, transactions
                        (`tables`)
"""

import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pocketmq.spark_analytics.aggregates import Aggregation
from pocketmq.spark_analytics.bodies import body_column, portions
from pocketmq.spark_analytics.columns import COLUMNS, Column, Records, record_batch
from pocketmq.spark_analytics.damage import Damage, corrupt_record_column
from pocketmq.spark_analytics.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.options import STREAM_OPTIONS, ReadOptions, nearest, read_options
from pocketmq.spark_analytics.places import MissingFileError, log_files
from pocketmq.spark_analytics.pruning import Pruning
from pocketmq.spark_analytics.queue_pruning import plan_log
from pocketmq.spark_analytics.reader import DamagedBytes, pieces
from pocketmq.spark_analytics.splits import Split, logs

log = logging.getLogger(__name__)

MESSAGES: Final = "messages"
# Name -> module with DDL and reader(schema, options), options as Spark hands them over.
TABLES: Final = {
    "consumequeue": "pocketmq.spark_analytics.tables.consume_queue",
    "index": "pocketmq.spark_analytics.tables.index",
    "topics": "pocketmq.spark_analytics.tables.topics",
    "groups": "pocketmq.spark_analytics.tables.groups",
    "offsets": "pocketmq.spark_analytics.tables.offsets",
    "delays": "pocketmq.spark_analytics.tables.delays",
    "transactions": "pocketmq.spark_analytics.tables.transactions",
}
# While it is planned, a file that goes had better never been seen; a broker deletes ten at most in one go.
_PLANNINGS_MAX: Final = 20


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """One task's share."""

    split: Split


class CommitLogReader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of `schema` from the stores that `options` name.

    Raises ValueError for a column, type or option that there is not, FileNotFoundError for a store that there is not.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = asked = read_options(options)
        self._aggregation = aggregation(asked)
        self._columns = projection(schema, asked)
        self._pruning = Pruning.of(asked)

    def partitions(self) -> list[SplitPartition]:
        """The splits that options and filters leave."""
        for _ in range(_PLANNINGS_MAX):
            try:
                files = log_files(self._options.paths)
                split_size = self._options.split_size(sum(file.size for file in files))
                splits = [split for chain in logs(files) for split in plan_log(chain, self._pruning, split_size)]
                return [SplitPartition(split) for split in splits]
            except MissingFileError as error:
                missing = error
        raise missing

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow record batches of a partition, one a window or more."""
        # Spark makes up a partition of its own when there is none.
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
            log.warning("left out: %s", error)

    def _records(self, split: Split) -> Iterator[Any]:
        """The wanted records of a split, window by window; rows of damage as batches."""
        damage = Damage(self._options.mode, self._columns, self._options.corrupt_record_column, self._pruning)
        is_plain = self._options.body_as != "stored" and any(column.name == "body" for column in self._columns)
        for piece in pieces(split):
            if isinstance(piece, DamagedBytes):
                row = damage.stretch(piece)
                if row is not None:
                    yield row
                continue
            records, rows = damage.unsound(Records.of(piece, split.file.path, self._options.delay_levels))
            if rows is not None:
                yield rows
            records = self._pruning.records(records)
            for part in portions(records) if is_plain else [records]:
                part = damage.bodies(part)
                if len(part):
                    yield part


class FilteringCommitLogReader(CommitLogReader):
    """A reader that also takes the query's filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Note what can be left out, and give every filter back: Spark applies them as well."""
        self._pruning = self._pruning.narrowed(filters)
        return filters


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The data source `rocketmq`."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        table = self._other_table()
        if table is not None:
            return str(table.DDL)
        options = read_options(self.options, STREAM_OPTIONS)
        asked = aggregation(options)
        if asked is not None:
            return ", ".join(column.ddl for column in asked.columns)
        known = known_columns(options)
        return ", ".join(_known(name, known).ddl for name in options.columns or tuple(COLUMNS))

    def reader(self, schema: StructType) -> DataSourceReader:
        table = self._other_table()
        if table is not None:
            reader: DataSourceReader = table.reader(schema, self.options)
            return reader
        # Spark refuses a reader that takes filters while its own setting is off, and its error names the setting.
        kind = FilteringCommitLogReader if read_options(self.options).push_filters else CommitLogReader
        return kind(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        streaming = importlib.import_module("pocketmq.spark_analytics.streaming")
        reader: DataSourceStreamReader = streaming.CommitLogStreamReader(schema, self.options)
        return reader

    def _other_table(self) -> Any:
        """The module of the table that was asked for, None for the messages themselves."""
        name = self.options.get("table", MESSAGES).strip().lower()
        if name == MESSAGES:
            return None
        if name not in TABLES:
            known = {table: table for table in (MESSAGES, *TABLES)}
            raise ValueError(f"option table is {name}: {nearest(name, known)}")
        return importlib.import_module(TABLES[name])


def known_columns(options: ReadOptions) -> dict[str, Column]:
    """Every column that may be asked for."""
    corrupt = corrupt_record_column(options.corrupt_record_column)
    known = COLUMNS | DERIVED_COLUMNS | {"body": body_column(options.body_as), corrupt.name: corrupt}
    if options.mode == "PERMISSIVE":  # a row of nulls stands for damage
        known = {name: replace(column, is_nullable=True) for name, column in known.items()}
    return known


def aggregation(options: ReadOptions) -> Aggregation | None:
    """What the options group and measure, None when rows are messages. Raises ValueError."""
    if not options.is_aggregated:
        return None
    return Aggregation.of(options.group_by, options.aggregates, COLUMNS | DERIVED_COLUMNS)


def projection(schema: StructType, options: ReadOptions) -> list[Column]:
    """The columns that a user's schema asks for. Raises ValueError."""
    asked = aggregation(options)
    known = known_columns(options)
    if asked is not None:
        known = {column.name: column for column in asked.columns}
        if [(field.name, field.dataType.simpleString()) for field in schema.fields] != [
            (column.name, column.spark_type) for column in asked.columns
        ]:
            raise ValueError("options groupBy and aggregates make their own schema: give none")
    columns = []
    for field in schema.fields:
        column = _known(field.name, known)
        spark_type = field.dataType.simpleString()
        if column.spark_type != spark_type:
            raise ValueError(
                f"column {field.name} is {column.spark_type}, the schema says {spark_type}: cast it after reading"
            )
        if column.is_nullable and not field.nullable:
            raise ValueError(f"column {field.name} may be null in mode {options.mode}: leave NOT NULL out of the schema")
        columns.append(replace(column, is_nullable=field.nullable))
    if options.columns and options.columns != tuple(schema.names):
        raise ValueError(f"option columns is {', '.join(options.columns)}, the schema has others: give one of the two")
    return columns


def _known(name: str, known: Mapping[str, Column]) -> Column:
    if name not in known:
        near = nearest(name, {column.lower(): column for column in known})
        raise ValueError(f"unknown column {name}: {near}; the columns are {', '.join(known)}")
    return known[name]


def register(spark: Any) -> None:
    """Make the format `rocketmq` known to a session."""
    spark.dataSource.register(RocketMQDataSource)

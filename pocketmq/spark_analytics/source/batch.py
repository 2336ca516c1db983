"""Batch reads of a CommitLog, and of companion tables, by Spark: partitions, and the columns requested by a schema."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from pocketmq.spark_analytics.decoding.body_forms import JSON, BodyForm
from pocketmq.spark_analytics.decoding.body_types import of_spark, simple
from pocketmq.spark_analytics.decoding.columns import Column
from pocketmq.spark_analytics.reading.body_options import json_type
from pocketmq.spark_analytics.reading.log_reader import (
    BODY,
    ColumnError,
    LogReader,
    aggregation,
    default_columns,
    known_column,
    known_columns,
)
from pocketmq.spark_analytics.reading.options import ReadOptions, read_options
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.spark_analytics.source.errors import named_errors
from pocketmq.spark_analytics.tables.table import Table

log = logging.getLogger(__name__)

# Smaller reads take less time than Spark needs to start their tasks.
WARNED_SIZE_MIN: Final = 64 << 20
_warned: set[str] = set()


@dataclass
class Partition(InputPartition):  # type: ignore[misc]
    """Share of one task: a split of the log, or a part of a companion table."""

    part: Any


class _Reader(DataSourceReader):  # type: ignore[misc]
    def batches(self, part: Any) -> Iterator[Any]:
        raise NotImplementedError

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a partition."""
        # If there are no partitions, Spark passes a partition of its own.
        if isinstance(partition, Partition):
            with named_errors():
                yield from self.batches(partition.part)


class CommitLogReader(_Reader):
    """Reader of the columns of `schema` from the stores named in `options`.

    Raises ValueError for an unknown column or option or a wrong type, FileNotFoundError for a missing store.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        asked = with_body_type(read_options(options), schema)
        self.log_reader = LogReader(asked, projection(schema, asked))
        self._is_default = not asked.columns and tuple(schema.names) == default_columns(asked)

    @named_errors()
    def partitions(self) -> list[Partition]:
        """Return the splits selected by options and filters."""
        splits = self.log_reader.splits()
        if self._is_default:
            _warn_of_columns(splits, self.log_reader.columns)
        return [Partition(split) for split in splits]

    def batches(self, part: Any) -> Iterator[Any]:
        return self.log_reader.batches(part)


def _warn_of_columns(splits: Sequence[Split], columns: Sequence[Column]) -> None:
    """Warn once in this process, which plans a session's reads, that a large read decodes columns that may not be used.

    Spark does not tell a data source in Python which columns a query uses. The most expensive are properties, tags and keys.
    """
    size = sum(split.size for split in splits)
    if size >= WARNED_SIZE_MIN and not _warned:
        _warned.add("columns")
        log.warning(
            "reading %s MiB of log, this query decodes all %s columns, whether it uses them or not; the most expensive are "
            'properties, tags and keys. Name those it uses, as in .option("columns", "topic,storeTimestamp"); the reader in '
            "Java selects them automatically (see docs/spark.md, Two readers)",
            f"{size >> 20:,}",
            len(columns),
        )


class FilteringCommitLogReader(CommitLogReader):
    """A reader that also evaluates the query's pushed filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Use the filters for pruning, and return all of them: Spark evaluates them as well."""
        self.log_reader.pruning = self.log_reader.pruning.narrowed(filters)
        return filters


def with_body_type(options: ReadOptions, schema: StructType) -> ReadOptions:
    """Take the type of JSON bodies from a schema, if it has one, so that it is inferred only once. Raises ValueError."""
    given = next((field.dataType for field in schema.fields if field.name == BODY), None)
    if isinstance(given, StructType) and options.body.topics:
        return replace(
            options, body=BodyForm.by_topic({topic: _of_topic(own, topic, given) for topic, own in options.body.topics})
        )
    if not isinstance(given, StructType) or options.body.kind != JSON or options.body.arrow_type is not None:
        return options
    return replace(options, body=options.body.typed(json_type(of_spark(given.jsonValue()))))


def _of_topic(form: BodyForm, topic: str, given: StructType) -> BodyForm:
    if not form.is_inferred:
        return form
    own = next((field.dataType for field in given.fields if field.name == topic), None)
    if own is None:
        raise ValueError(f"option bodyDecoders names topic {topic}, but column body of the schema has no such field")
    return form.typed(json_type(of_spark(own.jsonValue())))


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
        _check_type(field, column.spark_type)
        if column.is_nullable and not field.nullable:
            raise ColumnError(f"column {field.name} may be null in mode {options.mode}: leave NOT NULL out of the schema")
        columns.append(replace(column, is_nullable=field.nullable))
    if options.columns and options.columns != tuple(schema.names):
        raise ColumnError(f"option columns is {', '.join(options.columns)}, the schema has others: use only one of them")
    return columns


def _check_type(field: StructField, own: str) -> None:
    asked = field.dataType.simpleString()
    if own != asked:
        raise ColumnError(f"column {field.name} is {own}, but the schema has {asked}: cast it after reading")


# --- companion tables -------------------------------------------------------------------------------------------------


class TableReader(_Reader):
    """Reader of the columns of `schema` from one table, for the stores named in `options`.

    Raises ValueError for an unknown column or option or a wrong type, FileNotFoundError for a missing store.
    """

    def __init__(self, table: Table, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = table.asked(options, ("reader",))
        self._table = table
        for field in schema.fields:
            _check_type(field, simple(known_column(field.name, table.types)))
        self._schema = table.schema(schema.names)

    @named_errors()
    def partitions(self) -> list[Partition]:
        """Return the parts of all stores."""
        return [Partition(part) for part in self._table.parts_in(self._options)]

    def batches(self, part: Any) -> Iterator[Any]:
        return self._table.batches(part, self._schema)

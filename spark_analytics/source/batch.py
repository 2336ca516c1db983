"""Batch reads of a CommitLog by Spark: partitions, and the columns requested by a schema."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pocketmq.spark_analytics.decoding.columns import Column
from pocketmq.spark_analytics.reading.log_reader import LogReader, aggregation, known_column, known_columns
from pocketmq.spark_analytics.reading.options import ReadOptions, read_options
from pocketmq.spark_analytics.reading.split import Split


@dataclass
class SplitPartition(InputPartition):  # type: ignore[misc]
    """The split of one task."""

    split: Split


class CommitLogReader(DataSourceReader):  # type: ignore[misc]
    """Reader of the columns of `schema` from the stores named in `options`.

    Raises ValueError for an unknown column or option or a wrong type, FileNotFoundError for a missing store.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        asked = read_options(options)
        self._log = LogReader(asked, projection(schema, asked))

    def partitions(self) -> list[SplitPartition]:
        """Return the splits selected by options and filters."""
        return [SplitPartition(split) for split in self._log.splits()]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a partition."""
        # If there are no partitions, Spark passes a partition of its own.
        return self._log.batches(partition.split) if isinstance(partition, SplitPartition) else iter(())


class FilteringCommitLogReader(CommitLogReader):
    """A reader that also evaluates the query's pushed filters."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Use the filters for pruning, and return all of them: Spark evaluates them as well."""
        self._log.pruning = self._log.pruning.narrowed(filters)
        return filters


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

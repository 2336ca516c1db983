"""Batch reads of the companion tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from pocketmq.spark_analytics.reading.log_reader import ColumnError
from pocketmq.spark_analytics.reading.options import nearest, read_options, refuse_unknown
from pocketmq.spark_analytics.source.errors import named_errors
from pocketmq.spark_analytics.tables.table import Table
from pocketmq.store.offline.places import store_folders


@dataclass
class TablePartition(InputPartition):  # type: ignore[misc]
    """The part read by one task."""

    part: Any


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reader of the columns of `schema` from one table, for the stores named in `options`.

    Raises ValueError for an unknown column or option or a wrong type, FileNotFoundError for a missing store.
    """

    def __init__(self, table: Table, schema: StructType, options: Mapping[str, str]) -> None:
        options = {name.lower(): value for name, value in options.items()}
        refuse_unknown(options, (*table.options, "reader"))
        self._table = table
        self._names = [_checked(table, field) for field in schema.fields]
        self._options = read_options({name: value for name, value in options.items() if name != "table"})

    @named_errors()
    def partitions(self) -> list[TablePartition]:
        """Return the parts of all stores."""
        stores, levels = store_folders(self._options.paths), self._options.delay_levels
        return [TablePartition(part) for store in stores for part in self._table.parts_of(store, levels)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a partition."""
        # If there are no partitions, Spark passes a partition of its own.
        if isinstance(partition, TablePartition):
            with named_errors():
                for rows in self._table.rows(partition.part):
                    if rows.row_count:
                        yield self._table.batch(rows, self._names)


def _checked(table: Table, field: StructField) -> str:
    """Return the name of a column requested by a user's schema, after checking name and type."""
    types = table.spark_types
    if field.name not in types:
        near = nearest(field.name, {name.lower(): name for name in types})
        raise ColumnError(f"unknown column {field.name}: {near}; the columns are {', '.join(types)}")
    own, asked = types[field.name], field.dataType.simpleString()
    if own != asked:
        raise ColumnError(f"column {field.name} is {own}, but the schema has {asked}: cast it after reading")
    return str(field.name)

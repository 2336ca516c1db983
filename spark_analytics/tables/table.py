"""Base of the companion tables, and conversion of their rows to Arrow.

A table is a schema and two functions: `parts` runs on the driver and lists what is to be read of a store; `rows` runs in a
task, reads one part and yields columns of many rows at a time. A column is a NumPy array, an Arrow array or a list; a single
text or number stands for all rows. Times are epoch ms; negative values are null.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from pocketmq.spark_analytics.decoding.columns import TIMESTAMP, TIMESTAMP_MS_MAX
from pocketmq.spark_analytics.files.store_folder import StoreFolder, store_folders
from pocketmq.spark_analytics.reading.options import nearest, read_options, refuse_unknown

NO_TIME: Final = -1
OPTIONS: Final = ("path", "paths", "table", "reader")
ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


class Rows(NamedTuple):
    """A batch of `row_count` rows; `columns` has every column of the table's schema."""

    row_count: int
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its schema in DDL. Parts must be picklable, since they are sent to tasks."""

    ddl: str
    parts: Callable[[StoreFolder], list[Any]]
    rows: Callable[[Any], Iterator[Rows]]

    @property
    def spark_types(self) -> dict[str, str]:
        """Column name -> type, in the order of the schema."""
        return dict(field.split(" ", 1) for field in self.ddl.split(", "))

    def batch(self, rows: Rows, names: list[str]) -> Any:
        """Return the named columns of some rows as an Arrow RecordBatch."""
        types = self.spark_types
        schema = pa.schema([(name, ARROW_TYPES[types[name]]) for name in names])
        arrays = [_array(rows.columns[name], types[name], rows.row_count) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
        refuse_unknown(options, OPTIONS)
        self._table = table
        self._names = [_checked(table, field) for field in schema.fields]
        self._paths = read_options({name: options[name] for name in ("path", "paths") if name in options}).paths

    def partitions(self) -> list[TablePartition]:
        """Return the parts of all stores."""
        return [TablePartition(part) for store in store_folders(self._paths) for part in self._table.parts(store)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of a partition."""
        # If there are no partitions, Spark passes a partition of its own.
        if isinstance(partition, TablePartition):
            for rows in self._table.rows(partition.part):
                if rows.row_count:
                    yield self._table.batch(rows, self._names)


def _checked(table: Table, field: StructField) -> str:
    """Return the name of a column requested by a user's schema, after checking name and type."""
    types = table.spark_types
    if field.name not in types:
        near = nearest(field.name, {name.lower(): name for name in types})
        raise ValueError(f"unknown column {field.name}: {near}; the columns are {', '.join(types)}")
    own, asked = types[field.name], field.dataType.simpleString()
    if own != asked:
        raise ValueError(f"column {field.name} is {own}, the schema says {asked}: cast it after reading")
    return str(field.name)


def _array(values: Any, spark_type: str, count: int) -> Any:
    arrow_type = ARROW_TYPES[spark_type]
    if values is None or isinstance(values, str | int):
        return pa.repeat(pa.scalar(values, arrow_type), count)
    if spark_type == "timestamp" and not isinstance(values, pa.Array):
        times_ms = np.asarray(values, np.int64)
        return pa.array(np.minimum(times_ms, TIMESTAMP_MS_MAX) * 1000, mask=times_ms < 0).cast(arrow_type)
    if isinstance(values, np.ndarray):
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    array = values if isinstance(values, pa.Array) else pa.array(values, arrow_type)
    return array if array.type == arrow_type else array.cast(arrow_type)

"""What a companion table is, and how its rows become Arrow.

A table is a schema and two functions: `parts` looks at a store, on the driver, and says what there is to read; `rows` reads
one part, in a task, and yields columns of many rows at a time. A column is a NumPy array, an Arrow array or a list; a text
or number alone stands for all rows. Times are epoch ms, negative ones null.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from pocketmq.spark_analytics.columns import TIMESTAMP, TIMESTAMP_MS_MAX
from pocketmq.spark_analytics.options import nearest, read_options, refuse_unknown
from pocketmq.spark_analytics.store_folder import StoreFolder, store_folders

NO_TIME: Final = -1
OPTIONS: Final = ("path", "paths", "table")
ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


class Rows(NamedTuple):
    """`row_count` rows; every column of the table's schema is in `columns`."""

    row_count: int
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """`ddl` is the schema. A part must be picklable: it goes to a task."""

    ddl: str
    parts: Callable[[StoreFolder], list[Any]]
    rows: Callable[[Any], Iterator[Rows]]

    @property
    def spark_types(self) -> dict[str, str]:
        """Column -> type, in order."""
        return dict(field.split(" ", 1) for field in self.ddl.split(", "))

    def batch(self, rows: Rows, names: list[str]) -> Any:
        """The named columns of some rows as an Arrow RecordBatch."""
        types = self.spark_types
        schema = pa.schema([(name, ARROW_TYPES[types[name]]) for name in names])
        arrays = [_array(rows.columns[name], types[name], rows.row_count) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class TablePartition(InputPartition):  # type: ignore[misc]
    """One task's share."""

    part: Any


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of `schema` of one table, from the stores that `options` name.

    Raises ValueError for a column, type or option that there is not, FileNotFoundError for a store that there is not.
    """

    def __init__(self, table: Table, schema: StructType, options: Mapping[str, str]) -> None:
        refuse_unknown(options, OPTIONS)
        self._table = table
        self._names = [_checked(table, field) for field in schema.fields]
        self._paths = read_options({name: options[name] for name in ("path", "paths") if name in options}).paths

    def partitions(self) -> list[TablePartition]:
        """The parts of all stores."""
        return [TablePartition(part) for store in store_folders(self._paths) for part in self._table.parts(store)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow record batches of a partition."""
        # Spark makes up a partition of its own when there is none.
        if isinstance(partition, TablePartition):
            for rows in self._table.rows(partition.part):
                if rows.row_count:
                    yield self._table.batch(rows, self._names)


def _checked(table: Table, field: StructField) -> str:
    """The name of a column that a user's schema asks for."""
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

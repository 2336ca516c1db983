"""Base of the companion tables, and conversion of their rows to Arrow.

A table is a schema and two functions: `parts` runs on the driver and lists what is to be read of a store; `rows` runs in a
task, reads one part and yields columns of many rows at a time. A column is a NumPy array, an Arrow array or a list; a single
text or number stands for all rows. Times are epoch ms; negative values are null.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pocketmq.spark_analytics.decoding.body_types import of_ddl
from pocketmq.spark_analytics.decoding.columns import TIMESTAMP, TIMESTAMP_MS_MAX
from pocketmq.spark_analytics.reading.log_reader import known_column
from pocketmq.spark_analytics.reading.options import ReadOptions, nearest, read_options, refuse_unknown
from pocketmq.store.offline.places import store_folders

NO_TIME: Final = -1
MESSAGES: Final = "messages"
# Table name -> module with TABLE.
TABLES: Final = {
    "consumequeue": "pocketmq.spark_analytics.tables.consume_queue",
    "index": "pocketmq.spark_analytics.tables.index",
    "topics": "pocketmq.spark_analytics.tables.topics",
    "groups": "pocketmq.spark_analytics.tables.groups",
    "offsets": "pocketmq.spark_analytics.tables.offsets",
    "delays": "pocketmq.spark_analytics.tables.delays",
    "transactions": "pocketmq.spark_analytics.tables.transactions",
    "deliveries": "pocketmq.spark_analytics.pipelines.deliveries",
}


class Rows(NamedTuple):
    """A batch of `row_count` rows; `columns` has every column of the table's schema."""

    row_count: int
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its schema in DDL. Parts must be picklable, since they are sent to tasks."""

    ddl: str
    parts: Callable[..., list[Any]]
    rows: Callable[[Any], Iterator[Rows]]
    needs_levels: bool = False
    """Whether `parts` needs the delay levels, too."""

    def parts_in(self, options: ReadOptions) -> Iterator[Any]:
        """Yield what is to be read of the stores that the options name. Raises FileNotFoundError."""
        own = (options.delay_levels,) if self.needs_levels else ()
        for store in store_folders(options.paths):
            yield from self.parts(store, *own)

    @property
    def types(self) -> dict[str, Any]:
        """Column name -> Arrow type, in the order of the schema."""
        return {field.name: field.type for field in of_ddl(self.ddl)}

    def schema(self, names: Iterable[str] | None = None) -> Any:
        """Return the Arrow schema of the named columns, or of all. Raises ValueError."""
        types = self.types
        return pa.schema([(name, known_column(name, types)) for name in names or types])

    def asked(self, options: Mapping[str, str], more: Iterable[str] = ()) -> ReadOptions:
        """Validate options as Spark passes them. `more`: names of options that are handled elsewhere. Raises ValueError."""
        own = ("path", "paths", "table", *(("delayLevel",) if self.needs_levels else ()))
        refuse_unknown(map(str.lower, options), (*own, *more))
        return read_options(options)

    def batches(self, part: Any, schema: Any) -> Iterator[Any]:
        """Read a part, and yield the columns of a schema as Arrow RecordBatches."""
        for rows in self.rows(part):
            if rows.row_count:
                arrays = [_array(rows.columns[field.name], field.type, rows.row_count) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def asked_table(options: Mapping[str, str]) -> Table | None:
    """Return the companion table that options request, None for the messages. Raises ValueError."""
    given = {name.lower(): value for name, value in options.items()}
    name = given.get("table", MESSAGES).strip().lower()
    if name == MESSAGES:
        return None
    if name not in TABLES:
        raise ValueError(f"option table is {name}: {nearest(name, (MESSAGES, *TABLES))}")
    table: Table = importlib.import_module(TABLES[name]).TABLE
    return table


def _array(values: Any, arrow_type: Any, count: int) -> Any:
    if values is None or isinstance(values, str | int):
        return pa.repeat(pa.scalar(values, arrow_type), count)
    if arrow_type == TIMESTAMP and not isinstance(values, pa.Array):
        times_ms = np.asarray(values, np.int64)
        return pa.array(np.minimum(times_ms, TIMESTAMP_MS_MAX) * 1000, mask=times_ms < 0).cast(arrow_type)
    if isinstance(values, np.ndarray):
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
    array = values if isinstance(values, pa.Array) else pa.array(values, arrow_type)
    return array if array.type == arrow_type else array.cast(arrow_type)

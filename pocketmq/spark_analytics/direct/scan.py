"""Arrow record batches of a store, read in this process.

A scan is lazy and can be read any number of times: each reader plans anew and yields windows of the log as they are read, so
memory does not grow with the store. Options are those of the data source, under their names there or in Python's style
(`bodyAs` or `body_as`); values may be lists, numbers, flags and times.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from pocketmq.spark_analytics.decoding.columns import arrow_schema
from pocketmq.spark_analytics.reading.body_inference import resolved
from pocketmq.spark_analytics.reading.log_reader import (
    LogReader,
    asked_columns,
    known_column,
    known_columns,
)
from pocketmq.spark_analytics.reading.options import read_options
from pocketmq.spark_analytics.tables.table import asked_table

Stores = str | Path | Sequence[str | Path]


class Scan:
    """The chosen columns and rows of some stores; Arrow's stream interface makes it a table for DuckDB and Polars."""

    def __init__(self, options: Mapping[str, str], columns: Sequence[str] | None = None) -> None:
        """Options are as Spark passes them. Raises ValueError."""
        table = self._table = asked_table(options)
        self._options = resolved(read_options(options), columns) if table is None else table.asked(options)
        self._choose(columns)
        self.error: BaseException | None = None
        """The error that ended a reader: engines that pull batches report it as text only."""

    def _choose(self, columns: Sequence[str] | None) -> None:
        if self._table is not None:
            self.schema = self._table.schema(columns)
            return
        known = known_columns(self._options)
        self._columns = asked_columns(self._options) if columns is None else [known_column(name, known) for name in columns]
        self.schema = arrow_schema(self._columns)

    def only(self, columns: Sequence[str]) -> "Scan":
        """Return a scan of the same stores with other columns; an inferred type of bodies is kept. Raises ValueError."""
        chosen = copy.copy(self)
        chosen._choose(columns)
        return chosen

    def batches(self) -> Iterator[Any]:
        """Yield record batches. Raises the errors of the data source."""
        try:
            if self._table is not None:
                for part in self._table.parts_in(self._options):
                    yield from self._table.batches(part, self.schema)
            else:
                reader = LogReader(self._options, self._columns)
                for split in reader.splits():
                    yield from reader.batches(split)
        except Exception as error:
            self.error = error
            raise

    def reader(self, batches: Iterable[Any] | None = None) -> Any:
        """Return a new pyarrow.RecordBatchReader, over `batches` of this scan if they are given."""
        # Declared nullability is Spark's; other engines do not need it, and it differs between batches.
        schema = pa.schema([field.with_nullable(True) for field in self.schema])
        own = self.batches() if batches is None else batches
        return pa.RecordBatchReader.from_batches(
            schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in own)
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)


def scan_of(stores: Stores, columns: str | Sequence[str] | None = None, **options: Any) -> Scan:
    """Return the scan of stores with options given as keyword arguments. Raises ValueError."""
    paths = [stores] if isinstance(stores, str | Path) else list(stores)
    given = {name.replace("_", "").lower(): _text(value) for name, value in options.items() if value is not None}
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    return Scan(given | {"paths": json.dumps([str(path) for path in paths])}, columns)


def scan(stores: Stores, columns: str | Sequence[str] | None = None, **options: Any) -> Any:
    """Return a polars.LazyFrame over the messages of stores, or over a companion table.

    Only the columns that a query uses are decoded, and reading ends with a query's limit. Give topics, queues and times as
    options: filters of Polars are applied to each batch after it was read. Raises ImportError, ValueError.
    """
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError:
        raise ImportError("scan needs Polars: pip install polars") from None
    whole = scan_of(stores, columns, **options)
    empty: Any = polars.from_arrow(whole.schema.empty_table())

    def batches(
        with_columns: list[str] | None, predicate: Any | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        names = with_columns if with_columns is not None else whole.schema.names
        # A query that only counts rows uses no column.
        for batch in whole.only(names or whole.schema.names[:1]).batches():
            frame: Any = polars.from_arrow(batch)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if n_rows == 0:
                return

    return register_io_source(batches, schema=empty.schema, validate_schema=False)


def _text(value: Any) -> str:
    """Return an option's value as Spark would pass it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value))
    return str(value)

"""Stores as lazy frames of Polars."""

from collections.abc import Iterator, Sequence
from typing import Any

from pocketmq.spark_analytics.direct.scan import Stores, scan_of


def scan(stores: Stores, columns: str | Sequence[str] | None = None, **options: Any) -> Any:
    """Return a polars.LazyFrame over the messages of stores, or over a companion table; arguments are those of `arrow`.

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

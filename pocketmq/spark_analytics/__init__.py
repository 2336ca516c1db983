"""Spark access to RocketMQ stores: a data source for the CommitLog, companion tables, and reports.

`from pocketmq import spark_analytics` makes `spark.read.format("rocketmq")` work in the active session; for another session
call `register(spark)`. Where `pyspark_rocketmq` is installed too, Spark finds the format by itself.

Without Spark, `arrow(store, columns=..., topic=...)` reads a store as Arrow record batches, `scan` as a frame of Polars.
"""

import sys
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

Stores = str | Path | Sequence[str | Path]


def register(spark: Any) -> None:
    """Register the format `rocketmq` with a Spark session."""
    from pocketmq.spark_analytics.source import data_source

    data_source.register(spark)


def arrow(stores: Stores, columns: str | Sequence[str] | None = None, **options: Any) -> Any:
    """Return a pyarrow.RecordBatchReader over the messages of stores, or over a companion table (`table="offsets"`).

    `columns`: names, as in the data source, or the default ones. `options` are the data source's, under their names there or
    in Python's style: `topic="Orders"`, `queue_id=[1, 2]`, `starting_timestamp=datetime(...)`, `body_as="json"`. Raises
    ValueError for an invalid name or value, and FileNotFoundError for a missing store.
    """
    from pocketmq.spark_analytics.direct.scan import scan_of

    scan = scan_of(stores, columns, **options)
    # A missing store, and an unknown topic, is an error of this call rather than of the first batch.
    batches = scan.batches()
    return scan.reader(chain(list(islice(batches, 1)), batches))


def scan(stores: Stores, columns: str | Sequence[str] | None = None, **options: Any) -> Any:
    """Return a polars.LazyFrame over stores; arguments are those of `arrow`. Only columns that a query uses are decoded."""
    from pocketmq.spark_analytics.direct import scan as direct

    return direct.scan(stores, columns, **options)


def _register_in_active_session() -> None:
    # Also runs in Spark's workers, which have no session, and without PySpark, which must not be imported then.
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        register(spark)


_register_in_active_session()

"""Reads of stores by the data source in Java (through Spark) and by the data source in Python (without Spark)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from pocketmq.spark_analytics.decoding.columns import COLUMNS
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.reading.damage import DamagedRecordError
from tests.spark_analytics.spark_logs import read

EVERY = (*COLUMNS, *DERIVED_COLUMNS)
Row = dict[str, Any]


def java_frame(spark: Any, stores: Path | Iterable[Path | str], *names: str, **options: Any) -> Any:
    """Return a DataFrame that uses the default reader of the session; without names it has every column."""
    paths = str(stores) if isinstance(stores, Path) else [str(store) for store in stores]
    source = spark.read.format("rocketmq").options(**{name: str(value) for name, value in options.items()})
    return source.option("columns", ",".join(names or EVERY)).load(paths)


def java_rows(spark: Any, stores: Path | Iterable[Path | str], *names: str, **options: Any) -> list[Row]:
    """Return the rows of the reader in Java, in the order of the log."""
    rows: list[Row] = java_frame(spark, stores, *names, **options).toArrow().to_pylist()
    return in_order(rows)


def python_rows(stores: Path | Iterable[Path | str], *names: str, **options: Any) -> list[Row]:
    """Return the rows of the reader in Python, in the order of the log. A name may be followed by a type."""
    if isinstance(stores, Path):
        return in_order(read(stores, *(names or EVERY), **options))
    paths = json.dumps([str(store) for store in stores])
    return in_order(read("", *(names or EVERY), **options | {"path": "", "paths": paths}))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (str(row.get("storePath")), row["physicalOffset"]))


def java_refusal(spark: Any, stores: Path | Iterable[Path | str], *names: str, **options: Any) -> str:
    """Return the error message of the reader in Java, or an empty string if the read succeeds.

    One task reads everything: of several that fail, Spark names the one that failed first.
    """
    try:
        java_frame(spark, stores, *names, **options).coalesce(1).toArrow()
    except PySparkException as error:
        return str(error)
    return ""


def python_refusal(stores: Path | Iterable[Path | str], *names: str, **options: Any) -> str:
    """Return the error message of the reader in Python, or an empty string if the read succeeds."""
    try:
        python_rows(stores, *names, **options)
    except (DamagedRecordError, ValueError, OSError) as error:
        return str(error)
    return ""

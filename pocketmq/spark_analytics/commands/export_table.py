"""Export of a companion table as it is now: each run adds one file with the time of the run. The files form a time series.

    DIR/date=.../offsets-20261125T191626123Z.parquet

The file is written beside its place under a name that begins with `_`, which Spark and others ignore, and then renamed.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet

from pocketmq.spark_analytics.commands.csv_text import write_csv
from pocketmq.spark_analytics.direct.scan import scan_of

FORMATS: Final = ("parquet", "csv")
AT: Final = "at"


def export_table(
    paths: Sequence[str], name: str, folder: Path, file_format: str, at: datetime | None = None
) -> tuple[int, Path]:
    """Write the rows of a table with a column `at`, the time of the run; return (number of rows, path).

    Raises ValueError for an unsupported format, and OSError.
    """
    if file_format not in FORMATS:
        raise ValueError(f"--format is {file_format}: a table is exported as {' or '.join(FORMATS)}")
    at = (at or datetime.now(UTC)).astimezone(UTC)
    table = scan_of(paths, table=name).reader().read_all()
    table = table.add_column(0, AT, pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), table.num_rows))
    if file_format == "csv":
        table = _without_maps(table)
    place = folder / f"date={at:%Y-%m-%d}"
    place.mkdir(parents=True, exist_ok=True)
    own = f"{name}-{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03}Z.{file_format}"
    draft, path = place / f"_{own}.draft", place / own
    try:
        if file_format == "csv":
            write_csv(table, draft)
        else:
            pyarrow.parquet.write_table(table, draft, compression="zstd", coerce_timestamps="us")
        os.rename(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return table.num_rows, path


def _without_maps(table: Any) -> Any:
    """Return the table with maps as texts, which CSV requires."""
    for number, field in enumerate(table.schema):
        if pa.types.is_map(field.type):
            rows = table[number].to_pylist()
            texts = [None if row is None else ";".join(f"{key}={value}" for key, value in row) for row in rows]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table

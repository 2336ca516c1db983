"""Engine for the queries of `pipelines` in this process: DuckDB over scans of the stores, without Spark.

The queries are written once, in the SQL that Spark and DuckDB share. Where the two differ, the text uses Spark's name, and
DuckDB gets a macro of that name here. A query over a scan reads it in one pass, window by window.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from pocketmq.spark_analytics.direct.scan import Scan, scan_of

# In this order: a macro may use those before it.
_MACROS: Final = (
    "startswith(a, b) AS starts_with(a, b)",
    "unix_millis(t) AS epoch_ms(t)",
    "timestamp_millis(ms) AS CAST(make_timestamp(ms * 1000) AS TIMESTAMPTZ)",
    "xxhash64(a) AS hash(a), (a, b, c) AS hash(a, b, c)",
    "percentile(x, p) AS quantile_cont(x, p)",
    "explode(x) AS unnest(x)",
    "array_distinct(x) AS list_distinct(x)",
    # Supports only one use of Spark's function: n = -1, the text behind the last delimiter.
    "substring_index(s, d, n) AS list_extract(string_split(s, d), n)",
)
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "default_null_order": "nulls_first_on_asc_last_on_desc",
    "preserve_insertion_order": True,
}
_PARAMETER: Final = re.compile(r":([a-z]\w*)\b")
_FRAME: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Frame:
    """A lazy query result; `name` is its view or table in DuckDB."""

    name: str
    sql: str


class DirectEngine:
    """Queries in this process. Not thread-safe."""

    def __init__(self) -> None:
        # The database needs no file of its own: data that does not fit into memory goes to temporary files.
        self._database = duckdb.connect(":memory:")
        for name, value in _SETTINGS.items():
            self._database.execute(f"SET {name} = {_literal(value)}")
        for macro in _MACROS:
            self._database.execute(f"CREATE MACRO {macro}")
        self._scans: list[Scan] = []
        self._count = 0

    def messages(self, paths: Sequence[str], columns: Sequence[str], options: Mapping[str, str]) -> Frame:
        return self._scanned(scan_of(paths, columns, **options))

    def table(self, paths: Sequence[str], name: str) -> Frame:
        return self._scanned(scan_of(paths, table=name))

    def local(self, table: Any) -> Any:
        name = self._name()
        self._database.register(name, table)
        return Frame(name, f"SELECT * FROM {name}")

    def sql(self, query: str, parameters: Mapping[str, Any], frames: Mapping[str, Any]) -> Frame:
        text = _PARAMETER.sub(lambda found: _literal(parameters[found[1]]), query)
        text = _FRAME.sub(lambda found: str(frames[found[1]].name), text)
        name = self._name()
        self._database.execute(f"CREATE TEMP VIEW {name} AS {text}")
        return Frame(name, text)

    def collected(self, frame: Frame) -> Any:
        """Run a query and return its rows as a pyarrow.Table. Raises the errors of the scans."""
        result = self._run(lambda: self._database.sql(frame.sql).to_arrow_table())
        return pa.table([_narrowed(column) for column in result.columns], names=result.column_names)

    @contextmanager
    def kept(self, frame: Frame) -> Iterator[Any]:
        """Run a query once, and keep its result for the queries in the block."""
        name = self._name()
        self._run(lambda: self._database.execute(f"CREATE TEMP TABLE {name} AS {frame.sql}"))
        yield Frame(name, f"SELECT * FROM {name}")
        self._database.execute(f"DROP TABLE {name}")

    def _run(self, query: Callable[[], Any]) -> Any:
        for scan in self._scans:
            scan.error = None
        try:
            return query()
        except duckdb.Error:
            for scan in self._scans:
                if scan.error is not None:
                    raise scan.error from None
            raise

    def _scanned(self, scan: Scan) -> Frame:
        self._scans.append(scan)
        frame: Frame = self.local(scan)
        return frame

    def _name(self) -> str:
        self._count += 1
        return f"frame_{self._count}"


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


def _narrowed(column: Any) -> Any:
    """Return a column with 64-bit integers in place of DuckDB's sums, which have 128 bits."""
    return column.cast(pa.int64()) if pa.types.is_decimal(column.type) and column.type.scale == 0 else column

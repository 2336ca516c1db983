"""Engines that run the queries: Spark, or DuckDB in this process (`direct.engine`). Both run the same SQL.

Both have the same methods. A frame is the engine's own lazy query result.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pocketmq.spark_analytics.direct.engine import DirectEngine


class SparkEngine:
    """Queries in a Spark session."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def messages(self, paths: Sequence[str], columns: Sequence[str], options: Mapping[str, str]) -> Any:
        """Return the named columns of the log; `options` are the data source's."""
        reader = self.spark.read.format("rocketmq").option("columns", ",".join(columns))
        return reader.options(**options).load(list(paths))

    def table(self, paths: Sequence[str], name: str) -> Any:
        """Return a companion table."""
        return self.spark.read.format("rocketmq").option("table", name).load(list(paths))

    def local(self, table: Any) -> Any:
        """Return the frame of a pyarrow.Table."""
        return self.spark.createDataFrame(table)

    def sql(self, query: str, parameters: Mapping[str, Any], frames: Mapping[str, Any]) -> Any:
        """Return the frame of a query; frames are written `{name}` in it, parameters `:name`."""
        return self.spark.sql(query, dict(parameters), **frames)

    def collected(self, frame: Any) -> Any:
        """Run a query and return its rows as a pyarrow.Table."""
        return frame.toArrow()

    @contextmanager
    def kept(self, frame: Any) -> Iterator[Any]:
        """Return a context manager for a frame that several queries read: it is run once."""
        frame.persist()
        yield frame
        # Not after an error or a signal, when the JVM may not accept calls; it ends soon.
        frame.unpersist()


Engine: TypeAlias = "SparkEngine | DirectEngine"

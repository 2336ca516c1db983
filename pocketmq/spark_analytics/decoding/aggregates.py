"""Aggregation inside the tasks that read the log: options `groupBy` and `aggregates`.

Passing a row to Spark costs several times as much as reading it, while grouping it where it is read adds little. With these
options a task returns one row per group that it met, and the query combines the rows of all tasks:

    log = spark.read.format("rocketmq").option("groupBy", "topic").option("aggregates", "count, sum(storeSize)").load(store)
    log.groupBy("topic").agg(F.sum("count"), F.sum("sum(storeSize)"))

Sum the columns `count` and `sum(...)`; take the min of `min(...)` and the max of `max(...)`. Spark cannot do this by itself,
because it does not push aggregates down to data sources written in Python.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.decoding.columns import Column, Records, arrow_schema

COUNT: Final = "count"
_CALL: Final = re.compile(r"(sum|min|max)\s*\(\s*(\w+)\s*\)", re.IGNORECASE | re.ASCII)
_GROUPED: Final = ("string", "int", "bigint", "boolean", "timestamp")
_MEASURED: Final = {"sum": ("int", "bigint"), "min": ("int", "bigint", "timestamp"), "max": ("int", "bigint", "timestamp")}
_TOPIC: Final = "topic"
# A group-by has a fixed cost, so it gets at least _ROWS_AT_ONCE records; _TABLES_AT_ONCE of its results are merged at once.
_ROWS_AT_ONCE: Final = 1 << 17
_TABLES_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate: `function` (count, sum, min, max) of a column (None for count)."""

    function: str
    column: Column | None = None

    @property
    def result(self) -> Column:
        """The result column, named like `count` or `sum(storeSize)`."""
        if self.column is None:
            return Column(COUNT, pa.int64(), _never)
        name = f"{self.function}({self.column.name})"
        if self.function == "sum":
            return Column(name, pa.int64(), _never, self.column.is_nullable)
        return replace(self.column, name=name, decode=_never)


def _never(records: Records) -> Any:
    raise AssertionError("a column of aggregates is not decoded")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The grouping columns (possibly none) and the aggregates of a read."""

    groups: Sequence[Column]
    measures: Sequence[Measure]

    @classmethod
    def of(cls, group_by: Sequence[str], aggregates: Sequence[str], known: Mapping[str, Column]) -> "Aggregation":
        """Parse the names given in the options. Raises ValueError."""
        for name in group_by:
            if name not in known or known[name].spark_type not in _GROUPED:
                raise ValueError(f"option groupBy names {name}: it must be a column that is a number, a time or a text")
        return cls([known[name] for name in group_by], [_measure(text, known) for text in aggregates or (COUNT,)])

    @property
    def columns(self) -> list[Column]:
        """The columns of a result row."""
        return [*self.groups, *(measure.result for measure in self.measures)]

    def rows(self, windows: Iterator[Records], columns: Sequence[Column]) -> Iterator[Any]:
        """Yield one RecordBatch with a row for each group in all the windows; nothing if there are no records.

        `columns` are `self.columns`, with the nullability that the caller requested.
        """
        topics: dict[str, int] = {}
        found: list[Any] = []
        ungrouped: list[Any] = []
        row_count = 0
        for records in windows:
            ungrouped.append(self._decoded(records, topics))
            row_count += len(records)
            if row_count >= _ROWS_AT_ONCE:
                found.append(self._grouped(ungrouped))
                ungrouped, row_count = [], 0
            if len(found) == _TABLES_AT_ONCE:
                found = [self._merged(found)]
        if ungrouped:
            found.append(self._grouped(ungrouped))
        if found:
            arrays = [column.combine_chunks() for column in self._merged(found).columns]
            texts = pa.array(list(topics), pa.string())
            for place, group in enumerate(self.groups):
                if group.name == _TOPIC:
                    arrays[place] = texts.take(arrays[place])
            arrays = [array.cast(column.arrow_type) for array, column in zip(arrays, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    def _decoded(self, records: Records, topics: dict[str, int]) -> Any:
        """Return the requested columns of a window; a topic is replaced by its index in `topics`, which is extended."""
        arrays = {}
        for place, group in enumerate(self.groups):
            if group.name == _TOPIC:
                texts, ids = records.topic_texts()
                numbers = pa.array([topics.setdefault(text, len(topics)) for text in texts.to_pylist()], pa.int64())
                arrays[f"g{place}"] = numbers.take(ids)
            else:
                arrays[f"g{place}"] = group.decode(records)
        for measure in self.measures:
            if measure.column is not None:
                arrays[measure.column.name] = measure.column.decode(records)
        # A table without columns, as for a bare count, would lose the number of rows.
        return pa.table(arrays or {"": pa.nulls(len(records))})

    def _grouped(self, tables: list[Any]) -> Any:
        asked = [
            ([], "count_all") if measure.column is None else (measure.column.name, measure.function)
            for measure in self.measures
        ]
        return self._aggregated(tables, asked)

    def _merged(self, tables: list[Any]) -> Any:
        merges = {COUNT: "sum"}
        asked = [(f"m{at}", merges.get(measure.function, measure.function)) for at, measure in enumerate(self.measures)]
        return self._aggregated(tables, asked)

    def _aggregated(self, tables: list[Any], asked: Sequence[Any]) -> Any:
        """Group rows; the columns of the result are the groups `g0`, `g1` and so on, then the aggregates `m0`, `m1`."""
        keys = [f"g{place}" for place in range(len(self.groups))]
        grouped = pa.concat_tables(tables).group_by(keys, use_threads=False).aggregate(asked)
        return grouped.rename_columns([*keys, *(f"m{place}" for place in range(len(asked)))])


def _measure(text: str, known: Mapping[str, Column]) -> Measure:
    if text.lower() in (COUNT, "count(*)"):
        return Measure(COUNT)
    call = _CALL.fullmatch(text)
    function = call[1].lower() if call else ""
    column = known.get(call[2]) if call else None
    if column is None or column.spark_type not in _MEASURED[function]:
        raise ValueError(
            f"option aggregates has {text!r}: it must be count, or sum, min or max of a column that is a number "
            "(min and max: or a time), such as sum(storeSize)"
        )
    return Measure(function, column)

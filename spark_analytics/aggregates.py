"""Aggregates made inside the tasks that read: options `groupBy` and `aggregates`.

A row that is handed to Spark costs several times what it costs to read it (0.3 us, and 1.2 us more in a query of 3 columns);
to group it where it is read adds 3 %. With these options a task gives one row for each group it met, and the query
adds up what the tasks found:

    log = spark.read.format("rocketmq").option("groupBy", "topic").option("aggregates", "count, sum(storeSize)").load(store)
    log.groupBy("topic").agg(F.sum("count"), F.sum("sum(storeSize)"))

A `count` and a `sum` are added, of a `min` and a `max` the least and the greatest taken. Spark cannot do this by itself: it
pushes aggregates to no source in Python.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from spark_analytics.columns import Column, Records, arrow_schema

COUNT: Final = "count"
_CALL: Final = re.compile(r"(sum|min|max)\s*\(\s*(\w+)\s*\)", re.IGNORECASE | re.ASCII)
_GROUPED: Final = ("string", "int", "bigint", "boolean", "timestamp")
_MEASURED: Final = {"sum": ("int", "bigint"), "min": ("int", "bigint", "timestamp"), "max": ("int", "bigint", "timestamp")}
# Groups of so many windows are put together before more are read.
_WINDOWS: Final = 64


@dataclass(frozen=True, slots=True)
class Measure:
    """`function` (count, sum, min, max) of a column (none for count)."""

    function: str
    column: Column | None = None

    @property
    def result(self) -> Column:
        """Its column: `count`, `sum(storeSize)`."""
        if self.column is None:
            return Column(COUNT, "bigint", pa.int64(), _never)
        name = f"{self.function}({self.column.name})"
        if self.function == "sum":
            return Column(name, "bigint", pa.int64(), _never, self.column.is_nullable)
        return replace(self.column, name=name, decode=_never)


def _never(records: Records) -> Any:
    raise AssertionError("a column of aggregates is not decoded")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What is grouped and what is measured; `groups` may be empty."""

    groups: Sequence[Column]
    measures: Sequence[Measure]

    @classmethod
    def of(cls, group_by: Sequence[str], aggregates: Sequence[str], known: Mapping[str, Column]) -> "Aggregation":
        """From the options' names. Raises ValueError."""
        for name in group_by:
            if name not in known or known[name].spark_type not in _GROUPED:
                raise ValueError(f"option groupBy names {name}: it must be a column that is a number, a time or a text")
        return cls([known[name] for name in group_by], [_measure(text, known) for text in aggregates or (COUNT,)])

    @property
    def columns(self) -> list[Column]:
        """The columns of a result row."""
        return [*self.groups, *(measure.result for measure in self.measures)]

    def rows(self, windows: Iterator[Records], columns: Sequence[Column]) -> Iterator[Any]:
        """One RecordBatch, of a row for each group in all of some windows; none for no records.

        `columns` are our own, but for what the asker has to say of nulls.
        """
        found: list[Any] = []
        for records in windows:
            found.append(self._of_window(records))
            if len(found) == _WINDOWS:
                found = [self._merged(found)]
        if found:
            merged = self._merged(found)
            arrays = [
                merged.column(name).combine_chunks().cast(column.arrow_type)
                for name, column in zip(merged.column_names, columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))

    def _of_window(self, records: Records) -> Any:
        # Topics are grouped by their numbers, and a group gets its text in the end.
        names: dict[str, Any] = {}
        arrays = []
        for number, column in enumerate(self.groups):
            if column.name == "topic":
                names[f"g{number}"], ids = records.topic_texts()
                arrays.append(ids)
            else:
                arrays.append(column.decode(records))
        measured = {
            measure.column.name: measure.column.decode(records) for measure in self.measures if measure.column is not None
        }
        table = pa.table([*arrays, *measured.values()], [*(f"g{number}" for number in range(len(arrays))), *measured])
        asked = [
            ([], "count_all") if measure.column is None else (measure.column.name, measure.function)
            for measure in self.measures
        ]
        grouped = self._named(_grouped(table, len(arrays), asked))
        for name, texts in names.items():
            place = grouped.column_names.index(name)
            grouped = grouped.set_column(place, name, texts.take(grouped.column(name).combine_chunks()))
        return grouped

    def _merged(self, tables: list[Any]) -> Any:
        merges = [(f"m{number}", _MERGES[measure.function]) for number, measure in enumerate(self.measures)]
        return self._named(_grouped(pa.concat_tables(tables), len(self.groups), merges))

    def _named(self, grouped: Any) -> Any:
        return grouped.rename_columns(
            [*(f"g{number}" for number in range(len(self.groups))), *(f"m{number}" for number in range(len(self.measures)))]
        )


_MERGES: Final = {COUNT: "sum", "sum": "sum", "min": "min", "max": "max"}


def _grouped(table: Any, group_count: int, asked: Sequence[Any]) -> Any:
    """Groups by the first columns; the groups' columns come first, then those asked for."""
    keys = [f"g{number}" for number in range(group_count)]
    return table.group_by(keys, use_threads=False).aggregate(asked)


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

"""What a query's filters allow a reader to leave out.

Spark evaluates every filter itself on what it gets: leaving out too little costs time only, so anything not understood is
simply passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_analytics.columns import Records
from spark_analytics.splits import Split

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Whole numbers from `low` to `high`, both inclusive."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def narrowed(self, comparison: str, value: int) -> "Bounds":
        """Also `x comparison value`, where comparison is the name of Spark's filter class."""
        low, high = self.low, self.high
        if comparison in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
            low = max(low, value)
        if comparison in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
            high = min(high, value)
        if comparison == "GreaterThan":
            low = max(low, value + 1)
        if comparison == "LessThan":
            high = min(high, value - 1)
        return Bounds(low, high)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Topics (None: all), physical offsets and store timestamps (us) of the records that a query can want."""

    topics: frozenset[str] | None = None
    physical_offsets: Bounds = Bounds()
    store_timestamps_us: Bounds = Bounds()

    def narrowed(self, filters: Iterable[Any]) -> "Pruning":
        """Also every one of Spark's `filters` (pyspark.sql.datasource.Filter) that is understood."""
        pruning = self
        for filter_ in filters:
            pruning = pruning._narrowed_by(type(filter_).__name__, filter_)
        return pruning

    def _narrowed_by(self, comparison: str, filter_: Any) -> "Pruning":
        column = getattr(filter_, "attribute", None)
        value: Any = getattr(filter_, "value", None)
        if column == ("topic",):
            if comparison in ("EqualTo", "EqualNullSafe") and isinstance(value, str):
                return self._with_topics({value})
            if comparison == "In" and all(isinstance(topic, str) for topic in value):
                return self._with_topics(value)
        if column == ("physicalOffset",) and type(value) is int:
            return replace(self, physical_offsets=self.physical_offsets.narrowed(comparison, value))
        if column == ("storeTimestamp",) and isinstance(value, datetime) and value.tzinfo is not None:
            value_us = (value - EPOCH) // timedelta(microseconds=1)
            return replace(self, store_timestamps_us=self.store_timestamps_us.narrowed(comparison, value_us))
        return self

    def _with_topics(self, topics: Iterable[str]) -> "Pruning":
        wanted = frozenset(topics)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def wants(self, split: Split) -> bool:
        """Whether a split can hold wanted physical offsets. Splits are taken whole: they are cut where records begin."""
        begin = split.file.physical_offset + split.begin
        stop = split.file.physical_offset + split.stop
        return stop > self.physical_offsets.low and begin <= self.physical_offsets.high

    def records(self, records: Records) -> Records:
        """The wanted ones of some records."""
        bounds = self.physical_offsets
        if bounds != Bounds():
            own = records.physical_offsets
            records = records.rows((own >= bounds.low) & (own <= bounds.high))
        bounds = self.store_timestamps_us
        if bounds != Bounds():
            stored = records.timestamps_us("store_timestamp_ms")
            records = records.rows((stored >= bounds.low) & (stored <= bounds.high))
        if self.topics is not None:
            wanted = pc.is_in(records.topic_column, value_set=pa.array(sorted(self.topics), pa.string()))
            records = records.rows(wanted.to_numpy(zero_copy_only=False))
        return records

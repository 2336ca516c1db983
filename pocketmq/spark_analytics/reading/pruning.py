"""Selection of records by options and filters, and of the parts of the log that must be read for them.

Options are applied exactly. Spark evaluates every pushed filter again on the rows that it receives, so keeping too many
records costs only time, and filters that are not understood are ignored.

Store times need not ascend in a log, since a broker's clock may be set back. So they select records, but no part of the log
that is not read; `store_times` tells which parts need not be read again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from pocketmq.spark_analytics.decoding.columns import Records
from pocketmq.spark_analytics.reading.options import EPOCH, INT64_MAX, ReadOptions
from pocketmq.store.offline.log_walk import next_candidate
from pocketmq.store.offline.places import LogFile

INT64_MIN: Final = -(2**63)
# Column whose values a filter may list -> field of Pruning, and the type of its values.
_LISTED: Final[dict[Any, tuple[str, type]]] = {("topic",): ("topics", str), ("queueId",): ("queue_ids", int)}


@dataclass(frozen=True, slots=True)
class Bounds:
    """An integer range from `low` to `high`, both inclusive."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    @classmethod
    def of(cls, starting: int | None, ending: int | None) -> "Bounds":
        """Return the range from `starting` (inclusive) to `ending` (exclusive); None means no limit."""
        return cls(INT64_MIN if starting is None else starting, INT64_MAX if ending is None else ending - 1)

    def narrowed(self, comparison: str, value: int) -> "Bounds":
        """Return this range restricted by `x comparison value`; `comparison` is the class name of a Spark filter."""
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
    """Topics and queues (None: all), physical offsets and store timestamps (us) of the records that a query may need."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    physical_offsets: Bounds = Bounds()
    store_timestamps_us: Bounds = Bounds()

    @classmethod
    def of(cls, options: ReadOptions) -> "Pruning":
        """Return the selection given by the options."""
        return cls(
            options.topics,
            options.queue_ids,
            Bounds.of(options.starting_offset, options.ending_offset),
            Bounds.of(options.starting_timestamp_us, options.ending_timestamp_us),
        )

    def narrowed(self, filters: Iterable[Any]) -> "Pruning":
        """Return this selection restricted by Spark's `filters` (pyspark.sql.datasource.Filter) as far as understood."""
        pruning = self
        for filter_ in filters:
            pruning = pruning._narrowed_by(type(filter_).__name__, filter_)
        return pruning

    def _narrowed_by(self, comparison: str, filter_: Any) -> "Pruning":
        column = getattr(filter_, "attribute", None)
        value: Any = getattr(filter_, "value", None)
        if column in _LISTED and comparison in ("EqualTo", "EqualNullSafe", "In"):
            name, kind = _LISTED[column]
            wanted = frozenset(value if comparison == "In" else [value])
            if all(type(one) is kind for one in wanted):
                own = getattr(self, name)
                narrowed: dict[str, Any] = {name: wanted if own is None else own & wanted}
                return replace(self, **narrowed)
        if column == ("physicalOffset",) and type(value) is int:
            return replace(self, physical_offsets=self.physical_offsets.narrowed(comparison, value))
        if column == ("storeTimestamp",) and isinstance(value, datetime) and value.tzinfo is not None:
            value_us = (value - EPOCH) // timedelta(microseconds=1)
            return replace(self, store_timestamps_us=self.store_timestamps_us.narrowed(comparison, value_us))
        return self

    @property
    def asks_what_damage_cannot_tell(self) -> bool:
        """Whether records are selected by fields that are unknown for damaged bytes."""
        return self.topics is not None or self.queue_ids is not None or self.store_timestamps_us != Bounds()

    def wants(self, physical_offset: int) -> bool:
        return self.physical_offsets.low <= physical_offset <= self.physical_offsets.high

    # --- files and splits -------------------------------------------------------------------------------------------

    def wants_file(self, file: LogFile, successor: LogFile | None) -> bool:
        """Return whether wanted physical offsets are in a file, or between it and the next file."""
        end = file.end_offset if successor is None else successor.start_offset
        return end > self.physical_offsets.low and file.start_offset <= self.physical_offsets.high

    def narrow(self, file: LogFile, begin: int, end: int) -> tuple[int, int]:
        """Return positions (begin, end) that enclose all wanted records among those that begin in [begin, end).

        If `begin` moves, it moves to the start of a record.
        """
        offsets = self.physical_offsets
        end = min(end, max(offsets.high + 1 - file.start_offset, begin))
        if offsets.low - file.start_offset > begin:
            found = next_candidate(file, offsets.low - file.start_offset, end)
            begin = end if found is None else found
        return begin, end

    def records(self, records: Records) -> Records:
        """Return only the wanted records."""
        bounds = self.physical_offsets
        if bounds != Bounds():
            own = records.physical_offsets
            records = records.rows((own >= bounds.low) & (own <= bounds.high))
        bounds = self.store_timestamps_us
        if bounds != Bounds():
            stored = records.timestamps_us("store_timestamp_ms")
            records = records.rows((stored >= bounds.low) & (stored <= bounds.high))
        if self.queue_ids is not None:
            records = records.rows(np.isin(records.fixed("queue_id"), sorted(self.queue_ids)))
        if self.topics is not None:
            records = records.rows(records.is_of_topics(self.topics))
        return records

"""Handling of damage within a log by mode, FAILFAST, PERMISSIVE or DROPMALFORMED, as in Spark's own data sources.

There are four kinds of damage: invalid bytes before the end of the log; missing bytes (a file that is truncated or missing
before another one); a record whose lengths do not add up; and, when bodies are decompressed or decoded by a schema, a body
for which this fails. A row for one of the first three has only the position; a row for the last has all but the body. The
damaged bytes are put into the corrupt-record column, if the schema has one.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pocketmq.spark_analytics.decoding.bodies import damaged_rows, without_damaged
from pocketmq.spark_analytics.decoding.columns import Column, Records, arrow_schema
from pocketmq.spark_analytics.decoding.derived_columns import BROKER_NAME
from pocketmq.spark_analytics.reading.pruning import Pruning
from pocketmq.spark_analytics.reading.reader import DamagedBytes

log = logging.getLogger(__name__)

# A damaged stretch may be as long as a file; only its first bytes are kept.
CORRUPT_SIZE_MAX: Final = 1 << 20


class DamagedRecordError(ValueError):
    """Invalid bytes within the log, before its end."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage handling for one mode and set of columns. Every method raises DamagedRecordError in mode FAILFAST."""

    mode: str
    columns: Sequence[Column]
    corrupt_record_column: str
    pruning: Pruning
    broker_name: str

    def stretch(self, damaged: DamagedBytes) -> Any:
        """Return a RecordBatch with one row for a stretch of invalid bytes, or None."""
        size = damaged.stop - damaged.begin
        self._tell(damaged.file.path, damaged.physical_offset, damaged.lost or f"{size} bytes are not a valid record")
        if not self._is_shown(damaged.physical_offset):
            return None
        content = None
        if any(column.name == self.corrupt_record_column for column in self.columns):
            content = damaged.file.read(damaged.begin, min(size, CORRUPT_SIZE_MAX)).tobytes()
        return self._rows(damaged.file.path, [damaged.physical_offset], [content])

    def invalid(self, records: Records) -> tuple[Records, Any]:
        """Return (the records whose lengths add up, a RecordBatch for the others or None)."""
        if records.lengths_add_up.all():
            return records, None
        bad = records.rows(~records.lengths_add_up)
        own = bad.physical_offsets.tolist()
        for physical_offset in own:
            self._tell(records.path, physical_offset, "its lengths do not add up")
        shown = [row for row, physical_offset in enumerate(own) if self._is_shown(physical_offset)]
        batch = (
            self._rows(records.path, [own[row] for row in shown], [_content(bad, row) for row in shown]) if shown else None
        )
        return records.rows(records.lengths_add_up), batch

    def bodies(self, records: Records) -> Records:
        """Return the records to show, from records with decompressed or decoded bodies."""
        rows = damaged_rows(records)
        for row, physical_offset in zip(rows.tolist(), records.physical_offsets[rows].tolist(), strict=True):
            self._tell(records.path, physical_offset, records.body_damage.get(row, "its body cannot be decompressed"))
        return without_damaged(records) if len(rows) and self.mode == "DROPMALFORMED" else records

    def _tell(self, path: str, physical_offset: int, what: str) -> None:
        message = f"damaged record at physical offset {physical_offset} of {path}: {what}"
        if self.mode == "FAILFAST":
            raise DamagedRecordError(f'{message}; .option("mode", "DROPMALFORMED") leaves it out, "PERMISSIVE" shows it')
        log.warning("%s", message)

    def _is_shown(self, physical_offset: int) -> bool:
        # Topic, queue and time of damaged bytes are unknown, so they match no selection by these.
        return (
            self.mode == "PERMISSIVE"
            and not self.pruning.asks_what_damage_cannot_tell
            and self.pruning.wants(physical_offset)
        )

    def _rows(self, path: str, physical_offsets: list[int], contents: list[bytes | None]) -> Any:
        known: dict[str, list[Any]] = {
            "physicalOffset": physical_offsets,
            "storePath": [path] * len(physical_offsets),
            BROKER_NAME: [self.broker_name] * len(physical_offsets),
            self.corrupt_record_column: contents,
        }
        nothing = [None] * len(physical_offsets)
        arrays = [pa.array(known.get(column.name, nothing), column.arrow_type) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.columns))


def _content(records: Records, row: int) -> bytes:
    start = int(records.starts[row])
    content: bytes = records.data[start : start + min(int(records.sizes[row]), CORRUPT_SIZE_MAX)].tobytes()
    return content


def _corrupt_bytes(records: Records) -> Any:
    contents = np.full(len(records), None, object)
    for row in damaged_rows(records).tolist():
        contents[row] = _content(records, row)
    return pa.array(contents, pa.binary())


def corrupt_record_column(name: str) -> Column:
    """Return the column for damaged bytes."""
    return Column(name, pa.binary(), _corrupt_bytes, is_nullable=True)

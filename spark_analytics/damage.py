"""What becomes of damage within a log: FAILFAST, PERMISSIVE or DROPMALFORMED, as Spark's own sources have it.

Four things are damage: bytes that are no record with the log's end still to come, bytes that are not there (a file was cut
short, or is missing, in front of another), a record whose lengths do not add up, and, where bodies are decompressed, one
that does not. Of all but the last a row can only tell where they are; the last is a whole row but for its body. The bytes
themselves are put into the corrupt-record column, if the schema has one.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pocketmq.spark_analytics.bodies import damaged_rows, without_damaged
from pocketmq.spark_analytics.columns import Column, Records, arrow_schema
from pocketmq.spark_analytics.places import open_file, read_at
from pocketmq.spark_analytics.pruning import Pruning
from pocketmq.spark_analytics.reader import DamagedBytes

log = logging.getLogger(__name__)

# A damaged stretch may be as long as a file: of each no more than its first bytes are kept.
CORRUPT_SIZE_MAX: Final = 1 << 20


class DamagedRecordError(ValueError):
    """Bytes within the log, in front of its end, that are no intact record."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One mode, for rows of some columns. Every method raises DamagedRecordError in FAILFAST."""

    mode: str
    columns: Sequence[Column]
    corrupt_record_column: str
    pruning: Pruning

    def stretch(self, damaged: DamagedBytes) -> Any:
        """The RecordBatch of one row for bytes that are no record, or None."""
        size = damaged.stop - damaged.begin
        self._tell(damaged.file.path, damaged.physical_offset, damaged.lost or f"{size} bytes are no record")
        if not self._is_shown(damaged.physical_offset):
            return None
        content = None
        if any(column.name == self.corrupt_record_column for column in self.columns):
            with open_file(damaged.file.path) as stream:
                content = read_at(stream, damaged.begin, min(size, CORRUPT_SIZE_MAX)).tobytes()
        return self._rows(damaged.file.path, [damaged.physical_offset], [content])

    def unsound(self, records: Records) -> tuple[Records, Any]:
        """(the records whose lengths add up, a RecordBatch for the others or None)."""
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
        """The records to show, of some that were decompressed."""
        rows = damaged_rows(records)
        for physical_offset in records.physical_offsets[rows].tolist():
            self._tell(records.path, physical_offset, "its body does not decompress")
        return without_damaged(records) if len(rows) and self.mode == "DROPMALFORMED" else records

    def _tell(self, path: str, physical_offset: int, what: str) -> None:
        message = f"damaged record at physical offset {physical_offset} of {path}: {what}"
        if self.mode == "FAILFAST":
            raise DamagedRecordError(f'{message}; .option("mode", "DROPMALFORMED") leaves it out, "PERMISSIVE" shows it')
        log.warning("%s", message)

    def _is_shown(self, physical_offset: int) -> bool:
        # Of which topic, queue or time damaged bytes are, nobody can say: they match no such choice.
        return (
            self.mode == "PERMISSIVE"
            and not self.pruning.asks_what_damage_cannot_tell
            and self.pruning.wants(physical_offset)
        )

    def _rows(self, path: str, physical_offsets: list[int], contents: list[bytes | None]) -> Any:
        known: dict[str, list[Any]] = {
            "physicalOffset": physical_offsets,
            "storePath": [path] * len(physical_offsets),
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
    """The column of damaged bytes."""
    return Column(name, "binary", pa.binary(), _corrupt_bytes, is_nullable=True)

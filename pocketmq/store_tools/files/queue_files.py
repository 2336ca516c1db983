"""Reading of ConsumeQueue units directly from the files."""

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import (
    BLANK_UNIT_SIZE,
    CONSUME_QUEUE_EXT_FIXED_SIZE,
    CONSUME_QUEUE_EXT_FIXED_STRUCT,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
)
from pocketmq.store_tools.files.store_files import QueueKey, Row, RowFile, StoreFiles, row

Units = npt.NDArray[Any]  # of CONSUME_QUEUE_UNIT_DTYPE

_EXT_ADDRESS_BASE: Final = -(2**63)
_UNIT: Final = CONSUME_QUEUE_UNIT_SIZE
_BLOCK: Final = 256 << 10


class QueueFiles:
    """Units of one queue. `begin` is the queue offset of the first unit, `end` that after the last written one."""

    def __init__(self, files: StoreFiles, key: QueueKey) -> None:
        self.key = key
        self._files = files
        self.row: Row = files.queue_row(key)
        self.begin = self.row.min_offset // _UNIT
        self.end = self._end()

    @property
    def folder(self) -> str:
        return self.row.folder

    def place(self, queue_offset: int) -> tuple[str, int]:
        """Return (path, position in the file) of a unit."""
        file = self.row.file_at(queue_offset * _UNIT)
        return (file.path, queue_offset * _UNIT - file.start_offset) if file else (self.row.folder, -1)

    def units(self, queue_offset: int, count: int) -> Units:
        """Return `count` units from `queue_offset` on, fewer at the end of the files; unwritten units are zero."""
        data = self._files.read_row(self.row, queue_offset * _UNIT, count * _UNIT)
        return data[: len(data) // _UNIT * _UNIT].view(CONSUME_QUEUE_UNIT_DTYPE)

    def _end(self) -> int:
        for file in reversed(self.row.files):
            last = self._last_written(file)
            if last >= 0:
                return (file.start_offset + last) // _UNIT + 1
        return self.begin

    def _last_written(self, file: RowFile) -> int:
        """Return the position of the last non-zero unit of a file, -1 without one."""
        try:
            extents = self._files.data_extents(file.path, file.size)
            for begin, end in reversed(extents):
                stop = end
                while stop > begin:
                    start = max(begin, stop - _BLOCK)
                    written = np.flatnonzero(self._files.read(file.path, start, stop - start))
                    if len(written):
                        return (start + int(written[-1])) // _UNIT * _UNIT
                    stop = start
        except FileNotFoundError:
            pass
        return -1

    @property
    def max_physical_offset(self) -> int:
        """End of the record to which the last unit points; 0 without units."""
        units = self.units(self.end - 1, 1) if self.end > self.begin else ()
        return int(units["physical_offset"][0]) + int(units["size"][0]) if len(units) else 0  # type: ignore[call-overload]

    def first_at(self, physical_offset: int) -> int:
        """Return the queue offset of the first unit whose record is at or after `physical_offset`; `end` without one.

        The blank units before a queue's first record, which point at physical offset 0, are skipped.
        """
        queue_offsets = range(self._behind_blanks(), self.end)
        return queue_offsets.start + bisect_left(queue_offsets, physical_offset, key=lambda number: self._unit(number)[0])

    def _behind_blanks(self) -> int:
        """Return the queue offset of the first unit that is not blank. Only the first file starts with blank units."""
        queue_offsets = range(self.begin, min(self.end, self.begin + self.row.file_size // _UNIT))
        return queue_offsets.start + bisect_left(
            queue_offsets, True, key=lambda number: self._unit(number)[:2] != (0, BLANK_UNIT_SIZE)
        )

    def _unit(self, queue_offset: int) -> tuple[int, ...]:
        """Return the fields of a unit; if its file is missing, fields that sort after those of all units."""
        units = self.units(queue_offset, 1)
        return units.tolist()[0] if len(units) else (1 << 62, 0, 0)


def newest_record_end(files: StoreFiles) -> int:
    """Return the end of the newest record in any queue; 0 if no queue has a unit."""
    return max((QueueFiles(files, key).max_physical_offset for key in files.queue_keys()), default=0)


def ext_row(files: StoreFiles, key: QueueKey) -> Row:
    """Return the consumequeue_ext files of a queue; usually none."""
    return row(files.path(f"consumequeue_ext/{key[0]}/{key[1]}"))


def ext_unit(files: StoreFiles, key: QueueKey, address: int) -> tuple[int, int] | None:
    """Return (tags code, store time) of the consumequeue_ext unit at `address`, None if there is no valid unit."""
    data = files.read_row(ext_row(files, key), address - _EXT_ADDRESS_BASE, CONSUME_QUEUE_EXT_FIXED_SIZE)
    if len(data) < CONSUME_QUEUE_EXT_FIXED_SIZE:
        return None
    size, tags_code, store_timestamp_ms, bitmap_size = CONSUME_QUEUE_EXT_FIXED_STRUCT.unpack(data.tobytes())
    is_one = bitmap_size >= 0 and size == CONSUME_QUEUE_EXT_FIXED_SIZE + bitmap_size
    return (tags_code, store_timestamp_ms) if is_one else None

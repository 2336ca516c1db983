"""A ConsumeQueue's units, read from its files as they are."""

from bisect import bisect_left
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import (
    CONSUME_QUEUE_EXT_FIXED_SIZE,
    CONSUME_QUEUE_EXT_FIXED_STRUCT,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
)
from pocketmq.store.queue.consume_queue import BLANK_UNIT_SIZE
from pocketmq.store_tools.files.store_files import QueueKey, Row, RowFile, StoreFiles, row

Units = npt.NDArray[Any]  # of CONSUME_QUEUE_UNIT_DTYPE

_EXT_ADDRESS_BASE: Final = -(2**63)
_UNIT: Final = CONSUME_QUEUE_UNIT_SIZE
_BLOCK: Final = 256 << 10


class QueueFiles:
    """`begin` and `end` are queue offsets: of the first unit in the files, and behind the last that is written."""

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
        """(path, byte in that file) of a unit."""
        file = self.row.file_at(queue_offset * _UNIT)
        return (file.path, queue_offset * _UNIT - file.start_offset) if file else (self.row.folder, -1)

    def units(self, queue_offset: int, count: int) -> Units:
        """`count` units from `queue_offset` on, fewer where the files end; those not written are zero."""
        data = self._files.read_row(self.row, queue_offset * _UNIT, count * _UNIT)
        return data[: len(data) // _UNIT * _UNIT].view(CONSUME_QUEUE_UNIT_DTYPE)

    def _end(self) -> int:
        for file in reversed(self.row.files):
            last = self._last_written(file)
            if last >= 0:
                return (file.start_offset + last) // _UNIT + 1
        return self.begin

    def _last_written(self, file: RowFile) -> int:
        """Position of the last unit of a file that is not zero, -1 without."""
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
        """Behind the record that the last unit points at; 0 without units."""
        units = self.units(self.end - 1, 1) if self.end > self.begin else ()
        return int(units["physical_offset"][0]) + int(units["size"][0]) if len(units) else 0  # type: ignore[call-overload]

    def first_at(self, physical_offset: int) -> int:
        """Queue offset of the first unit of a record at `physical_offset` or behind it; `end` without one.

        Blank units in front of a queue's first record point at 0 and so lie before it, unless the log begins at 0.
        """
        queue_offsets = range(self._behind_blanks(), self.end)
        return queue_offsets.start + bisect_left(queue_offsets, physical_offset, key=lambda number: self._unit(number)[0])

    def _behind_blanks(self) -> int:
        """Queue offset of the first unit that is no blank one. Only the first file has blank units, in front."""
        queue_offsets = range(self.begin, min(self.end, self.begin + self.row.file_size // _UNIT))
        return queue_offsets.start + bisect_left(
            queue_offsets, True, key=lambda number: self._unit(number)[:2] != (0, BLANK_UNIT_SIZE)
        )

    def _unit(self, queue_offset: int) -> tuple[int, ...]:
        """A unit's numbers; of one whose file is gone those of one at the end of everything."""
        units = self.units(queue_offset, 1)
        return units.tolist()[0] if len(units) else (1 << 62, 0, 0)


def newest_record_end(files: StoreFiles) -> int:
    """Behind the newest record that any queue knows of; 0 when no queue has a unit."""
    return max((QueueFiles(files, key).max_physical_offset for key in files.queue_keys()), default=0)


def ext_row(files: StoreFiles, key: QueueKey) -> Row:
    """The files of consumequeue_ext beside a queue; nearly always none."""
    return row(files.path(f"consumequeue_ext/{key[0]}/{key[1]}"))


def ext_unit(files: StoreFiles, key: QueueKey, address: int) -> tuple[int, int] | None:
    """(tags code, store time) of the unit of consumequeue_ext at `address`, None when there is none that could be one."""
    data = files.read_row(ext_row(files, key), address - _EXT_ADDRESS_BASE, CONSUME_QUEUE_EXT_FIXED_SIZE)
    if len(data) < CONSUME_QUEUE_EXT_FIXED_SIZE:
        return None
    size, tags_code, store_timestamp_ms, bitmap_size = CONSUME_QUEUE_EXT_FIXED_STRUCT.unpack(data.tobytes())
    is_one = bitmap_size >= 0 and size == CONSUME_QUEUE_EXT_FIXED_SIZE + bitmap_size
    return (tags_code, store_timestamp_ms) if is_one else None

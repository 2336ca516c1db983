"""The units of a ConsumeQueue's files.

A queue ends with its last unit: the rest of its last file is zero. Before its first live unit there may be blank units and
units of records that retention has deleted. `QueueFile` reads one file with few small reads, also a remote one; `QueueFiles`
reads all files of a local queue by queue offset.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import (
    BLANK_UNIT_SIZE,
    CONSUME_QUEUE_EXT_FIXED,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    EXT_ADDRESS_BASE,
    EXT_ADDRESS_MAX,
    dtype_of,
)
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record_chain import complete_units, field_view
from pocketmq.store.offline.file_bytes import FileBytes
from pocketmq.store.offline.log_walk import written_end
from pocketmq.store.offline.store_folder import DamagedFileError, Row, RowFile, StoreFolder

Units = npt.NDArray[Any]  # of CONSUME_QUEUE_UNIT_DTYPE
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

UNITS_READ: Final = 1 << 16
# Most queues of a store are short, and often only the first units are needed.
UNITS_READ_FIRST: Final = 256
_UNIT: Final = CONSUME_QUEUE_UNIT_SIZE
_EXT_DTYPE: Final = dtype_of(CONSUME_QUEUE_EXT_FIXED)


@dataclass(frozen=True, slots=True)
class QueueFile:
    """One file of a queue. The last file of a queue (`is_last`) may end before its declared size."""

    topic: str
    queue_id: int
    file: RowFile
    is_last: bool

    def units(self, from_queue_offset: int = 0) -> Iterator[tuple[int, Units]]:
        """Yield (queue offset of the first unit, units) from a queue offset to the queue's end, in portions, blank units
        included.

        Raises DamagedFileError if units are missing although the queue continues in the next file.
        """
        first = self.file.start_offset // _UNIT
        count = self.file.size // _UNIT
        wanted = UNITS_READ_FIRST
        number = max(from_queue_offset - first, 0)
        with self.file.open() as data:
            while number < count:
                block = data.read(number * _UNIT, min(wanted, count - number) * _UNIT)
                units = complete_units(block, CONSUME_QUEUE_UNIT_DTYPE)
                written = _written(units)
                if written:
                    yield first + number, units[:written]
                number += written
                if written < wanted:
                    break
                wanted = UNITS_READ
        if number < count and not self.is_last:
            raise DamagedFileError(
                f"{self.file.path} has no unit at byte {number * _UNIT}, although the queue continues in the next file"
            )

    def has_units(self) -> bool:
        with self.file.open() as data:
            return _is_unit(data, 0)

    def end(self, *, may_lack: bool = True) -> int:
        """Return the queue offset behind the last unit. `may_lack` and errors are those of `count`."""
        return self.file.start_offset // _UNIT + self.count(may_lack=may_lack)

    def count(self, *, may_lack: bool = True) -> int:
        """Return the number of units. Raises DamagedFileError if `may_lack` is false and further units lie behind a gap.

        Units lost in a power cut read as zeros, in whole pages, like units that were never written.
        """
        low = 0
        high = capacity = self.file.size // _UNIT
        with self.file.open() as data:
            while low < high:
                # A full file is recognised at once by its last unit.
                middle = high - 1 if high == capacity else (low + high) // 2
                low, high = (middle + 1, high) if _is_unit(data, middle) else (low, middle)
            ahead = 1
            while not may_lack and low + ahead < capacity:
                if _is_unit(data, low + ahead):
                    raise DamagedFileError(f"{self.file.path} has lost units")
                ahead *= 2
        if not may_lack and not self.is_last and low < capacity:
            raise DamagedFileError(f"{self.file.path} has lost units")
        return low


def first_from(file: RowFile, physical_offset: int, count: int) -> int:
    """Return the number of the first of a file's first `count` units that is not blank and points to `physical_offset` or
    behind it; else `count`. Raises DamagedFileError if the file has fewer units.
    """
    with file.open() as data:

        def is_reached(number: int) -> bool:
            unit = data.read(number * _UNIT, _UNIT).tobytes()
            if len(unit) < _UNIT:
                raise DamagedFileError(f"{file.path} has lost units")
            own, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack(unit)
            # Blank units precede the queue's first record and point to physical offset 0.
            return bool(own >= physical_offset and (own, size) != (0, BLANK_UNIT_SIZE))

        return bisect_left(range(count), True, key=is_reached)


def _is_unit(data: FileBytes, number: int) -> bool:
    unit = data.read(number * _UNIT, _UNIT).tobytes()
    if len(unit) < _UNIT:
        return False
    physical_offset, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack(unit)
    return bool(size > 0 and physical_offset >= 0)


def _written(units: Units) -> int:
    """Return the number of units before the first invalid one."""
    good = (units["size"] > 0) & (units["physical_offset"] >= 0)
    return len(units) if good.all() else int(np.argmin(good))


def queue_files(store: StoreFolder, topic: str, queue_id: int) -> list[QueueFile]:
    """Return the files of a queue, ascending, without empty ones at its end.

    Raises DamagedFileError for a file whose size is not a multiple of the unit size, and for a missing file.
    """
    files = store.queue_row((topic, queue_id)).files
    for file in files:
        if file.size % _UNIT:
            raise DamagedFileError(f"{file.path} has {file.size} bytes, which is not a multiple of {_UNIT}")
    for file, successor in pairwise(files):
        if successor.start_offset != file.end_offset:
            raise DamagedFileError(f"{successor.path} does not begin where {file.path} ends: a file is missing between them")
    # Preallocated, or emptied by a power cut.
    while len(files) > 1 and not QueueFile(topic, queue_id, files[-1], True).has_units():
        del files[-1]
    return [QueueFile(topic, queue_id, file, file is files[-1]) for file in files]


def is_live(units: Units, log_begin: int) -> Mask:
    """Return a mask of the units whose record still exists."""
    blank = (units["size"] == BLANK_UNIT_SIZE) & (units["physical_offset"] == 0)
    live: Mask = ~blank & (units["physical_offset"] >= log_begin)
    return live


def live_units(
    store: StoreFolder, topic: str, queue_id: int, from_queue_offset: int = 0, log_begin: int | None = None
) -> Iterator[tuple[Numbers, Units]]:
    """Return an iterator of (queue offsets, units) of a queue's live units from a queue offset on, in portions."""
    begin = store.log_begin() if log_begin is None else log_begin
    return _live(queue_files(store, topic, queue_id), from_queue_offset, begin)


def _live(files: Sequence[QueueFile], from_queue_offset: int, log_begin: int) -> Iterator[tuple[Numbers, Units]]:
    for file in files:
        if file.file.end_offset // _UNIT <= from_queue_offset:
            continue
        for first, units in file.units(from_queue_offset):
            live = is_live(units, log_begin)
            if live.any():
                yield first + np.flatnonzero(live), units[live]


def queue_range(store: StoreFolder, topic: str, queue_id: int, log_begin: int) -> tuple[int, int] | None:
    """Return (min, max) queue offset, max being that of the next unit; None if there are no files."""
    files = queue_files(store, topic, queue_id)
    if not files:
        return None
    end = files[-1].end()
    first = next(_live(files, 0, log_begin), None)
    return (end if first is None else int(first[0][0])), end


# --- consumequeue_ext ---------------------------------------------------------------------------------------------------


def ext_row(store: StoreFolder, key: QueueKey) -> Row:
    """Return the consumequeue_ext files of a queue; usually none."""
    return store.row("consumequeue_ext", key[0], str(key[1]))


def ext_units(row: Row, addresses: Numbers) -> tuple[Numbers, Numbers, Mask]:
    """Return (tags codes, store times, mask of those found) of the consumequeue_ext units at some addresses."""
    offsets = addresses - EXT_ADDRESS_BASE
    codes, times, found = np.zeros_like(offsets), np.zeros_like(offsets), np.zeros(len(offsets), np.bool_)
    for file in row.files:
        within = np.flatnonzero((offsets >= file.start_offset) & (offsets <= file.end_offset - _EXT_DTYPE.itemsize))
        if len(within):
            at = offsets[within] - file.start_offset
            data = file.read(int(at.min()), int(at.max() - at.min()) + _EXT_DTYPE.itemsize)
            ext = field_view(data, _EXT_DTYPE)[at - at.min()]
            codes[within], times[within] = ext["tags_code"], ext["store_timestamp_ms"]
            found[within] = (ext["bitmap_size"] >= 0) & (ext["size"] == ext["bitmap_size"] + _EXT_DTYPE.itemsize)
    return codes, times, found


def tags_codes(store: StoreFolder, topic: str, queue_id: int, units: Units) -> tuple[Numbers, Numbers]:
    """Return (tags codes, store times) of units, those of consumequeue_ext looked up there; -1 for an unknown store time.

    Raises DamagedFileError for an address that does not hold a unit.
    """
    codes = units["tags_code"].astype(np.int64)
    times = np.full(len(units), -1, np.int64)
    addressed = np.flatnonzero(codes <= EXT_ADDRESS_MAX)
    if len(addressed):
        row = ext_row(store, (topic, queue_id))
        addresses = codes[addressed]
        codes[addressed], times[addressed], found = ext_units(row, addresses)
        if not found.all():
            raise DamagedFileError(f"{row.folder} has no unit at offset {int(addresses[~found][0]) - EXT_ADDRESS_BASE}")
    return codes, times


# --- whole queues -------------------------------------------------------------------------------------------------------


class QueueFiles:
    """Units of one queue. `begin` is the queue offset of the first unit, `end` that after the last written one."""

    def __init__(self, store: StoreFolder, key: QueueKey, row: Row | None = None, end: int | None = None) -> None:
        """`row` and `end` are read from the store if they are not given."""
        self.key = key
        self.row = store.queue_row(key) if row is None else row
        self.begin = self.row.min_offset // _UNIT
        self.end = self._end() if end is None else end

    @classmethod
    def complete(cls, store: StoreFolder, key: QueueKey) -> Self:
        """Return a queue that has lost no unit, reading little. Raises DamagedFileError for others."""
        files = queue_files(store, *key)
        ends = [file.end(may_lack=False) for file in files]
        row = Row(store.path("consumequeue", key[0], str(key[1])), [file.file for file in files])
        row.file_size = max((file.size for file in row.files), default=0)
        return cls(store, key, row, ends[-1] if ends else 0)

    @property
    def folder(self) -> str:
        return self.row.folder

    def place(self, queue_offset: int) -> tuple[str, int]:
        """Return (path, position in the file) of a unit."""
        file = self.row.file_at(queue_offset * _UNIT)
        return (file.path, queue_offset * _UNIT - file.start_offset) if file else (self.row.folder, -1)

    def units(self, queue_offset: int, count: int) -> Units:
        """Return `count` units from `queue_offset` on, fewer at the end of the files; unwritten units are zero."""
        return complete_units(self.row.read(queue_offset * _UNIT, count * _UNIT), CONSUME_QUEUE_UNIT_DTYPE)

    def _end(self) -> int:
        for file in reversed(self.row.files):
            try:
                end = written_end(file)
            except FileNotFoundError:
                continue  # deleted by retention
            if end is not None:
                return (file.start_offset + end - 1) // _UNIT + 1
        return self.begin

    @property
    def max_physical_offset(self) -> int:
        """End of the record to which the last unit points; 0 without units."""
        units = self.units(self.end - 1, 1) if self.end > self.begin else ()
        return int(units["physical_offset"][0]) + int(units["size"][0]) if len(units) else 0  # type: ignore[call-overload]

    def first_at(self, physical_offset: int) -> int:
        """Return the queue offset of the first unit whose record is at or after `physical_offset`; `end` without one."""
        for file in self.row.files:
            first = file.start_offset // _UNIT
            count = min(file.size // _UNIT, self.end - first)
            number = first_from(file, physical_offset, count)
            if number < count:
                return first + number
        return self.end


def newest_record_end(store: StoreFolder) -> int:
    """Return the end of the newest record in any queue; 0 if no queue has a unit."""
    return max((QueueFiles(store, key).max_physical_offset for key in store.queue_keys()), default=0)

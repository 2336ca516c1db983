"""Reader for the units of a ConsumeQueue's files.

A queue ends with its last unit: the rest of its last file is zero. Before its first live unit there may be blank units and
units of records that retention has deleted; both are skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from pocketmq.spark_analytics.files.places import open_file, read_at
from pocketmq.spark_analytics.files.store_folder import DamagedFileError, RowFile, StoreFolder
from pocketmq.store.format.layout import (
    CONSUME_QUEUE_EXT_FIXED,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    dtype_of,
)
from pocketmq.store.format.record_chain import field_view

Units = npt.NDArray[Any]  # of CONSUME_QUEUE_UNIT_DTYPE
Numbers = npt.NDArray[np.int64]

BLANK_UNIT_SIZE: Final = 0x7FFFFFFF
# A tags code up to this value is instead the address of a unit in consumequeue_ext, counted from the smallest long.
EXT_ADDRESS_MAX: Final = -(2**31) - 1
EXT_ADDRESS_BASE: Final = -(2**63)
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

    def units(self, from_queue_offset: int = 0, count_max: int | None = None) -> Iterator[tuple[int, Units]]:
        """Yield (queue offset of the first unit, units) from a queue offset to the queue's end, in portions, blank units
        included.

        `count_max`: only the first so many units of the file.

        Raises DamagedFileError if units are missing although the queue continues in the next file.
        """
        first = self.file.start // _UNIT
        capacity = self.file.size // _UNIT
        count = capacity if count_max is None else count_max
        wanted = UNITS_READ_FIRST
        with open_file(self.file.path) as stream:
            number = max(from_queue_offset - first, 0)
            while number < count:
                data = read_at(stream, number * _UNIT, min(wanted, count - number) * _UNIT)
                units = data[: len(data) // _UNIT * _UNIT].view(CONSUME_QUEUE_UNIT_DTYPE)
                written = _written(units)
                if written:
                    yield first + number, units[:written]
                number += written
                if written < wanted:
                    break
                wanted = UNITS_READ
        if number < min(count, capacity) and not self.is_last:
            raise DamagedFileError(
                f"{self.file.path} has no unit at byte {number * _UNIT}, although the queue continues in the next file"
            )

    def has_units(self) -> bool:
        with open_file(self.file.path) as stream:
            return _is_unit(stream, 0)

    def end(self) -> int:
        """Queue offset behind the last unit."""
        return self.file.start // _UNIT + self.count()

    def count(self, *, may_lack: bool = True) -> int:
        """Return the number of units. Raises DamagedFileError if `may_lack` is false and further units lie behind a gap.

        Units lost in a power cut read as zeros, in whole pages, like units that were never written.
        """
        low = 0
        high = capacity = self.file.size // _UNIT
        with open_file(self.file.path) as stream:
            while low < high:
                # A full file is recognised at once by its last unit.
                middle = high - 1 if high == capacity else (low + high) // 2
                low, high = (middle + 1, high) if _is_unit(stream, middle) else (low, middle)
            ahead = 1
            while not may_lack and low + ahead < capacity:
                if _is_unit(stream, low + ahead):
                    raise DamagedFileError(f"{self.file.path} has lost units")
                ahead *= 2
        if not may_lack and not self.is_last and low < capacity:
            raise DamagedFileError(f"{self.file.path} has lost units")
        return low

    def first_from(self, physical_offset: int, count: int) -> int:
        """Return the number of the first of `count` units that points to `physical_offset` or behind it; else `count`."""
        low = 0
        with open_file(self.file.path) as stream:
            while low < count:
                middle = (low + count) // 2
                data = read_at(stream, middle * _UNIT, _UNIT)
                if len(data) < _UNIT:
                    raise DamagedFileError(f"{self.file.path} has lost units")
                if CONSUME_QUEUE_UNIT_STRUCT.unpack(data.tobytes())[0] < physical_offset:
                    low = middle + 1
                else:
                    count = middle
        return low


def _is_unit(stream: BinaryIO, number: int) -> bool:
    data = read_at(stream, number * _UNIT, _UNIT)
    if len(data) < _UNIT:
        return False
    physical_offset, size, _ = CONSUME_QUEUE_UNIT_STRUCT.unpack(data.tobytes())
    return bool(size > 0 and physical_offset >= 0)


def _written(units: Units) -> int:
    """Return the number of units before the first invalid one."""
    good = (units["size"] > 0) & (units["physical_offset"] >= 0)
    return len(units) if good.all() else int(np.argmin(good))


def queue_ids(store: StoreFolder, topic: str) -> list[int]:
    """Return the ids of the queues of a topic that have a folder."""
    return sorted(int(name) for name in store.names("consumequeue", topic) if name.isascii() and name.isdecimal())


def queue_keys(store: StoreFolder) -> list[tuple[str, int]]:
    """Return (topic, queue id) of every queue that has a folder."""
    return [(topic, queue_id) for topic in store.names("consumequeue") for queue_id in queue_ids(store, topic)]


def queue_files(store: StoreFolder, topic: str, queue_id: int) -> list[QueueFile]:
    """Return the files of a queue, ascending, without empty ones at its end.

    Raises DamagedFileError for a file whose size is not a multiple of the unit size, and for a missing file.
    """
    row = store.row("consumequeue", topic, str(queue_id))
    for file in row:
        if file.size % _UNIT:
            raise DamagedFileError(f"{file.path} has {file.size} bytes, which is not a multiple of {_UNIT}")
    for file, successor in pairwise(row):
        if successor.start != file.end:
            raise DamagedFileError(f"{successor.path} does not begin where {file.path} ends: a file is missing between them")
    # Preallocated, or emptied by a power cut.
    while len(row) > 1 and not QueueFile(topic, queue_id, row[-1], True).has_units():
        del row[-1]
    return [QueueFile(topic, queue_id, file, file is row[-1]) for file in row]


def is_live(units: Units, log_begin: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the units whose record still exists."""
    blank = (units["size"] == BLANK_UNIT_SIZE) & (units["physical_offset"] == 0)
    live: npt.NDArray[np.bool_] = ~blank & (units["physical_offset"] >= log_begin)
    return live


def live_units(
    store: StoreFolder, topic: str, queue_id: int, from_queue_offset: int = 0, log_begin: int | None = None
) -> Iterator[tuple[Numbers, Units]]:
    """Yield (queue offsets, units) of a queue's live units from a queue offset on, in portions."""
    begin = store.log_begin() if log_begin is None else log_begin
    for file in queue_files(store, topic, queue_id):
        if file.file.end // _UNIT <= from_queue_offset:
            continue
        for first, units in file.units(from_queue_offset):
            live = is_live(units, begin)
            if live.any():
                yield first + np.flatnonzero(live), units[live]


def queue_range(store: StoreFolder, topic: str, queue_id: int, log_begin: int) -> tuple[int, int] | None:
    """Return (min, max) queue offset, max being that of the next unit; None if there are no files."""
    files = queue_files(store, topic, queue_id)
    if not files:
        return None
    end = files[-1].end()
    for file in files:
        for first, units in file.units():
            live = is_live(units, log_begin)
            if live.any():
                return first + int(np.argmax(live)), end
    return end, end


def tags_codes(store: StoreFolder, topic: str, queue_id: int, units: Units) -> tuple[Numbers, Numbers]:
    """Return (tags codes, store times) of units, those of consumequeue_ext looked up there; -1 for an unknown store time.

    Raises DamagedFileError for an address that does not hold a unit.
    """
    codes = units["tags_code"].astype(np.int64)
    times = np.full(len(units), -1, np.int64)
    addressed = np.flatnonzero(codes <= EXT_ADDRESS_MAX)
    if not len(addressed):
        return codes, times
    offsets = codes[addressed] - EXT_ADDRESS_BASE
    found = np.zeros(len(addressed), np.bool_)
    for file in store.row("consumequeue_ext", topic, str(queue_id)):
        within = np.flatnonzero((offsets >= file.start) & (offsets <= file.end - _EXT_DTYPE.itemsize))
        if len(within):
            at = offsets[within] - file.start
            data = file.read(int(at.min()), int(at.max() - at.min()) + _EXT_DTYPE.itemsize)
            ext = field_view(data, _EXT_DTYPE)[at - at.min()]
            codes[addressed[within]] = ext["tags_code"]
            times[addressed[within]] = ext["store_timestamp_ms"]
            found[within] = (ext["bitmap_size"] >= 0) & (ext["size"] == ext["bitmap_size"] + _EXT_DTYPE.itemsize)
    if not found.all():
        offset = int(offsets[~found][0])
        raise DamagedFileError(f"{store.path('consumequeue_ext', topic, str(queue_id))} has no unit at offset {offset}")
    return codes, times

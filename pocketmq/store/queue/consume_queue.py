"""ConsumeQueue: the positions in the log of the messages of one topic and queue.

Unit n (20 bytes) belongs to queue offset n. It has physical offset and size of the record, and its tags code, by which pulls
are filtered without reading the log. Units are written in log order, so physical offsets ascend, and a physical offset or a
time is found by binary search.

A store may have thousands of queues of which few are in use. After recovery a queue therefore only has its offsets in
memory; its files are mapped at the first access.

A queue whose first record has queue offset q > 0, because older records or its files were deleted, begins in the file that
would hold q. The units before it are *blank* (physical offset 0, size 0x7FFFFFFF) and below `min_offset`. Records that were
lost in the middle of the log leave a *hole*: units that point at the filler record in their place, with a tags code that no
filter accepts.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from ctypes import addressof
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import JointFlush, MappedFileQueue
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.lane_units import QueueEnds
from pocketmq.store.format.layout import (
    BLANK_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_DTYPE,
    CONSUME_QUEUE_UNIT_SIZE,
    CONSUME_QUEUE_UNIT_STRUCT,
    HOLE_TAGS_CODE,
    unit_run_struct,
)
from pocketmq.store.format.message import QueueKey

# Array with dtype CONSUME_QUEUE_UNIT_DTYPE.
Units = npt.NDArray[np.void]

_BLANK: Final = (0, BLANK_UNIT_SIZE, 0)
_BLANK_UNIT: Final = CONSUME_QUEUE_UNIT_STRUCT.pack(*_BLANK)
# Number of newest files that recovery reads, as in Apache (ConsumeQueue.recover); older files have been synced.
_FILES_RECOVERED: Final = 3
_UNITS_SCANNED_AT_FIRST: Final = 256
_UNITS_SCANNED_AT_ONCE: Final = 4096
_UNIT_SIZE: Final = CONSUME_QUEUE_UNIT_SIZE
# Bytes of units that are read rather than mapped.
_READ_MAX: Final = 64 << 10


class BrokenQueueError(StoreError):
    """The files of a queue are not consecutive or have lost bytes, and the queue must be rebuilt from the log."""


class FileSum(NamedTuple):
    """Checksum of the first `size` bytes of the queue file that begins at byte `start` of the queue."""

    start: int
    size: int
    checksum: int


class ConsumeQueue(QueueEnds):
    """One queue of one topic. Queue offsets are unit numbers; `max_offset` is the next one.

    Only `flush` may be called by another thread.
    """

    __slots__ = (
        "_files",
        "_min_unit_physical_offset",
        "_opened",
        "_tail",
        "flush_offset",
        "min_offset",
        "queue_id",
        "sums",
        "topic",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        file_size: int,
        topic: str = "",
        queue_id: int = 0,
        open_files: OpenFiles | None = None,
    ) -> None:
        """`folder` holds only this queue's files. `file_size` must be a multiple of 20."""
        assert file_size % _UNIT_SIZE == 0, f"{file_size} is not a multiple of {_UNIT_SIZE}"
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        # End offset of the newest record in the queue: records that end at or before it have been appended already.
        self.max_physical_offset = 0
        self.flush_offset = 0
        """The max offset when the last flush began."""
        # The file to which units were appended last, if it is still open. The compiled lane appends to it, too.
        self._tail: MappedFile | None = None
        # Checksums of the files, ascending; see `queue_checksums`.
        self.sums: tuple[FileSum, ...] = ()
        self._files = MappedFileQueue(disk, folder, file_size, random_access=True, open_files=open_files, can_wait=True)
        self._opened = False
        # Physical offset in the unit at `min_offset`, or -1 if unknown. Cached so that unused queues need not be opened.
        self._min_unit_physical_offset = -1

    def _open(self) -> MappedFileQueue:
        if not self._opened:
            self._files.load()
            self._opened = True
            if self._files.files:
                last = self._files.files[-1]
                last.wrote = last.flushed = self.max_offset * _UNIT_SIZE - last.start_offset
        return self._files

    @property
    def folder(self) -> str:
        return self._files.directory

    @property
    def opened_files(self) -> tuple[MappedFile, ...]:
        """The files, if the queue is open, else (). Closed queues have no new units."""
        return self._files.files if self._opened else ()

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, queue_offset: int, values: Sequence[int]) -> int:
        """Append consecutive units starting at `queue_offset` and return how many of them were new.

        `values` is flat: physical offset, size, tags code, physical offset, ... in log order. Units that are already in the
        queue are skipped, because the log is dispatched again after a crash. Raises OSError if a file cannot be created.
        """
        count = len(values) // 3
        if values[0] < self.max_physical_offset or queue_offset != self.max_offset:
            if queue_offset == 0 and self.max_physical_offset <= values[0]:
                # The topic was deleted and created again, and recovery replays the records of both.
                self.destroy()
            skipped = self._known(queue_offset, values)
            if skipped == count:
                return 0
            if skipped:
                values, count, queue_offset = values[3 * skipped :], count - skipped, queue_offset + skipped
        if queue_offset > self.max_offset and self.min_offset == self.max_offset:
            self.begin_at(queue_offset)
        self._add(unit_run_struct(count).pack(*values), values[-3] + values[-2])
        return count

    def append_packed(self, queue_offset: int, data: bytes, end_offset: int) -> bool:
        """Append consecutive units of new records as bytes, the last of which ends at `end_offset`, if they follow those in
        the queue; return whether they were appended. Raises OSError as `append` does."""
        if queue_offset != self.max_offset:
            return False
        self._add(data, end_offset)
        return True

    def _add(self, data: bytes, end_offset: int) -> None:
        file = self._tail
        if file is not None and len(data) <= file.size - file.wrote:
            file.append(data)
        else:
            files = self._open()
            files.append(data)
            self._append_to(files.files[-1])
        self.max_offset += len(data) // _UNIT_SIZE
        self.max_physical_offset = end_offset

    def _append_to(self, file: MappedFile | None) -> None:
        # In this order: the address must be that of a file that exists.
        self._tail_address = 0
        self._tail = file
        if file is not None:
            self._tail_address = addressof(file)

    def _known(self, queue_offset: int, values: Sequence[int]) -> int:
        """Return how many units at the beginning of `values` are in the queue already."""
        count = len(values) // 3
        for index in range(count):
            physical_offset, size = values[3 * index], values[3 * index + 1]
            if physical_offset + size > self.max_physical_offset and queue_offset + index >= self.max_offset:
                # A gap before this unit is an error in the log. Apache at most logs it, and also appends at the end.
                return index
        return count

    def append_units(self, queue_offset: int, units: Units) -> int:
        """Append consecutive units given as an array and return how many were new, like `append`.

        The new units must begin at `max_offset`, unless the queue is empty. Raises OSError if a file cannot be created.
        """
        known = self.known_units(queue_offset, units)
        if known == len(units):
            return 0
        if queue_offset == 0 and known == 0 and self.max_offset:
            self.destroy()
        queue_offset, units = queue_offset + known, units[known:]
        if queue_offset > self.max_offset and self.min_offset == self.max_offset:
            self.begin_at(queue_offset)
        assert queue_offset == self.max_offset, f"unit {queue_offset} of {self.topic}/{self.queue_id} at {self.max_offset}"
        self._add(units.tobytes(), int(units[-1]["physical_offset"]) + int(units[-1]["size"]))
        return len(units)

    def known_units(self, queue_offset: int, units: Units) -> int:
        """Return how many units at the beginning of `units`, which start at `queue_offset`, are in the queue already."""
        by_place = int(np.searchsorted(units["physical_offset"] + units["size"], self.max_physical_offset, "right"))
        if queue_offset == 0 and by_place == 0:
            # The topic was deleted and created again: all units are new.
            return 0
        return min(max(by_place, self.max_offset - queue_offset), len(units))

    def fill_hole(self, until: int, filler_offset: int, size: int) -> None:
        """Append hole units up to queue offset `until` for lost records; the filler record is at `filler_offset`."""
        count = until - self.max_offset
        if count > 0:
            units = CONSUME_QUEUE_UNIT_STRUCT.pack(filler_offset, size, HOLE_TAGS_CODE) * count
            self._add(units, max(self.max_physical_offset, filler_offset + size))

    def begin_at(self, queue_offset: int) -> None:
        """Begin an empty queue at `queue_offset`."""
        self.sums = ()
        self._append_to(None)
        files = self._open()
        while files.files:
            files.delete_first()
        file = files.writable(queue_offset * _UNIT_SIZE)
        file.append(_BLANK_UNIT * (queue_offset - file.start_offset // _UNIT_SIZE))
        self.min_offset = self.max_offset = queue_offset

    # --- reading ----------------------------------------------------------------------------------------------------

    def units(self, queue_offset: int, count_max: int) -> memoryview:
        """Return up to `count_max` units from `queue_offset` on, for `CONSUME_QUEUE_UNIT_STRUCT.iter_unpack`.

        The result ends at the end of a file and is empty outside [min_offset, max_offset).
        """
        if not self.min_offset <= queue_offset < self.max_offset:
            return memoryview(b"")
        files = self._files if self._opened else self._open()
        start = queue_offset * _UNIT_SIZE
        file = files.file_at(start)
        if file is None:
            return memoryview(b"")
        position = start - file.start_offset
        return file.view[position : min(position + count_max * _UNIT_SIZE, file.wrote)]

    def unit_at(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code) at `queue_offset`, or None outside [min_offset, max_offset)."""
        unit = self.units(queue_offset, 1)
        return CONSUME_QUEUE_UNIT_STRUCT.unpack(unit) if unit else None

    # --- recovery and retention -------------------------------------------------------------------------------------

    def recover(self, *, clean: bool) -> None:
        """Find the end of the queue, which is the first invalid unit. After a crash the bytes after it are zeroed.

        Raises BrokenQueueError; StoreError if all files have a different size that is valid for a queue; OSError.
        """
        files = self._files
        self._load()
        self._opened = True
        self.max_physical_offset = 0
        first = max(len(files.files) - _FILES_RECOVERED, 0)
        # If a power cut left a file without units, the file before it may be incomplete, too.
        while first and _is_invalid(_first_unit(files.files[first])):
            first -= 1
        for file in files.files[first:]:
            wrote, physical_end = _valid_size(file)
            self.max_physical_offset = max(self.max_physical_offset, physical_end)
            if not clean:
                # The units of a killed process may be in the page cache only, but are treated as durable from now on.
                file.region.sync(0, file.size)
            if wrote < file.size:
                if not clean or file is not files.files[-1]:
                    self._cut(file.start_offset + wrote)
                else:
                    file.wrote = file.flushed = wrote
                break
        self.max_offset = files.max_offset // _UNIT_SIZE
        self.min_offset = files.min_offset // _UNIT_SIZE
        unit = _first_unit(files.files[0]) if self.max_offset > self.min_offset else _BLANK
        self._min_unit_physical_offset = -1 if _is_invalid(unit) or _is_blank(unit) else unit[0]
        self.correct_min_offset(0)
        # Most queues need only their offsets in memory, so the files do not stay mapped.
        self.close()

    def _load(self) -> None:
        disk, directory = self._files.disk, self._files.directory
        sizes = {disk.size(f"{directory}/{name}") for name in disk.listdir(directory) if name.isdecimal()}
        if sizes == {0}:
            # A crash while the first file was created leaves this, but it may also be a full file that lost its contents.
            raise BrokenQueueError(f"all files of {directory} are empty")
        try:
            self._files.load()
        except StoreError as error:
            other = sizes.pop()
            if not sizes and other not in (0, self._files.file_size) and other % _UNIT_SIZE == 0:
                raise StoreError(f"{error}: mappedFileSizeConsumeQueue is {self._files.file_size}") from error
            raise BrokenQueueError(str(error)) from error

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set `min_offset` to the first unit whose record is still in the log, or to `max_offset` if there is none."""
        if self._min_unit_physical_offset >= min_physical_offset or self.min_offset == self.max_offset:
            return
        was_open = self._opened
        self.min_offset, self._min_unit_physical_offset = self._first_at_or_beyond(min_physical_offset)
        if not was_open:
            self.close()

    def truncate(self, physical_offset: int) -> None:
        """Drop the units of records at or beyond `physical_offset`, where the log now ends or will be dispatched again."""
        if self.max_physical_offset <= physical_offset:
            return
        self._open()
        self.truncate_units(self._first_at_or_beyond(physical_offset)[0])

    def truncate_units(self, end: int) -> None:
        """Drop the units from queue offset `end` on, without reading them."""
        if end >= self.max_offset:
            return
        self._cut(end * _UNIT_SIZE)
        self.max_offset = end
        if self.min_offset >= end:
            self.min_offset, self._min_unit_physical_offset = end, -1
        newest = self.unit_at(end - 1)
        self.max_physical_offset = newest[0] + newest[1] if newest is not None else 0

    def _cut(self, end_byte: int) -> None:
        """Cut the files at `end_byte`. A queue keeps an empty file if `end_byte` > 0, so that its offsets never restart."""
        self.sums = tuple(one for one in self.sums if one.start + one.size <= end_byte)
        self._append_to(None)
        files = self._open()
        files.truncate(end_byte)
        if not files.files and end_byte:
            files.writable(end_byte)

    def delete_below(self, min_physical_offset: int) -> int:
        """Delete the files whose records are all gone from the log, except the last file. Return the number of files."""
        files, deleted = self._open(), 0
        while len(files.files) > 1:
            first = files.files[0]
            if _unit_of(first, first.wrote // _UNIT_SIZE - 1)[0] >= min_physical_offset:
                break
            files.delete_first()
            self.sums = tuple(one for one in self.sums if one.start > first.start_offset)
            deleted += 1
        if deleted:
            self.correct_min_offset(min_physical_offset)
        return deleted

    def _first_at_or_beyond(self, physical_offset: int) -> tuple[int, int]:
        """Return (queue offset, physical offset) of the first unit, except blank ones, at or beyond a physical offset.

        The result is (`max_offset`, -1) if all units point to earlier records. An invalid unit counts as a later one: a
        power cut may lose any page that was not synced and keep later pages.
        """

        def reached(units: bytes | memoryview, index: int) -> bool:
            unit = CONSUME_QUEUE_UNIT_STRUCT.unpack_from(units, index * _UNIT_SIZE)
            return _is_invalid(unit) or (unit[0] >= physical_offset and not _is_blank(unit))

        for file in self._open().files:
            count = file.wrote // _UNIT_SIZE
            # Retention asks all queues: to map a file for that costs many times as much as to read a few units.
            units = file.view if file.wrote > _READ_MAX else file.read_written(0, file.wrote)
            if count and reached(units, count - 1):
                first = bisect_left(range(count), True, key=lambda index, units=units: reached(units, index))  # type: ignore[misc]
                found = CONSUME_QUEUE_UNIT_STRUCT.unpack_from(units, first * _UNIT_SIZE)
                return file.start_offset // _UNIT_SIZE + first, found[0]
        return self.max_offset, -1

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make the units durable. Raises OSError."""
        end = self.max_offset
        if self._opened:
            self._files.flush()
        self.flush_offset = end

    def begin_flush(self, flush: JointFlush) -> None:
        """Add to `flush` what a sync of the file system makes durable from now on. Raises OSError."""
        self.flush_offset = self.max_offset
        if self._opened:
            self._files.begin_flush(flush)

    def has_due(self, least_pages: int) -> bool:
        """Return whether units are to be flushed: a file is full, or at least `least_pages` of its pages are dirty."""
        return self._opened and self._files.has_due(least_pages)

    def close(self) -> None:
        """Unmap the files; the next access opens them again."""
        if self._opened:
            self._files.close()
            self._opened = False
            self._append_to(None)

    def destroy(self) -> None:
        """Delete the queue's files and folder. Raises OSError."""
        self._files.destroy()
        self._append_to(None)
        self.sums = ()
        self.min_offset = self.max_offset = self.max_physical_offset = 0
        self._min_unit_physical_offset = -1


def queues_in(disk: Disk, folder: str) -> Iterator[QueueKey]:
    """Yield the queues that have a folder `<folder>/<topic>/<queue id>`."""
    for topic in disk.listdir(folder):
        for name in disk.listdir(f"{folder}/{topic}"):
            if name.isascii() and name.isdecimal():
                yield topic, int(name)


def _unit_of(file: MappedFile, index: int) -> tuple[int, int, int]:
    """Return unit `index`, counted from the start of `file`."""
    return CONSUME_QUEUE_UNIT_STRUCT.unpack_from(file.view, index * _UNIT_SIZE)


def _first_unit(file: MappedFile) -> tuple[int, int, int]:
    """Return the first unit without mapping the file."""
    return CONSUME_QUEUE_UNIT_STRUCT.unpack(file.disk.read_range(file.path, 0, _UNIT_SIZE))


def _is_blank(unit: tuple[int, int, int]) -> bool:
    return unit[:2] == _BLANK[:2]


def _is_invalid(unit: tuple[int, int, int]) -> bool:
    """Return whether a unit is invalid by the rule of `_valid_size`."""
    return unit[0] < 0 or unit[1] <= 0


def _valid_size(file: MappedFile) -> tuple[int, int]:
    """Return (size in bytes of the valid units at the beginning of a file, end offset of the newest record among them).

    A unit is valid under the same rule as in Apache's ConsumeQueue.recover: offset >= 0 and size > 0. This includes blank
    units, but unlike there a blank unit does not count as a record; in Apache it can yield an end offset of 2 GiB.

    The file is not mapped, which would take several times as long.
    """
    count, last = 0, _BLANK
    step = _UNITS_SCANNED_AT_FIRST
    # In steps, so that of a nearly empty file of 300,000 units only the first few pages are read.
    while count < file.size // _UNIT_SIZE:
        begin = count * _UNIT_SIZE
        data = file.disk.read_range(file.path, begin, min(step * _UNIT_SIZE, file.size - begin) // _UNIT_SIZE * _UNIT_SIZE)
        units = np.frombuffer(data, CONSUME_QUEUE_UNIT_DTYPE)
        invalid = np.flatnonzero((units["physical_offset"] < 0) | (units["size"] <= 0))
        found = int(invalid[0]) if len(invalid) else len(units)
        if found:
            count, last = count + found, CONSUME_QUEUE_UNIT_STRUCT.unpack_from(data, (found - 1) * _UNIT_SIZE)
        if len(invalid) or not len(units):
            break
        step = _UNITS_SCANNED_AT_ONCE
    return count * _UNIT_SIZE, 0 if _is_blank(last) else last[0] + last[1]

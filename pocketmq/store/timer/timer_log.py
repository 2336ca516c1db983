"""TimerLog: a sequence of files of 52-byte units, one for each time a message was put into a slot of the timer wheel.

A unit has the position of its record in the CommitLog and of the previous unit of the same slot; the slot has its newest
unit, so that all can be found. Units are only appended. A file ends with a blank of 16 bytes where no further unit fits, so
all full files have the same number of units, and number and position of a unit can be computed from each other.

A file is needed as long as it has a unit in a slot that is not yet due, and the unit's record exists. Older files can be
deleted.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    TIMER_LOG_BLANK_SIZE,
    TIMER_LOG_BLANK_STRUCT,
    TIMER_LOG_UNIT_DTYPE,
    TIMER_LOG_UNIT_SIZE,
    TIMER_MAGIC_BITS,
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_ROLL,
)
from pocketmq.store.format.record_chain import complete_units

FILE_SUM: Final = struct.Struct(">qq")  # where a file begins, the checksum of its units
# An array of TIMER_LOG_UNIT_DTYPE.
Units = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]

_UNIT_SIZE: Final = TIMER_LOG_UNIT_SIZE
# Units processed at a time (3 MB): they need little memory for the computed columns, and there are few rounds.
_UNITS_AT_ONCE: Final = 1 << 16
_UNITS_IN_PART: Final = 1 << 12
# Number of appended bytes after which the log's pages are released; units are usually read hours later.
_RELEASED_EVERY: Final = 4 << 20


def unit_times(units: Units) -> Numbers:
    """Return for each unit the time of its slot, epoch ms."""
    times: Numbers = units["write_time_ms"].astype(np.int64) + units["delay_ms"]
    return times


def unit_dues(units: Units) -> Numbers:
    """Return for each unit the due time of its message, epoch ms; for units rolled by Apache the slot's time."""
    rolled_dues = units["rolled_due_ms"].astype(np.int64)
    dues: Numbers = np.where((units["magic"] & TIMER_MAGIC_ROLL != 0) & (rolled_dues > 0), rolled_dues, unit_times(units))
    return dues


def joined(parts: Iterable[Units]) -> Units:
    """Concatenate arrays of units. (`np.concatenate` would change the byte order of the numbers.)"""
    return np.frombuffer(b"".join(part.tobytes() for part in parts), TIMER_LOG_UNIT_DTYPE)


class UnitPart(NamedTuple):
    """Consecutive units. `lowest` is the lowest physical offset to which one refers; `read` returns a copy of them."""

    lowest: int
    read: Callable[[], Units]


class TimerLog:
    """Timer log. Positions are bytes from the beginning of the sequence. Only `flush` may be called by another thread."""

    def __init__(self, disk: Disk, directory: str, file_size: int, open_files: OpenFiles | None = None) -> None:
        """`file_size` is mappedFileSizeTimerLog."""
        if file_size < _UNIT_SIZE + TIMER_LOG_BLANK_SIZE:
            size_min = _UNIT_SIZE + TIMER_LOG_BLANK_SIZE
            raise ValueError(f"mappedFileSizeTimerLog={file_size}: a unit and the blank after it need {size_min} bytes")
        self.units_per_file = (file_size - TIMER_LOG_BLANK_SIZE) // _UNIT_SIZE
        self.directory = directory
        self._files = MappedFileQueue(disk, directory, file_size, open_files=open_files)
        # Position of the next file if there is none.
        self._origin = 0
        self.begin = self.end = 0
        """Position of the oldest unit, and end of the newest one or of the blank after it."""
        # Checksum of the last file's units. Start of a full file -> checksum of its units. The latter in stored form.
        self.last_sum = 0
        self._full_sums: dict[int, int] = {}
        self.file_sums = b""
        # Start of a full file -> (newest slot time, highest physical offset) in it.
        self._bounds: dict[int, tuple[int, int]] = {}

    def load(self, begin_max: int | None = None) -> None:
        """Find the files. Raises StoreError when one has a wrong size or is missing in between.

        Files that begin after `begin_max` are deleted without a check, because a power cut may have lost their length.
        """
        directory = self._files.directory
        for name in reversed(self._files.disk.listdir(directory)):
            if begin_max is not None and name.isdecimal() and int(name) > begin_max:
                self._files.disk.delete(f"{directory}/{name}")
        self._files.load()
        self._note_ends()

    # --- positions --------------------------------------------------------------------------------------------------

    def _note_ends(self) -> None:
        files = self._files
        self.begin, self.end = (files.min_offset, files.max_offset) if files.files else (self._origin, self._origin)

    @property
    def position_of_next(self) -> int:
        """Position of the next unit."""
        file_number, in_file = divmod(self.end, self._files.file_size)
        is_full = in_file // _UNIT_SIZE >= self.units_per_file
        return (file_number + 1) * self._files.file_size if is_full else self.end

    def positions_of_next(self, count: int) -> Numbers:
        """Return the positions of the next `count` units."""
        file_number, in_file = divmod(self.end, self._files.file_size)
        numbers = np.arange(count, dtype=np.int64) + (file_number * self.units_per_file + in_file // _UNIT_SIZE)
        return numbers // self.units_per_file * self._files.file_size + numbers % self.units_per_file * _UNIT_SIZE

    def unit_at(self, position: int) -> memoryview | None:
        """Return the 52 bytes at `position`, or None outside the log."""
        return self._files.view(position, _UNIT_SIZE)

    def windows(
        self, begin: int = 0, end: int | None = None, *, times_from: int | None = None
    ) -> Iterator[tuple[int, Units]]:
        """Yield the units in [begin, end) in parts: (position of the first, view of consecutive units). Do not keep views.

        With `times_from` (epoch ms), full files all of whose units are in earlier slots are skipped. After each complete
        part its pages are removed from the resident set.
        """
        end = self.end if end is None else end
        for file in self._files.files:
            low = max(begin - file.start_offset, 0) // _UNIT_SIZE
            high = min(min(end - file.start_offset, file.wrote) // _UNIT_SIZE, self.units_per_file)
            if low >= high or (times_from is not None and file.full and self._bounds_of(file)[0] < times_from):
                continue
            units = _units_of(file)
            for index in range(low, high, _UNITS_AT_ONCE):
                stop = min(index + _UNITS_AT_ONCE, high)
                yield file.start_offset + index * _UNIT_SIZE, units[index:stop]
                if stop - index == _UNITS_AT_ONCE:
                    file.release_memory(stop * _UNIT_SIZE, index * _UNIT_SIZE)

    def unit_parts(self) -> list[UnitPart]:
        """Return all units in parts, to be read before the log changes."""
        return [
            UnitPart(int(units["physical_offset"].min()), partial(self._copy, position, len(units)))
            for position, units in self.windows()
        ]

    def _copy(self, position: int, count: int) -> Units:
        _, units = next(self.windows(position, position + count * _UNIT_SIZE))
        return units.copy()

    def parts(self, times_from: int) -> Iterator[Units]:
        """Yield copies of the units in `windows`, in small parts. Between two parts the log may grow or lose files."""
        position = self.begin
        while (window := next(self.windows(position, times_from=times_from), None)) is not None:
            begin, units = window
            copied = units[:_UNITS_IN_PART].copy()
            del window, units  # a view must not outlast the turn
            yield copied
            position = begin + len(copied) * _UNIT_SIZE

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, data: bytes) -> None:
        """Append whole units at `positions_of_next`. Raises OSError if the disk is full; the log is then unchanged.

        (A file that was added meanwhile stays, empty.)
        """
        rest = memoryview(data)
        before, sums = self.end, (self.last_sum, self._full_sums.copy(), self.file_sums)
        while rest:
            file = self._writable()
            room = (self.units_per_file - file.wrote // _UNIT_SIZE) * _UNIT_SIZE
            try:
                file.append(bytes(rest[:room]))
            except OSError:
                self.truncate(before)
                self.last_sum, self._full_sums, self.file_sums = sums
                raise
            self.last_sum = crc32(rest[:room], self.last_sum)
            self.end = file.start_offset + file.wrote
            rest = rest[room:]
        if self.end // _RELEASED_EVERY != before // _RELEASED_EVERY:
            self.release_memory()

    def _writable(self) -> MappedFile:
        files = self._files.files
        file = files[-1] if files and files[-1].wrote < files[-1].size else self._files.writable(self._origin)
        if file.wrote // _UNIT_SIZE == self.units_per_file:
            file.append(TIMER_LOG_BLANK_STRUCT.pack(file.size - file.wrote, 0, BLANK_MAGIC_CODE))
            file.wrote = file.size
            self._full_sums[file.start_offset], self.last_sum = self.last_sum, 0
            self._note_sums()
            file = self._files.writable()
        return file

    # --- checksums --------------------------------------------------------------------------------------------------

    def _note_sums(self) -> None:
        begin = self.begin
        self._full_sums = {start: found for start, found in self._full_sums.items() if start >= begin}
        self.file_sums = b"".join(FILE_SUM.pack(start, found) for start, found in sorted(self._full_sums.items()))

    def check_sums(self, file_sums: bytes, last_sum: int) -> str:
        """Compute the checksums of all files and compare them with the known ones. Return an error text, or "" if equal.

        `file_sums` is a previous value of the attribute, `last_sum` the known checksum of the file at the log's end, or -1.
        """
        known = dict(FILE_SUM.iter_unpack(file_sums))
        self._full_sums, self.last_sum, problem = {}, 0, ""
        for file in self._files.files:
            found = self._sum_of(file)
            if file.full:
                self._full_sums[file.start_offset] = found
            else:
                self.last_sum, known[file.start_offset] = found, last_sum
            expected = known.get(file.start_offset, -1)
            if expected not in (-1, found) or (expected != -1 and file.full and not self._has_blank(file)):
                problem = problem or f"the checksum of {self._files.directory}/{file.start_offset:020d} is wrong"
        self._note_sums()
        return problem

    def _has_blank(self, file: MappedFile) -> bool:
        position = self.units_per_file * _UNIT_SIZE
        return TIMER_LOG_BLANK_STRUCT.unpack_from(file.view, position) == (file.size - position, 0, BLANK_MAGIC_CODE)

    def _sum_of(self, file: MappedFile) -> int:
        end = min(file.wrote // _UNIT_SIZE, self.units_per_file) * _UNIT_SIZE
        found, at_once = 0, _UNITS_AT_ONCE * _UNIT_SIZE
        for start in range(0, end, at_once):
            stop = min(start + at_once, end)
            found = crc32(file.view[start:stop], found)
            file.release_memory(stop, start)
        return found

    # --- recovery ---------------------------------------------------------------------------------------------------

    def valid_end(self, max_physical_offset: int, max_time_ms: int) -> int:
        """Return the position of the first unit that is invalid or whose record or slot is beyond the given limits."""
        for file in self._files.files:
            for index in range(0, self.units_per_file, _UNITS_AT_ONCE):
                units = _units_of(file)[index : min(index + _UNITS_AT_ONCE, self.units_per_file)]
                position = file.start_offset + index * _UNIT_SIZE
                bad = _invalid(units, position)
                bad |= (units["physical_offset"] >= max_physical_offset) | (unit_times(units) >= max_time_ms)
                if bad.any():
                    return position + int(bad.argmax()) * _UNIT_SIZE
                file.release_memory((index + len(units)) * _UNIT_SIZE, index * _UNIT_SIZE)
        return self.end

    def truncate(self, end: int) -> None:
        """Cut the log at `end`; the rest is zeroed or deleted. Raises OSError."""
        if self._files.max_offset > end:
            self._files.truncate(end)
            self._begin_at(end)
        self._note_ends()

    def _begin_at(self, position: int) -> None:
        self._bounds.clear()
        if not self._files.files:
            self._origin = position
            if position:
                # The file's name tells the next start the position at which to continue.
                self._files.writable(position)
        self._note_ends()

    def sync_from(self, position: int) -> None:
        """Sync the bytes from `position` on, which a killed process may have left in the page cache. Raises OSError."""
        for file in self._files.files:
            if file.end_offset > position:
                file.region.sync(0, file.size)

    def start_over(self, beyond: int) -> None:
        """Delete all files. The log continues in a new file after `beyond` and all previous files. Raises OSError."""
        beyond = max(beyond, self._files.max_offset)
        self._files.destroy()
        self.last_sum, self._full_sums, self.file_sums = 0, {}, b""
        self._begin_at((beyond // self._files.file_size + 1) * self._files.file_size)

    # --- retention and lifecycle ------------------------------------------------------------------------------------

    def needed_from(self, read_time_ms: int, min_physical_offset: int) -> int:
        """Return the start of the first file that has a unit of a pending slot and whose records are still in the log.

        Pending slots are those from `read_time_ms` on. Returns the start of the last file if there is no such file.
        """
        for file in self._files.files[:-1]:
            newest_time, physical_offset = self._bounds_of(file)
            if newest_time >= read_time_ms and physical_offset >= min_physical_offset:
                return file.start_offset
        return self._files.files[-1].start_offset if self._files.files else self._origin

    def delete_unneeded(self, read_time_ms: int, min_physical_offset: int) -> int:
        """Delete the files before the first one that is needed. Return the number of files. Raises OSError."""
        deleted = 0
        needed_from = self.needed_from(read_time_ms, min_physical_offset)
        while self._files.files and self._files.files[0].start_offset < needed_from:
            self._bounds.pop(self._files.files[0].start_offset, None)
            self._files.delete_first()
            # Synced one by one, so that a power cut cannot leave a gap.
            self._files.sync_names()
            deleted += 1
        self._note_ends()
        return deleted

    def _bounds_of(self, file: MappedFile) -> tuple[int, int]:
        bounds = self._bounds.get(file.start_offset)
        if bounds is None:
            units = _units_of(file)[: self.units_per_file]
            bounds = int(unit_times(units).max()), int(units["physical_offset"].max())
            self._bounds[file.start_offset] = bounds
        return bounds

    def flush(self) -> None:
        """Make the units durable. Raises OSError."""
        self._files.flush()

    def release_memory(self) -> None:
        """Remove the pages from the resident set."""
        for file in self._files.files:
            file.release_memory(file.wrote)

    def close(self) -> None:
        self._files.close()


def _units_of(file: MappedFile) -> Units:
    return complete_units(file.array, TIMER_LOG_UNIT_DTYPE)


def _invalid(units: Units, position: int) -> npt.NDArray[np.bool_]:
    """Return the mask of invalid units among consecutive ones, the first of which is at `position`.

    5.5.0 checks size and magic only. A unit torn at a sector boundary ends in zeros, and no record has size 0.
    """
    positions = position + _UNIT_SIZE * np.arange(len(units), dtype=np.int64)
    bad: npt.NDArray[np.bool_] = (
        (units["size"] != _UNIT_SIZE)
        | ((units["magic"] & ~TIMER_MAGIC_BITS) != 0)
        | ((units["magic"] & TIMER_MAGIC_DEFAULT) == 0)
        | (units["record_size"] <= 0)
        | (units["physical_offset"] < 0)
        | (units["write_time_ms"] <= 0)
        | (units["previous_position"] >= positions)
    )
    return bad

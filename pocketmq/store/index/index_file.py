"""IndexFile: a hash table on disk that maps the hash of a key to the physical offsets of its records.

    header 40 | slots, 4 bytes each | entries, 20 bytes each

A slot has the number of its newest entry, and each entry the number of the previous entry in the same slot. Numbers start at
1 and 0 means "none": entry 0 is never written, and `index_count` is the number of the *next* entry. Entry times are in
seconds since the file's begin time. Keys are not stored, so a result may contain records of other keys with the same hash.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.disk import Disk
from pocketmq.store.format.lane_units import IndexEnds
from pocketmq.store.format.layout import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    INDEX_ENTRY_STRUCT,
    INDEX_HEADER_SIZE,
    INDEX_HEADER_STRUCT,
    INDEX_SLOT_SIZE,
    INDEX_SLOT_STRUCT,
)

# (physical offset, store time in ms) of a record.
Place = tuple[int, int]

_TIME_DIFF_MAX_S: Final = 0x7FFFFFFF
_RESERVED_AHEAD: Final = (1 << 20) // INDEX_ENTRY_SIZE
_ENTRIES_AT_ONCE: Final = 1 << 16


def index_file_size(slot_count: int, index_count_max: int) -> int:
    """Return the size of a file with `slot_count` slots (maxHashSlotNum) and `index_count_max` entries (maxIndexNum)."""
    return INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE + index_count_max * INDEX_ENTRY_SIZE


class IndexFile(IndexEnds):
    """Open index file. The header fields are attributes and are written at the end of each put."""

    def __init__(
        self, disk: Disk, path: str, slot_count: int, index_count_max: int, *, after: "IndexFile | None" = None
    ) -> None:
        """Open the file at `path`, or create it if `after` (its full predecessor) is given or it does not exist.

        Raises OSError, also if an existing file does not have the size that follows from the two counts.
        """
        super().__init__()
        self.path = path
        self._disk = disk
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self._size = index_file_size(slot_count, index_count_max)
        self._entries_start = INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE
        created = after is not None or not disk.exists(path)
        self._region = disk.map(path, self._size, create=created, random_access=True)
        self._map_address = self._region.array.ctypes.data
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        ) = INDEX_HEADER_STRUCT.unpack_from(self._region.view, 0)
        if self.index_count <= 0:
            self.index_count = 1
        if after is not None:
            # As in Apache's constructor, a new file takes time and offset from the end of its predecessor, and the time of
            # its first entry is relative to that.
            self.begin_timestamp_ms = self.end_timestamp_ms = after.end_timestamp_ms
            self.begin_physical_offset = self.end_physical_offset = after.end_physical_offset
        self._is_dirty = created

    @property
    def is_empty(self) -> bool:
        return self.index_count == 1

    @property
    def full(self) -> bool:
        return self.index_count >= self._index_count_max

    def put_keys(self, key_hashes: Sequence[int], places: Sequence[Place]) -> int:
        """Add entries in order and return how many were added; fewer than given means that the file is full.

        Packing all entries in one call would not be faster; nor would numpy for fewer than 100 entries.
        """
        count, used, begin_ms = self.index_count, self.hash_slot_count, self.begin_timestamp_ms
        taken = min(len(key_hashes), self._index_count_max - count)
        if taken <= 0:
            return 0
        self.reserve(count + taken)
        view, slot_count = self._region.view, self._slot_count
        unpack_slot, pack_slot = INDEX_SLOT_STRUCT.unpack_from, INDEX_SLOT_STRUCT.pack_into
        pack_entry = INDEX_ENTRY_STRUCT.pack_into
        position = self._entries_start + count * INDEX_ENTRY_SIZE
        timed_ms, time_diff_s = -1, 0
        for key_hash, (physical_offset, store_ms) in zip(key_hashes[:taken], places, strict=False):
            slot_position = INDEX_HEADER_SIZE + key_hash % slot_count * INDEX_SLOT_SIZE
            (previous,) = unpack_slot(view, slot_position)
            if not 0 < previous < count:
                previous = 0
                used += 1
            if store_ms != timed_ms:
                timed_ms, time_diff_s = store_ms, _time_diff_s(begin_ms, store_ms)
            pack_entry(view, position, key_hash, physical_offset, time_diff_s, previous)
            pack_slot(view, slot_position, count)
            if count == 1:
                self.begin_timestamp_ms = begin_ms = store_ms
                self.begin_physical_offset = physical_offset
                timed_ms = -1
            position += INDEX_ENTRY_SIZE
            count += 1
        self.index_count, self.hash_slot_count = count, used
        self.end_physical_offset, self.end_timestamp_ms = places[taken - 1]
        self._write_header()
        return taken

    def put_many(
        self,
        key_hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps_ms: npt.NDArray[np.int64],
    ) -> int:
        """Add entries given as arrays, with the same result in the file as `put_keys`; faster for many entries."""
        count = self.index_count
        taken = min(len(key_hashes), self._index_count_max - count)
        if taken <= 0:
            return 0
        self.reserve(count + taken)
        hashes, times_ms = key_hashes[:taken], store_timestamps_ms[:taken]
        slots = hashes % np.int32(self._slot_count)
        entries = np.empty(taken, INDEX_ENTRY_DTYPE)
        entries["key_hash"] = hashes
        entries["physical_offset"] = physical_offsets[:taken]
        entries["time_diff_s"] = _time_diffs_s(self.begin_timestamp_ms, times_ms)
        if count == 1:
            self.begin_timestamp_ms, self.begin_physical_offset = int(times_ms[0]), int(physical_offsets[0])
            entries["time_diff_s"][1:] = _time_diffs_s(self.begin_timestamp_ms, times_ms[1:])
        # Group the entries by slot, keeping their order: each points at its predecessor, the first at the slot's old entry.
        # Slot and number are sorted as one integer, because numpy's sort is much faster than argsort.
        packed = np.sort(slots.astype(np.int64) << 32 | np.arange(count, count + taken))
        sorted_slots, numbers = packed >> 32, (packed & 0xFFFFFFFF).astype(np.int32)
        firsts = np.flatnonzero(np.concatenate(([True], sorted_slots[1:] != sorted_slots[:-1])))
        used_slots, table = sorted_slots[firsts], self._slots()
        held = table[used_slots].astype(np.int32)
        held[(held < 0) | (held >= count)] = 0
        previous = np.concatenate((held[:1], numbers[:-1]))
        previous[firsts] = held
        links = np.empty(taken, np.int32)
        links[numbers - count] = previous
        entries["previous_entry_number"] = links
        position = self._entries_start + count * INDEX_ENTRY_SIZE
        self._region.array[position : position + taken * INDEX_ENTRY_SIZE] = entries.view(np.uint8)
        table[used_slots] = numbers[np.append(firsts[1:], taken) - 1]
        self.index_count = count + taken
        self.hash_slot_count += int((held == 0).sum())
        self.end_physical_offset, self.end_timestamp_ms = int(physical_offsets[taken - 1]), int(times_ms[-1])
        self._write_header()
        return taken

    def _slots(self) -> npt.NDArray[Any]:
        return np.ndarray((self._slot_count,), ">i4", self._region.array, INDEX_HEADER_SIZE)

    def _entries(self) -> npt.NDArray[Any]:
        return np.ndarray((self._index_count_max,), INDEX_ENTRY_DTYPE, self._region.array, self._entries_start)

    def reserve(self, count: int) -> None:
        """Reserve disk space for `count` entries. Raises OSError."""
        if count > self._reserved_count:
            start = self._entries_start + self._reserved_count * INDEX_ENTRY_SIZE if self._reserved_count else 0
            count = min(count + _RESERVED_AHEAD, self._index_count_max)
            self._region.reserve(start, self._entries_start + count * INDEX_ENTRY_SIZE)
            self._reserved_count = count

    def _write_header(self) -> None:
        INDEX_HEADER_STRUCT.pack_into(
            self._region.view,
            0,
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )
        self._is_dirty = 1

    def truncate(self, physical_offset: int) -> bool:
        """Drop all entries from the first one that does not point below `physical_offset`. Return whether any are left.

        Only the remaining entries and the header's begin fields are trusted: entries must ascend, and the slots are rebuilt
        from them. This also repairs a file after a crash, provided that those entries were on the disk.
        """
        entries = self._entries()
        if self.is_empty or self.begin_physical_offset != entries["physical_offset"][1]:
            return False  # never written, or the header is lost
        if (
            self.full
            and self.end_physical_offset < physical_offset
            and self.end_physical_offset == entries["physical_offset"][self._index_count_max - 1]
        ):
            return True  # the file was complete and unchanged when its last entry was synced
        count = _valid_count(entries, physical_offset)
        if count == 1:
            return False
        newest_offset, newest_diff_s = int(entries["physical_offset"][count - 1]), int(entries["time_diff_s"][count - 1])
        if newest_offset != self.end_physical_offset:
            self.end_physical_offset = newest_offset
            # The time of the first entry is relative to the previous file.
            self.end_timestamp_ms = self.begin_timestamp_ms + (newest_diff_s * 1000 if count > 2 else 0)
        slots = np.zeros(self._slot_count, np.int32)
        for start in range(1, count, _ENTRIES_AT_ONCE):
            hashes = entries["key_hash"][start : min(start + _ENTRIES_AT_ONCE, count)].astype(np.int32)
            # Of several entries in one slot the last wins.
            slots[hashes % np.int32(self._slot_count)] = np.arange(start, start + len(hashes))
        table = self._slots()
        if not np.array_equal(table, slots):
            self.reserve(count)
            table[:] = slots
        self._region.clear(self._entries_start + count * INDEX_ENTRY_SIZE)
        self.index_count, self.hash_slot_count = count, int(np.count_nonzero(slots))
        self._write_header()
        return True

    def has_below(self, physical_offset: int) -> bool:
        """Return whether any entry points below `physical_offset`, without using the header."""
        return _valid_count(self._entries(), physical_offset) > 1

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether the file may have an entry with a time in [begin_ms, end_ms]."""
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return up to `count_max` physical offsets for `key_hash` with a time in [begin_ms, end_ms], newest first."""
        view, count, found = self._region.view, self.index_count, list[int]()
        position = INDEX_HEADER_SIZE + key_hash % self._slot_count * INDEX_SLOT_SIZE
        (number,) = INDEX_SLOT_STRUCT.unpack_from(view, position)
        # A slot value at or beyond the count refers to an entry that was lost in a crash.
        while 0 < number < count and len(found) < count_max:
            entry_hash, physical_offset, time_diff_s, previous = INDEX_ENTRY_STRUCT.unpack_from(
                view, self._entries_start + number * INDEX_ENTRY_SIZE
            )
            if time_diff_s < 0:
                break
            time_ms = self.begin_timestamp_ms + time_diff_s * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(physical_offset)
            # Entries only point backwards; anything else is damage and could loop forever.
            if previous >= number or time_ms < begin_ms:
                break
            number = previous
        return found

    def flush(self) -> None:
        """Make all entries durable. Raises OSError."""
        if self._is_dirty:
            self._is_dirty = 0
            try:
                self._region.sync(0, self._size)
            except OSError:
                self._is_dirty = 1
                raise

    def release_memory(self) -> None:
        """Remove the pages from the resident set. May be called by the checkpoint thread."""
        self._region.release_memory(0, self._size)

    def close(self) -> None:
        self._map_address = 0
        self._region.close()

    def destroy(self) -> None:
        """Close and delete the file."""
        self.close()
        self._disk.delete(self.path)


def _time_diff_s(begin_ms: int, store_ms: int) -> int:
    """Return seconds from a file's begin time to a store time; 0 if that is earlier or the file has no begin time yet."""
    if begin_ms <= 0 or store_ms < begin_ms:
        return 0
    return min((store_ms - begin_ms) // 1000, _TIME_DIFF_MAX_S)


def _time_diffs_s(begin_ms: int, store_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if begin_ms <= 0:
        return np.zeros(len(store_ms), np.int64)
    return np.clip((store_ms - begin_ms) // 1000, 0, _TIME_DIFF_MAX_S)


def _valid_count(entries: npt.NDArray[Any], physical_offset: int) -> int:
    """Return the number of the first entry that is invalid or does not point below `physical_offset`."""
    count, newest, at_once = 1, 0, 1024
    while count < len(entries):
        part = entries[count : count + at_once]
        own, hashes, previous = part["physical_offset"].astype(np.int64), part["key_hash"], part["previous_entry_number"]
        bad = (own < np.concatenate(([newest], own[:-1]))) | (own >= physical_offset)
        bad |= (hashes < 0) | (part["time_diff_s"] < 0) | (previous < 0) | (previous >= np.arange(count, count + len(part)))
        bad |= (hashes == 0) & (own == 0)
        if bad.any():
            return count + int(np.argmax(bad))
        count, newest, at_once = count + len(part), int(own[-1]), _ENTRIES_AT_ONCE
    return count

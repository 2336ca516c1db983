"""One index file: a hash table on disk from a key's hash to the physical offsets of its records.

    header 40 | slots, 4 bytes each | entries, 20 bytes each

A slot holds the number of the newest entry whose hash falls into it, each entry the number of the one before it in the same
slot. Numbering starts at 1, since 0 means "none": entry 0 is never written, and `index_count` is the number of the *next*
entry. Entries keep their time in seconds since the file's begin. Keys are not stored, so an answer may hold strangers.
"""

from collections.abc import Sequence
from typing import Final

from store.disk import Disk
from store.layout import (
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


def index_file_size(slot_count: int, index_count_max: int) -> int:
    """Bytes of a file with `slot_count` slots (maxHashSlotNum) and `index_count_max` entries (maxIndexNum)."""
    return INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE + index_count_max * INDEX_ENTRY_SIZE


class IndexFile:
    """An open index file. The header's fields are attributes, written through at the end of each `put_keys`."""

    def __init__(
        self, disk: Disk, path: str, slot_count: int, index_count_max: int, *, after: "IndexFile | None" = None
    ) -> None:
        """Open the file at `path`; or, with `after` (its full predecessor) or when there is none, create it.

        Raises OSError, also when an existing file does not have the size that the two counts ask for.
        """
        self.path = path
        self._disk = disk
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self._size = index_file_size(slot_count, index_count_max)
        self._entries_start = INDEX_HEADER_SIZE + slot_count * INDEX_SLOT_SIZE
        created = after is not None or not disk.exists(path)
        self._region = disk.map(path, self._size, create=created, random_access=True)
        self.begin_timestamp_ms: int
        self.end_timestamp_ms: int
        self.end_physical_offset: int
        self.index_count: int
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
            # As in Apache's constructor: until its first entry comes, a file stands where the one before it ended; that
            # first entry's time difference is still counted from there.
            self.begin_timestamp_ms = self.end_timestamp_ms = after.end_timestamp_ms
            self.begin_physical_offset = self.end_physical_offset = after.end_physical_offset
        self._dirty = created

    @property
    def full(self) -> bool:
        return self.index_count >= self._index_count_max

    def put_keys(self, key_hashes: Sequence[int], places: Sequence[Place]) -> int:
        """Add entries in order as far as there is room; how many were taken (fewer than given: the file is full).

        Measured: 0.6 us an entry, 0.15 of them waiting for the slot's memory. (Packing all entries in one call is no
        quicker, nor is numpy below 100 entries.)
        """
        count, used, begin_ms = self.index_count, self.hash_slot_count, self.begin_timestamp_ms
        taken = min(len(key_hashes), self._index_count_max - count)
        if taken <= 0:
            return 0
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
        self._dirty = True

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether an entry of this file may lie in [begin_ms, end_ms]."""
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def find(self, key_hash: int, count_max: int, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets under `key_hash` with a time in [begin_ms, end_ms], newest first, at most `count_max`."""
        view, count, found = self._region.view, self.index_count, list[int]()
        position = INDEX_HEADER_SIZE + key_hash % self._slot_count * INDEX_SLOT_SIZE
        (number,) = INDEX_SLOT_STRUCT.unpack_from(view, position)
        # A slot that points at or beyond the count belongs to an entry that a crash took.
        while 0 < number < count and len(found) < count_max:
            entry_hash, physical_offset, time_diff_s, previous = INDEX_ENTRY_STRUCT.unpack_from(
                view, self._entries_start + number * INDEX_ENTRY_SIZE
            )
            if time_diff_s < 0:
                break
            time_ms = self.begin_timestamp_ms + time_diff_s * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(physical_offset)
            # Entries point only backwards; anything else is damage and would go round in circles.
            if previous >= number or time_ms < begin_ms:
                break
            number = previous
        return found

    def flush(self) -> None:
        """Make all that was put so far durable. Raises OSError."""
        if self._dirty:
            self._dirty = False
            try:
                self._region.sync(0, self._size)
            except OSError:
                self._dirty = True
                raise

    def close(self) -> None:
        self._region.close()

    def destroy(self) -> None:
        """Close and delete the file."""
        self._region.close()
        self._disk.delete(self.path)


def _time_diff_s(begin_ms: int, store_ms: int) -> int:
    """Seconds from a file's begin to a record's store time; 0 before it, and in a file that has none yet."""
    if begin_ms <= 0 or store_ms < begin_ms:
        return 0
    return min((store_ms - begin_ms) // 1000, _TIME_DIFF_MAX_S)

"""Reading of index files. The number of slots is not stored in the file and is deduced from its content.

    header 40 | slots, 4 bytes each | entries, 20 bytes each

The file size allows one number of slots for each number of entries. With the right one, the newest entry is at the position
given by `index_count`, has the header's last physical offset, and its number is in its slot.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt

from pocketmq.store.format.layout import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    INDEX_ENTRY_STRUCT,
    INDEX_HEADER_SIZE,
    INDEX_HEADER_STRUCT,
    INDEX_SLOT_SIZE,
    INDEX_SLOT_STRUCT,
)
from pocketmq.store_tools.files.store_files import StoreFiles

Entries = npt.NDArray[Any]  # of INDEX_ENTRY_DTYPE
ENTRIES_AT_ONCE: Final = 1 << 16
# maxHashSlotNum : maxIndexNum in Apache's defaults.
_ENTRIES_A_SLOT: Final = 4
_SEARCHED_AT_ONCE: Final = 8 << 20
_SIGNS: Final = 4


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header's fields; `index_count` is the number of the next entry, at least 1."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int


@dataclass(frozen=True, slots=True)
class IndexFileFacts:
    """Layout of an index file with `slot_count` slots."""

    path: str
    size: int
    header: IndexHeader
    slot_count: int

    @property
    def entries_start(self) -> int:
        return INDEX_HEADER_SIZE + self.slot_count * INDEX_SLOT_SIZE

    def entry_position(self, number: int) -> int:
        return self.entries_start + number * INDEX_ENTRY_SIZE

    @property
    def entry_count_max(self) -> int:
        """Maximum number of entries (maxIndexNum)."""
        return (self.size - self.entries_start) // INDEX_ENTRY_SIZE


def read_header(files: StoreFiles, path: str) -> IndexHeader:
    """Read the header. Raises ValueError if the file is too short, and OSError."""
    data = files.read(path, 0, INDEX_HEADER_SIZE)
    if len(data) < INDEX_HEADER_SIZE:
        raise ValueError(f"the file has {len(data)} bytes, the header alone takes {INDEX_HEADER_SIZE}")
    begin_ms, end_ms, begin, end, hash_slot_count, index_count = INDEX_HEADER_STRUCT.unpack(data.tobytes())
    return IndexHeader(begin_ms, end_ms, begin, end, hash_slot_count, max(index_count, 1))


def index_facts(files: StoreFiles, path: str, slot_count: int = 0) -> IndexFileFacts:
    """Return the layout of the index file at `path`. `slot_count` is that of other files of the store, 0 if unknown.

    Raises ValueError if no layout fits header and entries, and OSError.
    """
    header = read_header(files, path)
    size = os.path.getsize(path)
    nearly = None
    for candidate in _slot_counts(files, path, size, header, slot_count):
        facts = IndexFileFacts(path, size, header, candidate)
        signs = _signs(files, facts)
        if signs == _SIGNS:
            return facts
        # One may be missing, because of damage or because a broker is writing.
        if signs == _SIGNS - 1 and nearly is None:
            nearly = facts
    if nearly is not None:
        return nearly
    raise ValueError("header and entries do not match for any possible number of slots")


def _slot_counts(files: StoreFiles, path: str, size: int, header: IndexHeader, known: int) -> Iterator[int]:
    if known:
        yield known
    usual, rest = divmod(size - INDEX_HEADER_SIZE, INDEX_SLOT_SIZE + _ENTRIES_A_SLOT * INDEX_ENTRY_SIZE)
    if rest == 0:
        yield usual
    if header.index_count < 2:
        return
    # Only zeros follow the last entry: search its physical offset backwards from the end.
    wanted = header.end_physical_offset.to_bytes(8, "big", signed=True)
    ahead = INDEX_HEADER_SIZE + (header.index_count - 1) * INDEX_ENTRY_SIZE + 4
    for begin, end in reversed(files.data_extents(path, size)):
        for stop in range(end, begin, -_SEARCHED_AT_ONCE):
            start = max(begin, stop - _SEARCHED_AT_ONCE)
            data = files.read(path, start, min(stop + len(wanted) - 1, end) - start).tobytes()
            at = data.rfind(wanted)
            while at >= 0:
                slots, odd = divmod(start + at - ahead, INDEX_SLOT_SIZE)
                if not odd and slots > 0:
                    yield slots
                at = data.rfind(wanted, 0, at + len(wanted) - 1)


def _signs(files: StoreFiles, facts: IndexFileFacts) -> int:
    """Return how many of _SIGNS signs show that the number of slots is right; 0 if it is impossible."""
    header, newest = facts.header, facts.header.index_count - 1
    if facts.slot_count < 1 or (facts.size - facts.entries_start) % INDEX_ENTRY_SIZE:
        return 0
    if facts.entry_position(newest) + INDEX_ENTRY_SIZE > facts.size:
        return 0
    if newest == 0:
        return _SIGNS
    data = files.read(facts.path, facts.entry_position(newest), INDEX_ENTRY_SIZE)
    key_hash, physical_offset, _, previous = INDEX_ENTRY_STRUCT.unpack(data.tobytes())
    slot = files.read(facts.path, INDEX_HEADER_SIZE + key_hash % facts.slot_count * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE)
    is_newest = INDEX_SLOT_STRUCT.unpack(slot.tobytes()) == (newest,)
    signs = (physical_offset == header.end_physical_offset, is_newest, 0 <= previous < newest, key_hash >= 0)
    return signs.count(True)


def entry_blocks(files: StoreFiles, facts: IndexFileFacts) -> Iterator[tuple[int, Entries]]:
    """Yield all entries in blocks, as (number of the first, entries)."""
    for number in range(1, facts.header.index_count, ENTRIES_AT_ONCE):
        yield number, read_entries(files, facts, number, min(ENTRIES_AT_ONCE, facts.header.index_count - number))


def read_entries(files: StoreFiles, facts: IndexFileFacts, number: int, count: int) -> Entries:
    """Read entries from `number` on."""
    data = files.read(facts.path, facts.entry_position(number), count * INDEX_ENTRY_SIZE)
    return data[: len(data) // INDEX_ENTRY_SIZE * INDEX_ENTRY_SIZE].view(INDEX_ENTRY_DTYPE)


def find_key(files: StoreFiles, path: str, key_hashes: set[int]) -> Iterator[int]:
    """Yield physical offsets of the entries of one file with one of `key_hashes`, newest first. Raises OSError."""
    for _, physical_offset in find_entries(files, path, key_hashes):
        yield physical_offset


def find_entries(files: StoreFiles, path: str, key_hashes: set[int]) -> Iterator[tuple[int, int]]:
    """Yield (entry number, physical offset) of entries with one of `key_hashes`, following the chains of their slots."""
    try:
        facts = index_facts(files, path)
    except (FileNotFoundError, ValueError):
        return
    for key_hash in sorted(key_hashes):
        position = INDEX_HEADER_SIZE + key_hash % facts.slot_count * INDEX_SLOT_SIZE
        number = INDEX_SLOT_STRUCT.unpack(files.read(path, position, INDEX_SLOT_SIZE).tobytes())[0]
        while 0 < number < facts.entry_count_max:
            data = files.read(path, facts.entry_position(number), INDEX_ENTRY_SIZE)
            if len(data) < INDEX_ENTRY_SIZE:
                break
            entry_hash, physical_offset, _, previous = INDEX_ENTRY_STRUCT.unpack(data.tobytes())
            if entry_hash == key_hash:
                yield number, physical_offset
            if previous >= number:
                break  # a chain leads to lower numbers; anything else is damage
            number = previous

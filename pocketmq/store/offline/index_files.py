"""Index files. The number of slots is not stored in the file and is deduced from its content.

    header 40 | slots, 4 bytes each | entries, 20 bytes each

The file size allows one number of slots for each number of entries. With the right one, the newest entry is at the position
given by `index_count`, has the header's last physical offset, and its number is in its slot.
"""

from collections.abc import Iterable, Iterator
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
from pocketmq.store.format.record_chain import complete_units
from pocketmq.store.offline.file_bytes import FileBytes
from pocketmq.store.offline.store_folder import DamagedFileError, RowFile, StoreFolder

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
class IndexFile:
    """An index file with `slot_count` slots."""

    file: RowFile
    header: IndexHeader
    slot_count: int

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def entries_start(self) -> int:
        return INDEX_HEADER_SIZE + self.slot_count * INDEX_SLOT_SIZE

    def entry_position(self, number: int) -> int:
        return self.entries_start + number * INDEX_ENTRY_SIZE

    @property
    def entry_count_max(self) -> int:
        """Maximum number of entries (maxIndexNum)."""
        return (self.file.size - self.entries_start) // INDEX_ENTRY_SIZE

    def entries(self, number: int, count: int) -> Entries:
        """Read entries from `number` on; fewer at the end of the file."""
        data = self.file.read(self.entry_position(number), count * INDEX_ENTRY_SIZE)
        return complete_units(data, INDEX_ENTRY_DTYPE)

    def blocks(self) -> Iterator[tuple[int, Entries]]:
        """Yield all entries in blocks, as (number of the first, entries)."""
        for number in range(1, self.header.index_count, ENTRIES_AT_ONCE):
            yield number, self.entries(number, min(ENTRIES_AT_ONCE, self.header.index_count - number))

    def find(self, key_hashes: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield (entry number, physical offset) of the entries with each of `key_hashes`, newest first.

        They are found through the chains of their slots.
        """
        with self.file.open() as data:
            for key_hash in sorted(key_hashes):
                slot = data.read(INDEX_HEADER_SIZE + key_hash % self.slot_count * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE)
                number = INDEX_SLOT_STRUCT.unpack(slot.tobytes())[0]
                while 0 < number < self.entry_count_max:
                    entry = data.read(self.entry_position(number), INDEX_ENTRY_SIZE).tobytes()
                    if len(entry) < INDEX_ENTRY_SIZE:
                        break
                    entry_hash, physical_offset, _, previous = INDEX_ENTRY_STRUCT.unpack(entry)
                    if entry_hash == key_hash:
                        yield number, physical_offset
                    # A chain leads to lower numbers; anything else is damage and could loop forever.
                    number = previous if previous < number else 0


def read_header(file: RowFile) -> IndexHeader:
    """Read the header. Raises DamagedFileError if the file is too short, and OSError."""
    data = file.read(0, INDEX_HEADER_SIZE).tobytes()
    if len(data) < INDEX_HEADER_SIZE:
        raise DamagedFileError(f"{file.path} has {len(data)} bytes, its header alone takes {INDEX_HEADER_SIZE}")
    begin_ms, end_ms, begin, end, hash_slot_count, index_count = INDEX_HEADER_STRUCT.unpack(data)
    return IndexHeader(begin_ms, end_ms, begin, end, hash_slot_count, max(index_count, 1))


def index_file(file: RowFile, slot_count: int = 0) -> IndexFile:
    """Return an index file with its layout. `slot_count` is that of other files of the store, 0 if unknown.

    Raises DamagedFileError if no layout fits header and entries, and OSError.
    """
    header = read_header(file)
    nearly = None
    with file.open() as data:
        for candidate in _slot_counts(file, data, header, slot_count):
            found = IndexFile(file, header, candidate)
            signs = _signs(found, data)
            if signs == _SIGNS:
                return found
            # One may be missing, because of damage or because a broker is writing.
            if signs == _SIGNS - 1 and nearly is None:
                nearly = found
    if nearly is not None:
        return nearly
    raise DamagedFileError(f"{file.path}: no number of slots matches its header and entries")


def _slot_counts(file: RowFile, data: FileBytes, header: IndexHeader, known: int) -> Iterator[int]:
    if known:
        yield known
    usual, rest = divmod(file.size - INDEX_HEADER_SIZE, INDEX_SLOT_SIZE + _ENTRIES_A_SLOT * INDEX_ENTRY_SIZE)
    if rest == 0:
        yield usual
    if header.index_count < 2:
        return
    # Only zeros follow the last entry: search its physical offset backwards from the end.
    wanted = header.end_physical_offset.to_bytes(8, "big", signed=True)
    ahead = INDEX_HEADER_SIZE + (header.index_count - 1) * INDEX_ENTRY_SIZE + 4
    for stop in range(file.size, ahead, -_SEARCHED_AT_ONCE):
        start = max(ahead, stop - _SEARCHED_AT_ONCE)
        if data.next_data(start) >= stop:
            continue
        block = data.read(start, min(stop + len(wanted) - 1, file.size) - start).tobytes()
        at = block.rfind(wanted)
        while at >= 0:
            slots, odd = divmod(start + at - ahead, INDEX_SLOT_SIZE)
            if not odd and slots > 0:
                yield slots
            at = block.rfind(wanted, 0, at + len(wanted) - 1)


def _signs(index: IndexFile, data: FileBytes) -> int:
    """Return how many of _SIGNS signs show that the number of slots is right; 0 if it is impossible."""
    header, newest = index.header, index.header.index_count - 1
    if index.slot_count < 1 or (index.file.size - index.entries_start) % INDEX_ENTRY_SIZE:
        return 0
    if index.entry_position(newest) + INDEX_ENTRY_SIZE > index.file.size:
        return 0
    if newest == 0:
        return _SIGNS
    entry = data.read(index.entry_position(newest), INDEX_ENTRY_SIZE)
    key_hash, physical_offset, _, previous = INDEX_ENTRY_STRUCT.unpack(entry.tobytes())
    slot = data.read(INDEX_HEADER_SIZE + key_hash % index.slot_count * INDEX_SLOT_SIZE, INDEX_SLOT_SIZE)
    is_newest = INDEX_SLOT_STRUCT.unpack(slot.tobytes()) == (newest,)
    signs = (physical_offset == header.end_physical_offset, is_newest, 0 <= previous < newest, key_hash >= 0)
    return signs.count(True)


def index_files(store: StoreFolder, paths: Iterable[str] | None = None) -> Iterator[IndexFile]:
    """Yield the index files of a store, or those of some paths, that can be read; oldest first."""
    slot_count = 0
    for path in store.index_paths() if paths is None else paths:
        try:
            found = index_file(store.file(path), slot_count)
        except (FileNotFoundError, DamagedFileError):
            continue
        slot_count = found.slot_count
        yield found

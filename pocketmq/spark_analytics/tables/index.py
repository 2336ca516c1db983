"""Table `index`: one row per entry of each index file.

    file                    name of the file, which is its creation time
    entry                   number of the entry in the file, from 1
    slot                    slot to whose chain it belongs
    keyHash                 hash of `topic#key`
    physicalOffset          of the record
    storeTimestamp          of the record, in seconds, which is the precision of the index
    previousEntry           number of the next older entry in the same slot, 0 for none
    store                   the store's folder

The number of slots is not stored in a file. The file's size allows one number of slots for each number of entries; the
right one is that for which the newest entry, with the header's last physical offset, is at the position given by the
header's count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pocketmq.spark_analytics.files.store_folder import DamagedFileError, RowFile, StoreFolder
from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.format.layout import (
    INDEX_ENTRY_DTYPE,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_HEADER_STRUCT,
    INDEX_SLOT_SIZE,
)
from pocketmq.store.format.record_chain import field_view

DDL: Final = (
    "file string, entry int, slot int, keyHash int, physicalOffset bigint, storeTimestamp timestamp, previousEntry int, "
    "store string"
)
NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS
PART_ENTRIES: Final = 1 << 21
_ENTRIES_READ: Final = 1 << 16
# Ratio of maxIndexNum to maxHashSlotNum in Apache's defaults.
_ENTRIES_A_SLOT: Final = 4
_SEARCHED_AT_ONCE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """Entries [begin, end) of a file."""

    store: StoreFolder
    file: RowFile
    begin: int
    end: int


def parts(store: StoreFolder) -> list[Part]:
    """Return the index files, oldest first, full ones divided for several tasks. Raises DamagedFileError."""
    found = []
    for name in store.names("index"):
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
            path = store.path("index", name)
            file = RowFile(path, 0, store.files.size(path))
            count = max(_header(file)[5], 1)
            found += [Part(store, file, at, min(at + PART_ENTRIES, count)) for at in range(1, count, PART_ENTRIES)]
    return found


def rows(part: Part) -> Iterator[Rows]:
    """Yield the entries of a part."""
    file = part.file
    begin_ms = _header(file)[0]
    slots = slot_count(file)
    for number in range(part.begin, part.end, _ENTRIES_READ):
        count = min(_ENTRIES_READ, part.end - number)
        data = file.read(_entry_position(slots, number), count * INDEX_ENTRY_SIZE)
        if len(data) < count * INDEX_ENTRY_SIZE:
            raise DamagedFileError(f"{file.path} ends at {file.size}, within the entries that its header counts")
        entries = data.view(INDEX_ENTRY_DTYPE)
        hashes = entries["key_hash"].astype(np.int64)
        yield Rows(
            count,
            {
                "file": file.path.rpartition("/")[2],
                "entry": np.arange(number, number + count),
                "slot": hashes % slots,
                "keyHash": hashes,
                "physicalOffset": entries["physical_offset"],
                "storeTimestamp": begin_ms + entries["time_diff_s"].astype(np.int64) * 1000,
                "previousEntry": entries["previous_entry_number"],
                "store": part.store.root,
            },
        )


def _header(file: RowFile) -> tuple[int, ...]:
    data = file.read(0, INDEX_HEADER_SIZE).tobytes()
    if len(data) < INDEX_HEADER_SIZE:
        raise DamagedFileError(f"{file.path} has {file.size} bytes, its header alone takes {INDEX_HEADER_SIZE}")
    return INDEX_HEADER_STRUCT.unpack(data)


def entry_count(file: RowFile) -> int:
    """Return the number of a file's last entry plus one. Raises DamagedFileError."""
    return _header(file)[5]


def _entry_position(slots: int, number: int) -> int:
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + number * INDEX_ENTRY_SIZE


def slot_count(file: RowFile) -> int:
    """Return the number of slots of a file with entries. Raises DamagedFileError if no number matches header and entries."""
    for slots in _slot_counts(file):
        if slots > 0 and _fits(file, slots):
            return slots
    raise DamagedFileError(f"{file.path}: no number of slots matches the header at byte 0 and the entries")


def _slot_counts(file: RowFile) -> Iterator[int]:
    usual, rest = divmod(file.size - INDEX_HEADER_SIZE, INDEX_SLOT_SIZE + _ENTRIES_A_SLOT * INDEX_ENTRY_SIZE)
    if rest == 0:
        yield usual
    *_, end_physical_offset, _, index_count = _header(file)
    # Behind the last entry there are only zeros: search for its physical offset from the end of the file.
    ahead = _entry_position(0, index_count - 1) + INDEX_ENTRY_DTYPE.fields["physical_offset"][1]  # type: ignore[index]
    for stop in range(file.size, ahead, -_SEARCHED_AT_ONCE):
        start = max(ahead, stop - _SEARCHED_AT_ONCE)
        found = start + np.flatnonzero(field_view(file.read(start, stop + 7 - start), ">i8") == end_physical_offset)
        yield from ((found[(found - ahead) % INDEX_SLOT_SIZE == 0] - ahead) // INDEX_SLOT_SIZE)[::-1].tolist()


def _fits(file: RowFile, slots: int) -> bool:
    *_, end_physical_offset, _, index_count = _header(file)
    newest = index_count - 1
    data = file.read(_entry_position(slots, newest), INDEX_ENTRY_SIZE)
    if len(data) < INDEX_ENTRY_SIZE:
        return False
    entry = data.view(INDEX_ENTRY_DTYPE)[0]
    position = INDEX_HEADER_SIZE + int(entry["key_hash"]) % slots * INDEX_SLOT_SIZE
    in_slot = int.from_bytes(file.read(position, INDEX_SLOT_SIZE).tobytes(), "big")
    # One of these may be damaged, or newer while a broker is writing.
    signs = (
        entry["physical_offset"] == end_physical_offset,
        in_slot == newest,
        0 <= entry["previous_entry_number"] < newest,
        entry["key_hash"] >= 0,
    )
    return sum(map(bool, signs)) >= 3


TABLE: Final = Table(DDL, parts, rows)

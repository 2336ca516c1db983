"""Table `index`: one row per entry of each index file.

file                    name of the file, which is its creation time
entry                   number of the entry in the file, from 1
slot                    slot to whose chain it belongs
keyHash                 hash of `topic#key`
physicalOffset          of the record
storeTimestamp          of the record, in seconds, which is the precision of the index
previousEntry           number of the next older entry in the same slot, 0 for none
store                   the store's folder
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.offline.index_files import ENTRIES_AT_ONCE, index_file, read_header
from pocketmq.store.offline.store_folder import DamagedFileError, RowFile, StoreFolder

DDL: Final = (
    "file string, entry int, slot int, keyHash int, physicalOffset bigint, storeTimestamp timestamp, previousEntry int, "
    "store string"
)
PART_ENTRIES: Final = 1 << 21


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
    for file in map(store.file, store.index_paths()):
        count = read_header(file).index_count
        found += [Part(store, file, at, min(at + PART_ENTRIES, count)) for at in range(1, count, PART_ENTRIES)]
    return found


def rows(part: Part) -> Iterator[Rows]:
    """Yield the entries of a part."""
    index = index_file(part.file)
    for number in range(part.begin, part.end, ENTRIES_AT_ONCE):
        count = min(ENTRIES_AT_ONCE, part.end - number)
        entries = index.entries(number, count)
        if len(entries) < count:
            raise DamagedFileError(f"{index.path} ends at {part.file.size}, within the entries that its header counts")
        hashes = entries["key_hash"].astype(np.int64)
        yield Rows(
            count,
            {
                "file": index.path.rpartition("/")[2],
                "entry": np.arange(number, number + count),
                "slot": hashes % index.slot_count,
                "keyHash": hashes,
                "physicalOffset": entries["physical_offset"],
                "storeTimestamp": index.header.begin_timestamp_ms + entries["time_diff_s"].astype(np.int64) * 1000,
                "previousEntry": entries["previous_entry_number"],
                "store": part.store.root,
            },
        )


TABLE: Final = Table(DDL, parts, rows)

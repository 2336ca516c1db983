"""Check of index files: their own consistency, and comparison with the keys of the records.

Chains are checked file by file, in order: each entry must refer to the previous one in its slot, each slot to the newest.
This pass also records the lowest and highest physical offset of each block of entries, so the check of a range of log reads
only the blocks that overlap it. Keys and entries are compared as sets, because Apache indexes records twice after a crash,
which is not an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.layout import INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from pocketmq.store.offline.index_files import ENTRIES_AT_ONCE, IndexFile, read_header
from pocketmq.store.offline.log_walk import Gap
from pocketmq.store_tools.check.expected import Expected
from pocketmq.store_tools.check.finding import Findings

REPAIR_INDEX: Final = "`pocketmq store repair --index` rebuilds the index"
# Maximum number of missing units or keys listed per range; further ones are only counted.
MISSING_KEPT_MAX: Final = 1000
_HASH_BITS: Final = 31
_TIME_DIFF_MAX_S: Final = 0x7FFFFFFF


@dataclass
class IndexFileCheck:
    """An index file with the lowest and highest physical offset of each block of ENTRIES_AT_ONCE entries."""

    facts: IndexFile
    lowest: list[int] = field(default_factory=list)
    highest: list[int] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)

    def differs(self, kind: str, position: int, what: str) -> None:
        self.findings.differs(kind, self.facts.path, position, what, REPAIR_INDEX)


def check_chains(facts: IndexFile) -> IndexFileCheck:
    """Check header, slots and chains of one file. Raises OSError."""
    check = IndexFileCheck(facts)
    newest = np.zeros(facts.slot_count, np.int32)
    for first, entries in facts.blocks():
        hashes = entries["key_hash"].astype(np.int64)
        numbers = np.arange(first, first + len(entries), dtype=np.int32)
        check.lowest.append(int(entries["physical_offset"].min()))
        check.highest.append(int(entries["physical_offset"].max()))
        slots = hashes % facts.slot_count
        order = np.argsort(slots, kind="stable")
        sorted_slots, sorted_numbers = slots[order], numbers[order]
        begins_slot = np.concatenate((np.ones(1, np.bool_), sorted_slots[1:] != sorted_slots[:-1]))
        before = np.concatenate((np.zeros(1, np.int32), sorted_numbers[:-1]))
        before[begins_slot] = newest[sorted_slots[begins_slot]]
        ends_slot = np.concatenate((begins_slot[1:], np.ones(1, np.bool_)))
        newest[sorted_slots[ends_slot]] = sorted_numbers[ends_slot]
        wrong = order[(entries["previous_entry_number"][order] != before) | (hashes[order] < 0)]
        expected = np.empty(len(entries), np.int32)
        expected[order] = before
        for row in np.sort(wrong).tolist():
            found = int(entries["previous_entry_number"][row])
            what = (
                f"entry {first + row} has previous entry {found}, but the previous entry of its slot is {int(expected[row])}"
            )
            check.differs("index chain", facts.entry_position(first + row), what)
    _check_slots(check, newest)
    _check_header(check, int(np.count_nonzero(newest)))
    return check


def _check_slots(check: IndexFileCheck, newest: npt.NDArray[np.int32]) -> None:
    facts = check.facts
    data = facts.file.read(INDEX_HEADER_SIZE, facts.slot_count * INDEX_SLOT_SIZE)
    slots = data.view(">i4")
    # A running broker may have added entries. After a crash, slots with numbers not below the count are read as empty.
    count_now = read_header(facts.file).index_count
    is_newer = (slots >= facts.header.index_count) & ((slots < count_now) | (newest[: len(slots)] == 0))
    for slot in np.flatnonzero((slots != newest[: len(slots)]) & ~is_newer).tolist():
        what = f"slot {slot} contains {int(slots[slot])}, but the newest entry of its chain is {int(newest[slot])}"
        check.differs("index slot", INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE, what)


def _check_header(check: IndexFileCheck, used: int) -> None:
    facts, header = check.facts, check.facts.header
    if header.index_count < 2 or read_header(facts.file) != header:
        return
    first = int(facts.entries(1, 1)["physical_offset"][0])
    last = int(facts.entries(header.index_count - 1, 1)["physical_offset"][0])
    for name, found, right in (
        ("begin_physical_offset", header.begin_physical_offset, first),
        ("end_physical_offset", header.end_physical_offset, last),
        ("hash_slot_count", header.hash_slot_count, used),
    ):
        if found != right:
            check.differs("index header", 0, f"{name} of the header is {found}, but {right} according to the entries")
    if not header.begin_timestamp_ms <= header.end_timestamp_ms:
        what = f"begin_timestamp_ms {header.begin_timestamp_ms} is later than end_timestamp_ms {header.end_timestamp_ms}"
        check.differs("index header", 0, what)


@dataclass
class Missing:
    """Units or keys that records lack; of a range at most MISSING_KEPT_MAX are kept, all are counted."""

    kept: list[Any] = field(default_factory=list)
    count: int = 0

    def add(self, rows: Sequence[Any], count: int) -> None:
        """Add `count` of them, with the first ones as rows."""
        self.kept += rows[: MISSING_KEPT_MAX - len(self.kept)]
        self.count += count

    def merge(self, other: "Missing") -> None:
        self.add(other.kept, other.count)


def compare_keys(
    checks: list[IndexFileCheck],
    expected: Expected,
    begin: int,
    end: int,
    gaps: list[Gap],
    missing: Missing,
    findings: Findings,
) -> None:
    """Compare the keys of the records in [begin, end) with the entries that point at them. Entries into `gaps` are ignored.

    `missing`: gets (key hash, physical offset) of keys without an entry. Raises OSError.
    """
    wanted, times = _places(expected.keys(), begin)
    found = np.zeros(len(wanted), np.bool_)
    for check in checks:
        for block, (lowest, highest) in enumerate(zip(check.lowest, check.highest, strict=True)):
            if highest < begin or lowest >= end:
                continue
            first = 1 + block * ENTRIES_AT_ONCE
            count = min(ENTRIES_AT_ONCE, check.facts.header.index_count - first)
            try:
                entries = check.facts.entries(first, count)
            except FileNotFoundError:
                continue  # deleted by retention
            rows = np.flatnonzero((entries["physical_offset"] >= begin) & (entries["physical_offset"] < end))
            numbers, entries = first + rows, entries[rows]
            there = ((entries["physical_offset"] - begin) << _HASH_BITS) | entries["key_hash"]
            at, known = _find(wanted, there)
            found[at[known]] = True
            _times(findings, check.facts, numbers[known], entries[known], times[at[known]])
            if not known.all():
                tag_keys, tag_times = _places(expected.tags(), begin)
                unknown = ~known
                for gap in gaps:
                    unknown &= (entries["physical_offset"] < gap.begin) | (entries["physical_offset"] >= gap.end)
                at, known = _find(tag_keys, there[unknown])
                numbers, entries = numbers[unknown], entries[unknown]
                _times(findings, check.facts, numbers[known], entries[known], tag_times[at[known]])
                _add_unknown_entries(findings, check.facts, numbers[~known], entries[~known])
    lacking = np.flatnonzero(~found)
    places = wanted[lacking[:MISSING_KEPT_MAX]].tolist()
    missing.add([(place & ((1 << _HASH_BITS) - 1), begin + (place >> _HASH_BITS)) for place in places], len(lacking))


def _places(keys: tuple[Any, ...], begin: int) -> tuple[Any, Any]:
    """Return the keys as sorted unique numbers, each made of offset from `begin` and hash, and their store times."""
    hashes, physical_offsets, store_times = keys
    places, firsts = np.unique(((physical_offsets - begin) << _HASH_BITS) | hashes.astype(np.int64), return_index=True)
    return places, store_times[firsts]


def _find(places: Any, sought: Any) -> tuple[Any, Any]:
    """Return the position of each of `sought` in `places`, and whether it is present."""
    at = np.searchsorted(places, sought)
    return at, places.take(at, mode="clip") == sought if len(places) else np.zeros(len(sought), np.bool_)


def _add_unknown_entries(findings: Findings, facts: IndexFile, numbers: Any, entries: Any) -> None:
    for number, entry in zip(numbers.tolist(), entries.tolist(), strict=True):
        what = f"entry {number} points at physical offset {entry[1]}, where no record has a key with hash {entry[0]}"
        position = facts.entry_position(number)
        findings.differs("index entry", facts.path, position, what, REPAIR_INDEX, entry[1])


def _times(findings: Findings, facts: IndexFile, numbers: Any, entries: Any, store_times: Any) -> None:
    begin_ms = facts.header.begin_timestamp_ms
    right = np.clip((store_times - begin_ms) // 1000, 0, _TIME_DIFF_MAX_S)
    # The first entry's time counts from the end of the previous file, as in Apache.
    for row in np.flatnonzero((entries["time_diff_s"] != right) & (numbers != 1)).tolist():
        number, found = int(numbers[row]), int(entries["time_diff_s"][row])
        what = (
            f"entry {number} has time_diff_s {found}, but its record was stored {int(right[row])} s after the file's begin"
        )
        offset = int(entries["physical_offset"][row])
        position = facts.entry_position(number)
        findings.differs("index time", facts.path, position, what, REPAIR_INDEX, offset)

"""Records by key through the index files: only the chains of a key's slots are read, and the records themselves.

A key is indexed together with its topic, so it is looked up once for each topic that the store knows. The index may lack
records: those that are indexed in another format, those in a damaged index file, and those not dispatched yet.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from pocketmq.spark_analytics.decoding.columns import COLUMNS, Records, record_batch
from pocketmq.spark_analytics.decoding.derived_columns import DERIVED_COLUMNS
from pocketmq.spark_analytics.decoding.inner_batches import unpacked
from pocketmq.spark_analytics.tables.log_records import records_at
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.record_chain import MARK_SIZE, record_candidates
from pocketmq.store.offline.index_files import index_file
from pocketmq.store.offline.queue_files import Numbers
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

log = logging.getLogger(__name__)

# A chain may be as long as its file if all keys are equal.
FOUND_MAX: Final = 100_000
# 4 or 16 bytes of address, 4 of port, 8 of physical offset, in hex.
_OFFSET_MSG_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{32})[0-9A-Fa-f]{8}([0-9A-Fa-f]{16})")


def offsets_of_keys(store: StoreFolder, keys: Iterable[str]) -> Numbers:
    """Return the physical offsets that the index has for some keys, in any topic, and for keys with the same hash."""
    topics = sorted(set(store.names("consumequeue")) | set(store.topics()))
    wanted = sorted(set(key_hashes([f"{topic}#{key}" for key in keys if key for topic in topics])))
    found: set[int] = set()
    for path in store.index_paths():
        try:
            found.update(offset for _, offset in index_file(store.file(path)).find(wanted))
        except DamagedFileError as error:
            log.warning("%s: keys in this file are not found without --scan", error)
        if len(found) > FOUND_MAX:
            raise ValueError(f"the index of {store.root} has more than {FOUND_MAX} records for this key: use --scan")
    return np.array(sorted(found), np.int64)


def offset_of_id(text: str) -> int | None:
    """Return the physical offset in an offsetMsgId, or None if the text is not one."""
    found = _OFFSET_MSG_ID.fullmatch(text)
    return int(found[1], 16) if found else None


def rows_at(store: StoreFolder, offsets: Numbers, columns: Sequence[str], levels: DelayLevels) -> list[dict[str, Any]]:
    """Return the named columns of the records at some physical offsets; places without a record are left out."""
    known = COLUMNS | DERIVED_COLUMNS
    sizes = _sizes(store, offsets)
    there = sizes > 0
    rows: list[dict[str, Any]] = []
    for records in records_at(store, offsets[there], sizes[there]):
        own = unpacked(Records.of(records, records.path, levels))
        rows += record_batch(own, [known[name] for name in columns]).to_pylist()
    return rows


def _sizes(store: StoreFolder, offsets: Numbers) -> Numbers:
    sizes = np.zeros(len(offsets), np.int64)
    for file in store.row("commitlog").files:
        within = np.flatnonzero((offsets >= file.start_offset) & (offsets < file.end_offset))
        if len(within):
            with file.open() as data:
                for row in within.tolist():
                    mark = data.read(int(offsets[row]) - file.start_offset, MARK_SIZE)
                    if len(record_candidates(mark, int(offsets[row]))):
                        sizes[row] = int.from_bytes(mark[:4].tobytes(), "big")
    return sizes

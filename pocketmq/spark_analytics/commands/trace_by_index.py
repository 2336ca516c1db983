"""Histories of messages, found through the index: only the records that are shown, and the op messages of their
transactions, are read.

Finds what `trace --scan` finds, except records that are not in the index.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from pocketmq.spark_analytics.commands.trace import COLUMNS, COPIES_MAX, OP_COLUMNS, Life, Rows, lives_of
from pocketmq.spark_analytics.decoding.derived_columns import HALF_TOPIC
from pocketmq.spark_analytics.direct.index_lookup import offset_of_id, offsets_of_keys, rows_at
from pocketmq.spark_analytics.direct.scan import scan_of
from pocketmq.spark_analytics.tables.transactions import OP_TOPIC
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.offline.places import store_folders
from pocketmq.store.offline.queue_files import live_units
from pocketmq.store.offline.store_folder import StoreFolder

_OPS_READ: Final = 256


def make_trace(
    paths: Sequence[str], key: str, levels: DelayLevels, on_step: Callable[[str], None] = lambda step: None
) -> list[Life]:
    """Return the histories of all messages with this key, unique key or id, oldest first. Raises ValueError, OSError."""
    stores = store_folders(paths)
    on_step("the index")
    lacking = [store.root for store in stores if not store.index_paths()]
    if lacking:
        raise ValueError(f"{', '.join(lacking)} has no index: --scan finds messages in the log")
    copies: Rows = []
    for store in stores:
        copies += _copies(store, key, levels)
    named = {row["uniqKey"] for row in copies if row["offsetMsgId"] == key.upper() and row["uniqKey"]}
    if named:
        # An id belongs to one copy; the others are found by its unique key.
        copies = [row for store in stores for row in _with_store(store, _of_keys(store, sorted(named), levels))]
    copies.sort(key=lambda row: (row["storeTimestamp"], row["physicalOffset"]))
    copies = copies[:COPIES_MAX]
    ops: Rows = []
    for store in stores:
        halves = [row for row in copies if row["topic"] == HALF_TOPIC and row["store"] == store.root]
        if halves:
            on_step("the ends of transactions")
            ops += _with_store(store, _ops(store, halves, levels))
    offsets = [row for batch in scan_of(paths, table="offsets").batches() for row in batch.to_pylist()]
    return lives_of(copies, ops, offsets)


def _copies(store: StoreFolder, key: str, levels: DelayLevels) -> Rows:
    rows = _of_keys(store, [key], levels)
    offset = offset_of_id(key)
    if offset is not None:
        at = rows_at(store, np.array([offset], np.int64), COLUMNS, levels)
        rows += [row for row in at if row["offsetMsgId"] == key.upper()]
    return _with_store(store, {row["physicalOffset"]: row for row in rows}.values())


def _of_keys(store: StoreFolder, keys: Sequence[str], levels: DelayLevels) -> Rows:
    rows = rows_at(store, offsets_of_keys(store, keys), COLUMNS, levels)
    wanted = set(keys)
    return [row for row in rows if row["uniqKey"] in wanted or wanted & set((row["keys"] or "").split(" "))]


def _with_store(store: StoreFolder, rows: Iterable[dict[str, Any]]) -> Rows:
    return [row | {"properties": dict(row.get("properties") or ()), "store": store.root} for row in rows]


def _ops(store: StoreFolder, halves: Rows, levels: DelayLevels) -> Rows:
    """Return the op messages that resolve some half messages. Op messages behind these are read until all are resolved."""
    found: Rows = []
    open_offsets = {(row["queueId"], row["queueOffset"]) for row in halves}
    begin = min(row["physicalOffset"] for row in halves)
    for queue_id in store.queue_ids(OP_TOPIC):
        wanted = {offset for own, offset in open_offsets if own == queue_id}
        for _, units in live_units(store, OP_TOPIC, queue_id, log_begin=begin):
            for first in range(0, len(units), _OPS_READ):
                if not wanted:
                    break
                offsets = units["physical_offset"][first : first + _OPS_READ].astype(np.int64)
                for row in rows_at(store, offsets, OP_COLUMNS, levels):
                    text = str(row["body"] or b"", "utf-8", "replace")
                    found.append(row | {"body": text})
                    wanted -= {int(part) for part in text.split(",") if part.isdigit()}
    return found

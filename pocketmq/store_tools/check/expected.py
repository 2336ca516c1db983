"""Queue units and index entries that the records of a range of log must have, as columns of arrays.

Keys and tags are computed as in `bulk_dispatch`; here they are kept for a comparison.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.message import INNER_BATCH_FLAG, SCHEDULE_TOPIC, TRANSACTION_UNQUEUED_FLAG, QueueKey
from pocketmq.store.format.multi_dispatch import INNER_MULTI_DISPATCH, MultiDispatch
from pocketmq.store.format.properties import DELAY, decode_properties
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.queue.bulk_dispatch import indexed_keys, indexed_tags, tag_hashes, topics_of

# Light queues (%LMQ%) have queue id 0.
_MULTI_DISPATCH: Final = MultiDispatch(with_lmq=True, lmq_max=0)

Columns = tuple[npt.NDArray[Any], ...]


@dataclass
class Expected:
    """Expected units and keys. The first column of `units` is an index into `queues`."""

    queues: list[QueueKey] = field(default_factory=list)
    records: int = 0
    _numbers: dict[QueueKey, int] = field(default_factory=dict)
    _units: list[Columns] = field(default_factory=list)
    _keys: list[Columns] = field(default_factory=list)
    _tags: list[Columns] = field(default_factory=list)

    def add(self, window: RecordWindow) -> None:
        """Add the records of a window, which must be valid."""
        self.records += len(window)
        self._add_units(window)
        store_times = window.fixed("store_timestamp_ms")
        for columns, (rows, hashes) in ((self._keys, indexed_keys(window)), (self._tags, indexed_tags(window))):
            columns.append((hashes, window.physical_offsets[rows], store_times[rows]))

    def _add_units(self, window: RecordWindow) -> None:
        topics, topic_ids = topics_of(window)
        timed = np.zeros(len(window), np.bool_)
        if SCHEDULE_TOPIC in topics:
            timed = (topic_ids == topics.index(SCHEDULE_TOPIC)) & (window.property_spans(DELAY.encode())[0] >= 0)
        queue_ids = window.fixed("queue_id")
        pairs, numbers = np.unique((topic_ids << 32) | (queue_ids.astype(np.int64) & 0xFFFFFFFF), return_inverse=True)
        ids = (pairs & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        known = [self._number((topics[pair >> 32], int(id_))) for pair, id_ in zip(pairs.tolist(), ids, strict=True)]
        columns = (
            np.array(known, np.int64)[numbers], window.fixed("queue_offset"), window.physical_offsets, window.sizes,
            tag_hashes(window), timed, window.fixed("store_timestamp_ms"),
        )  # fmt: skip
        is_queued = (window.fixed("sys_flag") & (TRANSACTION_UNQUEUED_FLAG | INNER_BATCH_FLAG)) == 0
        self._units.append(tuple(column[is_queued] for column in columns))
        for row in np.flatnonzero(window.property_spans(INNER_MULTI_DISPATCH.encode())[0] >= 0).tolist():
            text = window.data[window.properties_begins[row] : window.properties_ends[row]].tobytes()
            for key, queue_offset in _MULTI_DISPATCH.units_of(decode_properties(text), int(queue_ids[row])):
                rest = [column[row : row + 1] for column in columns[2:]]
                self._units.append((np.array([self._number(key)]), np.array([queue_offset]), *rest))

    def _number(self, key: QueueKey) -> int:
        number = self._numbers.setdefault(key, len(self.queues))
        if number == len(self.queues):
            self.queues.append(key)
        return number

    def units(self) -> Columns:
        """Return (queue, queue offset, physical offset, size, tags code, timed, store time) in log order.

        `timed` marks units whose tags code is a delivery time.
        """
        return _joined(self._units, 7)

    def keys(self) -> Columns:
        """Return (key hash, physical offset, store time)."""
        return _joined(self._keys, 3)

    def tags(self) -> Columns:
        """Like `keys`, for the tag entries that 5.x brokers add to the index."""
        return _joined(self._tags, 3)


def _joined(columns: list[Columns], count: int) -> Columns:
    if not columns:
        return tuple(np.empty(0, np.int64) for _ in range(count))
    return tuple(np.concatenate(parts) for parts in zip(*columns, strict=True))

"""BulkDispatcher: builds queue units and index entries for a whole window of log records at once, for recovery and
slaves.

It writes the same files as `dispatcher`, byte for byte, but processes all records of a window with numpy: sorted by queue
they become runs of units, and all keys are hashed in place, as slices of one text (`key_hash.stretch_hashes`).
"""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.key_hash import as_key_hashes, joined, key_hashes, stretch_hashes
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_DTYPE
from pocketmq.store.format.message import (
    QUEUE_OFFSET_MAX,
    SCHEDULE_TOPIC,
    TRANSACTION_ROLLBACK_TYPE,
    TRANSACTION_TYPE_MASK,
    TRANSACTION_UNQUEUED_FLAG,
    Arrival,
    QueueKey,
)
from pocketmq.store.format.multi_dispatch import INNER_MULTI_DISPATCH, LMQ_PREFIX, MultiDispatch
from pocketmq.store.format.properties import DELAY, KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record_chain import Positions
from pocketmq.store.format.record_window import PropertyText, RecordWindow
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.queue.consume_queue import ConsumeQueue, Units
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore

_SPACE: Final = ord(" ")


@dataclass(eq=False)
class BulkDispatcher:
    """Dispatcher of intact records to queues and, unless `index` is None, to the index.

    `behind` has the queues that received a record whose queue offset is beyond their end or before their beginning, with the
    first missing queue offset. `beyond` has the queue offset of the record received instead. Records beyond the end are not
    appended and can be dispatched again once the queue reaches them (`ConsumeQueue.fill_hole`). The exception is a queue
    without units, which then begins at the record; the caller knows whether the beginning of the log or files of the queue
    are missing.
    """

    queues: ConsumeQueueStore
    index: IndexService | None
    delay_levels: DelayLevels
    multi_dispatch: MultiDispatch | None = None
    behind: dict[QueueKey, int] = field(default_factory=dict)
    beyond: dict[QueueKey, int] = field(default_factory=dict)
    arrivals: list[Arrival] | None = None
    """If it is a list: the queues that grew are added to it."""

    def dispatch(
        self, window: RecordWindow, *, from_offset: int = 0, only: Set[QueueKey] | None = None, with_index: bool = True
    ) -> int:
        """Dispatch the records of `window` from the physical offset `from_offset` on. Return their number.

        With `only`, other queues are skipped; broken queues always are. Records already in a queue or in the index are
        skipped. Raises OSError if a file cannot be created.
        """
        first = int(np.searchsorted(window.physical_offsets, from_offset))
        if first:
            window = window.rows(slice(first, None))
        if len(window):
            self._put_units(window, only)
            if with_index and self.index is not None:
                rows, hashes = indexed_keys(window)
                if len(rows):
                    self.index.put_many(hashes, window.physical_offsets[rows], window.fixed("store_timestamp_ms")[rows])
        return len(window)

    # --- queues -----------------------------------------------------------------------------------------------------

    def _put_units(self, window: RecordWindow, only: Set[QueueKey] | None) -> None:
        topics, topic_ids = topics_of(window)
        units = np.empty(len(window), CONSUME_QUEUE_UNIT_DTYPE)
        units["physical_offset"] = window.physical_offsets
        units["size"] = window.sizes
        units["tags_code"] = self._tags_codes(window)
        queue_ids, queue_offsets = window.fixed("queue_id"), window.fixed("queue_offset")
        is_queued = window.fixed("sys_flag") & TRANSACTION_UNQUEUED_FLAG == 0
        rows = np.flatnonzero(is_queued & (queue_offsets >= 0) & (queue_offsets <= QUEUE_OFFSET_MAX))
        store_timestamps_ms = window.fixed("store_timestamp_ms")
        # One number per queue, in 16 bits if possible, for which numpy has a much faster sort.
        queue_id_values, queue_numbers = np.unique(queue_ids, return_inverse=True)
        numbers = topic_ids * len(queue_id_values) + queue_numbers
        if len(topics) * len(queue_id_values) <= 1 << 16:
            numbers = numbers.astype(np.uint16)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        for own in np.split(rows, np.flatnonzero(np.diff(numbers[rows])) + 1) if len(rows) else ():
            key = (topics[topic_ids[own[0]]], int(queue_ids[own[0]]))
            if (only is None or key in only) and key[0] not in self.queues.batch_topics:
                self._append(key, queue_offsets[own], units[own], store_timestamps_ms[own])
        if self.multi_dispatch is not None:
            self._put_further(window, self.multi_dispatch, units, rows, only)

    def _put_further(
        self, window: RecordWindow, multi_dispatch: MultiDispatch, units: Units, rows: Positions, only: Set[QueueKey] | None
    ) -> None:
        """Append to the additional queues of records with the property INNER_MULTI_DISPATCH.

        4.9.4 counts the offsets of light message queues from 0 again after each start, while its queue files continue at
        their end. Units are therefore appended at the end of the queue here, too.
        """
        named = window.property_spans(INNER_MULTI_DISPATCH.encode())[0] >= 0
        begins, ends = window.properties_begins, window.properties_ends
        for row in np.sort(rows[named[rows]]).tolist():
            properties = decode_properties(window.data[begins[row] : ends[row]].tobytes())
            for key, queue_offset in multi_dispatch.units_of(properties, int(window.fixed("queue_id")[row])):
                if only is None or key in only:
                    one = slice(row, row + 1)
                    timestamps_ms = window.rows(one).fixed("store_timestamp_ms")
                    queue = self.queues.get(*key)
                    if queue is not None and key[0].startswith(LMQ_PREFIX):
                        is_new = units["physical_offset"][row] >= queue.max_physical_offset
                        queue_offset = max(queue_offset, queue.max_offset) if is_new else queue.min_offset
                    self._append(key, np.array([queue_offset]), units[one].copy(), timestamps_ms)

    def _append(
        self, key: QueueKey, queue_offsets: Positions, units: Units, store_timestamps_ms: npt.NDArray[np.int64]
    ) -> None:
        """Append the units of one queue by runs of consecutive offsets: a topic that was created again restarts at 0."""
        if key in self.queues.broken or not self.queues.can_have(*key):
            return
        queue = self.queues.find_or_create(*key)
        breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(units)], strict=True):
            queue_offset, run = int(queue_offsets[begin]), units[begin:end]
            known = queue.known_units(queue_offset, run)
            if queue_offset < queue.min_offset:
                self.behind.setdefault(key, queue_offset)  # its first file is gone
            if known == len(run):
                continue
            if queue_offset == 0 and known == 0:
                # Missing units belonged to the deleted topic.
                self.behind.pop(key, None)
                self.beyond.pop(key, None)
            elif queue_offset + known > queue.max_offset:
                self.behind.setdefault(key, queue.max_offset)
                self.beyond.setdefault(key, queue_offset + known)
                if queue.min_offset < queue.max_offset:
                    continue
            if self.queues.ext.writes:
                self._put_ext(self.queues.ext, queue, run[known:], store_timestamps_ms[begin + known : end])
            queue.append_units(queue_offset, run)
            self.queues.dirty[queue] = None
            if self.arrivals is not None:
                new, newest_ms = run[known:], int(store_timestamps_ms[end - 1])
                tags_codes, size = new["tags_code"].tolist(), int(new["size"].sum())
                self.arrivals.append(Arrival(*key, queue.max_offset, tags_codes, newest_ms, size))

    @staticmethod
    def _put_ext(ext: ConsumeQueueExtStore, queue: ConsumeQueue, units: Units, store_timestamps_ms: Any) -> None:
        """Write tags codes and store times to consumequeue_ext, and the addresses into `units`."""
        for place, time_ms in enumerate(store_timestamps_ms.tolist()):
            tags_code = int(units["tags_code"][place])
            units["tags_code"][place] = ext.put(queue.topic, queue.queue_id, tags_code, time_ms)

    def _tags_codes(self, window: RecordWindow) -> npt.NDArray[np.int64]:
        """Return the tags codes of all records, computed as by `DelayLevels.tags_code`."""
        codes = tag_hashes(window)
        topics, topic_ids = topics_of(window)
        if SCHEDULE_TOPIC in topics:
            text = window.property_text
            begins, ends = text.spans(DELAY.encode())
            store_timestamps_ms = window.fixed("store_timestamp_ms")
            for row in np.flatnonzero((topic_ids == topics.index(SCHEDULE_TOPIC)) & (begins >= 0)).tolist():
                delay_ms = self.delay_levels.record_delay_ms(_text_of(text, begins[row], ends[row]))
                if delay_ms is not None:
                    codes[row] = store_timestamps_ms[row] + delay_ms
        return codes


# --- tags and keys of a window ----------------------------------------------------------------------------------------

KeyHashes = npt.NDArray[np.int32]


def tag_hashes(window: RecordWindow) -> Positions:
    """Return for each record the hash of its tags, 0 without tags."""
    text = window.property_text
    codes = np.zeros(len(window), np.int64)
    begins, ends = text.spans(TAGS.encode())
    tagged = np.flatnonzero(begins >= 0)
    hashes, elsewhere = stretch_hashes(text.text, begins[tagged], ends[tagged])
    for place in np.flatnonzero(elsewhere).tolist():
        row = tagged[place]
        hashes[place] = java_hash(_text_of(text, begins[row], ends[row])) & 0xFFFFFFFF
    codes[tagged] = hashes.view(np.int32)
    return codes


def indexed_keys(window: RecordWindow) -> tuple[Positions, KeyHashes]:
    """Return (rows, key hashes) of the records' index entries: for each its unique key, then each word of its keys."""
    text = window.property_text
    begins, ends = text.spans(UNIQ_KEY.encode())
    rows = np.flatnonzero(begins >= 0)
    word_rows, word_begins, word_ends = _words(text, *text.spans(KEYS.encode()))
    begins, ends = np.concatenate((begins[rows], word_begins)), np.concatenate((ends[rows], word_ends))
    rows = np.concatenate((rows, word_rows))
    wanted = window.fixed("sys_flag")[rows] & TRANSACTION_TYPE_MASK != TRANSACTION_ROLLBACK_TYPE
    order = np.argsort(rows, kind="stable")
    order = order[wanted[order]]
    rows, begins, ends = rows[order], begins[order], ends[order]
    return rows, _key_hashes(window, rows, begins, ends)


def indexed_tags(window: RecordWindow) -> tuple[Positions, KeyHashes]:
    """Return (rows, key hashes) of the index entries that 5.x adds for tags, with the key `topic#T#tags`."""
    begins, ends = window.property_text.spans(TAGS.encode())
    rows = np.flatnonzero(begins >= 0)
    return rows, _key_hashes(window, rows, begins[rows], ends[rows], "T#")


def _words(text: PropertyText, begins: Positions, ends: Positions) -> tuple[Positions, Positions, Positions]:
    """Return (rows, begins, ends) of the space-separated words in the values of one property."""
    rows = np.flatnonzero(begins >= 0)
    begins, ends = begins[rows], ends[rows]
    if not len(rows):
        return rows, begins, ends
    spaces = np.flatnonzero(text.text == _SPACE)
    value = np.searchsorted(begins, spaces, "right") - 1
    spaces = spaces[(value >= 0) & (spaces < ends[value])]
    if len(spaces):
        begins, ends = np.sort(np.concatenate((begins, spaces + 1))), np.sort(np.concatenate((ends, spaces)))
        filled = begins < ends
        value = np.searchsorted(text.firsts, begins, "right") - 1
        return value[filled], begins[filled], ends[filled]
    return rows, begins, ends


def _text_of(text: PropertyText, begin: int, end: int) -> str:
    return text.text[begin:end].tobytes().decode("utf-8", "replace")


def _key_hashes(window: RecordWindow, rows: Positions, begins: Positions, ends: Positions, kind: str = "") -> KeyHashes:
    """Return the index hashes of keys that are slices of the property text; `rows` are the records they belong to."""
    text = window.property_text
    topics, topic_ids = topics_of(window)
    prefixes = np.array([java_hash(f"{topic}#{kind}") & 0xFFFFFFFF for topic in topics], np.uint32)
    hashes, elsewhere = stretch_hashes(text.text, begins, ends)
    found = as_key_hashes(joined(prefixes[topic_ids[rows]], hashes, ends - begins))
    if elsewhere.any():
        # Non-ASCII text: Java hashes UTF-16 units, not bytes.
        odd = np.flatnonzero(elsewhere).tolist()
        found[odd] = key_hashes(
            [f"{topics[topic_ids[rows[place]]]}#{kind}{_text_of(text, begins[place], ends[place])}" for place in odd]
        )
    return found


def topics_of(window: RecordWindow) -> tuple[list[str], Positions]:
    """Return (distinct topics as text, index of each record's topic in that list)."""
    names, ids = window.topics()
    return [name.decode("utf-8", "replace") for name in names], ids

"""Selection of records for `dump` and `export`, read by index, queues or log, whichever reads least."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.store.format.java_hash import tags_code
from pocketmq.store.format.key_hash import key_hashes
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import Record, decode_record
from pocketmq.store.offline.index_files import index_files
from pocketmq.store.offline.log_walk import LogWalk, first_valid, read_record
from pocketmq.store.offline.queue_files import QueueFiles, newest_record_end
from pocketmq.store_tools.files.store_files import StoreFiles

_TIME_MAX_MS: Final = (1 << 63) - 1
_UNITS_AT_ONCE: Final = 4096


@dataclass(frozen=True)
class Selection:
    """Filters; None: any value. Ends of ranges are exclusive, except `to_ms`, as in Apache's queries."""

    topic: str | None = None
    queue_id: int | None = None
    tag: str | None = None
    key: str | None = None
    from_ms: int = 0
    to_ms: int = _TIME_MAX_MS
    from_physical_offset: int = 0
    to_physical_offset: int = _TIME_MAX_MS
    from_queue_offset: int = 0
    to_queue_offset: int = _TIME_MAX_MS

    def matches(self, record: Record) -> bool:
        if not (
            self.from_ms <= record.store_timestamp_ms <= self.to_ms
            and self.from_physical_offset <= record.physical_offset < self.to_physical_offset
            and self.from_queue_offset <= record.queue_offset < self.to_queue_offset
            and (self.queue_id is None or record.queue_id == self.queue_id)
            and (self.topic is None or str(record.topic, "utf-8", "replace") == self.topic)
        ):
            return False
        if self.tag is None and self.key is None:
            return True
        properties = decode_properties(record.properties)
        return (self.tag is None or properties.get(TAGS) == self.tag) and (
            self.key is None or self.key in record_keys(properties)
        )


class Damage(msgspec.Struct):
    """Number of unreadable records skipped by a selection."""

    unreadable: int = 0


def record_keys(properties: dict[str, str]) -> set[str]:
    """Return the keys under which the index contains a record."""
    keys = set(properties.get(KEYS, "").split(" "))
    keys.add(properties.get(UNIQ_KEY, ""))
    keys.discard("")
    return keys


def select(files: StoreFiles, selection: Selection, damage: Damage) -> Iterator[Record]:
    """Yield the selected valid records by ascending physical offset. Raises OSError.

    Uses the index for a key, if there is an index, and the queues for a topic; else reads the log, starting at the given
    time or offset.
    """
    if selection.key is not None and files.index_paths():
        offsets = _by_index(files, selection)
    elif selection.topic is not None and any(topic == selection.topic for topic, _ in files.queue_keys()):
        offsets = _by_queues(files, selection)
    else:
        yield from _by_log(files, selection, damage)
        return
    for physical_offset in offsets:
        record = read_record(files.log, physical_offset)
        if record is None:
            damage.unreadable += 1
        elif selection.matches(record):
            yield record


# --- by the index -----------------------------------------------------------------------------------------------------


def _by_index(files: StoreFiles, selection: Selection) -> Iterator[int]:
    assert selection.key is not None
    topics = [selection.topic] if selection.topic is not None else sorted({topic for topic, _ in files.queue_keys()})
    wanted = set(key_hashes([f"{topic}#{selection.key}" for topic in topics])) if topics else set[int]()
    found = {offset for index in index_files(files) for _, offset in index.find(wanted)}
    min_offset = files.log.min_offset
    yield from sorted(offset for offset in found if offset >= min_offset)


# --- by the queues ----------------------------------------------------------------------------------------------------


def _by_queues(files: StoreFiles, selection: Selection) -> Iterator[int]:
    keys = [key for key in files.queue_keys() if key[0] == selection.topic and selection.queue_id in (None, key[1])]
    yield from heapq.merge(*(_queue_offsets(files, key, selection) for key in keys))


def _queue_offsets(files: StoreFiles, key: QueueKey, selection: Selection) -> Iterator[int]:
    queue = QueueFiles(files, key)
    begin = max(queue.first_at(files.log.min_offset), selection.from_queue_offset)
    end = min(queue.end, selection.to_queue_offset)
    if selection.from_physical_offset:
        begin = max(begin, queue.first_at(selection.from_physical_offset))
    if selection.from_ms:
        begin = _first_from(files, queue, begin, end, selection.from_ms)
    code = None if selection.tag is None or key[0].startswith("SCHEDULE_TOPIC") else tags_code(selection.tag)
    while begin < end:
        units = queue.units(begin, min(end - begin, _UNITS_AT_ONCE))
        if not len(units):
            return
        begin += len(units)
        # A code below all hashes is an address in the ext file and does not tell the tag.
        sought = units if code is None else units[(units["tags_code"] == code) | (units["tags_code"] < -(1 << 31))]
        for physical_offset, size in zip(sought["physical_offset"].tolist(), sought["size"].tolist(), strict=True):
            if size <= 0 or physical_offset < files.log.min_offset:
                continue
            if physical_offset >= selection.to_physical_offset:
                return
            yield physical_offset
        if selection.to_ms < _TIME_MAX_MS:
            last = read_record(files.log, int(units["physical_offset"][-1]))
            if last is not None and last.store_timestamp_ms > selection.to_ms:
                return


def _first_from(files: StoreFiles, queue: QueueFiles, begin: int, end: int, from_ms: int) -> int:
    """Return the queue offset of the first record stored at `from_ms` or later."""
    while begin < end:
        middle = (begin + end) // 2
        units = queue.units(middle, 1)
        record = read_record(files.log, int(units["physical_offset"][0])) if len(units) else None
        if record is None:
            return begin  # damage: read all units
        if record.store_timestamp_ms < from_ms:
            begin = middle + 1
        else:
            end = middle
    return begin


# --- by the log -------------------------------------------------------------------------------------------------------


def _by_log(files: StoreFiles, selection: Selection, damage: Damage) -> Iterator[Record]:
    begin = _log_begin(files, selection)
    walk = LogWalk(files.log, begin, selection.to_physical_offset, over_gaps=True)
    gaps = 0
    for window in walk:
        if len(walk.gaps) > gaps:
            gaps = len(walk.gaps)
            if 0 < newest_record_end(files) <= walk.gaps[-1].begin:
                # The rest is left over from before a truncation: the log ends before it.
                return
        view = memoryview(window.data)  # type: ignore[arg-type]  # an ndarray is a buffer
        for start in window.starts.tolist():
            record = decode_record(view, start)
            if record.store_timestamp_ms > selection.to_ms:
                return
            if selection.matches(record):
                yield record
    damage.unreadable += len(walk.gaps)


def _log_begin(files: StoreFiles, selection: Selection) -> int:
    """Return the offset of a record before which nothing is selected."""
    log = files.log
    begin = log.min_offset
    if selection.from_physical_offset > begin:
        begin = first_valid(files.log, selection.from_physical_offset, log.end_offset) or log.end_offset
    if selection.from_ms:
        low, high = begin, log.end_offset
        # For such a short distance reading is faster than another search step.
        while high - low > 1 << 20:
            middle = (low + high) // 2
            found = first_valid(files.log, middle, high)
            record = None if found is None else read_record(files.log, found)
            if record is None or record.store_timestamp_ms >= selection.from_ms:
                high = middle
            else:
                low = record.physical_offset
        begin = low
    return begin

"""Determine where recovery must start to read the log, and check which state before that position can be trusted.

The beginning of a record is certain at the start of a file, after another record, and where a queue unit points. Bytes in
the middle of a file may look like a record but be part of a message body, which any client can send. A position found by
searching is therefore used only if a queue confirms it.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import MappedFile, file_name
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import BLANK_SIZE, HOLE_TAGS_CODE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from pocketmq.store.format.record import (
    BadRecordError,
    bounds,
    check_record,
    decode_dispatch_request,
    is_blank,
    store_timestamp_of,
)
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.offline.log_walk import LogWalk, candidates, written_end
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.recovery.clean_stop import CleanStop, QueueEnd

# The search for a start position ends when at most this many bytes would be read unnecessarily.
_NEAR_ENOUGH: Final = 4 << 20
_SEARCHED_AT_ONCE: Final = 1 << 20
_SEARCHED_MAX: Final = 8 << 20


def record_at(files: MappedFileQueue, physical_offset: int, check_crc: bool = True) -> tuple[int, int] | None:
    """Return (size, store time in ms) of the record at `physical_offset`, or None if it is not intact.

    It may be the last record of the log and end in a zero byte: that it is complete is for `LogWalk` to decide.
    """
    file = files.file_at(physical_offset)
    if file is None:
        return None
    position = physical_offset - file.start_offset
    try:
        size = check_record(file.view, position, physical_offset, check_crc, file.start_offset + file.size)
    except BadRecordError:
        return None
    return size, store_timestamp_of(file.view, position)


def ended_there(files: MappedFileQueue, known: CleanStop) -> bool:
    """Return whether the log still has its recorded last record."""
    if known.log_file_size != files.file_size or known.last_record < 0:
        return False
    last = record_at(files, known.last_record)
    return last is not None and known.last_record + last[0] == known.log_end


def past_blank(files: MappedFileQueue, end: int) -> int:
    """Return `end`, or the end of the file if a BLANK mark follows."""
    file = files.file_at(end)
    return end if file is None or not is_blank(file.view, end - file.start_offset) else file.start_offset + file.size


def nothing_behind(files: MappedFileQueue, end: int) -> bool:
    """Return whether the log has no data at `end`."""
    behind = files.view(past_blank(files, end), BLANK_SIZE)
    return behind is None or not any(behind)


def deleted_since(files: MappedFileQueue, known: CleanStop) -> list[str]:
    """Return a text if the first files of the log were deleted since its state was saved."""
    if not known.log_file_size or known.log_begin >= files.min_offset:
        return []
    when = "was stopped" if known.clean else "last saved its state"
    now, then = file_name(files.min_offset), file_name(known.log_begin)
    return [f"the log begins with {now}, but began with {then} when the broker {when}: the files between were deleted"]


def missing_behind(files: MappedFileQueue, end: int) -> str:
    """Return a text if the file is missing in which the log would continue."""
    is_there = files.file_at(end) is not None
    return "" if is_there else f": {files.directory}/{file_name(end - end % files.file_size)} is missing or empty"


def last_file_start(files: MappedFileQueue) -> int:
    """Return the start of the newest file that begins with an intact record, else of the first file."""
    for file in reversed(files.files):
        if record_at(files, file.start_offset) is not None:
            return file.start_offset
    return files.min_offset


def vouched_start(files: MappedFileQueue, queues: ConsumeQueueStore, timestamp_ms: int) -> int:
    """Return the physical offset of a record, as late as possible, stored by `timestamp_ms`; else the log's beginning."""
    for file in reversed(files.files):
        first = record_at(files, file.start_offset)
        if first is not None and 0 < first[1] <= timestamp_ms:
            return _within(file, queues, timestamp_ms)
    return files.min_offset


def _within(file: MappedFile, queues: ConsumeQueueStore, timestamp_ms: int) -> int:
    """Do the same within one file, whose first record is old enough."""
    low, high = 0, file.size
    while high - low > _NEAR_ENOUGH:
        middle = (low + high) // 2
        found = _confirmed(file, queues, middle, min(middle + _SEARCHED_MAX, high))
        if found is not None and store_timestamp_of(file.view, found) <= timestamp_ms:
            low = found
        else:
            # No confirmed position there, so recovery starts earlier than necessary.
            high = middle
    return file.start_offset + low


def _confirmed(file: MappedFile, queues: ConsumeQueueStore, start: int, end: int) -> int | None:
    """Return the position of a record in [start, end) of a file that is confirmed by its queue, or None."""
    found = candidates(file, start, end, _SEARCHED_AT_ONCE)
    return next((position for position in found if _is_queued(file, queues, position)), None)


def _is_queued(file: MappedFile, queues: ConsumeQueueStore, position: int) -> bool:
    try:
        check_record(file.view, position, file.start_offset + position)
    except BadRecordError:
        return False
    record = decode_dispatch_request(file.view, position, lambda *_: 0)
    queue = queues.get(record.topic, record.queue_id)
    unit = queue.unit_at(record.queue_offset) if queue is not None else None
    return unit is not None and unit[:2] == (record.physical_offset, record.size)


def is_newest_valid(files: MappedFileQueue, queue: ConsumeQueue) -> bool:
    """Return whether the queue's newest unit points at a record of its size, or before the log's beginning."""
    unit = queue.unit_at(queue.max_offset - 1)
    if unit is None or unit[2] == HOLE_TAGS_CODE or unit[0] < files.min_offset:
        return True
    file = files.file_at(unit[0])
    try:
        return file is not None and bounds(file.view, unit[0] - file.start_offset)[0] == unit[1]
    except BadRecordError:
        return False


def past_ends(files: MappedFileQueue, ends: Mapping[QueueKey, QueueEnd], dropped: Mapping[str, int]) -> dict[QueueKey, int]:
    """Return the next queue offsets of queues that have no record left in the log, except those of deleted topics."""
    begin = files.min_offset
    return {key: end.max_offset for key, end in ends.items() if begin >= end.max_physical_offset > dropped.get(key[0], -1)}


# --- the index ------------------------------------------------------------------------------------------------------


def unindexed_from(files: MappedFileQueue, index: IndexService | None, known: CleanStop) -> int | None:
    """Return the physical offset of a record from which on the index is incomplete, or None."""
    if index is None:
        return None
    if known.log_file_size == 0:
        return _gap(files, index)
    if known.index is None:
        # The index was switched off in between.
        return index.indexed_to
    counts = {file.path: file.index_count for file in index.files}
    lacking_from = files.min_offset
    for end in known.index:
        if counts.get(f"{index.folder}/{end.name}", 1) < end.index_count and end.end_physical_offset >= files.min_offset:
            return lacking_from
        lacking_from = max(lacking_from, end.end_physical_offset)
    return None


def _gap(files: MappedFileQueue, index: IndexService) -> int | None:
    """Do the same without a recorded number of index files: a lost file leaves a gap."""
    covered_to = files.min_offset - 1
    for file in index.files:
        if _has_keys(files, covered_to, file.begin_physical_offset):
            return max(covered_to, 0)
        covered_to = max(covered_to, file.end_physical_offset)
    return max(covered_to, 0) if _has_keys(files, covered_to, files.max_offset) else None


def _has_keys(files: MappedFileQueue, after: int, end: int) -> bool:
    """Return whether a record after the one at `after` and before `end` has a key to be indexed."""
    for window in LogWalk(files, max(after, files.min_offset), check_crc=False) if after + 1 < end else ():
        begins = window.physical_offsets
        keyed = (window.property_spans(b"KEYS")[0] >= 0) | (window.property_spans(b"UNIQ_KEY")[0] >= 0)
        if (keyed & (begins > after) & (begins < end)).any():
            return True
        if int(begins[-1]) >= end:
            break
    return False


def drop_cut_index_files(disk: Disk, index: IndexService, known_file_size: int) -> list[str]:
    """Delete truncated index files and return texts about them. Called before the index is loaded.

    A truncated file is distinguished from a wrong configuration as in `complete_log_files`, and by impossible sizes.
    """
    sizes = {name: disk.size(f"{index.folder}/{name}") for name in disk.listdir(index.folder)}
    is_configured = index.file_size in sizes.values() or index.file_size == known_file_size
    done = []
    for name, size in sizes.items():
        if size < index.file_size and (is_configured or (size - INDEX_HEADER_SIZE) % INDEX_SLOT_SIZE):
            disk.delete(f"{index.folder}/{name}")
            done.append(f"index file {name} had {size} of {index.file_size} bytes: deleted")
    return done


# --- the end of the log ---------------------------------------------------------------------------------------------


def properties_parse(files: MappedFileQueue, physical_offset: int, complete_to: int) -> bool:
    """Return whether the properties of the record are entries with names, and without zero bytes behind `complete_to`."""
    file = files.file_at(physical_offset)
    assert file is not None
    position = physical_offset - file.start_offset
    size, _, topic_start, topic_size = bounds(file.view, position)
    properties = bytes(file.view[topic_start + topic_size + 2 : position + size])
    entries = properties.split(PROPERTY_SEPARATOR.encode())
    is_complete = physical_offset + size <= complete_to or 0 not in properties
    return is_complete and all(entry.find(NAME_VALUE_SEPARATOR.encode()) > 0 for entry in entries if entry)


def written_to(files: MappedFileQueue, start: int) -> int:
    """Return the end of the last non-zero byte of the log from `start` on, or `start`."""
    for file in reversed(files.files):
        end = written_end(file, max(start - file.start_offset, 0))
        if end is not None:
            return file.start_offset + end
    return start


def complete_log_files(files: MappedFileQueue, known_file_size: int) -> list[str]:
    """Extend truncated log files to full size with zeros and return texts about them. Called before the log is loaded.

    The other files or the recorded state show that a file is truncated rather than the configured size wrong. Raises
    OSError.
    """
    disk, file_size = files.disk, files.file_size
    paths = [f"{directory}/{name}" for name, directory in files.listed()]
    sizes = [disk.size(path) for path in paths]
    if sizes and sizes[-1] == 0:
        sizes.pop()  # just created, no data is missing
    done: list[str] = []
    is_configured = file_size in sizes or file_size == known_file_size
    for path, size in zip(paths, sizes, strict=False):
        # A power cut leaves an empty file between others if its length was not synced.
        if size == 0 or size < file_size and is_configured:
            region = disk.map(path + ".tmp", file_size, create=True)
            region.reserve(0, max(size, 1))
            for start in range(0, size, _SEARCHED_MAX):
                data = disk.read_range(path, start, min(_SEARCHED_MAX, size - start))
                region.view[start : start + len(data)] = data
            region.sync(0, file_size)
            region.close()
            disk.rename(path + ".tmp", path)
            disk.sync_dir(path.rpartition("/")[0])
            done.append(f"{path} had {size} of {file_size} bytes; it is filled up with zeros")
    return done

"""Where on the log recovery must begin to read, and what can be believed about what lies before.

A record's true beginning is known at the start of a file, behind another record, and where a queue's unit points. Bytes in
the middle of a file may look like a record and be the body of one (anybody can send such a body), so a place found by
searching is believed only when a queue confirms it.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import FILE_NAME_SIZE, MappedFile, file_name
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import BLANK_SIZE, HOLE_TAGS_CODE, INDEX_HEADER_SIZE, INDEX_SLOT_SIZE
from pocketmq.store.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from pocketmq.store.format.record import (
    BadRecordError,
    bounds,
    check_record,
    decode_dispatch_request,
    is_blank,
    store_timestamp_of,
)
from pocketmq.store.format.record_chain import record_candidates
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.log_scan import LogScan
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore, QueueKey
from pocketmq.store.recovery.clean_stop import CleanStop, QueueEnd

# A place to begin at is looked for until so little of the log would be read in vain.
_NEAR_ENOUGH: Final = 4 << 20
_SEARCHED_AT_ONCE: Final = 1 << 20
_SEARCHED_MAX: Final = 8 << 20


def record_at(files: MappedFileQueue, physical_offset: int, check_crc: bool = True) -> tuple[int, int] | None:
    """(size, store time in ms) of the sound record at `physical_offset`, or None."""
    file = files.file_at(physical_offset)
    if file is None:
        return None
    position = physical_offset - file.start_offset
    try:
        size = check_record(file.view, position, physical_offset, check_crc)
    except BadRecordError:
        return None
    return size, store_timestamp_of(file.view, position)


def ended_there(files: MappedFileQueue, known: CleanStop) -> bool:
    """Whether the log still has the record that was its last one, where it was."""
    if known.log_file_size != files.file_size or known.last_record < 0:
        return False
    last = record_at(files, known.last_record)
    return last is not None and known.last_record + last[0] == known.log_end


def past_blank(files: MappedFileQueue, end: int) -> int:
    """`end`, or the end of its file if a BLANK fills that."""
    file = files.file_at(end)
    return end if file is None or not is_blank(file.view, end - file.start_offset) else file.start_offset + file.size


def behind_sizes(files: MappedFileQueue, position: int) -> int | None:
    """Where a bad record itself says that the next begins, if there is one: only its content is damaged then.

    Or its body, which anybody may have written, could be taken for records.
    """
    file = files.file_at(position)
    assert file is not None
    try:
        end = position + bounds(file.view, position - file.start_offset)[0]
    except BadRecordError:
        return None
    end = past_blank(files, end)
    return end if record_at(files, end) is not None else None


def nothing_behind(files: MappedFileQueue, end: int) -> bool:
    """Whether nothing was appended to the log at `end`."""
    behind = files.view(past_blank(files, end), BLANK_SIZE)
    return behind is None or not any(behind)


def deleted_since(files: MappedFileQueue, known: CleanStop) -> list[str]:
    """In words, that the first files of the log are gone which were there when its state was saved."""
    if not known.log_file_size or known.log_begin >= files.min_offset:
        return []
    when = "was stopped" if known.clean else "last saved its state"
    now, then = file_name(files.min_offset), file_name(known.log_begin)
    return [f"the log begins with {now}, and began with {then} when the broker {when}: those between are deleted since"]


def missing_behind(files: MappedFileQueue, end: int) -> str:
    """In words, that the file is missing in which the log would go on."""
    is_there = files.file_at(end) is not None
    return "" if is_there else f": {files.directory}/{file_name(end - end % files.file_size)} is missing or empty"


def last_file_start(files: MappedFileQueue) -> int:
    """Start of the newest file that begins with a sound record; else of the first file."""
    for file in reversed(files.files):
        if record_at(files, file.start_offset) is not None:
            return file.start_offset
    return files.min_offset


def vouched_start(files: MappedFileQueue, queues: ConsumeQueueStore, timestamp_ms: int) -> int:
    """Physical offset of a record that was stored up to `timestamp_ms`, rather a late one; the log's beginning without."""
    for file in reversed(files.files):
        first = record_at(files, file.start_offset)
        if first is not None and 0 < first[1] <= timestamp_ms:
            return _within(file, queues, timestamp_ms)
    return files.min_offset


def _within(file: MappedFile, queues: ConsumeQueueStore, timestamp_ms: int) -> int:
    """The same within a file, whose first record is old enough."""
    low, high = 0, file.size
    while high - low > _NEAR_ENOUGH:
        middle = (low + high) // 2
        found = _confirmed(file, queues, middle, min(middle + _SEARCHED_MAX, high))
        if found is not None and store_timestamp_of(file.view, found) <= timestamp_ms:
            low = found
        else:
            # Nothing confirmed there: one begins earlier than need be.
            high = middle
    return file.start_offset + low


def _confirmed(file: MappedFile, queues: ConsumeQueueStore, start: int, end: int) -> int | None:
    """Position of a record that begins in [start, end) of a file and that its queue has, too."""
    while start < end:
        data = file.array[start : min(start + _SEARCHED_AT_ONCE, end)]
        if not data.any():
            return None  # not written yet
        for candidate in record_candidates(data, file.start_offset + start).tolist():
            if _is_queued(file, queues, start + candidate):
                return start + int(candidate)
        start += _SEARCHED_AT_ONCE
    return None


def _is_queued(file: MappedFile, queues: ConsumeQueueStore, position: int) -> bool:
    try:
        check_record(file.view, position, file.start_offset + position)
    except BadRecordError:
        return False
    record = decode_dispatch_request(file.view, position, _no_tags_code)
    queue = queues.get(record.topic, record.queue_id)
    unit = queue.unit_at(record.queue_offset) if queue is not None else None
    return unit is not None and unit[:2] == (record.physical_offset, record.size)


def is_newest_sound(files: MappedFileQueue, queue: ConsumeQueue) -> bool:
    """Whether the queue's newest unit points at a record of the size it says, or before the log's beginning."""
    unit = queue.unit_at(queue.max_offset - 1)
    if unit is None or unit[2] == HOLE_TAGS_CODE or unit[0] < files.min_offset:
        return True
    file = files.file_at(unit[0])
    try:
        return file is not None and bounds(file.view, unit[0] - file.start_offset)[0] == unit[1]
    except BadRecordError:
        return False


def past_ends(files: MappedFileQueue, ends: Mapping[QueueKey, QueueEnd], dropped: Mapping[str, int]) -> dict[QueueKey, int]:
    """The next queue offsets of those queues of which no record is left in the log, but for deleted topics."""
    begin = files.min_offset
    return {key: end.max_offset for key, end in ends.items() if begin >= end.max_physical_offset > dropped.get(key[0], -1)}


# --- the index ------------------------------------------------------------------------------------------------------


def unindexed_from(files: MappedFileQueue, index: IndexService | None, known: CleanStop) -> int | None:
    """Physical offset of a record from which on the index lacks something; None when nothing is missed."""
    if index is None:
        return None
    if known.log_file_size == 0:
        return _gap(files, index)
    if known.index is None:
        # It was switched off meanwhile.
        return index.indexed_to
    counts = {file.path: file.index_count for file in index.files}
    lacking_from = files.min_offset
    for end in known.index:
        if counts.get(f"{index.folder}/{end.name}", 1) < end.index_count and end.end_physical_offset >= files.min_offset:
            return lacking_from
        lacking_from = max(lacking_from, end.end_physical_offset)
    return None


def _gap(files: MappedFileQueue, index: IndexService) -> int | None:
    """The same when nobody has left word how many index files there were: one that is lost leaves a gap."""
    covered_to = files.min_offset - 1
    for file in index.files:
        if _has_keys(files, covered_to, file.begin_physical_offset):
            return max(covered_to, 0)
        covered_to = max(covered_to, file.end_physical_offset)
    return max(covered_to, 0) if _has_keys(files, covered_to, files.max_offset) else None


def _has_keys(files: MappedFileQueue, after: int, end: int) -> bool:
    """Whether a record behind the one at `after` and before `end` has a key that should be in the index."""
    for window in LogScan(files, max(after, files.min_offset), check_crc=False) if after + 1 < end else ():
        begins = window.physical_offsets
        keyed = (window.property_spans(b"KEYS")[0] >= 0) | (window.property_spans(b"UNIQ_KEY")[0] >= 0)
        if (keyed & (begins > after) & (begins < end)).any():
            return True
        if int(begins[-1]) >= end:
            break
    return False


def drop_cut_index_files(disk: Disk, index: IndexService, known_file_size: int) -> list[str]:
    """Before the index is loaded: delete files that were cut short; what was done, in words.

    What tells a cut file from a wrong configuration is as in `complete_log_files`, and whether a file can have that size.
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


def properties_parse(files: MappedFileQueue, physical_offset: int) -> bool:
    """Whether the properties of the record there are entries with names, without zero bytes."""
    file = files.file_at(physical_offset)
    assert file is not None
    position = physical_offset - file.start_offset
    size, _, topic_start, topic_size = bounds(file.view, position)
    properties = bytes(file.view[topic_start + topic_size + 2 : position + size])
    entries = properties.split(PROPERTY_SEPARATOR.encode())
    return 0 not in properties and all(entry.find(NAME_VALUE_SEPARATOR.encode()) > 0 for entry in entries if entry)


def written_to(files: MappedFileQueue, start: int) -> int:
    """Behind the log's last byte from `start` on that is not zero."""
    for file in reversed(files.files):
        begin = max(start - file.start_offset, 0)
        for position in range((file.size - 1) // _SEARCHED_MAX * _SEARCHED_MAX, begin - _SEARCHED_MAX, -_SEARCHED_MAX):
            block = file.array[max(position, begin) : position + _SEARCHED_MAX]
            if block.any():
                return file.start_offset + max(position, begin) + int(block.nonzero()[0][-1]) + 1
    return start


def _no_tags_code(topic: str, properties: dict[str, str], store_timestamp_ms: int) -> int:
    return 0


def complete_log_files(files: MappedFileQueue, known_file_size: int) -> list[str]:
    """Before the log is loaded: give files that were cut short their length again, with zeros; what was done, in words.

    That a file is cut, and not the configured size wrong, is told by its neighbours or by the last stop. Raises OSError.
    """
    disk, file_size = files.disk, files.file_size
    paths = [
        f"{directory}/{name}"
        for directory in files.directories
        for name in disk.listdir(directory)
        if len(name) == FILE_NAME_SIZE and name.isdecimal()
    ]
    paths.sort(key=lambda path: path.rpartition("/")[2])
    sizes = [disk.size(path) for path in paths]
    if sizes and sizes[-1] == 0:
        sizes.pop()  # just created: nothing is missed
    done: list[str] = []
    is_configured = file_size in sizes or file_size == known_file_size
    for path, size in zip(paths, sizes, strict=False):
        # An empty one between others is what a power cut leaves of a file whose length was not synced.
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
            done.append(f"{path} had {size} of {file_size} bytes; zeros stand for the rest")
    return done

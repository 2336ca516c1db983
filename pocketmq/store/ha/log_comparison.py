"""Comparison of a slave's log with its master's: whether they have diverged, and at which record.

Records of the other log are requested one by one. Up to the point at which they diverged, one log is a copy of the other, so
they are equal before any equal record, and the first record that differs is found by binary search.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

import numpy as np

from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.host import host_text
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_STRUCT
from pocketmq.store.format.record import BadRecordError, Record, bounds, decode_record, is_blank
from pocketmq.store.offline.log_walk import LogWalk

RecordAt = Callable[[int], Awaitable[bytes | None]]
"""Returns the other log's record at a physical offset, None if it has none there."""


class LogDivergedError(Exception):
    """The logs differ from the record at `physical_offset` on.

    `is_master_older`: the master stored the differing records itself and has lost them (`is_lost_by_other`).
    """

    def __init__(self, physical_offset: int, end_offset: int, is_master_older: bool = False) -> None:
        text = f"they differ from {physical_offset} on, and this one ends at {end_offset}. Nothing is copied. "
        if is_master_older:
            text = (
                f"the master's log is older than this one: {text}The master itself stored these messages and has lost them: "
                "its store is an older copy, or lost its end in a power cut. They may be acknowledged, so do not cut this "
                "log: stop the master and start this store as the master"
            )
        else:
            text = (
                f"this log has diverged from the master's: {text}"
                "`pocketmq store rejoin` cuts this log there and saves the rest in quarantine/"
            )
        super().__init__(text)
        self.physical_offset = physical_offset


async def is_same(files: MappedFileQueue, physical_offset: int, record_at: RecordAt) -> bool:
    """Return whether both logs have the same record at `physical_offset`."""
    own = _record(files, physical_offset)
    return own is not None and await record_at(physical_offset) == own


async def tail_differs_at(
    files: MappedFileQueue, last_record: int, record_at: RecordAt, end_of_other: Callable[[], Awaitable[int]]
) -> int | None:
    """Return the physical offset, after the last common record, from which this log differs from the other; None if equal.

    This log may continue with further records, an incomplete record, and the BLANK mark at the end of a file. The other log
    may lack them, because a master may lose in a power cut what it had already sent. `last_record` is the physical offset of
    a record that both logs have; -1: they have none.
    """
    at, end = (
        files.min_offset if last_record < 0 else last_record + len(_record(files, last_record) or b""),
        files.max_offset,
    )
    while at < end and (file := files.file_at(at)) is not None:
        place = at - file.start_offset
        own = file.view[place : file.wrote]
        record = await record_at(at)
        if record is not None:
            if own[: len(record)] != record[: len(own)]:
                return at
            at += len(record)
            continue
        filler = BLANK_STRUCT.pack(file.size - place, BLANK_MAGIC_CODE)[: len(own)]
        at_next = file.start_offset + file.size
        if own[: len(filler)] != filler or await end_of_other() < min(at_next, end):
            return at
        at = at_next
    return None


async def diverged_at(
    files: MappedFileQueue, record_offsets: Callable[[int], Awaitable[Sequence[int]]], record_at: RecordAt
) -> int:
    """Return the physical offset up to which the logs are equal: the end of the last common record.

    `record_offsets(start)` returns the offsets of the records of one file; this log is known to differ in its last record.
    """
    starts = [file.start_offset for file in files.files]
    count = await _equal_count(files, starts, record_at)
    if not count:
        return starts[0]
    offsets = await record_offsets(starts[count - 1])
    equal = await _equal_count(files, offsets, record_at)
    # Not the beginning of the next record: there may be a BLANK mark between them, which the other log may lack.
    last = int(offsets[equal - 1])
    return last + len(_record(files, last) or b"")


async def is_lost_by_other(
    files: MappedFileQueue, physical_offset: int, record_at: RecordAt, addresses: Collection[str]
) -> bool:
    """Return whether the other broker, with the given `addresses`, itself stored what this log has from where they differ.

    Each record names the broker that stored it. A former master's own records, which its successor never had, name the
    former master. If they name the other broker, then that broker's log was set back: it is an older copy, or lost its end
    in a power cut. Likewise if the other's record at the same offset names the same broker, which stored it later.
    """
    file = files.file_at(physical_offset)
    if file is not None and is_blank(file.view[: file.wrote], physical_offset - file.start_offset):
        physical_offset = file.start_offset + file.size
    own, others = _decoded(_record(files, physical_offset)), _decoded(await record_at(physical_offset))
    if own is None:
        return False
    if others is None:
        return host_text(own.store_host) in addresses
    return own.store_host == others.store_host and own.store_timestamp_ms < others.store_timestamp_ms


def _decoded(record: bytes | None) -> Record | None:
    try:
        return None if record is None else decode_record(memoryview(record))
    except BadRecordError:
        return None


async def _equal_count(files: MappedFileQueue, offsets: Sequence[int], record_at: RecordAt) -> int:
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if await is_same(files, int(offsets[middle]), record_at):
            low = middle + 1
        else:
            high = middle
    return low


def offsets_in_file(files: MappedFileQueue, start_offset: int) -> Sequence[int]:
    """Return the physical offsets of the records in the file that begins at `start_offset`."""
    found = []
    for window in LogWalk(files, start_offset, check_crc=False):
        offsets = window.physical_offsets
        found.append(offsets[offsets < start_offset + files.file_size].copy())
        if len(found[-1]) < len(offsets):
            break
    return np.concatenate(found).tolist() if found else []


def _record(files: MappedFileQueue, physical_offset: int) -> bytes | None:
    file = files.file_at(physical_offset)
    if file is None:
        return None
    at = physical_offset - file.start_offset
    try:
        size = bounds(file.view[: file.wrote], at)[0]
    except BadRecordError:
        return None
    return bytes(file.view[at : at + size])

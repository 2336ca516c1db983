"""Stores with the same log: of the records that several of them have, each is read once.

A slave's log is a copy of its master's, byte for byte at the same physical offsets; so is a backup of a store. Retention
deletes files of each by itself, a slave may be behind, and after a master lost its newest records in a crash its slave may
have other ones at the same offsets. So no part of a log is left out because its store looks like another's copy. A record
is left out if another of the stores has the same bytes at the same physical offset, in the part of its log that is read:

- in a batch, up to the end of an earlier log (in the order of the folders' names);
- in a micro-batch, additionally all that was consumed before of a later log.

Only logs are compared that have the same record at the beginning of a file: the first or the last file that both have. So
logs of different brokers are not.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pocketmq.spark_analytics.decoding.columns import Records
from pocketmq.spark_analytics.reading.log_tail import LogTail
from pocketmq.spark_analytics.reading.reader import read_picked
from pocketmq.spark_analytics.reading.split import Copy, Split
from pocketmq.spark_analytics.reading.split_planning import full_end
from pocketmq.store.format.record_chain import MARK_SIZE, Positions, record_candidates
from pocketmq.store.format.record_window import Mask
from pocketmq.store.offline.places import LogFile, log_files

log = logging.getLogger(__name__)

# Bytes of a record that are compared to recognise a log.
HEAD_SIZE: Final = 4 << 10
# By the physical offset of the file.
Copies = Mapping[int, Copy]


def without_copies(logs: Sequence[tuple[list[LogFile], list[Split]]]) -> list[Split]:
    """Return the splits of some logs, each with the copies of its records in earlier logs. Raises OSError."""
    copies = [_copies_of(splits) for _, splits in logs]
    marked = []
    for index, (files, splits) in enumerate(logs):
        earlier = zip(logs[:index], copies, strict=False)
        own = [found for (others, _), found in earlier if found and have_same_log(files, others)]
        marked += with_copies(splits, own)
    return marked


def _copies_of(splits: Iterable[Split]) -> Copies:
    ends: dict[int, Copy] = {}
    for split in splits:
        begin = split.file.start_offset
        if not split.lost and (begin not in ends or ends[begin].stop < split.end):
            ends[begin] = Copy(split.file, split.end)
    return ends


def with_copies(splits: Iterable[Split], others: Sequence[Copies]) -> list[Split]:
    """Return splits with the copies of their files in other logs."""
    marked = []
    for split in splits:
        begin = split.file.start_offset
        copies = tuple(own[begin] for own in others if begin in own)
        marked.append(replace(split, copies=copies) if copies and not split.lost else split)
    return marked


def copies_between(files: Iterable[LogFile], begin: int, end: int, limit: int) -> Copies:
    """Return a log's files with records between two physical offsets, as far as its records before `limit` go."""
    copies = {}
    for file in files:
        if file.end_offset > begin and file.start_offset < min(end, limit):
            stop = full_end(file, 0) if limit >= file.end_offset else limit - file.start_offset
            copies[file.start_offset] = Copy(file, stop)
    return copies


def have_same_log(files: Iterable[LogFile], others: Iterable[LogFile]) -> bool:
    """Return whether two logs begin with the same record: in the first or the last file that both have."""
    by_offset = {file.start_offset: file for file in others}
    both = [(file, by_offset[file.start_offset]) for file in files if file.start_offset in by_offset]
    is_same = any(_begin_alike(*pair) for pair in ((both[0], both[-1]) if both else ()))
    if is_same:
        log.info("%s and %s have the same log: each record is read once", both[0][0].folder, both[0][1].folder)
    return is_same


def _begin_alike(file: LogFile, other: LogFile) -> bool:
    head = _head(file)
    return len(head) > 0 and head == _head(other)


def _head(file: LogFile) -> bytes:
    """Return the first bytes of a file's first record; empty if the file does not begin with a record."""
    data = file.read(0, HEAD_SIZE)
    if len(data) < MARK_SIZE or not len(record_candidates(data[:MARK_SIZE], file.start_offset)):
        return b""
    head = data.tobytes()
    return head[: int.from_bytes(head[:4], "big")]


def one_of_each_log(roots: Iterable[str]) -> list[str]:
    """Return some stores without those whose log another has: of each log the store in which it goes furthest."""
    kept: list[tuple[int, str, list[LogFile]]] = []
    for root in roots:
        files = log_files(root)
        own = (LogTail().follow(files), root, files)
        same = next((place for place, (_, _, others) in enumerate(kept) if have_same_log(files, others)), None)
        if same is None:
            kept.append(own)
        elif own[0] > kept[same][0]:
            kept[same] = own
    return [root for _, root, _ in kept]


def only_here(records: Records, split: Split, copy: Copy) -> Records:
    """Return the records of a split's window that a copy does not have. Raises MissingFileError, OSError."""
    starts = records.physical_offsets - split.file.start_offset
    count = int(np.searchsorted(starts, copy.stop))
    if not count:
        return records
    is_copied = np.zeros(len(records), bool)
    is_copied[:count] = _is_copied(records, starts[:count], copy)
    return records.rows(~is_copied)


def _is_copied(records: Records, starts: Positions, copy: Copy) -> Mask:
    count, sizes = len(starts), records.sizes[: len(starts)]
    data = read_picked(copy.file, starts, sizes)
    shift = int(records.starts[0] - starts[0])
    begin, stop = int(starts[0]), int(starts[-1] + sizes[-1])
    # Without gaps, all records can be compared at once.
    if int(sizes.sum()) == stop - begin and np.array_equal(data, records.data[begin + shift : stop + shift]):
        return np.ones(count, np.bool_)
    return np.fromiter(
        (
            data[start - begin : start - begin + size].tobytes() == records.data[start + shift :][:size].tobytes()
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ),
        np.bool_,
        count,
    )

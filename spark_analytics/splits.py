"""Where a log ends, and how it is cut for tasks.

A task begins at the first place of its split that looks like a record. That is sure only in front of the log's end: behind
it, after a truncation, whole old records may lie, each at the offset that it claims. So the driver finds the end first. For
the file that is being written it follows the chain from the file's first byte (about 2 GB/s), or from a record of which
somebody knows that it belongs to the log. A file that is already full ends at its BLANK, and old bytes can only lie behind
that: a walk over the file's last part finds it. (In such a file a body that holds the image of a record, made for the very
offset at which it then came to lie, could mislead a task that begins right before it; no accident makes one.)

A file is full if one behind it begins with a record. What is broken in it is damage, and nothing that ends the log.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from spark_analytics.places import LogFile, begins_with_record, open_file, read_at
from spark_analytics.pruning import Pruning
from spark_analytics.reader import WINDOW_SIZE_FIRST, Ending, Walk, next_candidate
from store.record import SECTOR_SIZE, BadRecordError, check_record
from store.record_chain import Positions

log = logging.getLogger(__name__)

# What a full file wastes is less than one record or batch: 4 MiB unless somebody raised maxMessageSize.
FULL_FILE_TAIL: Final = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The records of a file that begin in [begin, stop), positions from the file's first byte.

    `end` is where the log ends in this file, as far as it is known: up to there one record follows the other. With
    `starts`, ascending positions, and `sizes` it is only the records there.
    """

    file: LogFile
    begin: int
    stop: int
    end: int
    starts: Positions | None = None
    sizes: Positions | None = None


def logs(files: list[LogFile]) -> Iterator[list[LogFile]]:
    """Runs of files in one folder, each beginning where the one before ends."""
    chain: list[LogFile] = []
    for file in files:
        if chain and (chain[-1].folder != file.folder or chain[-1].end != file.physical_offset):
            yield chain
            chain = []
        chain.append(file)
    if chain:
        yield chain


def plan(files: list[LogFile], pruning: Pruning, split_size: int, begin: int = 0, known: int = 0) -> list[Split]:
    """Cut one log into splits of about `split_size` bytes.

    `begin` and `known` are physical offsets of records that belong to the log for sure: what is before `begin` is left
    out, and behind `known` the end is looked for. Raises OSError.
    """
    splits: list[Split] = []
    first = next((index for index, file in enumerate(files) if file.end > begin), len(files))
    known = max(begin, known)
    last = next((index for index in reversed(range(len(files))) if index == first or begins_with_record(files[index])), -1)
    for index, file in enumerate(files[first : last + 1], first):
        successor = files[index + 1] if index < last else None
        if not pruning.wants_file(file, successor):
            continue
        start = max(begin - file.physical_offset, 0)
        if successor is not None:
            end = full_end(file, start)
            cuts = [*range(start, end, split_size), end]
        else:
            sure = known - file.physical_offset if file.physical_offset <= known < file.end else start
            cuts = [*range(start, sure, split_size), *_followed_cuts(file, sure, split_size)]
        end = cuts[-1]
        low, high = pruning.narrow(file, cuts[0], end)
        cuts = [low, *(cut for cut in cuts if low < cut < high), high]
        splits += [Split(file, cut, stop, end) for cut, stop in pairwise(cuts) if cut < stop]
    return splits


def _followed_cuts(file: LogFile, begin: int, split_size: int) -> list[int]:
    """Follow the chain of the log's last file from the record at `begin`.

    The last cut is the end of the last complete record, the others are the record starts next to multiples of `split_size`.
    """
    walk = Walk(file, begin, file.size, first_size=WINDOW_SIZE_FIRST)
    cuts = [begin]
    last = begin
    for window in walk:
        starts = window.starts + (window.physical_offset - file.physical_offset)
        last = int(starts[-1])
        while cuts[-1] + split_size <= last:
            cuts.append(int(starts[np.searchsorted(starts, cuts[-1] + split_size)]))
    end = walk.position
    if walk.ending is not Ending.BLANK and last < end:
        # No next header vouches for the last record: it is in the log if a broker's recovery would keep it.
        aligned = last - last % SECTOR_SIZE
        with open_file(file.path) as stream:
            data = read_at(stream, aligned, end - aligned)
        try:
            check_record(memoryview(data.tobytes()), last - aligned, file.physical_offset + last)
        except BadRecordError as error:
            log.info("the last record of %s, at %d, is torn: %s", file.path, last, error)
            end = last
    return [cut for cut in cuts if cut < end] + [end]


def full_end(file: LogFile, begin: int) -> int:
    """Where the records of a file that another one follows end: at its BLANK, or, if that is damaged, anywhere."""
    if file.size - begin > FULL_FILE_TAIL:
        end = _blank_behind(file, file.size - FULL_FILE_TAIL)
        if end is not None:
            return end
    position: int | None = begin
    while position is not None:
        walk = _walked(file, position)
        if walk.ending is Ending.BLANK:
            return walk.position
        position = next_candidate(file, walk.position + 1, file.size)
    return file.size


def _blank_behind(file: LogFile, position: int) -> int | None:
    """Where the BLANK is to which the chain leads from the first record behind a position, if it does."""
    candidate = next_candidate(file, position, file.size)
    walk = None if candidate is None else _walked(file, candidate)
    return walk.position if walk is not None and walk.ending is Ending.BLANK else None


def _walked(file: LogFile, begin: int) -> Walk:
    walk = Walk(file, begin, file.size)
    for _ in walk:
        pass
    return walk

"""Where a log ends, and how it is cut for tasks.

A task begins at the first place of its split that looks like a record. That is sure only in front of the log's end: behind
it, after a truncation, whole old records may lie, each at the offset that it claims. So the driver finds the end first. For
the file that is being written it follows the chain from the file's first byte (about 2 GB/s), or from a record of which
somebody knows that it belongs to the log. A file that is already full ends at its BLANK, and old bytes can only lie behind
that: a walk over the file's last part finds it. (In such a file a body that holds the image of a record, made for the very
offset at which it then came to lie, could mislead a task that begins right before it; no accident makes one.)

A file is full if one behind it begins with a record. What is broken in it is damage, and nothing that ends the log. So is
what is not there at all: a file that was cut short, or is missing, between two others. Of files that somebody named himself,
by a list or a glob, some may be left out on purpose; only that one is too short for its place is damage then.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

import numpy as np

from pocketmq.spark_analytics.places import LogFile, begins_with_record, open_file, read_at
from pocketmq.spark_analytics.pruning import Pruning
from pocketmq.spark_analytics.reader import WINDOW_SIZE_FIRST, Ending, Walk, is_blank, next_candidate
from pocketmq.store.format.layout import BLANK_SIZE
from pocketmq.store.format.record import SECTOR_SIZE, BadRecordError, check_record
from pocketmq.store.format.record_chain import Positions

log = logging.getLogger(__name__)

# What a full file wastes is less than one record or batch: 4 MiB unless somebody raised maxMessageSize.
FULL_FILE_TAIL: Final = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The records of a file that begin in [begin, stop), positions from the file's first byte.

    `end` is where the log ends in this file, as far as it is known: up to there one record follows the other. With
    `starts`, ascending positions, and `sizes` it is only the records there. With `lost` there are none, though there were:
    it tells what became of them.
    """

    file: LogFile
    begin: int
    stop: int
    end: int
    starts: Positions | None = None
    sizes: Positions | None = None
    lost: str = ""


def logs(files: list[LogFile]) -> Iterator[list[LogFile]]:
    """Runs of files in one folder, each beginning where the one before ends, or where it had to end."""
    by_folder = [list(own) for _, own in groupby(files, lambda file: file.folder)]
    starts = [{file.physical_offset for file in own} for own in by_folder]
    for own, own_starts in zip(by_folder, starts, strict=True):
        size_max = max(file.size for file in own)
        # A broker may spread its log over folders (storePathCommitLog): what one lacks, another has.
        elsewhere = set().union(*(others for others in starts if not others & own_starts))
        chain = own[:1]
        for file in own[1:]:
            extent = file.physical_offset - chain[-1].physical_offset
            is_cut = file.is_listed or extent <= size_max
            if chain[-1].end > file.physical_offset or (
                chain[-1].end < file.physical_offset and (not is_cut or chain[-1].end in elsewhere)
            ):
                yield chain
                chain = []
            chain.append(file)
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
        lost: Split | None = None
        if successor is not None:
            if file.end == successor.physical_offset:
                end = full_end(file, start)
            else:
                end, lost_from = _ends_before_gap(file, start, successor.physical_offset - file.physical_offset)
                lost = lost_split(files, index, lost_from, pruning)
            cuts = [*range(start, end, split_size), end]
        else:
            sure = known - file.physical_offset if file.physical_offset <= known < file.end else start
            cuts = [*range(start, sure, split_size), *_followed_cuts(file, sure, split_size)]
        end = cuts[-1]
        low, high = pruning.narrow(file, cuts[0], end)
        cuts = [low, *(cut for cut in cuts if low < cut < high), high]
        splits += [Split(file, cut, stop, end) for cut, stop in pairwise(cuts) if cut < stop]
        if lost is not None:
            splits.append(lost)
    return splits


def lost_split(files: list[LogFile], index: int, position: int, pruning: Pruning) -> Split | None:
    """What is lost of a log from a position in its file `index` up to the next file, as far as it is wanted."""
    file, successor = files[index], files[index + 1]
    extent = successor.physical_offset - file.physical_offset
    size = min(extent, max(file.size for file in files))
    begin = max(position, pruning.physical_offsets.low - file.physical_offset)
    stop = min(extent, pruning.physical_offsets.high + 1 - file.physical_offset)
    why = (
        f"records up to physical offset {successor.physical_offset} are lost: the file has {file.size} bytes of {size}, "
        "and the next one begins there"
    )
    return Split(file, begin, stop, stop, lost=why) if begin < stop else None


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


def _ends_before_gap(file: LogFile, begin: int, extent: int) -> tuple[int, int]:
    """Positions (where the records of a file end, from where on some are lost), if the next file begins at `extent`."""
    # From its beginning only if no record begins in its tail.
    position = next_candidate(file, max(begin, file.size - FULL_FILE_TAIL), file.size)
    position = begin if position is None else position
    end = begin
    while position is not None:
        walk = _walked(file, position)
        end = walk.position
        if walk.ending is Ending.BLANK:
            return end, file.size
        position = next_candidate(file, end + 1, file.size)
    with open_file(file.path) as stream:
        rest = read_at(stream, end, BLANK_SIZE)
    # Cut within what fills a file, it has lost nothing.
    is_full = len(rest) == BLANK_SIZE and is_blank(rest, extent - end)
    return end, extent if is_full else end


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

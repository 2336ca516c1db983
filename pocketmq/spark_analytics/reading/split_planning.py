"""Split planning: finds the end of a log and cuts the log into splits, one per task.

A task starts at the first position in its split that looks like a record. This is safe only before the end of the log:
behind it, after a truncation, intact old records may lie, each at the offset it claims. So the driver finds the end first,
by the rule of `log_end`. A full file ends at its BLANK, and old bytes can lie only behind that: a walk over the file's last
part finds it. (In a full file, a body that contains the image of a record, made for exactly the offset at which it was
stored, could mislead a task that starts right before it; this does not happen by accident.)

A file is full if a later file begins with a record. Invalid bytes in a full file are damage and do not end the log. A file
between two others that is truncated or missing is damage, too. If files were named by the user, in a list or by a glob, some
may be left out on purpose; then only a file that is too short for its place counts as damage.
"""

import logging
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Final

from pocketmq.spark_analytics.reading.log_end import cuts_to_end
from pocketmq.spark_analytics.reading.pruning import Pruning
from pocketmq.spark_analytics.reading.split import Split
from pocketmq.store.offline.log_walk import Ending, FileWalk, has_record, is_blank, next_candidate, read_mark, walks
from pocketmq.store.offline.places import LogFile
from pocketmq.store.offline.store_folder import MissingFileError

log = logging.getLogger(__name__)

# The unused rest of a full file is smaller than one record or batch: 4 MiB unless maxMessageSize was raised.
FULL_FILE_TAIL: Final = 64 << 20


def logs(files: list[LogFile]) -> Iterator[list[LogFile]]:
    """Yield runs of files in one folder, each file beginning where the previous one ends or should have ended."""
    by_folder = [list(own) for _, own in groupby(files, lambda file: file.folder)]
    starts = [{file.start_offset for file in own} for own in by_folder]
    for own, own_starts in zip(by_folder, starts, strict=True):
        size_max = max(file.size for file in own)
        # A broker may spread its log over several folders (storePathCommitLog): files missing in one are in another.
        elsewhere = set().union(*(others for others in starts if not others & own_starts))
        chain = own[:1]
        for file in own[1:]:
            extent = file.start_offset - chain[-1].start_offset
            is_cut = file.is_listed or extent <= size_max
            if chain[-1].end_offset > file.start_offset or (
                chain[-1].end_offset < file.start_offset and (not is_cut or chain[-1].end_offset in elsewhere)
            ):
                yield chain
                chain = []
            chain.append(file)
        yield chain


def plan(files: list[LogFile], pruning: Pruning, split_size: int, begin: int = 0, known: int = 0) -> list[Split]:
    """Cut one log into splits of about `split_size` bytes.

    `begin` and `known` are physical offsets of records known to belong to the log: records before `begin` are skipped, and
    the end of the log is searched behind `known`. Raises OSError.
    """
    splits: list[Split] = []
    first = next((index for index, file in enumerate(files) if file.end_offset > begin), len(files))
    known = max(begin, known)
    last = next((index for index in reversed(range(len(files))) if index == first or begins_with_record(files[index])), -1)
    for index, file in enumerate(files[first : last + 1], first):
        successor = files[index + 1] if index < last else None
        if not pruning.wants_file(file, successor):
            continue
        start = max(begin - file.start_offset, 0)
        lost: list[Split] = []
        if successor is not None:
            end, lost_from = records_end(files, index, start)
            lost = [] if lost_from is None else lost_splits(files, index, lost_from, pruning)
            cuts = [*range(start, end, split_size), end]
        else:
            is_proven = known > 0 and file.start_offset <= known < file.end_offset
            sure = known - file.start_offset if is_proven else start
            cuts = [*range(start, sure, split_size), *cuts_to_end(file, sure, split_size, is_proven)]
        end = cuts[-1]
        low, high = pruning.narrow(file, cuts[0], end)
        cuts = [low, *(cut for cut in cuts if low < cut < high), high]
        splits += [Split(file, cut, stop, end) for cut, stop in pairwise(cuts) if cut < stop]
        splits += lost
    return splits


def begins_with_record(file: LogFile) -> bool:
    """Return whether a file begins with a record; False if the file has been deleted."""
    try:
        return has_record(file, 0)
    except MissingFileError as error:
        log.warning("%s", error)
        return False


def lost_splits(files: list[LogFile], index: int, position: int, pruning: Pruning) -> list[Split]:
    """Return the split for the bytes lost between `position` in file `index` and the next file; none if not wanted."""
    file, successor = files[index], files[index + 1]
    extent = successor.start_offset - file.start_offset
    size = min(extent, max(file.size for file in files))
    begin = max(position, pruning.physical_offsets.low - file.start_offset)
    stop = min(extent, pruning.physical_offsets.high + 1 - file.start_offset)
    why = (
        f"records up to physical offset {successor.start_offset} are lost: the file has {file.size} of {size} bytes, "
        "and the next file begins there"
    )
    return [Split(file, begin, stop, stop, lost=why)] if begin < stop else []


def records_end(files: list[LogFile], index: int, begin: int) -> tuple[int, int | None]:
    """Return where the records of a file that is not the log's last one end, and where the bytes begin that it has lost."""
    file, successor = files[index], files[index + 1]
    if file.end_offset == successor.start_offset:
        return full_end(file, begin), None
    return _ends_before_gap(file, begin, successor.start_offset - file.start_offset)


def full_end(file: LogFile, begin: int) -> int:
    """Return the end of the records in a full file: the position of its BLANK, or the file's size if that is damaged."""
    if file.size - begin > FULL_FILE_TAIL:
        candidate = next_candidate(file, file.size - FULL_FILE_TAIL, file.size)
        if candidate is not None and (walk := FileWalk(file, candidate, file.size).to_end()).ending is Ending.BLANK:
            return walk.position
    full = (walk.position for walk in walks(file, begin, file.size) if walk.to_end().ending is Ending.BLANK)
    return next(full, file.size)


def _ends_before_gap(file: LogFile, begin: int, extent: int) -> tuple[int, int]:
    """Return (end of the records of a file, start of the lost bytes) for a file whose successor begins at `extent`."""
    # Walk from the beginning only if no record begins in the file's tail.
    candidate = next_candidate(file, max(begin, file.size - FULL_FILE_TAIL), file.size)
    end = begin
    for walk in walks(file, begin if candidate is None else candidate, file.size):
        end = walk.to_end().position
        if walk.ending is Ending.BLANK:
            return end, file.size
    # If the file was cut within its BLANK, no record is lost.
    return end, extent if is_blank(read_mark(file, end), extent - end) else end

"""Which files make up a store's log, where it ends, and how it is cut for tasks.

A task begins at the first place of its split that looks like a record. That is sure only in front of the log's end: behind
it, after a truncation, whole old records may lie, each at the offset that it claims. So the driver finds the end first. For
the file that is being written it follows the chain from the file's first byte (about 2 GB/s). A file that is already full
ends at its BLANK, and old bytes can only lie behind that: a walk over the file's last part finds it. (In such a
file a body that holds the image of a record, made for the very offset at which it then came to lie, could mislead a task
that begins right before it; no accident makes one.)
"""

import glob
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from spark_analytics.reader import (
    Ending,
    LogFile,
    Walk,
    next_candidate,
    read_at,
)
from store.layout import PHYSICAL_OFFSET_POSITION
from store.record import SECTOR_SIZE, BadRecordError, check_record
from store.record_chain import MARK_SIZE, record_candidates

log = logging.getLogger(__name__)

SPLIT_SIZE: Final = 128 << 20
# What a full file wastes is less than one record or batch: 4 MiB unless somebody raised maxMessageSize.
FULL_FILE_TAIL: Final = 64 << 20
FILE_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Split:
    """The records of a file that begin in [begin, stop), positions from the file's first byte."""

    file: LogFile
    begin: int
    stop: int


def log_files(path: str) -> list[LogFile]:
    """The CommitLog files that `path` names, ascending in folder and physical offset.

    `path` is a store's root, a commitlog folder, one file, or a glob of these. Raises FileNotFoundError, which says what was
    looked for, when there is nothing there or no commit log in it. A commit log without files is an empty list.
    """
    path = os.path.expanduser(path.removeprefix("file://").removeprefix("file:"))
    named = [path] if os.path.exists(path) else sorted(glob.glob(path))
    if not named:
        raise FileNotFoundError(f"no store at {path}: no such file or folder")
    files = [file for name in named for file in _files_of(name)]
    return sorted(set(files), key=lambda file: (os.path.dirname(file.path), file.physical_offset))


def _files_of(path: str) -> Iterator[LogFile]:
    if os.path.isfile(path):
        yield _named_file(path)
        return
    folder = os.path.join(path, "commitlog")
    if not os.path.isdir(folder):
        folder = path
    names = [name for name in os.listdir(folder) if _is_log_name(name)]
    if not names and folder == path and os.path.basename(os.path.normpath(path)) != "commitlog":
        raise FileNotFoundError(f"no commit log in {path}: neither a folder `commitlog` nor files named by 20 digits")
    for name in names:
        file = os.path.join(folder, name)
        yield LogFile(file, int(name), os.path.getsize(file))


def _is_log_name(name: str) -> bool:
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def _named_file(path: str) -> LogFile:
    """A file that was asked for by name: under another name than the broker's its first record tells its offset."""
    name = os.path.basename(path)
    if _is_log_name(name):
        return LogFile(path, int(name), os.path.getsize(path))
    with open(path, "rb", buffering=0) as stream:
        mark = read_at(stream, 0, MARK_SIZE).tobytes()
    file = LogFile(path, int.from_bytes(mark[PHYSICAL_OFFSET_POSITION:MARK_SIZE], "big"), os.path.getsize(path))
    if not _begins_with_record(file):
        raise FileNotFoundError(f"{path} is no CommitLog file: no record at its first byte")
    return file


def plan(files: list[LogFile], split_size: int = SPLIT_SIZE) -> list[Split]:
    """Cut the logs that `files` hold into splits of about `split_size` bytes."""
    splits: list[Split] = []
    for chain in _chains(files):
        for file, successor in zip(chain, [*chain[1:], None], strict=True):
            if not _begins_with_record(file):
                break
            followed = successor is not None and _begins_with_record(successor)
            cuts, ending = _full_end(file, split_size) if followed else _followed_end(file, split_size)
            splits += [Split(file, begin, stop) for begin, stop in pairwise(cuts)]
            if followed and ending is not Ending.BLANK:
                log.warning("the log breaks off at %d of %s: the files behind are left out", cuts[-1], file.path)
                break
    return splits


def _chains(files: list[LogFile]) -> Iterator[list[LogFile]]:
    """Runs of files in one folder, each beginning where the one before ends."""
    chain: list[LogFile] = []
    for file in files:
        if chain and (
            os.path.dirname(chain[-1].path) != os.path.dirname(file.path)
            or chain[-1].physical_offset + chain[-1].size != file.physical_offset
        ):
            yield chain
            chain = []
        chain.append(file)
    if chain:
        yield chain


def _begins_with_record(file: LogFile) -> bool:
    with open(file.path, "rb", buffering=0) as stream:
        return len(record_candidates(read_at(stream, 0, MARK_SIZE), file.physical_offset)) > 0


def _followed_end(file: LogFile, split_size: int) -> tuple[list[int], Ending]:
    """Follow the file's chain from its first byte: (cuts, why the log ends there).

    The last cut is the end of the last complete record, the others are the record starts next to multiples of `split_size`.
    """
    walk = Walk(file, 0, file.size)
    cuts = [0]
    last = 0
    for window in walk:
        starts = window.starts + (window.physical_offset - file.physical_offset)
        last = int(starts[-1])
        while cuts[-1] + split_size <= last:
            cuts.append(int(starts[np.searchsorted(starts, cuts[-1] + split_size)]))
    end = walk.position
    if walk.ending is not Ending.BLANK:
        # No next header vouches for the last record: it is in the log if a broker's recovery would keep it.
        aligned = last - last % SECTOR_SIZE
        with open(file.path, "rb", buffering=0) as stream:
            data = read_at(stream, aligned, end - aligned)
        try:
            check_record(memoryview(data.tobytes()), last - aligned, file.physical_offset + last)
        except BadRecordError as error:
            log.info("the last record of %s, at %d, is torn: %s", file.path, last, error)
            end = last
    return [cut for cut in cuts if cut < end] + [end], walk.ending


def _full_end(file: LogFile, split_size: int) -> tuple[list[int], Ending]:
    """As `_followed_end`, for a file that another one follows: only its last part is walked, if that leads to a BLANK.

    The cuts are then plain multiples of `split_size`, and a task takes the first candidate from there on.
    """
    if file.size > FULL_FILE_TAIL:
        begin = next_candidate(file, file.size - FULL_FILE_TAIL, file.size)
        if begin is not None:
            walk = Walk(file, begin, file.size)
            for _ in walk:
                pass
            if walk.ending is Ending.BLANK:
                return [*range(0, walk.position, split_size), walk.position], walk.ending
    return _followed_end(file, split_size)


def first_record(split: Split) -> int | None:
    """Position of the first record that begins in a split, or None: a large one may cover all of it."""
    return 0 if split.begin == 0 else next_candidate(split.file, split.begin, split.stop)
